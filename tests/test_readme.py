"""The README is true: its commands parse, its Python runs, its numbers are those of the catalogue."""

import re
import shlex
from collections import Counter
from pathlib import Path

import pytest
import torch
import typer
from torch import nn

from davylamp import cli
from davylamp.adapters import IMPLEMENTATIONS
from davylamp.metrics import METRICS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [
    re.split("#| > ", line)[0].strip()
    for language, block in BLOCKS
    for line in block.splitlines()
    if not language and line.startswith("davylamp ")
]


def test_every_command_is_in_the_readme():
    names = {command.name for command in cli.app.registered_commands}
    shown = {line.split()[1] for line in COMMANDS} | set(re.findall(r"`davylamp (\w+)", README))
    assert names <= shown | {"quickstart"}
    assert "make quickstart" in README


@pytest.mark.parametrize("line", COMMANDS)
def test_the_commands_parse(line):
    command = typer.main.get_command(cli.app)
    _, name, *arguments = shlex.split(line)
    parsed = command.commands[name].make_context(name, arguments)
    attack = parsed.params.get("attack")
    assert attack is None or any(row.attack == attack for row in IMPLEMENTATIONS.values())


def test_the_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 5)).requires_grad_(False)
    inputs = torch.rand(4, 3, 8, 8, generator=generator)
    logits = model(inputs)
    labels = logits.argmax(1)
    names = {"model": model, "inputs": inputs, "labels": labels, "logits": logits, "adv_logits": logits.flip(0)}
    blocks = [block for language, block in BLOCKS if language == "python"]
    assert len(blocks) >= 2
    for block in blocks:
        scope = dict(names)
        code = block.replace("[0.485, 0.456, 0.406]", "[0.0] * 3").replace("[0.229, 0.224, 0.225]", "[1.0] * 3")
        exec(code, scope)
    assert "AED" in METRICS


def test_the_counts_are_those_of_the_catalogue():
    shipped = [row for row in IMPLEMENTATIONS.values() if not row.variant]
    attacks, status = {row.attack for row in shipped}, Counter(row.status for row in shipped)
    sentence = (
        f"There are {len(IMPLEMENTATIONS)} rows of {len(attacks)} attacks: {status['works']} run as they are, "
        f"{status['repaired']} are mended from outside, {status['broken']} cannot run, and "
        f"{len(IMPLEMENTATIONS) - len(shipped)} are repaired versions."
    )
    assert sentence in " ".join(README.split())


def test_the_files_that_the_readme_links_to_exist():
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(targets) >= 2
    assert [target for target in targets if not (ROOT / target).exists()] == []

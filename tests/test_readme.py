"""The README is true: it is short, its Python runs, its numbers are measured; and the commands of every page parse."""

import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from davylamp import cli
from davylamp.adapters import IMPLEMENTATIONS
from davylamp.adapters.data.datasets import Data
from davylamp.deprecation import current_command
from davylamp.engine.searches.kinds import parse_search

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
WRITTEN = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "tutorials").glob("*.md")]
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in WRITTEN}
FENCED = r"^```(\w*)[^\n]*\n(.*?)^```$"
BLOCKS = re.findall(FENCED, README, flags=re.DOTALL | re.MULTILINE)


def commands_of(page: str) -> list[str]:
    """The calls of davylamp that a page shows in its blocks."""
    calls = []
    for language, block in re.findall(FENCED, page, flags=re.DOTALL | re.MULTILINE):
        if language in ("", "console", "sh", "bash"):
            lines = block.replace("\\\n", " ").splitlines()
            calls += [line.removeprefix("$ ") for line in lines if line.removeprefix("$ ").startswith("davylamp ")]
    return sorted({re.split(r"\s#| > (?=[\w./]+$)| \| ", call)[0].strip() for call in calls})


def mentions_of(page: str) -> list[str]:
    """The calls of davylamp between backticks, which may leave arguments out."""
    return sorted(set(re.findall(r"`(davylamp [a-z][^`]*)`", re.sub(FENCED, "", page, flags=re.DOTALL | re.MULTILINE))))


TEXTS = {"README.md": README, **PAGES}
COMMANDS = [(name, line) for name, page in TEXTS.items() for line in commands_of(page)]
APP: Any = cli.program()


def test_it_is_short():
    assert len(README.splitlines()) <= 120
    assert "make quickstart" in README
    assert "make test" in README


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_the_commands_parse(page, line):
    name, *arguments = current_command(shlex.split(line)[1:], APP.commands)
    parsed = APP.commands[name].make_context(name, arguments)
    attack = parsed.params.get("attack")
    attack = parse_search(attack).inside if isinstance(attack, str) else attack
    assert not isinstance(attack, str) or any(attack in (row.attack, row.name) for row in IMPLEMENTATIONS.values())


@pytest.mark.parametrize("page", TEXTS)
def test_the_commands_in_the_text_exist_and_have_their_options(page):
    for line in mentions_of(TEXTS[page]):
        name, *arguments = current_command(line.split()[1:], APP.commands)
        command = APP.commands[name].make_context(name, [], resilient_parsing=True).command
        known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        given = {word.rstrip(",.") for word in arguments if word.startswith("-")}
        assert given <= known | {"--help"}, line


def test_the_python_runs(tmp_path, monkeypatch, capsys):
    """At the size of a few small images; the images and the model of the first block are the only things replaced."""
    monkeypatch.chdir(tmp_path)
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 5)).requires_grad_(False)
    inputs = torch.rand(4, 3, 8, 8, generator=generator)
    logits = model(inputs)
    labels = logits.argmax(1)
    monkeypatch.setattr("davylamp.load_model", lambda name: model)
    monkeypatch.setattr("davylamp.load_data", lambda name, **_: Data(inputs, labels, list("abcd")))
    names = {"model": model, "inputs": inputs, "labels": labels, "logits": logits, "adv_logits": logits.flip(0)}
    texts = [README, PAGES["docs/use-from-python.md"]]
    blocks = [code for text in texts for kind, code in re.findall(FENCED, text, re.DOTALL | re.M) if kind == "python"]
    assert len(blocks) >= 3
    for block in blocks:
        exec(
            block.replace("[0.485, 0.456, 0.406]", "[0.0] * 3").replace("[0.229, 0.224, 0.225]", "[1.0] * 3"),
            dict(names),
        )
    assert "torchattacks:pgd" in capsys.readouterr().out


def test_the_table_is_what_its_lines_print(capsys):
    (code,) = (code for kind, code in BLOCKS if kind == "python" and "demo:digits" in code)
    (table,) = (block for _, block in BLOCKS if block.lstrip().startswith("implementation "))
    exec(code, {})
    assert capsys.readouterr().out == table


def test_the_counts_are_those_of_the_catalogue():
    shipped = [row for row in IMPLEMENTATIONS.values() if not row.variant]
    status, text = Counter(row.status for row in shipped), " ".join(README.split())
    assert f"{len(IMPLEMENTATIONS)} implementations of {len({row.attack for row in shipped})} attacks" in text
    assert f"{status['patched']} implementations are patched from outside, and none fails to run" in text
    assert not status["broken"]
    assert f"For {len(IMPLEMENTATIONS) - len(shipped)} implementations there is a fixed variant" in text


@pytest.mark.tutorial
def test_the_quickstart_prints_what_the_first_pages_show(run, tmp_path):
    _, printed, _ = run("quickstart", "-o", str(tmp_path / "results"))
    for text in (README, PAGES["docs/index.md"]):
        (shown,) = re.findall(r"^```\n\$ davylamp quickstart\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        assert [line for line in shown.splitlines() if line != "..." and line not in printed.splitlines()] == []


def test_what_it_measured_is_what_the_benchmarks_wrote():
    rows = re.findall(
        r"^\| \d[^\n]*?\| (\d+) \| ([\d.]+) \([\d.]+\) \| ([\d.]+) \|",
        (ROOT / "tools/calibration/RESULTS.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    repeats, abilities, ranks = ([float(row[place]) for row in rows] for place in range(3))
    text = " ".join(README.split())
    assert f"{sum(repeats):.0f} simulated rankings ({len(rows)} settings)" in text
    for shares in (abilities, ranks):
        assert f"{100 * min(shares):.1f} to {100 * max(shares):.1f} %" in text
    speed = (ROOT / "tools/speed/RESULTS.md").read_text(encoding="utf-8")
    (share,) = re.findall(r"counting, per forward and backward pass \| doing without \| ([\d.]+) of", speed)
    assert f"{float(share):.2%}".replace("%", " %") in text


def test_the_files_that_the_readme_links_to_exist():
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(targets) >= 2
    assert [target for target in targets if not (ROOT / target).exists()] == []

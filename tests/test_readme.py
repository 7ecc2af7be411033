"""The README is true: it is short, its Python runs, its numbers are measured; and the commands of every page parse."""

import re
import shlex
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from torch import nn

import davylamp
from davylamp import cli
from davylamp.adapters import IMPLEMENTATIONS
from davylamp.adapters.data.datasets import Data
from davylamp.engine.searches.kinds import parse_search
from davylamp.metrics import METRICS

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
    return sorted({re.split(r"\s#| > | \| ", call)[0].strip() for call in calls})


def mentions_of(page: str) -> list[str]:
    """The calls of davylamp between backticks, which may leave arguments out."""
    return sorted(set(re.findall(r"`(davylamp [a-z][^`]*)`", re.sub(FENCED, "", page, flags=re.DOTALL | re.MULTILINE))))


TEXTS = {"README.md": README, **PAGES}
COMMANDS = [(name, line) for name, page in TEXTS.items() for line in commands_of(page)]
APP: Any = typer.main.get_command(cli.app)


def test_it_is_short():
    assert len(README.splitlines()) <= 150


def test_every_command_is_in_the_readme():
    names = {command.name for command in cli.app.registered_commands}
    shown = set(re.findall(r"`davylamp ([\w-]+)", README)) | {line.split()[1] for line in commands_of(README)}
    assert names <= shown
    assert "make quickstart" in README


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_the_commands_parse(page, line):
    _, name, *arguments = shlex.split(line)
    parsed = APP.commands[name].make_context(name, arguments)
    attack = parsed.params.get("attack")
    attack = parse_search(attack).inside if isinstance(attack, str) else attack
    assert not isinstance(attack, str) or any(attack in (row.attack, row.name) for row in IMPLEMENTATIONS.values())


@pytest.mark.parametrize("page", TEXTS)
def test_the_commands_in_the_text_exist_and_have_their_options(page):
    for line in mentions_of(TEXTS[page]):
        _, name, *arguments = line.split()
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
    assert len(blocks) >= 6
    for block in blocks:
        scope = dict(names)
        exec(block.replace("[0.485, 0.456, 0.406]", "[0.0] * 3").replace("[0.229, 0.224, 0.225]", "[1.0] * 3"), scope)
        if "my_attack" in scope:
            mine = davylamp.as_implementation(scope["my_attack"], norm="linf")
            beside = davylamp.compare("fgsm", model, inputs, labels, libraries=["torchattacks"], beside=[mine])
            assert [pair.verdict for pair in beside.pairs] == ["identical"]
    assert "torchattacks:pgd" in capsys.readouterr().out
    assert "AED" in METRICS


def test_the_table_is_what_its_lines_print(capsys):
    (code,) = (code for kind, code in BLOCKS if kind == "python" and "demo:digits" in code)
    (table,) = (block for _, block in BLOCKS if block.lstrip().startswith("implementation "))
    exec(code, {})
    assert capsys.readouterr().out == table


def test_the_counts_are_those_of_the_catalogue():
    shipped = [row for row in IMPLEMENTATIONS.values() if not row.variant]
    attacks, status = {row.attack for row in shipped}, Counter(row.status for row in shipped)
    sentence = (
        f"There are {len(IMPLEMENTATIONS)} rows of {len(attacks)} attacks: {status['works']} run as they are, "
        f"{status['repaired']} are patched from outside, {status['broken']} cannot run, and "
        f"{len(IMPLEMENTATIONS) - len(shipped)} are repaired versions."
    )
    assert sentence in " ".join(README.split())


def test_the_attacks_and_libraries_are_those_of_the_catalogue():
    libraries = defaultdict(set)
    for row in IMPLEMENTATIONS.values():
        if not row.variant:
            libraries[row.attack].add(row.library)
    header, body = re.findall(r"^\| attack \| (.*) \|\n\|[-:| ]+\|\n((?:\|.*\n)+)", README, re.MULTILINE)[0]
    columns = header.split(" | ")
    assert set(columns) == set().union(*libraries.values())
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()]
    shown = {name: {column for column, cell in zip(columns, row, strict=True) if cell} for name, *row in cells[:-1]}
    assert shown == {name: having for name, having in libraries.items() if len(having) >= 3}
    others = [having for having in libraries.values() if len(having) < 3]
    counted = [str(sum(column in having for having in others)) for column in columns]
    assert cells[-1] == [f"{len(others)} others", *counted]


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
    linked = set(targets) | {target for page in PAGES.values() for target in re.findall(r"\]\(([\w./-]+)\)", page)}
    assert {Path(name).name for name in PAGES} - {"index.md"} <= {Path(target).name for target in linked}

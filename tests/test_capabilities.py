"""The tables of what the papers have: states, commands and tests are such that there are."""

import ast
import importlib
import inspect
import re
import shlex
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import davylamp
from davylamp import cli
from davylamp.benchmarks.reproductions import list_tables
from davylamp.commands import completion
from davylamp.deprecation import current_command
from davylamp.engine.measure_groups import known_groups
from davylamp.metrics import record_of, symbols_named

ROOT = Path(__file__).parent.parent


@pytest.fixture
def made(monkeypatch):
    """The module that makes the page."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "generate"))
    return importlib.import_module("capabilities")


@cache
def functions_of(path: str) -> frozenset[str]:
    return frozenset(re.findall(r"^(?:async )?def (test_\w+)\(", (ROOT / path).read_text(encoding="utf-8"), re.M))


def fault_of_test(name: str) -> str:
    path, _, function = name.partition("::")
    if not path.startswith("tests/") or not (ROOT / path).is_file():
        return f"no file {path}"
    return "" if function in functions_of(path) else f"no function {function} in {path}"


def fault_of_command(line: str) -> str:
    """Say what is wrong with a command or Python call; "" if nothing."""
    if not line.startswith("davylamp "):
        return _fault_of_python(line)
    command, *words = current_command(shlex.split(line)[1:], cli.COMMANDS)
    if command not in cli.COMMANDS:
        return f"no command {command}"
    try:
        context = cli.program().commands[command].make_context(command, list(words))
    except Exception as error:
        return f"{line}: {error}"
    return ", ".join(_unknown_names(command, context.params))


def _unknown_names(command: str, params: dict[str, Any]) -> list[str]:
    """Return the attacks, metrics and tables among the arguments that davylamp does not have."""
    attacks = [name for part in params.get("attacks") or [] for name in re.split(r"[,()]", part) if name]
    if command in ("compare", "attacks"):
        attacks = [params["attack"]] if params["attack"] else []
    given = params.get("metric") or []
    given = [given] if isinstance(given, str) else given
    symbols = [symbol for part in given for symbol in re.split(r",(?!\w+=)", part)]
    if command == "metrics" and params["name"]:
        symbols = [params["name"]]
    symbols = [symbol for symbol in symbols if not (symbols_named(symbol) or record_of(symbol) or _is_group(symbol))]
    tables = [params["name"]] if command == "reproduce" and params["name"] else []
    return [
        *(f"no attack {name}" for name in {*attacks} - {*completion.attacks(), "at-saturation"}),
        *(f"no metric {symbol}" for symbol in symbols),
        *(f"no table {name}" for name in {*tables} - {*list_tables()}),
    ]


def _is_group(symbol: str) -> bool:
    return symbol.partition(":")[0] in known_groups()


def _fault_of_python(line: str) -> str:
    node = ast.parse(line, mode="eval").body
    call, node = (node, node.func) if isinstance(node, ast.Call) else (None, node)
    first, *names = ast.unparse(node).split(".")
    if first != "davylamp" or not names:
        return f"expected davylamp COMMAND or davylamp.NAME, got {line}"
    thing = davylamp
    for name in names:
        thing = getattr(thing, name, None)
        if thing is None:
            return f"no {ast.unparse(node)}"
    if call is None:
        return ""
    try:
        inspect.signature(thing).bind_partial(*call.args, **{str(word.arg): word for word in call.keywords})
    except TypeError as error:
        return f"{line}: {error}"
    return ""


def faults_of(row: dict[str, str], states: set[str]) -> list[str]:
    """Say what is wrong with a row."""
    commands = [part for part in row["command"].split("; ") if part]
    tests = [part for part in row["test"].split("; ") if part]
    faults = [fault for fault in (*map(fault_of_command, commands), *map(fault_of_test, tests)) if fault]
    if row["state"] not in states:
        faults.append(f"no state {row['state']!r}")
    if row["state"] == "works" and not tests:
        faults.append("works, but no test")
    if row["state"] != "decided" and not commands:
        faults.append("no command")
    if row["state"] == "decided" and not row["note"]:
        faults.append("decided without a reason")
    return faults


def test_every_row_names_a_state_commands_and_tests_that_there_are(made):
    papers = made.load_all()
    assert {path.stem for path in made.FOLDER.glob("*")} == set(papers)
    faults = {}
    for paper, rows in papers.items():
        for row in rows:
            if wrong := faults_of(row, set(made.STATES)):
                faults[paper, row["capability"]] = wrong
        twice = [name for name, count in Counter(row["capability"] for row in rows).items() if count > 1]
        assert twice == [], paper
    assert faults == {}


def test_a_row_that_is_wrong_is_noticed(made):
    right = {
        "capability": "a rate",
        "command": "davylamp table FOLDER --metric MR; davylamp.metrics.misclassification_ratio",
        "state": "works",
        "test": "tests/test_capabilities.py::test_a_row_that_is_wrong_is_noticed",
        "note": "",
    }
    assert faults_of(right, set(made.STATES)) == []
    wrong = (
        {"state": "partly"},
        {"state": "decided"},
        {"test": ""},
        {"test": "tests/test_capabilities.py::test_nothing"},
        {"test": "tests/test_nowhere.py::test_nothing"},
        {"command": ""},
        {"command": "davylamp tabulate FOLDER"},
        {"command": "davylamp table FOLDER --metrik MR"},
        {"command": "davylamp evaluate --attacks foolbox:nothing"},
        {"command": "davylamp attacks nothing"},
        {"command": "davylamp table FOLDER --metric MR,nothing"},
        {"command": "davylamp metrics nothing"},
        {"command": "davylamp reproduce nothing"},
        {"command": "davylamp.metrics.nothing"},
        {"command": "davylamp.metrics.misclassification_ratio(logits, adv_logits, labels, nothing=1)"},
    )
    for change in wrong:
        assert len(faults_of({**right, **change}, set(made.STATES))) == 1, change


def test_files_that_are_no_table_are_refused(made, tmp_path):
    path = tmp_path / "paper.tsv"
    path.write_text("capability\tstate\n", encoding="utf-8")
    with pytest.raises(ValueError, match="expected the columns capability, command, state, test, note"):
        made.load(path)
    path.write_text("\t".join(made.COLUMNS) + "\na rate\tworks\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 2: expected 5 cells, got 2"):
        made.load(path)


def test_the_page_counts_what_the_files_hold(made):
    page, papers = made.render(), made.load_all()
    rows = [row for rows in papers.values() for row in rows]
    numbers = [len(rows), *(sum(row["state"] == state for row in rows) for state in made.STATES)]
    assert f"\n| all | {' | '.join(map(str, numbers))} |\n" in page
    assert page.count("\n## ") == len(papers)
    for row in rows:
        assert f"\n| {row['capability'].replace('|', chr(92) + '|')} | " in page

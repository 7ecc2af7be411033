"""The pages docs/transfer.md and docs/fitted-attacks.md run from top to bottom: with the tutorials, in `make docs`."""

import re
import shlex
from pathlib import Path

import pytest

import davylamp
from davylamp.engine.store.other_records import load_fitted

DOCS = Path(__file__).parent.parent / "docs"
PAGE = "\n".join((DOCS / name).read_text(encoding="utf-8") for name in ("transfer.md", "fitted-attacks.md"))
LINES = PAGE.replace("\\\n", " ")
COMMANDS = [shlex.split(line)[1:] for line in re.findall(r"^(?:\$ )?(davylamp .*)$", LINES, re.M)]


@pytest.fixture
def files(tmp_path, monkeypatch):
    [(name, text)] = re.findall(r"^`([^`\n]+\.py)`\n\n```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.tutorial
def test_its_commands_run_and_its_claims_hold(run, files, monkeypatch):
    printed = {}
    for command in COMMANDS:
        # Here its models are trained once; in rooms of their own (test_isolate), each time that one is opened.
        here = ("--isolate", "no") if command[0] in ("evaluate", "fit") and "--isolate" not in command else ()
        code, out, errors = run(*command, *here)
        assert code == 0, (command, errors)
        if command[0] == "table":
            printed[command[1]] = out
    assert "foolbox:pgd via digits.py:small + digits.py:flat" in printed["out"]
    shown = "Transfer of foolbox:pgd, linf 0.15\nmade on / tested on "
    assert shown in PAGE
    assert shown in printed["full"]
    frame = davylamp.table("out").to_frame().set_index("implementation")
    made = frame[frame["knowledge"] == "transfer"]
    assert set(made.index) == {"foolbox:pgd via digits.py:small", "foolbox:pgd via digits.py:small + digits.py:flat"}
    assert (made["MR"] > 0).all()
    assert (made["MR"] < frame.loc["foolbox:pgd", "MR"]).all()
    once = davylamp.table("once").to_frame().set_index("implementation")
    assert set(once.index) == {
        "art:uap@fixed fitted on digits.py:fitting (10)",
        "art:uap@fixed fitted on the evaluation images",
        "art:uap@fixed via digits.py:wide fitted on digits.py:fitting (10)",
        "davylamp:gd-uap",
    }
    assert len(load_fitted("once")) == 2
    trained = davylamp.table("trained").to_frame().set_index("implementation")
    assert set(trained["knowledge"]) == {"score-based", "white-box"}
    assert len(load_fitted("trained")) == 2  # TREMBA's is the one that `train` kept
    for code in re.findall(r"^```python\n(import davylamp.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
        exec(code, {})

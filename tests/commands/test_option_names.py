"""The names of options; and what a shell is told that could come next."""

import json
import os
import shlex
import subprocess
import sys

import pytest

from davylamp import cli
from davylamp.adapters import IMPLEMENTATIONS, LIBRARIES
from davylamp.adapters.data.datasets import dataset_name_patterns
from davylamp.adapters.models.zoo.load import list_models
from davylamp.commands import completion
from davylamp.commands.config_options import read_given
from davylamp.commands.examples import EXAMPLES
from davylamp.commands.options import split_list, split_models, split_names
from davylamp.deprecation import current_command
from davylamp.engine.plan.presets import PRESETS
from davylamp.metrics import METRICS


def parsed(command, *words):
    context = cli.program().commands[command].make_context(command, list(words))
    return context.params


@pytest.mark.parametrize(
    ("command", "words", "name", "value"),
    [
        ("evaluate", ["--model", "a.py:b"], "models", ["a.py:b"]),
        ("evaluate", ["--models=a,b", "--model", "c"], "models", ["a,b", "c"]),
        ("compare", ["pgd", "--eps", "2/255"], "epsilon", "2/255"),
        ("compare", ["pgd", "--libraries", "art,foolbox"], "libraries", ["art,foolbox"]),
        ("evaluate", ["--attack", "pgd"], "attacks", ["pgd"]),
        ("evaluate", ["--eps", "4/255,8/255"], "epsilon", ["4/255,8/255"]),
        ("table", ["r", "--metrics", "MR,RA"], "metric", ["MR,RA"]),
        ("rank", ["r", "--model", "2pl"], "item_model", "2pl"),
        ("rank", ["r", "--eps", "4/255"], "epsilon", "4/255"),
        ("saturation", ["fgsm", "--eps", "4/255,8/255"], "epsilon", ["4/255,8/255"]),
        ("detect", ["r", "--detector", "d", "--false-positive-rates", "0.1,0.2"], "false_positive_rates", ["0.1,0.2"]),
    ],
)
def test_an_option_has_the_names_that_it_declares(command, words, name, value):
    given = parsed(command, *words)[name]
    given = getattr(given, "value", given)
    assert (list(given) if isinstance(given, tuple) else given) == value  # Typer below 0.29 has tuples


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_an_example_of_the_help_parses_and_fits(line):
    assert len(line) <= 76
    command, *words = current_command(shlex.split(line.partition(" > ")[0])[1:], EXAMPLES)
    assert line in EXAMPLES[command]
    params = parsed(command, *words)
    names = split_list("--attacks", params.get("attacks") or []) or []
    assert {*names} <= {*completion.attacks()}


def test_every_command_has_an_example():
    assert set(EXAMPLES) == set(cli.COMMANDS)


def test_a_wrong_option_gets_the_nearest_one(run):
    code, _, err = run("evaluate", "--modls", "x")
    assert code == 2
    assert "--models" in err.split("--modls", 1)[1]
    code, _, err = run("evalute")
    assert code == 2
    assert "evaluate" in err


def test_names_without_torch_are_those_with_it():
    assert set(completion.metrics()) == set(METRICS)
    assert set(completion.presets()) == set(PRESETS)
    assert set(completion.libraries()) == set(LIBRARIES)
    assert set(completion.attacks()) >= set(IMPLEMENTATIONS)
    assert {name for name in completion.MODELS if name.startswith("demo:")} == set(list_models("demo:*"))
    assert {name for name in completion.DATA if name.startswith("demo:")} == {
        name for name in dataset_name_patterns() if name.startswith("demo:")
    }


def completed(*words):
    """What a shell is told, and the modules that the program loaded for it."""
    code = (
        "import sys, json\n"
        "sys.argv = ['davylamp']\n"
        "from davylamp.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    print(json.dumps([n for n in ('torch', 'pandas') if n in sys.modules]), file=sys.stderr)"
    )
    asked = {"_DAVYLAMP_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **asked}, check=False
    )
    return done.stdout.split(), json.loads(done.stderr.splitlines()[-1])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["davylamp", "comp"], ["compare"]),
        (["davylamp", "evaluate", "--max"], ["--max-queries", "--max-rank-width"]),
        (["davylamp", "evaluate", "--attacks", "fgsm,foolbox:deepf"], ["fgsm,foolbox:deepfool"]),
        (["davylamp", "compare", "deepfoo"], ["deepfool"]),
        (["davylamp", "table", "r", "--metric", "QNC_"], ["QNC_F", "QNC_B"]),
        (["davylamp", "gate", "r", "--require", "QNC_"], ["QNC_F", "QNC_B"]),
        (["davylamp", "gate", "r", "--jun"], ["--junit"]),
        (["davylamp", "serv"], ["serve", "serve-model", "server"]),
        (["davylamp", "server", "r"], ["restore"]),
        (["davylamp", "corruptions", "r"], ["run"]),
        (["davylamp", "corruptions", "run", "--basel"], ["--baseline"]),
        (["davylamp", "no-such", "x"], []),
    ],
)
def test_a_shell_is_told_what_could_come_next_without_torch(words, expected):
    names, loaded = completed(*words)
    assert names == expected
    assert loaded == []


def test_names_are_split_at_commas_that_are_in_no_file_that_there_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b.py").write_text("")
    assert split_models(["one.pt,two.pt", "demo:x+jpeg:quality=5,gradients=none,demo:y"]) == [
        "one.pt",
        "two.pt",
        "demo:x+jpeg:quality=5,gradients=none",
        "demo:y",
    ]
    assert split_models(["a,b.py:net", "a,b.py"]) == ["a,b.py:net", "a,b.py"]
    groups = split_names("--metric", ["boundary:directions=2,spacing=42,neurons", "coverage"])
    assert groups == ["boundary:directions=2,spacing=42", "neurons", "coverage"]
    assert read_given({"measures": ["coverage,neurons", "a,b.py:mine"]}) == {
        "measures": ["coverage", "neurons", "a,b.py:mine"]
    }

"""An option under every name that it has somewhere; and what a shell is told that could come next."""

import json
import os
import shlex
import subprocess
import sys

import pytest
import typer

from davylamp import cli
from davylamp.adapters import IMPLEMENTATIONS, LIBRARIES
from davylamp.adapters.data.datasets import known_data
from davylamp.adapters.models.zoo.load import list_models
from davylamp.commands import known_names
from davylamp.commands.derived import complete, read_settings
from davylamp.commands.evaluate import evaluate_models
from davylamp.commands.examples import EXAMPLES
from davylamp.commands.options import split_list, split_models, split_names
from davylamp.commands.source_options import options_in_source
from davylamp.engine.plan.presets import PRESETS
from davylamp.metrics import METRICS


def parsed(command, *words):
    context = typer.main.get_command(cli.app).commands[command].make_context(command, list(words))
    return context.params


@pytest.mark.parametrize(
    ("command", "words", "name", "value"),
    [
        ("evaluate", ["--model", "a.py:b"], "models", ["a.py:b"]),
        ("evaluate", ["--models=a,b", "--model", "c"], "models", ["a,b", "c"]),
        ("compare", ["pgd", "--models", "m"], "model", "m"),
        ("compare", ["pgd", "--eps", "2/255"], "epsilon", "2/255"),
        ("certify", ["--model", "m+smoothing:sigma=1"], "model", "m+smoothing:sigma=1"),
        ("certify", ["m", "--epsilon", "0.5"], "radius", ["0.5"]),
        ("evaluate", ["--attack", "pgd"], "attacks", ["pgd"]),
        ("table", ["r", "--metrics", "MR,RA"], "metric", ["MR,RA"]),
        ("evaluate", ["--images", "20"], "limit", 20),
        ("check", ["r", "--images", "3"], "limit", 3),
        ("rank", ["r", "--model", "2pl"], "item_model", "2pl"),
        ("rank", ["r", "--budget", "4/255"], "epsilon", "4/255"),
        ("saturation", ["fgsm", "--budget", "4/255,8/255"], "epsilon", ["4/255,8/255"]),
        ("compare", ["pgd", "--batch", "16"], "batch_size", 16),
        ("detect", ["r", "--detector", "d", "--rate", "0.1,0.2"], "false_alarms", ["0.1,0.2"]),
        ("harden", ["--model", "m", "--with", "trades"], "method", "trades"),
    ],
)
def test_an_option_has_every_name_that_it_has_somewhere(command, words, name, value):
    given = parsed(command, *words)[name]
    given = getattr(given, "value", given)
    assert (list(given) if isinstance(given, tuple) else given) == value  # Typer below 0.29 has tuples


# Names that one thing also has elsewhere, with the commands in which they mean another thing.
ANOTHER_THING = {
    "--budget": {"curve"},  # a radius or a number of passes, as the axis is
    "--images": {"export"},  # whether they are packed
    "--batch": {"evaluate", "rank"},  # images between two looks at a rank
    "--alpha": {"certify"},  # probability of a mistake
    "--radius": {"certify"},  # a certified one
    "--queries": {"challenge"},  # of the black-box attacks alone
}


def test_one_thing_is_called_the_same_in_every_command():
    others = {"--eps", "--budget", "--radius", "--dataset", "--defense", "--lib", "--libraries", "--num-images"}
    others |= {"--images", "--output", "--queries", "--iterations", "--metrics", "--alpha", "--batch"}
    for name, function in cli.COMMANDS.items():
        app = typer.Typer(add_completion=False)
        app.command(name)(complete(function))
        command = typer.main.get_command(app)
        taken = {option for parameter in command.params for option in parameter.opts}
        assert {option for option in taken & others if name not in ANOTHER_THING.get(option, ())} == set(), name


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_an_example_of_the_help_parses_and_fits(line):
    assert len(line) <= 76
    _, command, *words = shlex.split(line.partition(" > ")[0])
    assert line in EXAMPLES[command]
    params = parsed(command, *words)
    names = split_list("--attacks", params.get("attacks") or []) or []
    assert {*names} <= {*known_names.attacks()}


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
    assert set(known_names.metrics()) == set(METRICS)
    assert set(known_names.presets()) == set(PRESETS)
    assert set(known_names.libraries()) == set(LIBRARIES)
    assert set(known_names.attacks()) >= set(IMPLEMENTATIONS)
    assert {name for name in known_names.MODELS if name.startswith("demo:")} == set(list_models("demo:*"))
    assert {name for name in known_names.DATA if name.startswith("demo:")} == {
        name for name in known_data() if name.startswith("demo:")
    }


def test_options_read_from_the_source_are_those_of_the_record():
    shown = {name: (kind.__metadata__[0].param_decls, kind) for name, (kind, _) in options_in_source().items()}
    real = complete(evaluate_models).__signature__.parameters
    assert set(shown) <= set(real)
    for name, (names, annotation) in shown.items():
        info = real[name].annotation.__metadata__[0]
        assert tuple(names) == tuple(info.param_decls), name
        assert (annotation.__args__[0] is bool) == (real[name].annotation.__args__[0] is bool), name


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
        (["davylamp", "evaluate", "--max"], ["--max-queries"]),
        (["davylamp", "evaluate", "--attacks", "fgsm,foolbox:deepf"], ["fgsm,foolbox:deepfool"]),
        (["davylamp", "compare", "deepfoo"], ["deepfool"]),
        (["davylamp", "table", "r", "--metric", "QNC_"], ["QNC_F", "QNC_B"]),
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
    assert read_settings({"measures": ["coverage,neurons", "a,b.py:mine"]})["measures"] == (
        "coverage",
        "neurons",
        "a,b.py:mine",
    )

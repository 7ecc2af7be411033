"""Options that are fields of `Config`: a new field is a new option; the help loads no torch."""

import dataclasses
import subprocess
import sys
from typing import Annotated

import pytest
import typer
from annotated_types import Ge
from typer.testing import CliRunner

from davylamp import cli
from davylamp.commands.config_options import (
    Command,
    FromConfig,
    in_options,
    named_by_option,
    option_of,
    suggest_choice,
    with_options,
)
from davylamp.engine.plan.config import Config
from davylamp.engine.plan.schema import Option, check_record, option_of_field


def options_of(command):
    context = cli.program().commands[command].make_context(command, [], resilient_parsing=True)
    return {option for parameter in context.command.params for option in parameter.opts}


def test_every_field_of_a_config_is_an_option():
    hints = {field.name: option_of_field(Config.__annotations__[field.name]) for field in dataclasses.fields(Config)}
    assert all(hints.values()), hints
    assert {option_of(name) for name in hints} <= options_of("evaluate")
    assert {"--limit", "--seed", "--library", "--max-queries", "--batch-size"} <= options_of("compare")


def test_a_field_that_is_added_is_an_option_with_its_name_type_range_and_help():
    """One line in the record: `rounds: Annotated[int, Ge(1), Option(...)] = 3`."""
    record = dataclasses.make_dataclass(
        "Rounds", [("rounds", Annotated[int, Ge(1), Option("how often", also="times")], 3)], frozen=True
    )
    given = []

    def command(what: Annotated[dict, FromConfig(record=record)]) -> None:
        """Do it."""
        given.append(check_record(record, what))

    app = typer.Typer(add_completion=False)
    app.command("go", cls=Command)(with_options(command))
    runner = CliRunner()
    text = runner.invoke(app, ["--help"]).output
    assert "--rounds" in text
    assert "how often" in text
    assert runner.invoke(app, ["--rounds", "7"]).exit_code == 0
    assert runner.invoke(app, ["--times", "8"]).exit_code == 0
    assert given == [{"rounds": 7}, {"rounds": 8}]
    assert "rounds: expected a whole number >= 1, got 0" in str(runner.invoke(app, ["--rounds", "0"]).exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--shard-size", "0"), "--shard-size: expected a whole number >= 1, got 0"),
        (("--seed", "3,-1"), "--seed: expected a whole number >= 0, got -1"),
        (("--library", "art,foolbx"), "unknown library 'foolbx'; did you mean foolbox?"),
        (("--attacks", "pgd", "--epsilon", "0"), "--epsilon: expected a number > 0, got 0"),
        (("--metric", "nothing"), "unknown metric 'nothing'"),
    ],
)
def test_a_mistake_names_what_was_typed(run, arguments, message):
    code, _, err = run("evaluate", *arguments)
    assert code == 1
    assert err.startswith(f"davylamp: {message}")


@pytest.mark.parametrize("command", ["check model=ResNet/none", "status out=ABC"])
def test_a_path_in_a_message_stays_as_it_was_typed(run, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(*command.split())
    assert code == 1
    assert "=" in err
    assert "got --" not in err


def test_keywords_in_backticks_and_quoted_values_are_translated():
    with named_by_option({"out": "--out", "original": "--original", "subjects": "--subjects"}):
        assert in_options("give `original=NAME`, subjects='models'") == "give --original NAME, --subjects models"
        assert in_options("see `table(by='models')`") == "see `davylamp table FOLDER --by models`"
        for text in ("got out=ABC", "no folder runs/out='x'", "original=NAME"):
            assert in_options(text) == text


def test_a_mistake_in_a_file_names_its_key(run, tmp_path):
    (tmp_path / "run.toml").write_text("seeds = [-1]")
    assert "run.toml: seeds[0]: expected" in run("evaluate", "run.toml", "--limit", "0")[2]


def test_the_first_panel_of_the_help_has_what_most_people_need():
    command = cli.program().commands["evaluate"]
    names = [param.opts[0] for param in command.params if getattr(param, "rich_help_panel", "") is None][1:]
    wanted = {"--models", "--attacks", "--data", "--limit", "--norm", "--epsilon", "--seed", "--device", "--preset"}
    assert {*names} == {*wanted, "--out"}
    assert len(command.params) == len({param.name for param in command.params})


@pytest.mark.parametrize(
    "words", [["--help"], ["evaluate", "--help"], ["compare", "--help"], ["rank", "--help"], ["reproduce"]]
)
def test_the_help_and_the_list_of_tables_load_neither_torch_nor_pandas(words):
    script = (
        f"import sys\nfrom davylamp import cli\nsys.argv = ['davylamp', *{words}]\n"
        "try:\n    cli.main()\nexcept SystemExit:\n    pass\n"
        "assert not {'torch', 'numpy', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_an_option_that_a_command_has_already_is_a_mistake_of_ours():
    def command(timeout: str = "", more: Annotated[dict, FromConfig(("timeout",))] = {}) -> None:  # noqa: B006
        """Ask."""

    with pytest.raises(ValueError, match="command defines timeout twice"):
        with_options(command)


@pytest.mark.parametrize(
    "command",
    ["compare", "evaluate", "saturation", "challenge", "certify", "check", "fit", "detect", "corruptions run"],
)
def test_every_command_that_asks_models_can_keep_them_apart_and_ask_servers(command):
    wanted = {
        "--isolate",
        "--time-limit",
        "--memory-limit",
        "--price-per-image",
        "--token",
        "--timeout",
        "--request-size",
    }
    assert wanted <= options_of(command)
    assert {"--isolate", "--time-limit", "--memory-limit"} <= options_of("serve-model")


def test_a_choice_gets_what_is_near():
    words = "Value error, 'bordo' is not one of 'irt', 'canary', 'mean', 'borda'."
    assert suggest_choice(words) == "'bordo' is not one of 'irt', 'canary', 'mean', 'borda'; did you mean borda?"
    assert suggest_choice("'x' is not one of 'irt'.") == "'x' is not one of 'irt'."
    assert suggest_choice("'a' is not a valid integer.") == "'a' is not a valid integer."


def test_only_options_of_remote_models_stand_under_remote_models():
    """A parameter of one command, called as one of another, was shown among them."""
    commands = cli.program().commands
    contexts = {name: command.make_context(name, [], resilient_parsing=True) for name, command in commands.items()}
    listed = {
        f"{name} {option.opts[0]}": option.help
        for name, context in contexts.items()
        for option in context.command.get_params(context)
        if getattr(option, "rich_help_panel", None) == "Remote models"
    }
    assert "evaluate --request-rate" in listed
    assert [option for option, text in listed.items() if not text.startswith("remote models: ")] == []

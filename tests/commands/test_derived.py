"""Options that are read off `Config`: a new field is a new option, and a command is listed without the engine."""

import dataclasses
import subprocess
import sys
from importlib import import_module
from typing import Annotated

import pytest
import typer
from annotated_types import Ge

from davylamp import cli
from davylamp.commands.derived import FromConfig, complete, option_of, say_choice
from davylamp.commands.evaluate import evaluate_models
from davylamp.engine.plan import config as module
from davylamp.engine.plan.config import Config
from davylamp.engine.plan.schema import Option, option_of_field


def options_of(command):
    context = typer.main.get_command(cli.app).commands[command].make_context(command, [], resilient_parsing=True)
    return {option for parameter in context.command.params for option in parameter.opts}


def test_every_field_of_a_config_is_an_option():
    hints = {
        field.name: option_of_field(module.Config.__annotations__[field.name]) for field in dataclasses.fields(Config)
    }
    assert all(hints.values()), hints
    assert {option_of(name) for name in hints} <= options_of("evaluate")
    assert {"--limit", "--seed", "--library", "--max-queries", "--batch-size"} <= options_of("compare")


def test_a_field_that_is_added_is_an_option_with_its_name_type_range_and_help(run, monkeypatch):
    """One line in the record: `rounds: Annotated[int, Ge(1), Option(...)] = 3`."""
    added = dataclasses.make_dataclass(
        "Config", [("rounds", Annotated[int, Ge(1), Option("how often")], 3)], bases=(Config,), frozen=True
    )
    import_module("davylamp.engine.plan.presets")  # before: it would keep the record of this test
    monkeypatch.setattr(module, "Config", added)
    _, out, _ = run("evaluate", "--help")
    assert "--rounds" in out
    assert "how often" in out
    _, out, _ = run("evaluate", "--rounds", "7", "--print-config")
    assert "rounds = 7" in out
    code, _, err = run("evaluate", "--rounds", "0", "--print-config")
    assert (code, err) == (1, "davylamp: --rounds: expected a whole number >= 1, got 0\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--shard-size", "0"), "--shard-size: expected a whole number >= 1, got 0"),
        (("--seed", "3,-1"), "--seed: expected a whole number >= 0, got -1"),
        (("--library", "art,foolbx"), "unknown library 'foolbx'; did you mean foolbox?"),
        (("--attacks", "pgd", "--epsilon", "0"), "--epsilon: expected a number > 0, got 0.0"),
        (("--metric", "nothing"), "unknown metric 'nothing'"),
    ],
)
def test_a_mistake_names_what_was_typed(run, arguments, message):
    code, _, err = run("evaluate", *arguments)
    assert code == 1
    assert err.startswith(f"davylamp: {message}")


def test_a_mistake_in_a_file_names_its_key(run, tmp_path):
    (tmp_path / "run.toml").write_text("seeds = [-1]")
    assert "run.toml: seeds[0]: expected" in run("evaluate", "run.toml", "--limit", "0")[2]


def test_groups_come_by_panel_and_in_a_panel_in_the_order_of_the_signature():
    names = list(complete(evaluate_models).__signature__.parameters)
    assert names[:4] == ["config", "models", "resize", "crop"]
    assert [name for name in names if name in ("data", "attacks", "defence", "outputs", "norm", "as_json")] == [
        *("outputs", "defence", "data", "attacks", "norm", "as_json")
    ]
    assert len(names) == len(set(names))


def test_listing_the_commands_loads_neither_torch_nor_the_engine():
    script = (
        "import sys\nfrom davylamp import cli\nsys.argv = ['davylamp', '--help']\n"
        "try:\n    cli.main()\nexcept SystemExit:\n    pass\n"
        "assert not {'torch', 'davylamp.engine'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_an_option_that_a_command_has_already_is_a_mistake_of_ours():
    def command(rate: str = "", more: Annotated[dict, FromConfig(("rate",))] = {}) -> None:  # noqa: B006
        """Ask."""

    with pytest.raises(ValueError, match="command has rate twice"):
        complete(command)


@pytest.mark.parametrize(
    "command",
    ["compare", "evaluate", "saturation", "challenge", "certify", "check", "train", "detect", "corrupt-table"],
)
def test_every_command_that_asks_models_can_keep_them_apart_and_ask_servers(command):
    wanted = {"--isolate", "--time-limit", "--memory-limit", "--cost", "--token", "--timeout", "--request-size"}
    assert wanted <= options_of(command)
    assert {"--isolate", "--time-limit", "--memory-limit"} <= options_of("serve-model")


def test_a_choice_gets_what_is_near():
    words = "Value error, 'bordo' is not one of 'irt', 'canary', 'mean', 'borda'."
    assert say_choice(words) == "'bordo' is not one of 'irt', 'canary', 'mean', 'borda'; did you mean borda?"
    assert say_choice("'x' is not one of 'irt'.") == "'x' is not one of 'irt'."
    assert say_choice("'a' is not a valid integer.") == "'a' is not a valid integer."


def test_only_options_of_remote_models_stand_under_a_model_behind_a_server():
    """A parameter of one command, called as one of another, was shown among them."""
    commands = typer.main.get_command(cli.app).commands
    contexts = {name: command.make_context(name, [], resilient_parsing=True) for name, command in commands.items()}
    listed = {
        f"{name} {option.opts[0]}": option.help
        for name, context in contexts.items()
        for option in context.command.get_params(context)
        if getattr(option, "rich_help_panel", None) == "A model behind a server"
    }
    assert "evaluate --rate" in listed
    assert [option for option, text in listed.items() if not text.startswith("remote models: ")] == []

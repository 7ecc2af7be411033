"""Names from before 1.0 mean the same as the new ones, and warn."""

import inspect
import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest
import tomli_w
import torch
import typer

import davylamp
from davylamp import cli, configure
from davylamp.adapters import ThreatModel
from davylamp.deprecation import COMMANDS as OLD_COMMANDS
from davylamp.deprecation import SETTINGS, current_command
from davylamp.engine.attack_run import AttackRun, ModelOnData, describe_attack
from davylamp.engine.plan.config_file import base_config
from davylamp.errors import DavylampError, InvalidInput

COMMANDS = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]

RENAMED = [
    *[(module, "best_effort", "search_radius") for module in ("davylamp", "davylamp.engine")],
    *[(module, "best_of", "search_portfolio") for module in ("davylamp", "davylamp.engine")],
    ("davylamp.adapters", "attack_of", "canonical_attack"),
    ("davylamp.engine", "Judgement", "PairVerdict"),
    ("davylamp.engine", "Pair", "PairComparison"),
    ("davylamp.engine", "Row", "ImplementationResult"),
    ("davylamp.engine", "SearchResult", "RadiusSearchResult"),
    ("davylamp.engine", "Summary", "EvaluationSummary"),
    ("davylamp.engine", "on_pixels", "round_to_8bit"),
    ("davylamp.engine", "share_interval", "proportion_interval"),
    ("davylamp.scoring", "Dropped", "LeaveOneOut"),
    ("davylamp.scoring", "check_several", "check_rankable"),
    ("davylamp.scoring", "drop_each", "leave_one_out"),
    ("davylamp.scoring", "kinds_of", "item_kinds"),
    ("davylamp.scoring", "place_newcomer", "place_new_subject"),
    ("davylamp.scoring", "plain_mean", "mean_response"),
]


def test_the_page_on_stability_lists_the_modules_with_public_names_and_its_example_warns():
    text = (Path(__file__).parent.parent / "docs/api-stability.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| names in `__all__` of (.*?), with", text, re.MULTILINE)
    modules = {name.strip("`") for name in re.findall(r"`[\w.]+`", row)}
    assert modules == {"davylamp", *(f"davylamp.{part}" for part in ("adapters", "engine", "metrics", "scoring"))}
    assert all(import_module(name).__all__ for name in modules)
    (expression,) = re.findall(r"^>>> davylamp\.(\w+)$", text, re.MULTILINE)
    (sentence,) = re.findall(r"^DeprecationWarning: (.*)$", text, re.MULTILINE)
    with pytest.warns(DeprecationWarning, match=f"^{re.escape(sentence)}$"):
        getattr(davylamp, expression)


@pytest.mark.parametrize(("module", "old", "new"), RENAMED)
def test_an_old_name_is_the_new_object(module, old, new):
    with pytest.warns(DeprecationWarning, match=new):
        value = getattr(import_module(module), old)
    assert value is getattr(import_module(module), new)
    assert old not in import_module(module).__all__


def test_old_attributes_have_the_new_values():
    model, data = davylamp.load_model("demo:digits-cnn"), davylamp.load_data("demo:digits", limit=8)
    result = davylamp.run_attack("foolbox:fgsm", model, data.inputs, data.labels, epsilon=0.1)
    for old, new in (("violated", "invalid"), ("fooled_share", "fooled_rate"), ("robust_share", "robust_rate")):
        with pytest.warns(DeprecationWarning, match=new):
            assert torch.equal(getattr(result, old), getattr(result, new))
    with pytest.warns(DeprecationWarning, match="declare_outputs"):
        model.say("logits")
    assert model.answers.outputs == "logits"


SMALL = {"models": "demo:digits-cnn", "data": "demo:digits", "measures": ("coverage:profile=demo:digits",)}
TEXTS = {"neuron_profile": "demo:digits", "request_rate": "20"}
FIELDS = [each.name for each in fields(davylamp.Config)]
OLD_FIELDS = [(old, new) for old, names in SETTINGS.items() for new in names if new in FIELDS]


def test_an_old_name_is_the_name_of_nothing_where_it_is_replaced():
    """Every old name has a new one somewhere, and nothing has both."""
    options = {name: {each for option in command.params for each in option.opts} for name, command in COMMANDS.items()}
    functions = {name: getattr(davylamp, name) for name in davylamp.__all__}
    keywords = {
        name: [*inspect.signature(each).parameters] for name, each in functions.items() if inspect.isfunction(each)
    }
    for old, names in SETTINGS.items():
        assert [new for new in names if any(f"--{new}".replace("_", "-") in known for known in options.values())]
        for new in names:
            both = {f"--{each}".replace("_", "-") for each in (old, new)}
            assert {name for name, known in options.items() if both <= known} == set()
            assert not [name for name, known in keywords.items() if {old, new} <= {*known}]


@pytest.mark.parametrize(("old", "new"), OLD_FIELDS)
def test_an_old_setting_is_the_new_one_as_keyword_key_and_attribute(old, new, tmp_path):
    default = getattr(davylamp.Config(), new)
    value = TEXTS.get(new, {bool: True, int: 3, float: 0.5}.get(type(default)))
    with pytest.warns(DeprecationWarning, match=f"^{old} is deprecated: use {new}$") as caught:
        config = davylamp.Config(**{old: value})
    assert [each.filename for each in caught] == [__file__]
    assert getattr(config, new) == value
    with pytest.warns(DeprecationWarning, match=rf"Config\.{new}$"):
        assert getattr(config, old) == value
    with pytest.warns(DeprecationWarning, match=new):
        assert configure(**SMALL, **{old: value}) == configure(**SMALL, **{new: value})
    (tmp_path / "old.toml").write_text(tomli_w.dumps({old: value}), encoding="utf-8")
    with pytest.warns(DeprecationWarning, match=new):
        base, stated = base_config(tmp_path / "old.toml")
    assert (base, stated) == (config, {new})
    with pytest.raises(InvalidInput, match=f"{new} is given twice"), pytest.warns(DeprecationWarning, match=new):
        davylamp.Config(**{old: value, new: value})


@pytest.mark.parametrize(("old", "new"), OLD_FIELDS)
def test_an_old_option_is_the_new_one_and_prints_one_line(old, new, run):
    is_flag = isinstance(getattr(davylamp.Config(), new), bool)
    before, after = (f"--{each}".replace("_", "-") for each in (old, new))
    shown, value = ("evaluate", "--print-config", "--metric", SMALL["measures"][0]), TEXTS.get(new, "5")
    code, out, _ = run(*shown, *([after] if is_flag else [f"{after}={value}"]))
    assert (code, run(*shown, *([before] if is_flag else [before, value]))[:2]) == (0, (0, out))
    code, again, said = run(*shown, *([before] if is_flag else [f"{before}={value}"]))
    assert (code, again, said) == (0, out, f"- {before} is deprecated: use {after}\n")
    assert before not in run("evaluate", "--help")[1].split()


def test_runs_of_fixed_variants_keep_their_keys():
    """The keys are those of davylamp 0.2.0.dev0, when the variants were called "@repaired"."""
    subject, rules = ModelOnData("m", "d", "x", "y", 3), ThreatModel("linf", 0.1)
    for variant in ("repaired", "fixed"):
        one = AttackRun(subject, f"art:uap@{variant}", rules, {"steps": 3})
        first, second = f"foolbox:fmn@{variant}", f"art:square@{variant}"
        several = AttackRun(subject, f"worst-case({first},{second})", rules, {first: {"steps": 3}, second: {}})
        assert (one.key, several.key) == ("1d32a8fb5ced61272640", "087718ac0830870aafcc")
        assert (one.attack, one.row.name, one.spec["attack"]) == ("art:uap@fixed", "art:uap@fixed", "art:uap@repaired")
        assert [*several.parameters] == [member.attack for member in several.members]
        assert [AttackRun.from_spec(each.spec) for each in (one, several)] == [one, several]
        assert describe_attack(one)["variant"] == "repaired"


def test_an_old_name_of_a_fixed_variant_still_works(run):
    fixed, line = davylamp.find_implementation("art:uap@fixed"), "art:uap@repaired is deprecated: use art:uap@fixed"
    with pytest.warns(DeprecationWarning, match=line):
        assert davylamp.find_implementation("art:uap@repaired") is fixed
    with pytest.warns(DeprecationWarning, match=line):
        assert davylamp.AttackChoice("art:uap@repaired").attack == "art:uap@fixed"
    shown = run("attacks", "art:uap@fixed", "--json")[:2]
    assert run("attacks", "art:uap@repaired", "--json") == (*shown, f"- {line}\n")
    assert fixed.status == "patched"


def test_an_old_value_is_the_new_one(run, tmp_path):
    line = "examples=own is deprecated: use examples=defended"
    with pytest.warns(DeprecationWarning, match=f"^{line}$"):
        assert davylamp.Config(examples="own") == davylamp.Config(examples="defended")
    (tmp_path / "old.toml").write_text('examples = "own"', encoding="utf-8")
    for words in (("old.toml",), ("--examples", "own"), ("--examples=own",)):
        code, out, said = run("evaluate", *words, "--print-config")
        assert (code, 'examples = "defended"' in out) == (0, True)
        assert said.replace("--examples ", "examples=") == f"- {line}\n"
    code, _, said = run("rank", "nowhere", "--examples", "own")
    assert (code, said.splitlines()[0]) == (1, "- --examples own is deprecated: use --examples defended")


@pytest.mark.parametrize(("old", "new"), OLD_COMMANDS.items())
def test_an_old_command_is_the_new_one_and_prints_one_line(old, new, run):
    name, *options = current_command(new, COMMANDS)
    assert name in COMMANDS
    assert old not in COMMANDS
    assert {*options} <= {option for each in COMMANDS[name].params for option in each.opts}
    code, out, said = run(old, "--help")
    assert (code, out) == run(*new, "--help")[:2]
    assert said == f"- {old} is deprecated: use {' '.join(new)}\n"


def test_an_old_name_is_what_it_was_in_its_own_command(run):
    """`draws` was the samples of a certificate in `certify`, and `--rate` false-positive rates in `detect`."""
    given = {"data": "demo:digits", "limit": 1, "seed": 0}
    with pytest.warns(DeprecationWarning, match="use n"):
        old = davylamp.certify("demo:digits-cnn+smoothing:sigma=0.25", first=5, draws=10, **given)
    assert old.document == davylamp.certify("demo:digits-cnn+smoothing:sigma=0.25", n0=5, n=10, **given).document
    said = run("detect", "nothing", "--detector", "d", "--rate", "0.1")[2]
    assert said.startswith("- --rate is deprecated: use --false-positive-rates")
    with pytest.warns(DeprecationWarning, match="use request_rate"), pytest.raises(DavylampError):
        davylamp.detect("nothing", "d", rate="5 requests")


def test_an_option_by_both_names_is_refused(run):
    for words in (("--draws", "3", "--judge-samples", "4"), ("--judge-samples=4", "--draws=3")):
        code, _, said = run("evaluate", "--print-config", *words)
        assert (code, "--judge-samples is given twice" in said) == (1, True)


def test_the_first_word_of_two_lists_its_commands(run):
    for words in (["server"], ["server", "-h"]):
        code, out, _ = run(*words)
        assert (code, [line.split()[2] for line in out.splitlines()][:2]) == (0, ["worker", "users"])
    assert run("server", "bogus")[0] == 2

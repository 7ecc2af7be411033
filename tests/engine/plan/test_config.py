"""A config survives TOML; a mistake in it gets one line."""

from dataclasses import FrozenInstanceError
from typing import cast

import numpy as np
import pytest
import tomli_w

from davylamp.adapters import ThreatModel, run_attack
from davylamp.adapters.catalogue.step_size import resolve_step_size
from davylamp.adapters.threat_model import Norm
from davylamp.benchmarks.canary.setting import paper_name
from davylamp.benchmarks.shared.paper_numbers import load_published
from davylamp.engine.plan.config import AttackChoice, Config
from davylamp.engine.plan.config_file import config_from, expand_models, read_config, write_config
from davylamp.engine.plan.presets import PRESETS
from davylamp.errors import DavylampError, InvalidInput, UnknownName

PGD = {"attack": "pgd"}


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        Config(measures=(), libraries=("art",)),
        Config(limit=5, seeds=(1, 2), eight_bit=True, transfer="full", measures=("effect",)),
        Config(
            attacks=(
                AttackChoice("best(pgd)", "l2", None, "", {"step_size": "2.5 epsilon / steps"}, {"restarts": (1, 3)}),
                AttackChoice("art:cw", "l2", 0.5, "second-likely", {"confidence": 0.5}, defaults=True),
            )
        ),
        Config(order="cheap-first", stop_when_fooled=True),
        *(preset.config for preset in PRESETS.values()),
    ],
)
def test_toml_round_trip(config, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(write_config(config))
    assert read_config(file) == config


def test_texts_become_numbers(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        'models = ["demo:*"]\n[[attacks]]\nattack = "pgd"\nepsilon = "8/255"\n'
        'parameters = {steps = 10, step_size = "1/255"}\n'
    )
    (choice,) = read_config(file).attacks
    assert choice.epsilon == 8 / 255
    assert choice.parameters == {"steps": 10, "step_size": 1 / 255}


MISTAKES: list[tuple[dict, str]] = [
    ({"model": ["a"]}, "unknown key 'model'; did you mean models"),
    ({"evaluate": {"models": ["a"]}}, "unknown key 'evaluate'"),
    ({"order": "cheapest"}, "unknown order 'cheapest'"),
    ({"models": [3]}, "models[0]: expected a text, got 3"),
    ({"models": "a"}, 'models: expected a list, got "a"'),
    ({"models": []}, "models: expected at least one value"),
    ({"attacks": []}, "attacks: expected at least one value"),
    ({"attacks": "pgd"}, "attacks: expected a list"),
    ({"attacks": {"attack": "pgd"}}, "attacks: expected a list of tables, each under [[attacks]]"),
    ({"attacks": [3]}, "attacks[0]: expected a table, got 3"),
    ({"attacks": [{"attack": 3}]}, "attacks[0].attack: expected a text, got 3"),
    ({"attacks": ["fgsm", {"epsilon": 1}]}, "attacks[1].attack: expected the name of an attack"),
    ({"attacks": [{"attack": "pgd", "eps": 1}]}, "unknown key in attacks[0] 'eps'; did you mean epsilon"),
    ({"attacks": [{**PGD, "norm": "l7"}]}, "unknown attacks[0].norm 'l7'"),
    ({"attacks": [{**PGD, "norm": 2}]}, "attacks[0].norm: expected linf or l2 or l1 or l0 or unrestricted"),
    (
        {"attacks": [{**PGD, "epsilon": True}]},
        "attacks[0].epsilon: expected a number or a fraction such as 8/255, got true",
    ),
    ({"attacks": [{**PGD, "epsilon": "8/x"}]}, "attacks[0].epsilon: expected a radius as a number or a fraction"),
    ({"attacks": [{**PGD, "epsilon": float("nan")}]}, "attacks[0].epsilon: expected a finite number, got NaN"),
    ({"attacks": [{**PGD, "epsilon": float("inf")}]}, "attacks[0].epsilon: expected a finite number, got Inf"),
    ({"attacks": [{**PGD, "epsilon": 0}]}, "attacks[0].epsilon: expected a number > 0"),
    ({"attacks": [{**PGD, "defaults": 1}]}, "attacks[0].defaults: expected true or false, got 1"),
    ({"attacks": [{**PGD, "target": "²"}]}, "attacks[0].target: expected a target of second-likely"),
    ({"attacks": [{**PGD, "target": "9" * 23}]}, "attacks[0].target: expected a target of second-likely"),
    ({"attacks": [{**PGD, "parameters": 3}]}, "attacks[0].parameters: expected a table"),
    ({"attacks": [{**PGD, "parameters": {"stepz": 3}}]}, "attacks[0].parameters.stepz: unknown parameter"),
    ({"attacks": [{**PGD, "parameters": {"steps": "5"}}]}, "attacks[0].parameters.steps: expected steps as int"),
    ({"attacks": [{**PGD, "parameters": {"steps": [5]}}]}, "attacks[0].parameters.steps: expected steps as int"),
    ({"attacks": [{**PGD, "grid": {"steps": 5}}]}, "attacks[0].grid.steps: expected a list, got 5"),
    ({"attacks": [{**PGD, "grid": {"steps": [5, "a"]}}]}, "attacks[0].grid.steps: expected steps as int"),
    ({"eight_bit": "yes"}, 'eight_bit: expected true or false, got "yes"'),
    ({"transfer": "all"}, "unknown transfer 'all'; known: full, no, simple"),
    ({"limit": 0}, "limit: expected a whole number >= 1, got 0"),
    ({"limit": True}, "limit: expected a whole number, got true"),
    ({"limit": 1.5}, "limit: expected a whole number, got 1.5"),
    ({"limit": 10**23}, "limit: expected a whole number <= 2147483647"),
    ({"max_queries": 10**5000}, "max_queries: expected a whole number <= 2147483647, got a very long int"),
    ({"batch_size": 1e20}, "batch_size: expected a whole number, got 1e+20"),
    ({"precision": "float16"}, "unknown precision 'float16'; did you mean bfloat16 or float32"),
    ({"precision": "tf32"}, "precision: tf32 needs an NVIDIA GPU, got device cpu"),
    ({"seeds": ["a"]}, 'seeds[0]: expected a whole number, got "a"'),
    ({"seeds": [0, -1]}, "seeds[1]: expected a whole number >= 0, got -1"),
    ({"seeds": [2**32]}, "seeds[0]: expected a whole number <= 4294967295, got 4294967296"),
    ({"seeds": []}, "seeds: expected at least one value"),
    ({"libraries": ["foolbx"]}, "unknown libraries[0] 'foolbx'; did you mean foolbox"),
    ({"measures": ["distances"]}, "unknown measures[0] 'distances'; did you mean distance"),
    ({"device": 3}, "device: expected a text, got 3"),
    ({"preset": "canari"}, "unknown preset 'canari'; did you mean canary"),
    ({"preset": "robic"}, "preset: the file names the preset robic but has no attacks"),
]


@pytest.mark.parametrize(("values", "words"), MISTAKES)
def test_mistakes_get_one_line_that_names_the_key_and_the_file(values, words, tmp_path):
    with pytest.raises(DavylampError) as caught:
        config_from(values)
    said = str(caught.value)
    assert said.startswith(words)
    assert "\n" not in said
    assert len(said) < 300
    if set(values) <= set(Config.__dataclass_fields__) - {"preset"}:  # the same in Python, but for texts of attacks
        with pytest.raises(DavylampError) as caught:
            Config(**values)
        assert str(caught.value).startswith(words)
    if values.get("max_queries", values.get("limit", 0)) < 2**63:  # what TOML has
        file = tmp_path / "run.toml"
        file.write_text(tomli_w.dumps(values))
        with pytest.raises(DavylampError) as caught:
            read_config(file)
        assert str(caught.value).startswith(f"{file}: {words}")


def test_an_empty_file_is_no_evaluation_of_the_defaults(tmp_path):
    """A refused `--print-config > run.toml` leaves one, and a job array ran other models than were asked for."""
    file = tmp_path / "run.toml"
    file.write_text(" \n")
    with pytest.raises(InvalidInput, match=r"expected settings in .*run\.toml, got an empty file"):
        read_config(file)
    file.write_text("# the defaults\n")
    assert read_config(file).models


def test_python_takes_what_toml_does():
    assert Config(attacks=["pgd", {"attack": "fgsm", "epsilon": "8/255"}]) == Config(  # type: ignore[arg-type]
        attacks=(AttackChoice("pgd"), AttackChoice("fgsm", epsilon=8 / 255))
    )
    assert Config(models=["a"], seeds=[0, 1, np.int64(7)]).seeds == (0, 1, 7)  # type: ignore[arg-type]
    assert AttackChoice("pgd", "linf", 1).epsilon == 1.0
    with pytest.raises(FrozenInstanceError):
        Config().limit = 3  # type: ignore[misc]


def test_the_schema_is_loaded_when_it_is_used(run_fresh):
    assert run_fresh("import sys, davylamp.engine; print('pydantic' in sys.modules)") == "False\n"


@pytest.mark.parametrize(
    "text", [b"models = [", b"a = " + b"[" * 5000, b"limit = " + b"9" * 6000, b'models = ["\0"]', "é".encode("latin1")]
)
def test_a_file_that_is_missing_or_no_toml_is_one_line(text, tmp_path):
    file = tmp_path / "run.toml"
    with pytest.raises(DavylampError, match=r"cannot read the TOML file .*run\.toml"):
        read_config(file)
    file.write_bytes(text)
    with pytest.raises(InvalidInput, match="expected TOML in") as caught:
        read_config(file)
    assert "\n" not in str(caught.value)


def test_patterns_are_expanded():
    names = expand_models(Config(models=("demo:*", "demo:efficientnet-lite0", "mine.py:net"))).models
    assert names == (*(f"demo:efficientnet-lite{n}" for n in range(3)), "mine.py:net")
    resnets = expand_models(Config(models=("torchvision:resnet1*",))).models
    assert resnets == ("torchvision:resnet101", "torchvision:resnet152", "torchvision:resnet18")
    with pytest.raises(UnknownName):
        expand_models(Config(models=("demo:vgg*",)))


def printed_and_counted(digits, name):
    """Forward and backward passes of an attack of the preset, in CANARY's table 5 and here."""
    row = next(each for each in load_published("canary_table5")["rows"] if each["attack"] == paper_name(name))
    choice = next(each for each in PRESETS["canary"].config.attacks if each.attack == name)
    threat_model = ThreatModel(cast(Norm, choice.norm), choice.epsilon)
    case = digits.first(1)
    parameters = resolve_step_size(choice.parameters, choice.epsilon)
    result = run_attack(name, case.classifier, case.inputs, case.labels, threat_model, **parameters)
    return (row["QNC_F"], row["QNC_B"]), (result.forwards.item(), result.backwards.item())


@pytest.mark.parametrize(
    ("name", "printed", "counted"),
    [
        ("foolbox:bim", (100, 100), (101, 100)),  # Foolbox looks at its result once more
        ("torchattacks:mi-fgsm", (100, 100), (100, 100)),
        ("torchattacks:vmi-fgsm", (2000, 2000), (2100, 2100)),  # 20 samples and the image itself, in 100 steps
        ("davylamp:si-fgsm", (300, 300), (300, 300)),
    ],
)
def test_an_attack_of_canary_costs_what_its_table_5_prints(digits, name, printed, counted):
    assert printed_and_counted(digits, name) == (printed, counted)


def test_ead_which_may_stop_early_costs_no_more_than_table_5_prints(digits):
    printed, (forwards, backwards) = printed_and_counted(digits, "foolbox:ead-en")
    assert printed == (10_000, 5000)
    assert 0 < forwards <= printed[0]
    assert forwards == pytest.approx(2 * backwards, abs=10)

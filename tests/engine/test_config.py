"""A config survives TOML; a mistake in it gets one line."""

from typing import cast

import pytest

from davylamp.adapters import ThreatModel, run_attack
from davylamp.adapters.attack import Norm
from davylamp.benchmarks.canary_setting import paper_name
from davylamp.benchmarks.paper_numbers import load_published
from davylamp.engine.config import AttackChoice, Config, config_from, expand_models, read_config, write_config
from davylamp.engine.presets import PRESETS
from davylamp.engine.relative import resolve_step
from davylamp.errors import DavylampError, InvalidInput, UnknownName
from davylamp.metrics import METRICS


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        Config(limit=5, seeds=(1, 2), pixels=True, transfer="full", measures=("effect",)),
        Config(
            attacks=(
                AttackChoice("best(pgd)", "l2", None, "", {"step_size": "2.5 epsilon / steps"}, {"restarts": (1, 3)}),
                AttackChoice("art:cw", "l2", 0.5, "second-likely", {"confidence": 0.5}, defaults=True),
            )
        ),
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


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model": ["a"]}, "did you mean models"),
        ({"attacks": [{"attack": "pgd", "eps": 1}]}, "unknown setting of an attack"),
        ({"attacks": [{"epsilon": 1}]}, "expected attack = NAME"),
        ({"attacks": []}, "at least one"),
        ({"attacks": "pgd"}, "expected a list for attacks"),
        ({"transfer": "all"}, "expected transfer no, simple or full"),
        ({"limit": 0}, "expected limit as a whole number"),
        ({"measures": ["distances"]}, "did you mean distance"),
        ({"attacks": [{"attack": "pgd", "parameters": {"stepz": 3}}]}, "did you mean steps"),
        ({"attacks": [{"attack": "pgd", "parameters": {"steps": "many"}}]}, "expected steps as a number"),
        ({"attacks": [3]}, "expected a table"),
    ],
)
def test_mistakes_get_one_line(values, words):
    with pytest.raises(DavylampError, match=words) as caught:
        config_from(values)
    assert "\n" not in str(caught.value)


def test_broken_and_missing_files(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("models = [")
    with pytest.raises(InvalidInput, match="expected TOML"):
        read_config(file)
    with pytest.raises(DavylampError, match="found none"):
        read_config(tmp_path / "other.toml")


def test_patterns_are_expanded():
    found = expand_models(Config(models=("demo:*", "demo:efficientnet-lite0", "mine.py:net"))).models
    assert found == (*(f"demo:efficientnet-lite{n}" for n in range(3)), "mine.py:net")
    resnets = expand_models(Config(models=("torchvision:resnet1*",))).models
    assert resnets == ("torchvision:resnet101", "torchvision:resnet152", "torchvision:resnet18")
    with pytest.raises(UnknownName):
        expand_models(Config(models=("demo:vgg*",)))


def printed_and_counted(digits, name):
    """Forward and backward passes of an attack of the preset, in CANARY's table 5 and here."""
    row = next(own for own in load_published("canary_table5")["rows"] if own["attack"] == paper_name(name))
    choice = next(own for own in PRESETS["canary"].config.attacks if own.attack == name)
    threat_model = ThreatModel(cast(Norm, choice.norm), choice.epsilon)
    case = digits.first(1)
    parameters = resolve_step(choice.parameters, choice.epsilon)
    result = run_attack(name, case.classifier, case.inputs, case.labels, threat_model, **parameters)
    return (row["QNC_F"], row["QNC_B"]), (result.forwards.item(), result.backwards.item())


@pytest.mark.parametrize(
    ("name", "printed", "counted"),
    [
        ("foolbox:bim", (100, 100), (101, 100)),  # Foolbox looks at its result once more
        ("torchattacks:mi-fgsm", (100, 100), (100, 100)),
        ("torchattacks:vmi-fgsm", (2000, 2000), (2100, 2100)),  # 20 samples and the image itself, in 100 steps
        ("torchattacks:si-ni-fgsm", (300, 300), (300, 300)),
    ],
)
def test_an_attack_of_canary_costs_what_its_table_5_prints(digits, name, printed, counted):
    assert printed_and_counted(digits, name) == (printed, counted)


def test_ead_which_may_stop_early_costs_no_more_than_table_5_prints(digits):
    printed, (forwards, backwards) = printed_and_counted(digits, "foolbox:ead-en")
    assert printed == (10_000, 5000)
    assert 0 < forwards <= printed[0]
    assert forwards == pytest.approx(2 * backwards, abs=10)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_report_metrics_that_exist(name):
    for symbol in PRESETS[name].metrics:
        assert symbol in METRICS or (symbol.startswith("FR@") and symbol[3:].isdigit())

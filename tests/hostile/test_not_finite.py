"""Whose fault is what is not finite? No model gains by NaN, no library does, and neither is blamed for the other."""

import pytest
import torch

from davylamp.adapters import Classifier, ThreatModel, as_implementation, find_implementation, run_attack
from davylamp.adapters.data.datasets import Data
from davylamp.adapters.result import fault_of
from davylamp.adapters.running.judge import KINDS
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.comparison.compare import compare
from davylamp.engine.store.data_frames import load, load_outcomes
from davylamp.engine.store.results import read_outcomes
from davylamp.engine.tables.table import build_table
from davylamp.errors import ModelFailed
from davylamp.scoring.responses import build_responses
from tests.hostile import not_finite as kit

BALL = ThreatModel("linf", 0.1)
PGD = ("foolbox:pgd", "torchattacks:pgd", "art:pgd")


def make(name, digits):
    more = (digits.inputs, digits.labels) if name == "NanForSomeClasses" else ()
    return kit.MODELS[name](digits.classifier.model, *more).eval()


def attack(row, module, digits, rules=BALL, **parameters):
    return run_attack(row, Classifier(module, num_classes=10), digits.inputs, digits.labels, rules, **parameters)


@pytest.mark.parametrize("row", [*PGD, "foolbox:deepfool", "art:square"])
@pytest.mark.parametrize("name", kit.MODELS)
def test_no_model_gains_by_what_is_not_finite(digits, name, row):
    rules = ThreatModel("l2", 1.0) if row == "foolbox:deepfool" else BALL
    more = {"max_queries": 60} if row == "art:square" else {"steps": 10}
    honest = attack(row, digits.classifier.model, digits, rules, **more)
    try:
        result = attack(row, make(name, digits), digits, rules, **more)
    except ModelFailed:
        return  # the whole run is the model's failure
    truth = make(name, digits).true(result.adv_inputs).argmax(1) != digits.labels
    assert not (result.success & ~truth).any()
    assert not (result.robust & ~honest.robust).any()
    assert set(result.faults) <= {"", "model"}
    assert result.undecided == int(result.invalid.sum())


@pytest.mark.parametrize("name", kit.ATTACKS)
def test_no_library_gains_by_what_is_not_finite(digits, name):
    program = as_implementation(kit.ATTACKS[name])
    result = attack(program, digits.classifier.model, digits)
    with torch.no_grad():
        truth = digits.classifier.model(result.adv_inputs).argmax(1) != digits.labels
    assert not (result.success & ~truth).any()
    assert set(result.faults) <= {"", "library"}
    assert result.undecided == 0
    rows = [find_implementation("foolbox:pgd"), program]
    (pair,) = compare("pgd", digits.classifier, digits.inputs, digits.labels, BALL, rows=rows).pairs
    assert (pair.judgement.images, pair.judgement.left_out) == (16, 0)
    if name != "crashes_at_nan":
        assert result.invalid.any()
        assert pair.judgement.verdict in ("broken", "weaker")
        assert pair.weaker == program.name


@pytest.mark.parametrize("name", ["NoGradientAtBlack", "NoGradientAnywhere"])
def test_a_library_that_cannot_bear_a_nan_of_the_model_is_not_blamed(digits, name):
    with pytest.raises(ModelFailed, match="not finite"):
        attack(kit.crashes_at_nan, make(name, digits), digits)


def test_every_kind_has_one_fault():
    faults = {kind: fault_of([kind]) for kind in KINDS}
    assert {kind for kind, fault in faults.items() if fault == "model"} == {"nan-logits", "nan-gradient", "unstable"}
    unknown = {"no-gradient", "no-signal", "no-start", "surrogate", "model-crashed"}
    assert {kind for kind, fault in faults.items() if fault == "unknown"} == unknown
    assert (fault_of([]), fault_of(["violated"])) == ("", "unknown")
    assert fault_of(["nan", "nan-gradient"]) == fault_of(["crashed", "nan-logits"]) == "model"
    assert fault_of(["model-changed", "nan-logits"]) == "library"
    assert fault_of(["no-start", "black"]) == "library"


@pytest.fixture(scope="module")
def folder(digits, tmp_path_factory):
    """The honest network beside one that answers NaN where it is unsure, and one without a gradient at black pixels."""
    path = tmp_path_factory.mktemp("faults") / "results"
    names = ("NanWhereUnsure", "NoGradientAtBlack")
    models = {"honest": digits.classifier} | {name: Classifier(make(name, digits), num_classes=10) for name in names}
    data = Data(digits.inputs, digits.labels, [str(place) for place in range(16)])
    choices = tuple(AttackChoice(row, "linf", epsilon=0.1) for row in PGD)
    config = Config(attacks=choices, data="digits", measures=("effect",))
    assert evaluate(make_plan(config, models=models, data=data), ResultsStore(path)).failed == {}
    return path


def test_no_model_climbs_by_nan_in_tables_and_rankings(folder):
    rows = {row.labels["model"]: row.metrics for row in build_table(folder, by="models").rows}
    honest = rows["honest"]
    for name in ("NanWhereUnsure", "NoGradientAtBlack"):
        for symbol in ("RA_mean", "RA"):
            mine, true = rows[name][symbol], honest[symbol]
            assert (mine.value, mine.high) <= (true.value, true.high)
    for frame in (load(folder), load_outcomes(folder)):
        responses = build_responses(frame, "models")
        means = dict(zip(responses.subjects, responses.values.mean(1), strict=True))  # no response is missing
        assert max(means.values()) == means["honest"] > means["NoGradientAtBlack"]
    columns = [each.columns for each in read_outcomes(folder).done if each.cell.subject.model == "NoGradientAtBlack"]
    assert all("nan-gradient" in " ".join(each["violations"]) for each in columns)

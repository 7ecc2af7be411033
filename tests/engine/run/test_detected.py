"""Records of a model with a detector against its answers: to be detected is neither a misclassification nor a class."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from davylamp import metrics
from davylamp.adapters import Classifier
from davylamp.engine import AttackChoice, Config, ResultsStore, build_table, evaluate, load, make_plan
from davylamp.engine.store.columns import read_examples
from davylamp.engine.store.data_frames import OUTCOMES, results_on_original
from davylamp.engine.store.results import read_outcomes
from davylamp.engine.store.shown import change_when_shown

PGD = AttackChoice("foolbox:pgd", "linf", 0.3, target="random", parameters={"steps": 3})


class Detecting(nn.Module):
    """A model and a class more, which wins where every second pixel is brighter in the mean than on any clean image."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs):
        logits = self.model(inputs)
        above = inputs.detach()[:, :, ::2, 1::2].mean((1, 2, 3)) - 0.375
        return torch.cat([logits, (logits.amax(1) + above)[:, None]], 1)


@pytest.fixture(scope="module")
def world(digits, images, tmp_path_factory):
    """Targeted PGD on the plain model and on the one with a detector, each also shown the examples of the other."""
    joint = Classifier(Detecting(digits.module), num_classes=11, name="joint")
    joint.detects = True
    config = Config(attacks=(PGD,), data="digits", keep_images=True, transfer="full", shard_size=6)
    plan = make_plan(config, models={"plain": digits.classifier, "joint": joint}, data=images)
    store = ResultsStore(tmp_path_factory.mktemp("results"))
    evaluate(plan, store)
    examples = {cell.subject.model: read_examples(store, cell) for cell in plan.cells}
    answers = {name: joint.predict_logits(each) for name, each in examples.items()}
    plain = {name: digits.classifier.predict_logits(each).argmax(1) for name, each in examples.items()}
    truth = SimpleNamespace(
        answers=answers, plain=plain, labels=digits.labels, clean=joint.predict_logits(images.inputs)
    )
    truth.detected = {name: each.argmax(1) == 10 for name, each in answers.items()}
    assert 3 <= int(truth.detected["joint"].sum()) <= 12
    assert (truth.clean.argmax(1) == digits.labels).all()
    return store.folder, truth


def records(folder, model):
    return load(folder).query("model == @model").sort_values("index")


def test_what_is_detected_is_no_misclassification(world):
    folder, truth = world
    wrong = (truth.answers["joint"].argmax(1) != truth.labels) & ~truth.detected["joint"]
    mine = records(folder, "joint")
    assert mine["detected"].tolist() == truth.detected["joint"].tolist()
    assert mine["MR"].tolist() == wrong.double().tolist()
    assert mine["AAW"].tolist() == (~wrong).double().tolist()
    table = build_table(folder, by="pairs", metrics=["MR"], bootstrap=0)
    values = {row.labels["model"]: row.metrics["MR"].value for row in table.rows}
    assert values["joint"] == pytest.approx(float(wrong.double().mean()))
    assert values["plain"] == float((truth.plain["plain"] != truth.labels).double().mean())
    count = int(truth.detected["joint"].sum())
    line = f"joint: {count} of 16 examples are detected and count as not misclassified in MR, AAW, AAB"
    assert [note for note in table.notes if "detected" in note] == [line]


def test_metrics_of_the_class_in_its_place_leave_it_out(world):
    folder, truth = world
    detected = truth.detected["joint"]
    mine, left = records(folder, "joint"), ~detected
    given = {"logits": truth.clean[left], "adv_logits": truth.answers["joint"][left], "labels": truth.labels[left]}
    functions = {
        "ACAC": metrics.adversarial_class_confidence,
        "ACTC": metrics.true_class_confidence_when_fooled,
        "NTE": metrics.noise_tolerance,
        "AIAC": metrics.adversarial_confidence_increase,
        "ARTC": metrics.true_confidence_reduction,
    }
    for symbol, function in functions.items():
        named = {name: value for name, value in given.items() if name in inspect.signature(function).parameters}
        expected = function(**named, reduction="none").double()
        np.testing.assert_allclose(mine[symbol][left.numpy()], expected, rtol=1e-5, atol=2e-6, err_msg=symbol)
        assert mine[symbol][detected.numpy()].isna().all(), symbol
    table = build_table(folder, by="pairs", metrics=["FR@2", "FR@5", "FR_AUC", "ACAC"], bootstrap=0)
    row = next(row for row in table.rows if row.labels["model"] == "joint")
    for symbol, count in (("FR@2", 2), ("FR@5", 5)):  # one from its logits, one from its record
        expected = metrics.fooling_rate_at_k(given["logits"], given["adv_logits"], count)
        assert row.metrics[symbol][:1] == pytest.approx((float(expected),))
        assert row.metrics[symbol].n == int(left.sum())
    assert (
        "ACAC was not measured everywhere: detected examples are omitted, because they have no class of the data"
        in (table.notes)
    )


def test_what_is_detected_does_not_transfer(world):
    """Neither from the model with a detector nor to it."""
    folder, truth = world
    outcomes = read_outcomes(folder, ["OTR"])
    rates = {each.cell.subject.model: np.nanmean(each.columns["OTR"]) for each in outcomes.done}
    wrong = {name: (each.argmax(1) != truth.labels) & ~truth.detected[name] for name, each in truth.answers.items()}
    plain = {name: each != truth.labels for name, each in truth.plain.items()}
    assert rates["plain"] == pytest.approx(float(wrong["plain"][plain["plain"]].double().mean()))
    assert rates["joint"] == pytest.approx(float(plain["joint"][wrong["joint"]].double().mean()))
    detected, after = truth.detected["plain"], truth.answers["plain"].softmax(1)
    assert detected.any()
    before = truth.clean.softmax(1)
    places, predicted = torch.arange(16), truth.answers["plain"].argmax(1)
    rise = (after[places, predicted] - before[places, predicted])[~detected].mean()
    plan = {each.cell.subject.model: each for each in outcomes.done}
    record = outcomes.store.read("transfer", f"{plan['plain'].cell.key}-{plan['joint'].cell.subject.key}")
    changes = change_when_shown(plan["plain"], outcomes.clean[plan["joint"].cell.subject.key], record)
    assert np.nanmean(changes["AIAC"]) == pytest.approx(float(rise), abs=1e-5)
    assert np.isnan(changes["ARTC"]).tolist() == detected.tolist()


def test_a_defence_that_detects_is_not_fooled_in_rankings_of_what_it_was_shown(world):
    folder, truth = world
    rows = results_on_original(folder, load(folder, columns=OUTCOMES), {"joint": "plain"})
    wrong = (truth.answers["plain"].argmax(1) != truth.labels) & ~truth.detected["plain"]
    mine = rows[rows["model"] == "joint"].sort_values("index")
    assert mine["success"].tolist() == wrong.tolist()


def test_without_a_detector_records_have_no_such_column(small_folder):
    assert "detected" not in load(small_folder)
    assert not any("detected" in line for line in read_outcomes(small_folder).notes)

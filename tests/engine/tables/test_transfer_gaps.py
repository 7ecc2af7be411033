"""What a transfer table says of answers that are no numbers, and of attacks that were not tested everywhere."""

import math

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, load_transfer, make_plan
from davylamp.engine.store.results import read_outcomes
from davylamp.engine.tables.table import build_table
from davylamp.engine.tables.transfer_table import build_transfer, transfer_long_format
from davylamp.errors import Unsupported
from davylamp.metrics import METRICS
from davylamp.report.text.console import make_console
from davylamp.report.text.tables import print_transfer

LABELS = torch.zeros(6, dtype=torch.int64)
RIGHT = torch.tensor([[5.0, 0]]).repeat(6, 1)
WRONG = RIGHT.flip(1)


class FailsOffTheImages(nn.Module):
    """Right on what it knows; NaN, in one class, on the first half of everything else."""

    def __init__(self, model, inputs):
        super().__init__()
        self.model, self.inputs = model, inputs

    def forward(self, inputs):
        logits = self.model(inputs)
        if len(inputs) == len(self.inputs) and not torch.equal(inputs, self.inputs):
            logits[: len(inputs) // 2, 3] = torch.nan
        return logits


def test_an_example_that_a_model_has_no_logits_for_is_neither_transferred_nor_not(digits, images, tmp_path):
    models = {"a": digits.classifier, "b": Classifier(FailsOffTheImages(digits.module, digits.inputs))}
    config = Config(attacks=(AttackChoice("foolbox:fgsm", "linf", 0.3),), data="digits", transfer="full")
    plan = make_plan(config, models=models, data=images)
    evaluate(plan, ResultsStore(tmp_path))
    frame = load_transfer(tmp_path)
    seen = frame[(frame["made_on"] == "a") & (frame["tested_on"] == "b")]
    n = len(digits.labels)
    assert seen["adv_predicted"].isna().tolist() == [True] * (n // 2) + [False] * (n - n // 2)
    assert seen["adv_probability"].isna().tolist() == seen["label_probability"].isna().tolist()
    outcomes = read_outcomes(tmp_path, ["OTR"])
    made = next(outcome for outcome in outcomes.done if outcome.cell.subject.model == "a")
    fooled = made.columns["success"][n // 2 :]
    known = seen["adv_predicted"].to_numpy()[n // 2 :] != seen["label"].to_numpy()[n // 2 :]
    transfer = build_transfer(tmp_path, bootstrap=0)
    rate = transfer.tables[0].rates[0][0][1]
    assert rate.n == fooled.sum() > 0
    assert rate.value == known[fooled].mean()
    assert any(f"{n // 2} examples for which b returns NaN" in note for note in transfer.notes)


def test_records_of_0_1_0_hold_a_class_where_the_logits_were_nan(writer):
    a, b = (writer.clean(name, RIGHT, LABELS) for name in "ab")
    cell = writer.cell(a, "foolbox:pgd", RIGHT, WRONG, LABELS)
    columns = {"index": range(6), "adv_predicted": [1, 1, 0, 0, 0, 0], "adv_probability": [1.0, 1, 1, *[math.nan] * 3]}
    writer.store.write("transfer", f"{cell.key}-{b.key}", pa.table(columns), writer._meta(b, cell.key, cell))
    (table,) = build_transfer(writer.store.folder, bootstrap=0).tables
    assert (table.rates[0][0][1].value, table.rates[0][0][1].n) == (pytest.approx(2 / 3), 3)
    (row,) = build_table(writer.store.folder, metrics=["OTR"], bootstrap=0).rows
    assert (row.metrics["OTR"].value, row.metrics["OTR"].n) == (pytest.approx(2 / 3), 3)


@pytest.fixture
def gaps(writer):
    """Two attacks on three models; the second was not tested from x to y and not run on z."""
    subjects = {name: writer.clean(name, RIGHT, LABELS) for name in "xyz"}
    shares = {"foolbox:pgd": 2, "art:pgd": 5}  # of 6 examples that transfer
    for attack, share in shares.items():
        for source in "xyz" if attack == "foolbox:pgd" else "xy":
            cell = writer.cell(subjects[source], attack, RIGHT, WRONG, LABELS)
            for tested in set("xyz") - {source}:
                if (attack, source, tested) != ("art:pgd", "x", "y"):
                    writer.transfer(cell, subjects[tested], (torch.arange(6) < share).long())
    return writer.store.folder


def test_a_threat_is_the_mean_over_the_attacks_that_were_tested(gaps):
    transfer = build_transfer(gaps, bootstrap=20)
    (table,) = transfer.tables
    both, one = (2 / 6 + 5 / 6) / 2, 2 / 6
    threats = np.array([[estimate.value for estimate in line] for line in table.threat_from])
    np.testing.assert_allclose(
        threats, [[math.nan, one, both], [both, math.nan, both], [one, one, math.nan]], atol=1e-6
    )
    assert table.threat_from_attacks == ((0, 1, 2), (2, 0, 2), (1, 1, 0))
    np.testing.assert_allclose([estimate.value for estimate in table.threat], [one, one, both], atol=1e-6)
    assert table.threat_attacks == (1, 1, 2)
    assert transfer.notes == ("art:pgd linf 0.1: rates for 3 of 6 pairs of models; the threat is the mean over these",)
    console = make_console()
    with console.capture() as captured:
        print_transfer(transfer, console)
    assert captured.get().count("1 of 2 attacks") == 5
    counts = {
        (row.labels["made_on"], row.labels["tested_on"]): row.labels["attacks"]
        for row in transfer_long_format(transfer).rows
        if row.labels["implementation"] == "mean"
    }
    assert (counts["x", "y"], counts["x", "z"], counts["mean", "z"]) == (1, 2, 2)


@pytest.mark.parametrize("by", ["attacks", "models", "pairs"])
def test_the_reason_for_an_absent_metric_is_the_right_one(writer, by):
    subject = writer.clean("a", RIGHT, LABELS)
    writer.cell(subject, "foolbox:pgd", RIGHT, WRONG, LABELS, target="1", measures=("confusion",))
    for symbol in ("NS", "NU"):
        with pytest.raises(Unsupported, match="evaluate with `measures=neurons`"):
            build_table(writer.store.folder, by=by, metrics=[symbol])
    with pytest.raises(Unsupported, match="--metric effect"):
        build_table(writer.store.folder, by=by, metrics=["TAS"])
    with pytest.raises(Unsupported, match="ImageNet classes"):
        build_table(writer.store.folder, by=by, metrics=["QI_Wup_T"])
    writer.cell(subject, "foolbox:fgsm", RIGHT, WRONG, LABELS, measures=("confusion",))


def test_no_reason_names_measures_that_do_not_exist(writer):
    subject = writer.clean("a", RIGHT, LABELS)
    writer.cell(subject, "foolbox:pgd", RIGHT, WRONG, LABELS)
    for symbol in METRICS:
        try:
            build_table(writer.store.folder, metrics=[symbol], bootstrap=0)
        except Unsupported as error:
            group = METRICS[symbol].function.__module__.rpartition(".")[2]
            if "--metric " in str(error):
                Config(measures=(group,))

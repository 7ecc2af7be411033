"""Transfer tables against the metrics on the predictions that they were made of."""

import math

import numpy as np
import pytest
import torch

from davylamp import metrics
from davylamp.engine.tables.table import build_table
from davylamp.engine.tables.transfer_table import build_transfer, transfer_long_format
from davylamp.errors import Unsupported
from davylamp.intervals import proportion_interval

N = 30
ATTACKS = ("foolbox:pgd", "torchattacks:pgd")


def logits_for(predicted):
    return 10 * torch.nn.functional.one_hot(predicted, 5).float()


@pytest.fixture
def world(writer):
    """Three models, two attacks: what every model predicts, clean and on every example."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(5, (N,), generator=generator)

    def noisy(share):
        wrong = torch.rand(N, generator=generator) < share
        return torch.where(wrong, (labels + 1) % 5, labels)

    clean = torch.stack([noisy(0.1) for _ in range(3)])
    examples = torch.stack([torch.stack([torch.stack([noisy(0.6) for _ in range(3)]) for _ in range(3)]) for _ in "ab"])
    subjects = [writer.clean(name, logits_for(each), labels) for name, each in zip("xyz", clean, strict=True)]

    def write(*, tested=lambda source, target: source != target):
        for attack, name in enumerate(ATTACKS):
            for source in range(3):
                adv = logits_for(examples[attack, source, source])
                cell = writer.cell(subjects[source], name, logits_for(clean[source]), adv, labels)
                for target in range(3):
                    if source != target and tested(source, target):
                        writer.transfer(cell, subjects[target], examples[attack, source, target])

    return writer, write, labels, clean, examples


def values(estimates):
    return np.array([values(each) if isinstance(each[0], tuple) else each.value for each in estimates])


def rates_of(labels, clean, examples, over):
    """Each pair as an observable transfer rate between two models."""
    rates = torch.full((2, 3, 3), math.nan)
    for attack in range(2):
        for source in range(3):
            for target in {0, 1, 2} - {source}:
                two = [source, target]
                rates[attack, source, target] = metrics.observable_transfer_rate(
                    clean[two], examples[attack, source][two], labels, 0, over=over
                )
    return rates


@pytest.mark.parametrize("over", ["fooled", "valid"])
def test_the_tables_are_those_of_the_metrics(world, over):
    writer, write, labels, clean, examples = world
    write()
    (table,) = build_transfer(writer.store.folder, over=over, bootstrap=50).tables
    rates = rates_of(labels, clean, examples, over)
    assert table.models == ("x", "y", "z")
    assert [entry["implementation"] for entry in table.attacks] == list(ATTACKS)
    np.testing.assert_allclose(values(table.rates), rates.numpy(), atol=1e-6)
    np.testing.assert_allclose(values(table.by_source), metrics.transfer_by_source(rates), atol=1e-6)
    np.testing.assert_allclose(values(table.by_target), metrics.transfer_by_target(rates), atol=1e-6)
    np.testing.assert_allclose(values(table.of_attack), metrics.transfer_of_attack(rates), atol=1e-6)
    np.testing.assert_allclose(values(table.threat), metrics.transfer_threat(rates), atol=1e-6)
    for attack, source, tested in np.ndindex(2, 3, 3):
        entry = table.rates[attack][source][tested]
        truth = proportion_interval(round(entry.value * entry.n), entry.n) if entry.n else (math.nan, math.nan)
        assert entry[1:3] == pytest.approx(truth, nan_ok=True)
    for means in (*table.by_source, *table.by_target, table.of_attack, table.threat):
        assert all(0 <= entry.low < entry.value < entry.high <= 1 for entry in means)
    for source in range(3):
        truth = metrics.simple_transfer_threat(rates, source)
        np.testing.assert_allclose(values(table.threat_from)[source], truth, atol=1e-6)


def test_the_mean_over_tested_models_is_otr(world):
    writer, write, labels, clean, examples = world
    write()
    (table,) = build_transfer(writer.store.folder, bootstrap=50).tables
    pairs = build_table(writer.store.folder, by="pairs", metrics=["OTR"], bootstrap=50)
    for row in pairs.rows:
        attack = ATTACKS.index(row.labels["implementation"])
        source = "xyz".index(row.labels["model"])
        truth = float(metrics.observable_transfer_rate(clean, examples[attack, source], labels, source))
        assert row.metrics["OTR"].value == pytest.approx(truth)
        assert table.by_source[attack][source].value == pytest.approx(truth)
        assert (row.metrics["OTR"].low, row.metrics["OTR"].high) == pytest.approx(table.by_source[attack][source][1:3])
        fooled = (clean[source] == labels) & (examples[attack, source, source] != labels)
        assert row.metrics["OTR"].n == int(fooled.sum())


def test_after_a_simple_run_the_means_with_a_gap_are_undefined(world):
    writer, write, *_ = world
    write(tested=lambda source, target: 0 in (source, target))
    (table,) = build_transfer(writer.store.folder, bootstrap=0).tables
    assert np.isnan(values(table.rates)[:, 1, 2]).all()
    assert not np.isnan(values(table.by_source)[:, 0]).any()
    assert np.isnan(values(table.by_source)[:, 1:]).all()
    assert np.isnan(values(table.of_attack)).all()
    assert not np.isnan(values(table.threat_from)[0, 1:]).any()  # the simple threat test, from the first model
    assert not np.isnan(values(table.by_target)[:, 0]).any()  # the simple attack test, on the first model


def test_models_that_see_other_images_are_left_out_and_named(world):
    writer, write, labels, clean, _ = world
    write()
    other = writer.clean("large", logits_for(clean[0]), labels, digest="resized")
    writer.cell(other, "foolbox:pgd", logits_for(clean[0]), logits_for(clean[1]), labels)
    transfer = build_transfer(writer.store.folder, bootstrap=0)
    assert transfer.tables[0].models == ("x", "y", "z")
    assert len(transfer.tables) == 1
    assert transfer.notes == ("omitted: large: no other model was tested on the same images (pixel by pixel)",)


def test_a_violation_transfers_nothing(writer):
    labels = torch.zeros(4, dtype=torch.int64)
    right, wrong = logits_for(labels), logits_for(labels + 1)
    a, b = (writer.clean(name, right, labels) for name in "ab")
    bad = torch.tensor([True, True, False, False])
    cell = writer.cell(a, "foolbox:pgd", right, wrong, labels, violated=bad)
    writer.transfer(cell, b, torch.tensor([1, 1, 1, 0]))
    (table,) = build_transfer(writer.store.folder, bootstrap=0).tables
    assert (table.rates[0][0][1].value, table.rates[0][0][1].n) == (0.5, 2)


def test_without_transfers_there_is_no_table(world):
    writer, write, *_ = world
    write(tested=lambda *_: False)
    with pytest.raises(Unsupported, match="`transfer='full'`"):
        build_transfer(writer.store.folder)


def test_rows_hold_every_entry_once(world):
    writer, write, *_ = world
    write()
    transfer = build_transfer(writer.store.folder, bootstrap=0)
    (table,) = transfer.tables
    rows = transfer_long_format(transfer).rows
    assert len(rows) == 2 * 16 + 12
    entries = {
        tuple(row.labels[k] for k in ("implementation", "made_on", "tested_on")): row.metrics["rate"] for row in rows
    }
    assert len(entries) == len(rows)
    assert entries["foolbox:pgd", "x", "z"] == table.rates[0][0][2]
    assert entries["torchattacks:pgd", "y", "mean"] == table.by_source[1][1]
    assert entries["foolbox:pgd", "mean", "y"] == table.by_target[0][1]
    assert entries["foolbox:pgd", "mean", "mean"] == table.of_attack[0]
    assert entries["mean", "mean", "z"] == table.threat[2]
    assert entries["mean", "x", "z"] == table.threat_from[0][2]

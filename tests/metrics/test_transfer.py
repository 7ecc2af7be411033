"""Transfer rates by hand and against loops."""

import math

import pytest
import torch

from davylamp.metrics import (
    observable_transfer_rate,
    simple_transfer_of_attack,
    simple_transfer_threat,
    transfer_by_source,
    transfer_by_target,
    transfer_of_attack,
    transfer_threat,
)

LABELS = torch.tensor([0, 0, 0, 0])
CLEAN = torch.tensor([[0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]])  # model 0 is wrong on image 3
ATTACKED = torch.tensor([[1, 1, 0, 1], [1, 0, 1, 1], [1, 2, 0, 1]])
RATES = torch.arange(18, dtype=torch.float64).reshape(2, 3, 3)


def test_by_hand():
    # Made on model 0: images 0 and 1 fool it; 0 fools both others, 1 fools model 2 only.
    values = observable_transfer_rate(CLEAN, ATTACKED, LABELS, 0, reduction="none")
    assert values.tolist() == pytest.approx([1, 0.5, math.nan, math.nan], nan_ok=True)
    assert observable_transfer_rate(CLEAN, ATTACKED, LABELS, 0) == 0.75
    assert observable_transfer_rate(CLEAN, ATTACKED, LABELS, 0, over="valid") == 0.5


@pytest.mark.parametrize("source", [0, 1, 2])
def test_against_a_loop(arguments, source):
    clean, attacked, labels = (arguments[name] for name in ("predictions", "adv_predictions", "labels"))
    hits = fooled = 0
    for image, label in enumerate(labels):
        if clean[source, image] == label and attacked[source, image] != label:
            fooled += 1
            hits += sum(int(attacked[other, image] != label) for other in range(3) if other != source)
    assert observable_transfer_rate(clean, attacked, labels, source) == pytest.approx(hits / fooled / 2)


def test_one_model_or_nothing_fooled_is_undefined():
    assert observable_transfer_rate(CLEAN[:1], ATTACKED[:1], LABELS, 0).isnan()
    assert observable_transfer_rate(CLEAN, torch.zeros_like(CLEAN), LABELS, 0).isnan()
    with pytest.raises(ValueError, match="expected source from 0 to 2, got 3"):
        observable_transfer_rate(CLEAN, ATTACKED, LABELS, 3)


def test_means_leave_the_diagonal_out():
    assert transfer_by_source(RATES)[0].tolist() == [1.5, 4, 6.5]
    assert transfer_by_target(RATES)[0].tolist() == [4.5, 4, 3.5]
    assert transfer_of_attack(RATES).tolist() == [4, 13]
    assert transfer_threat(RATES).tolist() == [9, 8.5, 8]
    assert simple_transfer_of_attack(RATES, 2).tolist() == [3.5, 12.5]
    assert simple_transfer_threat(RATES, 0).tolist() == pytest.approx([math.nan, 5.5, 6.5], nan_ok=True)


def test_the_diagonal_is_not_read_and_other_nans_show():
    holes = RATES.clone()
    holes[:, range(3), range(3)] = math.nan
    torch.testing.assert_close(transfer_by_source(holes), transfer_by_source(RATES))
    holes[1, 0, 2] = math.nan
    assert transfer_of_attack(holes).isnan().tolist() == [False, True]


def test_shapes():
    assert transfer_of_attack(RATES[:, :1, :1]).isnan().all()
    with pytest.raises(ValueError, match=r"expected rates of shape \(A, M, M\), got \(2, 3, 2\)"):
        transfer_by_source(RATES[:, :, :2])
    with pytest.raises(ValueError, match="expected tested from 0 to 2, got -1"):
        simple_transfer_of_attack(RATES, -1)

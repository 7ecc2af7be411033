"""Confusion of labels by hand and against loops."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine

from davylamp.metrics import (
    fooling_rate_at_k,
    fooling_rate_auc,
    semantic_confusion,
    targeted_semantic_confusion,
    targeted_visual_confusion,
    visual_confusion,
    weight_similarity,
)

CLEAN = torch.tensor([[9.0, 0, 0, 0]] * 4)
ATTACKED = torch.tensor([[4.0, 3, 2, 1], [3.0, 4, 2, 1], [1.0, 4, 3, 2], [4.0, 4, 4, 1]])  # class 0 ranks 1, 2, 4, 1
SIMILARITY = torch.tensor([[1.0, 0.7, 0.2, 0.1], [0.7, 1, 0, 0], [0.2, 0, 1, 0], [0.1, 0, 0, 1]])


def test_ranks_by_hand():
    assert fooling_rate_at_k(CLEAN, ATTACKED, 1) == 0.5
    assert fooling_rate_at_k(CLEAN, ATTACKED, 2) == 0.25
    assert fooling_rate_at_k(CLEAN, ATTACKED, 3) == 0.25
    assert fooling_rate_at_k(CLEAN, ATTACKED, 4).isnan()  # there are no more classes
    assert fooling_rate_at_k(CLEAN, ATTACKED, 1000).isnan()
    # trapezoids over 1..3: (0.5 + 0.25) / 2 + (0.25 + 0.25) / 2, over the width 2
    assert fooling_rate_auc(CLEAN, ATTACKED, (1, 2, 3)) == pytest.approx(0.3125)


def test_area_against_numpy(outputs):
    logits, adv_logits, _ = outputs
    ks = (1, 2, 5, 10, 20, 50, 100)
    rates = [float(fooling_rate_at_k(logits, adv_logits, k).nan_to_num(0)) for k in ks]
    assert rates == sorted(rates, reverse=True)
    assert fooling_rate_auc(logits, adv_logits) == pytest.approx(np.trapezoid(rates, ks) / 99)


@pytest.mark.parametrize("ks", [(), (3,), (2, 2), (5, 1), (0, 1)])
def test_an_axis_needs_increasing_ks(ks):
    with pytest.raises(ValueError, match="expected at least two values of K"):
        fooling_rate_auc(CLEAN, ATTACKED, ks)
    with pytest.raises(ValueError, match="expected k >= 1, got 0"):
        fooling_rate_at_k(CLEAN, ATTACKED, 0)


def test_thresholds_are_strict():
    # After the attack: 0, 1, 1, 0. Similarity of 0 and 1 is just 0.7: not below it.
    assert semantic_confusion(CLEAN, ATTACKED, SIMILARITY) == 0
    exact = torch.tensor([[1.0, 0.7], [0.7, 1]], dtype=torch.float64).repeat(2, 2)
    assert semantic_confusion(CLEAN, ATTACKED, exact) == 0
    assert semantic_confusion(CLEAN, ATTACKED, exact - 1e-12) == 0.5
    assert semantic_confusion(CLEAN, ATTACKED, SIMILARITY, threshold=0.71) == 0.5


def test_targets_far_from_the_prediction_are_misses():
    targets = torch.tensor([0, 3, 1, 2])
    values = targeted_semantic_confusion(targets, ATTACKED, SIMILARITY, reduction="none")
    assert values.tolist() == [0, 1, 0, 1]
    assert targeted_visual_confusion(ATTACKED.argmax(1), ATTACKED, torch.eye(4)) == 0


def test_visual_similarity_against_scipy(arguments):
    weight = arguments["weight"]
    similarity = weight_similarity(weight)
    expected = [[1 - cosine(a, b) for b in weight.numpy()] for a in weight.numpy()]
    torch.testing.assert_close(similarity, torch.tensor(expected))
    logits, adv_logits = arguments["logits"], arguments["adv_logits"]
    pairs = zip(logits.argmax(1), adv_logits.argmax(1), strict=True)
    confused = [expected[before][after] < 0.02 for before, after in pairs]
    assert 0 < sum(confused) < len(confused)
    assert visual_confusion(logits, adv_logits, weight, threshold=0.02) == pytest.approx(np.mean(confused))


def test_a_class_without_weights_is_undefined():
    weight = torch.eye(4)
    weight[1] = 0
    assert weight_similarity(weight)[1].isnan().all()
    values = visual_confusion(CLEAN, ATTACKED, weight, reduction="none")
    assert values.tolist() == pytest.approx([0, math.nan, math.nan, 0], nan_ok=True)


def test_similarity_belongs_to_the_classes():
    with pytest.raises(ValueError, match=r"expected similarity of shape \(4, 4\), got \(3, 3\)"):
        semantic_confusion(CLEAN, ATTACKED, SIMILARITY[:3, :3])

"""What an attack leaves of the clean class, against loops over sorted scores."""

import numpy as np
import pytest
import torch

from davylamp.metrics import (
    confusion_within,
    demotion_rank,
    largest_demotion_rank,
    reached_classes,
    similarity_variance,
)


@pytest.fixture
def scores():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(60, 9, generator=generator), torch.randn(60, 9, generator=generator)


def test_ranks_against_sorting(scores):
    logits, adv_logits = scores
    orders = np.argsort(-adv_logits.numpy(), axis=1)
    ranks = [1 + order.tolist().index(before) for order, before in zip(orders, logits.argmax(1).tolist(), strict=True)]
    assert demotion_rank(logits, adv_logits, reduction="none").tolist() == ranks
    assert demotion_rank(logits, adv_logits) == pytest.approx(np.mean(ranks))
    assert largest_demotion_rank(logits, adv_logits) == max(ranks)
    assert largest_demotion_rank(logits, logits) == demotion_rank(logits, logits) == 1
    assert largest_demotion_rank(logits[:0], adv_logits[:0]).isnan()


def test_a_swap_of_the_first_two_is_rank_2():
    """DeepFool's way, 3.1: the runner-up takes over."""
    logits = torch.tensor([[3.0, 2, 1, 0], [0, 1, 2, 3]])
    assert demotion_rank(logits, torch.tensor([[2.0, 3, 1, 0], [3, 2, 1, 0]]), reduction="none").tolist() == [2, 4]


def test_classes_reached(scores):
    _, adv_logits = scores
    for n in (0, 3, 60):
        expected = len({*adv_logits[:n].argmax(1).tolist()}) / 9 if n else float("nan")
        assert float(reached_classes(adv_logits[:n])) == pytest.approx(expected, nan_ok=True)
    assert reached_classes(torch.eye(9)[[4] * 50]) == pytest.approx(1 / 9)  # one sink


def test_confusion_within_a_group(scores):
    logits, adv_logits = scores
    group = [1, 2, 3, 7]
    values = []
    for before, after in zip(logits.argmax(1).tolist(), adv_logits.argmax(1).tolist(), strict=True):
        values.append(float(after in group and after != before) if before in group else float("nan"))
    assert confusion_within(logits, adv_logits, group, reduction="none").tolist() == pytest.approx(values, nan_ok=True)
    assert 0 < np.nanmean(values) < 1
    assert confusion_within(logits, adv_logits, group) == pytest.approx(np.nanmean(values))
    moved = (logits.argmax(1) != adv_logits.argmax(1)).double().mean()
    assert confusion_within(logits, adv_logits) == pytest.approx(float(moved))
    for wrong in ([], [9], [-1]):
        with pytest.raises(ValueError, match="expected classes from 0 to 8"):
            confusion_within(logits, adv_logits, wrong)


def test_variance_of_similarities_over_models():
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(5, width, generator=generator, dtype=torch.float64) for width in (4, 7, 7)]
    variances = []
    for i in range(5):
        for j in range(i):
            alike = [float(w[i] @ w[j] / w[i].norm() / w[j].norm()) for w in weights]
            variances.append(np.var(alike))
    assert float(similarity_variance(weights)) == pytest.approx(np.mean(variances))
    assert similarity_variance([weights[1], 3 * weights[1]]) == pytest.approx(0, abs=1e-15)
    with pytest.raises(ValueError, match="expected 2 or more models with equal numbers of classes"):
        similarity_variance([weights[0], weights[1][:3]])

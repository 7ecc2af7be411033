"""What an attack does to decisions and confidence: by hand, and against loops over the definitions."""

import math

import numpy as np
import pytest
import torch
from scipy.special import softmax

from davylamp.metrics import (
    adversarial_accuracy,
    adversarial_class_confidence,
    adversarial_confidence_increase,
    misclassification_ratio,
    noise_tolerance,
    quantised_success,
    summarise,
    targeted_attack_success,
    true_class_confidence_when_fooled,
    true_confidence_reduction,
)

LABELS = torch.tensor([0, 0, 0, 1])
CLEAN = torch.tensor([[0.8, 0.1, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.3, 0.5, 0.2]], dtype=torch.float64).log()
ATTACKED = torch.tensor([[0.2, 0.7, 0.1], [0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.1, 0.1, 0.8]], dtype=torch.float64).log()
# Image 2 is wrong when clean; images 0 and 3 are fooled, image 1 is not.


def test_by_hand():
    assert misclassification_ratio(CLEAN, ATTACKED, LABELS) == pytest.approx(2 / 3)
    rise = adversarial_confidence_increase(CLEAN, ATTACKED, LABELS, reduction="none")
    assert rise.tolist() == pytest.approx([0.6, -0.1, math.nan, 0.6], nan_ok=True)
    fall = true_confidence_reduction(CLEAN, ATTACKED, LABELS, reduction="none")
    assert fall.tolist() == pytest.approx([0.6, 0.1, math.nan, 0.4], nan_ok=True)
    assert adversarial_accuracy(ATTACKED, LABELS) == 0.25
    assert adversarial_class_confidence(ATTACKED, LABELS) == pytest.approx((0.7 + 0.7 + 0.8) / 3)
    assert true_class_confidence_when_fooled(ATTACKED, LABELS) == pytest.approx((0.2 + 0.1 + 0.1) / 3)
    assert true_class_confidence_when_fooled(ATTACKED, LABELS, over="all") == pytest.approx(0.9 / 4)
    assert noise_tolerance(ATTACKED, LABELS) == pytest.approx((0.5 + 0.5 + 0.7) / 3)
    assert noise_tolerance(ATTACKED, LABELS, over="all") == pytest.approx((0.5 + 0.2 + 0.5 + 0.7) / 4)


def test_targets_equal_to_the_label_do_not_count():
    targets = torch.tensor([1, 0, 2, 2])
    reached = targeted_attack_success(CLEAN, ATTACKED, LABELS, targets, reduction="none")
    assert reached.tolist() == pytest.approx([1, math.nan, math.nan, 1], nan_ok=True)


def test_rounding_undoes_a_success_that_counts():
    success = torch.tensor([True, True, True, False])
    survives = quantised_success(CLEAN, ATTACKED, LABELS, success, reduction="none")
    assert survives.tolist() == pytest.approx([1, 0, math.nan, math.nan], nan_ok=True)


def test_against_loops(outputs):
    logits, adv_logits, labels = outputs
    before, after = softmax(logits.numpy(), axis=1), softmax(adv_logits.numpy(), axis=1)
    increase, reduction, confidence, true, lead = [], [], [], [], []
    for p, q, label in zip(before, after, labels.tolist(), strict=True):
        guess = q.argmax()
        if p.argmax() == label:
            increase.append(q[guess] - p[guess])
            reduction.append(p[label] - q[label])
        if guess != label:
            confidence.append(q[guess])
            true.append(q[label])
            lead.append(q[guess] - sorted(q)[-2])
    assert 0 < len(confidence) < len(labels)
    assert 0 < len(increase) < len(labels)
    for function, expected in (
        (adversarial_confidence_increase, increase),
        (true_confidence_reduction, reduction),
    ):
        assert function(logits, adv_logits, labels) == pytest.approx(sum(expected) / len(expected))
    for function, expected in (
        (adversarial_class_confidence, confidence),
        (true_class_confidence_when_fooled, true),
        (noise_tolerance, lead),
    ):
        assert function(adv_logits, labels) == pytest.approx(sum(expected) / len(expected))


def test_readings_over_all_images(outputs):
    """Equations 10 and 11 as they are printed, on images whose clean prediction is the label."""
    _, adv_logits, labels = outputs
    after = softmax(adv_logits.numpy(), axis=1)
    true = [q[label] for q, label in zip(after, labels, strict=True)]
    lead = [sorted(q)[-1] - sorted(q)[-2] for q in after]
    printed = [q[label] - np.delete(q, label).max() for q, label in zip(after, labels.tolist(), strict=True)]
    assert true_class_confidence_when_fooled(adv_logits, labels, over="all") == pytest.approx(np.mean(true))
    assert noise_tolerance(adv_logits, labels, over="all") == pytest.approx(np.mean(lead))
    values = noise_tolerance(adv_logits, labels, over="all", of="clean", reduction="none")
    assert values.tolist() == pytest.approx(printed)
    assert torch.equal(values < 0, adv_logits.argmax(1) != labels)


def test_equal_images(outputs):
    logits, _, labels = outputs
    assert misclassification_ratio(logits, logits, labels) == 0
    assert adversarial_confidence_increase(logits, logits, labels) == 0
    assert true_confidence_reduction(logits, logits, labels) == 0


def test_nothing_is_fooled():
    values = adversarial_class_confidence(CLEAN[:2], LABELS[:2], reduction="none")
    assert summarise(values)[1:] == (0, 2)
    assert adversarial_class_confidence(CLEAN[:2], LABELS[:2]).isnan()
    assert true_class_confidence_when_fooled(CLEAN[:2], LABELS[:2]).isnan()
    assert noise_tolerance(CLEAN[:2], LABELS[:2]).isnan()


def test_a_lead_needs_two_classes():
    with pytest.raises(ValueError, match="at least 2 classes, got 1"):
        noise_tolerance(torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="expected over to be one of 'successes', 'all', got 'valid'"):
        noise_tolerance(ATTACKED, LABELS, over="valid")

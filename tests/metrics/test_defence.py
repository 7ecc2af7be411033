"""What a defence changes: by hand, by identities, and against SciPy and loops."""

import math

import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.special import softmax

from davylamp import metrics
from davylamp.metrics import (
    accuracy_variance,
    adversarial_confidence_drop,
    classification_confidence_variance,
    classification_output_stability,
    confidence_variance,
    f1_variance,
    macro_f1,
    misclassification_ratio,
    misclassification_variance,
    rectify_ratio,
    sacrifice_ratio,
    summarise,
    true_class_confidence,
    true_confidence_gain,
)

LABELS = torch.tensor([0, 0, 1, 1])
ORIGINAL = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7], [0.2, 0.8]], dtype=torch.float64).log()
DEFENDED = torch.tensor([[0.7, 0.3], [0.8, 0.2], [0.6, 0.4], [0.1, 0.9]], dtype=torch.float64).log()
# The original is wrong on image 1, the defended model on image 2.


def test_by_hand():
    assert accuracy_variance(ORIGINAL, DEFENDED, LABELS) == 0
    assert rectify_ratio(ORIGINAL, DEFENDED, LABELS) == 0.25
    assert sacrifice_ratio(ORIGINAL, DEFENDED, LABELS) == 0.25
    assert confidence_variance(ORIGINAL, DEFENDED, LABELS) == pytest.approx((-0.2 + 0.4 - 0.3 + 0.1) / 4)
    change = classification_confidence_variance(ORIGINAL, DEFENDED, LABELS, reduction="none")
    assert change.tolist() == pytest.approx([0.2, math.nan, math.nan, 0.1], nan_ok=True)
    drop = adversarial_confidence_drop(ORIGINAL, DEFENDED, reduction="none")
    assert drop.tolist() == pytest.approx([0.2, -0.2, 0.1, -0.1])
    same_class = adversarial_confidence_drop(ORIGINAL, DEFENDED, of="original", reduction="none")
    assert same_class.tolist() == pytest.approx([0.2, 0.4, 0.3, -0.1])
    gain = true_confidence_gain(ORIGINAL, DEFENDED, LABELS, reduction="none")
    assert gain.tolist() == pytest.approx([-0.2, 0.4, -0.3, 0.1])


def test_divergence_against_scipy(outputs):
    logits, _, labels = outputs
    defended = logits + torch.linspace(-1, 1, 5, dtype=torch.float64)
    pairs = zip(softmax(logits.numpy(), axis=1), softmax(defended.numpy(), axis=1), labels.tolist(), strict=True)
    expected = [jensenshannon(p, q) ** 2 if p.argmax() == q.argmax() == label else math.nan for p, q, label in pairs]
    values = classification_output_stability(logits, defended, labels, reduction="none")
    assert values.tolist() == pytest.approx(expected, nan_ok=True)
    assert values.isnan().any()
    bits = classification_output_stability(logits, defended, labels, base=2, reduction="none")
    torch.testing.assert_close(bits, values / math.log(2), equal_nan=True)
    with pytest.raises(ValueError, match="expected base > 1, got 1"):
        classification_output_stability(logits, defended, labels, base=1)


def test_divergence_of_certain_outputs():
    certain = torch.tensor([[1e4, 0.0, -1e4]])
    assert classification_output_stability(certain, certain, torch.tensor([0])) == 0


def test_identities(outputs):
    logits, defended, labels = outputs
    values = accuracy_variance(logits, defended, labels)
    difference = rectify_ratio(logits, defended, labels) - sacrifice_ratio(logits, defended, labels)
    torch.testing.assert_close(values, difference)
    torch.testing.assert_close(accuracy_variance(defended, logits, labels), -values)
    for classes in ("met", "all"):
        expected = macro_f1(defended, labels, classes=classes) - macro_f1(logits, labels, classes=classes)
        torch.testing.assert_close(f1_variance(logits, defended, labels, classes=classes), expected)
    expected = true_class_confidence(defended, labels) - true_class_confidence(logits, labels)
    torch.testing.assert_close(confidence_variance(logits, defended, labels), expected)


def test_each_model_has_its_own_valid_images(arguments):
    names = ("logits", "adv_logits", "defended_logits", "defended_adv_logits", "labels")
    clean, attacked, defended, defended_attacked, labels = (arguments[name] for name in names)
    defended = clean.roll(1, 0)
    expected = misclassification_ratio(defended, defended_attacked, labels) - misclassification_ratio(
        clean, attacked, labels
    )
    assert (defended.argmax(1) == labels).sum() != (clean.argmax(1) == labels).sum()
    value = misclassification_variance(clean, attacked, defended, defended_attacked, labels)
    torch.testing.assert_close(value, expected)


@pytest.mark.parametrize(
    ("variance", "distortion", "options"),
    [
        ("maximum_distortion_variance", "maximum_distortion", {}),
        ("euclidean_distortion_variance", "euclidean_distortion", {"normalisation": "published"}),
        ("pixel_change_variance", "pixel_change_ratio", {"rounding": "truncate"}),
        ("multi_scale_gmsd_variance", "multi_scale_gmsd", {"chromatic": True}),
        ("dists_variance", "dists", {"features": None}),
    ],
)
def test_a_distortion_is_compared_with_itself(arguments, vgg, variance, distortion, options):
    options = {name: value or vgg for name, value in options.items()}
    names = ("inputs", "adv_inputs", "success", "defended_adv_inputs", "defended_success")
    inputs, adv_inputs, success, defended, defended_success = (arguments[name] for name in names)
    function = getattr(metrics, distortion)
    value = getattr(metrics, variance)(inputs, adv_inputs, success, defended, defended_success, **options)
    expected = function(inputs, defended, defended_success, **options) - function(
        inputs, adv_inputs, success, **options
    )
    torch.testing.assert_close(value, expected)
    assert value != 0
    after, before = (
        summarise(function(inputs, each, counts, reduction="none", **options))
        for each, counts in ((defended, defended_success), (adv_inputs, success))
    )
    assert value == pytest.approx(after.mean - before.mean)
    assert (after.defined, before.defined) == (defended_success.sum(), success.sum())
    nothing = torch.zeros_like(success)
    assert getattr(metrics, variance)(inputs, adv_inputs, success, defended, nothing, **options).isnan()


def test_equal_models(outputs):
    logits, _, labels = outputs
    assert classification_confidence_variance(logits, logits, labels) == 0
    assert classification_output_stability(logits, logits, labels) == 0
    assert adversarial_confidence_drop(logits, logits) == 0
    wrong = (logits.argmax(1) + 1) % 5
    assert classification_confidence_variance(logits, logits, wrong).isnan()

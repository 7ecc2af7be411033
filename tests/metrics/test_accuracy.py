"""Clean accuracy, macro F1 and confidence against scikit-learn, SciPy and values worked by hand."""

import pytest
import torch
from scipy.special import softmax
from sklearn.metrics import accuracy_score, f1_score

from davylamp.metrics import METRICS, clean_accuracy, macro_f1, robust_accuracy, symbols_named, true_class_confidence

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 3.0], [1.0, 0.0, 0.0]])
LABELS = torch.tensor([0, 2, 2, 1])  # predictions 0, 1 (a tie goes to the first), 2, 0


def test_by_hand():
    assert clean_accuracy(LOGITS, LABELS) == 0.5
    # class 0: P 1/2, R 1; class 1: 0; class 2: P 1, R 1/2
    assert macro_f1(LOGITS, LABELS) == pytest.approx((2 / 3 + 0 + 2 / 3) / 3)
    even = torch.zeros(2, 4)
    assert true_class_confidence(even, torch.tensor([0, 3])) == 0.25


def test_robust_accuracy_is_the_worst_case_image_by_image():
    """Each of two attacks leaves 2 of 4 images right; together they leave one, and one was wrong when clean."""
    right = torch.eye(3)[[0, 1, 2, 2]] * 5
    labels = torch.tensor([0, 1, 2, 0])
    first, second = right.clone(), right.clone()
    first[0], second[1] = torch.tensor([0.0, 5, 0]), torch.tensor([5.0, 0, 0])
    assert robust_accuracy(right, right, labels) == clean_accuracy(right, labels) == 0.75
    assert robust_accuracy(right, first, labels) == robust_accuracy(right, second, labels) == 0.5
    both = torch.stack([first, second])
    assert robust_accuracy(right, both, labels) == 0.25
    assert robust_accuracy(right, both, labels, reduction="none").tolist() == [0, 0, 1, 0]
    aimed = torch.tensor([2, 0, 0, 1])  # the first attack drives the first image to 1, the second the second to 0
    assert robust_accuracy(right, both, labels, targets=aimed, reduction="none").tolist() == [1, 0, 1, 0]
    with pytest.raises(ValueError, match="expected adv_logits"):
        robust_accuracy(right, both[:, :2], labels)
    with pytest.raises(ValueError, match="expected targets"):
        robust_accuracy(right, both, labels, targets=torch.tensor([0, 0, 0, 9]))


@pytest.mark.parametrize("name", ["RA", "ra", "robust accuracy", "Robust-Accuracy", "RA_worst"])
def test_robust_accuracy_is_found_by_its_names(name):
    assert symbols_named(name) == ("RA",)
    assert METRICS["RA"].function is robust_accuracy


@pytest.mark.parametrize("classes", [3, 20])
def test_against_scikit_learn(classes):
    generator = torch.Generator().manual_seed(classes)
    labels = torch.randint(classes, (60,), generator=generator)
    logits = torch.randn(60, classes, dtype=torch.float64, generator=generator)
    predicted = logits.argmax(1)
    assert clean_accuracy(logits, labels) == pytest.approx(accuracy_score(labels, predicted))
    assert macro_f1(logits, labels) == pytest.approx(f1_score(labels, predicted, average="macro", zero_division=0))
    every = f1_score(labels, predicted, average="macro", labels=range(classes), zero_division=0)
    assert macro_f1(logits, labels, classes="all") == pytest.approx(every)
    confidence = softmax(logits.numpy(), axis=1)[range(60), labels]
    assert true_class_confidence(logits, labels, reduction="none").tolist() == pytest.approx(confidence.tolist())


def test_large_logits_do_not_overflow():
    logits = torch.tensor([[1000.0, 999.0], [-1000.0, 1000.0]])
    confidence = true_class_confidence(logits, torch.tensor([1, 0]), reduction="none")
    assert confidence.tolist() == pytest.approx([1 / (1 + 2.718281828), 0.0])


def test_half_precision_is_computed_in_single():
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).half()
    labels = torch.zeros(5, dtype=torch.int64)
    torch.testing.assert_close(true_class_confidence(logits, labels), true_class_confidence(logits.float(), labels))


def test_no_class_is_met_without_images():
    nothing = torch.zeros(0, 3)
    assert macro_f1(nothing, torch.zeros(0, dtype=torch.int64)).isnan()
    assert macro_f1(nothing, torch.zeros(0, dtype=torch.int64), classes="all").isnan()


@pytest.mark.parametrize("labels", [torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 2, -1])])
def test_labels_must_be_classes(labels):
    with pytest.raises(ValueError, match="expected labels to hold values between 0 and 2"):
        clean_accuracy(LOGITS, labels)
    with pytest.raises(ValueError, match="expected labels of type int64"):
        clean_accuracy(LOGITS, LABELS.int())


def test_a_million_rows_need_little_memory():
    labels = torch.zeros(1_000_000, dtype=torch.int64)
    logits = torch.zeros(1, 4).expand(1_000_000, 4)
    assert true_class_confidence(logits, labels) == pytest.approx(0.25)

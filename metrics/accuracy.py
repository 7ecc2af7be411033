"""How good a model is without any attack."""

from typing import Literal

import torch
from torch import Tensor

from .common import check_choice, check_classes, check_logits, claims, confidence
from .registry import Reduction, metric, reduce


@metric(
    symbol="CA",
    title="Clean accuracy",
    robust_when="higher",
    between=(0, 1),
    source="CANARY (Sun et al. 2023), 3.1.1; AISafety (Liu et al. 2021), eq 7",
    formula="mean [F(x) = y]",
    aliases=("ACC", "accuracy"),
)
def clean_accuracy(logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Share of the images that the model classifies correctly.

    Args:
        logits: of the clean images, shape (N, K); on a tie the first class is predicted.
        labels: true classes, shape (N,), int64.
        reduction: "mean" or "sum" over the images, or "none".

    Returns:
        A scalar, or shape (N,) of 0 and 1 for "none"; a fraction; NaN without images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_classes(check_logits(logits=logits), labels=labels)
    return reduce(claims(logits.argmax(1) == labels, logits), reduction)


@metric(
    symbol="CF",
    title="Macro F1",
    robust_when="higher",
    between=(0, 1),
    source="CANARY (Sun et al. 2023), 3.1.1",
    formula="mean over classes of 2 P R / (P + R), P = TP / (TP + FP), R = TP / (TP + FN), 0/0 = 0",
    aliases=("F1",),
)
def macro_f1(logits: Tensor, labels: Tensor, *, classes: Literal["met", "all"] = "met") -> Tensor:
    """Unweighted mean over the classes of the F1 score.

    F1 = 2 P R / (P + R) with precision P and recall R, 0/0 counted as 0. The paper sums over images and divides by
    their number, although precision and recall belong to classes: a slip.

    Args:
        logits: of the clean images, shape (N, K).
        labels: true classes, shape (N,), int64.
        classes: "met" averages over the classes that occur among labels or predictions, "all" over all K.

    Returns:
        A scalar; a fraction; NaN without images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    sizes = check_logits(logits=logits)
    check_classes(sizes, labels=labels)
    check_choice("classes", classes, ("met", "all"))
    predicted = logits.argmax(1)
    hits, actual, assigned = (
        claims(torch.bincount(which, minlength=sizes["K"]), logits)
        for which in (labels[predicted == labels], labels, predicted)
    )
    f1 = 2 * hits / (actual + assigned)
    if classes == "all" and len(labels):
        f1 = f1.nan_to_num(0)
    return f1.nanmean()


@metric(
    symbol="CC",
    title="Confidence of the true class",
    robust_when="higher",
    between=(0, 1),
    source="CANARY (Sun et al. 2023), 3.1.1",
    formula="mean P(x)[y]",
)
def true_class_confidence(logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Probability that the model gives to the true class, whether it predicts it or not.

    Args:
        logits: of the clean images, shape (N, K).
        labels: true classes, shape (N,), int64.
        reduction: "mean" or "sum" over the images, or "none".

    Returns:
        A scalar, or shape (N,) for "none"; a probability; NaN without images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_classes(check_logits(logits=logits), labels=labels)
    return reduce(confidence(logits, labels), reduction)

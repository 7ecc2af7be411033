"""Accuracy of a model on clean images and under all attacks."""

from typing import Literal

import torch
from torch import Tensor

from .common import as_float, check, check_choice, check_classes, check_logits, confidence
from .registry import Reduction, metric, reduce


@metric(
    symbol="CA",
    title="Clean accuracy",
    robust_when="higher",
    between=(0, 1),
    source="CANARY (Sun et al. 2023), 3.1.1; AISafety (Liu et al. 2021), eq 7",
    formula="mean [F(x) = y]",
    latex=r"\operatorname{mean} [F(x) = y]",
    aliases=("ACC", "accuracy"),
    kind="share",
    stored="clean",
    tables=("models",),
    brief=True,
)
def clean_accuracy(logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Share of the images that the model classifies correctly.

    Args:
        logits: logits of the clean images, shape (N, K). On a tie, the first class is predicted.
        labels: true classes, shape (N,), int64.
        reduction: "mean" or "sum" over the images, or "none".

    Returns:
        A fraction, as a scalar. For "none", 0 or 1 for each image, shape (N,). NaN if there are no images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_classes(check_logits(logits=logits), labels=labels)
    return reduce(as_float(logits.argmax(1) == labels, logits), reduction)


@metric(
    symbol="CF",
    title="Macro F1",
    robust_when="higher",
    between=(0, 1),
    source="CANARY (Sun et al. 2023), 3.1.1",
    formula="mean over classes of 2 P R / (P + R), P = TP / (TP + FP), R = TP / (TP + FN), 0/0 = 0",
    latex=r"\operatorname{mean}_{\text{classes}} \frac{2 P R}{P + R}, "
    r"\quad P = \frac{\mathrm{TP}}{\mathrm{TP} + \mathrm{FP}}, \quad R = \frac{\mathrm{TP}}{\mathrm{TP} + \mathrm{FN}}",
    aliases=("F1",),
    kind="set",
    stored="clean",
    tables=("models",),
)
def macro_f1(logits: Tensor, labels: Tensor, *, classes: Literal["met", "all"] = "met") -> Tensor:
    """Macro F1: the F1 score of each class, averaged over the classes without weights.

    For each class, F1 = 2 P R / (P + R) with precision P and recall R. 0/0 counts as 0. The formula in CANARY's paper
    averages over images, although precision and recall are defined for classes.

    Args:
        logits: logits of the clean images, shape (N, K).
        labels: true classes, shape (N,), int64.
        classes: classes to average over. "met" selects the classes that occur among the labels or the predictions.
            "all" selects all K classes.

    Returns:
        The mean F1 score in [0, 1], as a scalar. NaN if there are no images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    sizes = check_logits(logits=logits)
    check_classes(sizes, labels=labels)
    check_choice("classes", classes, ("met", "all"))
    predicted = logits.argmax(1)
    hits, actual, assigned = (
        as_float(torch.bincount(which, minlength=sizes["K"]), logits)
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
    latex=r"\operatorname{mean} P(x)_y",
    stored="clean",
    needs=("confidences",),
    tables=("models",),
)
def true_class_confidence(logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Probability that the model assigns to the true class, averaged over correctly and wrongly classified images.

    Args:
        logits: logits of the clean images, shape (N, K).
        labels: true classes, shape (N,), int64.
        reduction: "mean" or "sum" over the images, or "none".

    Returns:
        A probability, as a scalar. For "none", one value for each image, shape (N,). NaN if there are no images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_classes(check_logits(logits=logits), labels=labels)
    return reduce(confidence(logits, labels), reduction)


@metric(
    symbol="RA",
    title="Robust accuracy",
    robust_when="higher",
    between=(0, 1),
    source="RobustBench (Croce et al. 2021)",
    formula="mean [F(x) = y, and F(xa) = y for the xa of every attack]",
    latex=r"\operatorname{mean} [F(x) = y \text{ and } F(x_a) = y \text{ for every attack } a]",
    aliases=("worst-case robust accuracy", "RA_worst"),
    kind="share",
    stored="always",
    across="worst",
    invalid="not robust",
    tables={"attacks": "TAS", "models": "CA", "pairs": "TAS"},
    brief=True,
)
def robust_accuracy(
    logits: Tensor,
    adv_logits: Tensor,
    labels: Tensor,
    *,
    targets: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Share of all images that are classified correctly, both clean and under every attack.

    If any attack fools an image, the image is not robust. In davylamp's tables, an image with an invalid result is not
    robust either. For a randomised model, the value of an image is the fraction of its samples that are robust.

    Args:
        logits: logits of the clean images, shape (N, K).
        adv_logits: logits of the adversarial images, shape (N, K), or shape (A, N, K) for A attacks.
        labels: true classes, shape (N,), int64.
        targets: target classes of targeted attacks, shape (N,), int64. The image of a targeted attack counts as robust
            unless the model predicts the target. None means that the attacks are untargeted.
        reduction: "mean" or "sum" over the images, or "none".

    Returns:
        A fraction, as a scalar. For "none", 0 or 1 for each image, shape (N,). Unchanged images give the clean
        accuracy. NaN if there are no images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    sizes = check_logits(logits=logits)
    several = adv_logits[None] if isinstance(adv_logits, Tensor) and adv_logits.ndim == 2 else adv_logits
    check({"adv_logits": several}, "A N K", sizes=sizes)
    check_classes(sizes, labels=labels, **({} if targets is None else {"targets": targets}))
    predicted = several.argmax(2)
    kept = predicted == labels if targets is None else predicted != targets
    return reduce(as_float((logits.argmax(1) == labels) & kept.all(0), logits), reduction)

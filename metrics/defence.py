"""Effect of a defence: the defended model compared with the original model on the same images.

The caller chooses the images. Clean images measure the cost of a defence, and adversarial images its gain.
"""

from math import e, log

import torch
from torch import Tensor
from torch.special import xlogy

from .accuracy import clean_accuracy, macro_f1, true_class_confidence
from .common import ROWS, as_float, at_least_float32, check_classes, check_logits, confidence, nan_where_undefined
from .differences import difference
from .registry import Reduction, metric, reduce

accuracy_variance = difference(
    clean_accuracy,
    "accuracy_variance",
    of_images=True,
    symbol="CAV",
    title="Accuracy variance",
    meaning="Accuracy of the defended model minus that of the original.",
    source="CANARY (Sun et al. 2023), 3.1.4; AISafety (Liu et al. 2021), eq 15; HikDeep-Sec (Zhang et al. 2023), AV",
    formula="CA(defended) - CA(original) = CRR - CSR",
    latex=r"\mathrm{CA}_D - \mathrm{CA}_O = \mathrm{CRR} - \mathrm{CSR}",
    aliases=("AV", "MCV"),
)


f1_variance = difference(
    macro_f1,
    "f1_variance",
    symbol="FV",
    title="F1 variance",
    meaning="Macro F1 of the defended model minus that of the original.",
    aliases=("MCV",),
)


confidence_variance = difference(
    true_class_confidence,
    "confidence_variance",
    of_images=True,
    symbol="CV",
    title="Confidence variance",
    unit="probability",
    meaning="Probability of the true class on the defended model minus that on the original.",
    aliases=("MCV",),
)


@metric(
    symbol="CRR",
    title="Rectify ratio",
    robust_when="higher",
    between=(0, 1),
    source="CANARY (Sun et al. 2023), 3.1.4; AISafety (Liu et al. 2021), eq 16; HikDeep-Sec (Zhang et al. 2023), RR",
    formula="mean [F_O != y and F_D = y]",
    latex=r"\operatorname{mean} [F_O(x) \neq y \text{ and } F_D(x) = y]",
    aliases=("RR",),
    kind="share",
)
def rectify_ratio(logits: Tensor, defended_logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Share of all images that the original model misclassifies and the defended model classifies correctly.

    Args:
        logits: logits of the original model, shape (N, K).
        defended_logits: logits of the defended model, shape (N, K).
        labels: true classes, shape (N,), int64.
        reduction: "mean" or "sum" over the images, or "none".

    Returns:
        A fraction, as a scalar. For "none", 0 or 1 for each image, shape (N,). Two equal models give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    right, defended_right = _right(logits, defended_logits, labels)
    return reduce(defended_right * (1 - right), reduction)


@metric(
    symbol="CSR",
    title="Sacrifice ratio",
    robust_when="lower",
    between=(0, 1),
    source="CANARY (Sun et al. 2023), 3.1.4; AISafety (Liu et al. 2021), eq 17; HikDeep-Sec (Zhang et al. 2023), SR",
    formula="mean [F_O = y and F_D != y]",
    latex=r"\operatorname{mean} [F_O(x) = y \text{ and } F_D(x) \neq y]",
    aliases=("SR",),
    kind="share",
)
def sacrifice_ratio(
    logits: Tensor, defended_logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean"
) -> Tensor:
    """Share of all images that the original model classifies correctly and the defended model misclassifies.

    Args:
        logits: logits of the original model, shape (N, K).
        defended_logits: logits of the defended model, shape (N, K).
        labels: true classes, shape (N,), int64.
        reduction: "mean" or "sum" over the images, or "none".

    Returns:
        A fraction, as a scalar. For "none", 0 or 1 for each image, shape (N,). Two equal models give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    right, defended_right = _right(logits, defended_logits, labels)
    return reduce(right * (1 - defended_right), reduction)


@metric(
    symbol="CCV",
    title="Classification confidence variance",
    robust_when="lower",
    between=(0, 1),
    unit="probability",
    source="CANARY (Sun et al. 2023), 3.1.4; AISafety (Liu et al. 2021), eq 18; HikDeep-Sec (Zhang et al. 2023)",
    formula="mean over images that both get right of |P_O[y] - P_D[y]|",
    latex=r"\operatorname{mean}_{\text{both right}} |P_O(x)_y - P_D(x)_y|",
    needs=("confidences",),
)
def classification_confidence_variance(
    logits: Tensor, defended_logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean"
) -> Tensor:
    """Absolute change of the probability of the true class, over images that both models classify correctly.

    Args:
        logits: logits of the original model, shape (N, K).
        defended_logits: logits of the defended model, shape (N, K).
        labels: true classes, shape (N,), int64.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A difference of probabilities, as a scalar. For "none", one value for each image, shape (N,), and NaN where at
        least one model is wrong. Two equal models give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_classes(check_logits(logits=logits, defended_logits=defended_logits), labels=labels)
    change = (confidence(defended_logits, labels) - confidence(logits, labels)).abs()
    return reduce(nan_where_undefined(change, _both_right(logits, defended_logits, labels)), reduction)


@metric(
    symbol="COS",
    title="Classification output stability",
    robust_when="lower",
    between=(0, log(2)),
    unit="nats",
    source="CANARY (Sun et al. 2023), 3.1.4; AISafety (Liu et al. 2021), eq 19; HikDeep-Sec (Zhang et al. 2023)",
    formula="mean over images that both get right of KL(P_O || M) / 2 + KL(P_D || M) / 2, M = (P_O + P_D) / 2",
    latex=r"\operatorname{mean}_{\text{both right}} \frac{\mathrm{KL}(P_O \,\|\, M) + \mathrm{KL}(P_D \,\|\, M)}{2}, "
    r"\quad M = \frac{P_O + P_D}{2}",
    needs=("confidences",),
)
def classification_output_stability(
    logits: Tensor,
    defended_logits: Tensor,
    labels: Tensor,
    *,
    base: float = e,
    reduction: Reduction = "mean",
) -> Tensor:
    """Jensen-Shannon divergence between the outputs of two models, over images that both models classify correctly.

    The value is the divergence itself. `scipy.spatial.distance.jensenshannon` returns the square root of the
    divergence.

    Args:
        logits: logits of the original model, shape (N, K).
        defended_logits: logits of the defended model, shape (N, K).
        labels: true classes, shape (N,), int64.
        base: base of the logarithm, above 1. The papers do not state the base. With base 2, the largest value is 1.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        The divergence, as a scalar, in nats for the default base. For "none", one value for each image, shape (N,), and
        NaN where at least one model is wrong. Two equal models give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_classes(check_logits(logits=logits, defended_logits=defended_logits), labels=labels)
    if not base > 1:
        raise ValueError(f"expected base > 1, got {base}")
    groups = zip(logits.split(ROWS), defended_logits.split(ROWS), strict=True)
    divergence = torch.cat([_jensen_shannon(*pair) for pair in groups]) / log(base)
    return reduce(nan_where_undefined(divergence, _both_right(logits, defended_logits, labels)), reduction)


def _right(logits: Tensor, defended_logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Check the arguments, and return two tensors with 1 where the model is correct and 0 where it is wrong.

    The first tensor is for the original model, the second for the defended model.
    """
    check_classes(check_logits(logits=logits, defended_logits=defended_logits), labels=labels)
    return as_float(logits.argmax(1) == labels, logits), as_float(defended_logits.argmax(1) == labels, logits)


def _both_right(logits: Tensor, defended_logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.argmax(1) == labels) & (defended_logits.argmax(1) == labels)


def _jensen_shannon(logits: Tensor, defended_logits: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence of each pair of softmax outputs, in nats. 0 log 0 counts as 0."""
    p, q = at_least_float32(logits).softmax(1), at_least_float32(defended_logits).softmax(1)
    middle = (p + q) / 2
    terms = xlogy(p, p) + xlogy(q, q) - xlogy(p, middle) - xlogy(q, middle)
    return terms.sum(1).clamp_min(0) / 2

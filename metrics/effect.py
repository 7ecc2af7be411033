"""Effect of an attack on the decisions and the confidence of a model."""

from typing import Literal

import torch
from torch import Tensor

from .common import (
    as_float,
    check_choice,
    check_classes,
    check_logits,
    confidence,
    nan_where_undefined,
)
from .registry import Reading, Reduction, metric, reduce

Counted = Literal["successes", "all"]


@metric(
    symbol="MR",
    title="Misclassification ratio",
    robust_when="lower",
    between=(0, 1),
    source="CANARY (Sun et al. 2023), 3.1.2",
    formula="mean over valid of [F(xa) != y]",
    latex=r"\operatorname{mean}_{\text{valid}} [F(x_a) \neq y]",
    aliases=("ASR", "attack success rate"),
    kind="share",
    invalid="not fooled",
    tables=("attacks", "models", "pairs"),
    brief=True,
)
def misclassification_ratio(
    logits: Tensor, adv_logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean"
) -> Tensor:
    """Share of the correctly classified images that the model misclassifies under attack.

    Args:
        logits: logits of the clean images, shape (N, K).
        adv_logits: logits of the adversarial images, shape (N, K).
        labels: true classes, shape (N,), int64.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A fraction, as a scalar. For "none", one value for each image, shape (N,), and NaN where the clean image is
        misclassified. Unchanged images give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_classes(check_logits(logits=logits, adv_logits=adv_logits), labels=labels)
    fooled = as_float(adv_logits.argmax(1) != labels, adv_logits)
    return reduce(nan_where_undefined(fooled, logits.argmax(1) == labels), reduction)


@metric(
    symbol="TAS",
    title="Targeted attack success",
    robust_when="lower",
    between=(0, 1),
    source="CANARY (Sun et al. 2023), 3.1.2",
    formula="mean over valid with t != y of [F(xa) = t]",
    latex=r"\operatorname{mean}_{\text{valid}, \, t \neq y} [F(x_a) = t]",
    kind="share",
    invalid="not fooled",
    tables=("attacks", "models", "pairs"),
)
def targeted_attack_success(
    logits: Tensor, adv_logits: Tensor, labels: Tensor, targets: Tensor, *, reduction: Reduction = "mean"
) -> Tensor:
    """Share of the correctly classified images for which the model predicts the target class under attack.

    Args:
        logits: logits of the clean images, shape (N, K).
        adv_logits: logits of the adversarial images, shape (N, K).
        labels: true classes, shape (N,), int64.
        targets: target classes, shape (N,), int64.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A fraction, as a scalar. For "none", one value for each image, shape (N,), and NaN where the clean image is
        misclassified or the target is the true class. Unchanged images give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_classes(check_logits(logits=logits, adv_logits=adv_logits), labels=labels, targets=targets)
    reached = as_float(adv_logits.argmax(1) == targets, adv_logits)
    return reduce(nan_where_undefined(reached, (logits.argmax(1) == labels) & (targets != labels)), reduction)


@metric(
    symbol="AIAC",
    title="Increase of adversarial-class confidence",
    robust_when="lower",
    between=(-1, 1),
    unit="probability",
    source="CANARY (Sun et al. 2023), 3.1.2",
    formula="mean over valid of P(xa)[F(xa)] - P(x)[F(xa)]",
    latex=r"\operatorname{mean}_{\text{valid}} \left( P(x_a)_{F(x_a)} - P(x)_{F(x_a)} \right)",
    needs=("confidences",),
    tables=("attacks", "models"),
)
def adversarial_confidence_increase(
    logits: Tensor, adv_logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean"
) -> Tensor:
    """Increase of the probability of the class predicted under attack, over correctly classified images.

    The value is the probability after the attack minus the probability before the attack. CANARY's formula has the
    opposite sign, but CANARY's tables are positive. Failed attacks also count. A failed attack may have a negative
    value, because the model still predicts the true class, with a lower probability.

    Args:
        logits: logits of the clean images, shape (N, K).
        adv_logits: logits of the adversarial images, shape (N, K).
        labels: true classes, shape (N,), int64.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A difference of probabilities, as a scalar. For "none", one value for each image, shape (N,), and NaN where the
        clean image is misclassified. Unchanged images give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_classes(check_logits(logits=logits, adv_logits=adv_logits), labels=labels)
    predicted = adv_logits.argmax(1)
    rise = confidence(adv_logits, predicted) - confidence(logits, predicted)
    return reduce(nan_where_undefined(rise, logits.argmax(1) == labels), reduction)


@metric(
    symbol="ARTC",
    title="Reduction of true-class confidence",
    robust_when="lower",
    between=(-1, 1),
    unit="probability",
    source="CANARY (Sun et al. 2023), 3.1.2",
    formula="mean over valid of P(x)[y] - P(xa)[y]",
    latex=r"\operatorname{mean}_{\text{valid}} \left( P(x)_y - P(x_a)_y \right)",
    needs=("confidences",),
    tables=("attacks", "models"),
)
def true_confidence_reduction(
    logits: Tensor, adv_logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean"
) -> Tensor:
    """Decrease of the probability of the true class, over correctly classified images.

    Args:
        logits: logits of the clean images, shape (N, K).
        adv_logits: logits of the adversarial images, shape (N, K).
        labels: true classes, shape (N,), int64.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A difference of probabilities, before minus after, as a scalar. For "none", one value for each image, shape
        (N,), and NaN where the clean image is misclassified. Unchanged images give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_classes(check_logits(logits=logits, adv_logits=adv_logits), labels=labels)
    fall = confidence(logits, labels) - confidence(adv_logits, labels)
    return reduce(nan_where_undefined(fall, logits.argmax(1) == labels), reduction)


@metric(
    symbol="AAB",
    title="Adversarial accuracy, black-box",
    robust_when="higher",
    between=(0, 1),
    source="AISafety (Liu et al. 2021), after eq 8",
    formula="mean [F(xa) = y] under black-box attacks",
    latex=r"\operatorname{mean} [F(x_a) = y], \quad a \text{ black-box}",
    kind="share",
    invalid="not robust",
    knowledge="black-box",
)
@metric(
    symbol="AAW",
    title="Adversarial accuracy, white-box",
    robust_when="higher",
    between=(0, 1),
    source="AISafety (Liu et al. 2021), eq 8",
    formula="mean [F(xa) = y] under white-box attacks",
    latex=r"\operatorname{mean} [F(x_a) = y], \quad a \text{ white-box}",
    kind="share",
    invalid="not robust",
    knowledge="white-box",
)
def adversarial_accuracy(adv_logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Share of all adversarial images that the model classifies correctly.

    Equation 8 of the AISafety paper counts the misclassified images, which gives 1 minus this metric. The name and the
    tables in that paper agree with the definition used here.

    Args:
        adv_logits: logits of the adversarial images, shape (N, K), from white-box attacks for the metric AAW, or from
            black-box attacks for AAB.
        labels: true classes, shape (N,), int64.
        reduction: "mean" or "sum" over the images, or "none".

    Returns:
        A fraction, as a scalar. For "none", 0 or 1 for each image, shape (N,). Unchanged images give the clean
        accuracy.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_classes(check_logits(adv_logits=adv_logits), labels=labels)
    return reduce(as_float(adv_logits.argmax(1) == labels, adv_logits), reduction)


@metric(
    symbol="ACAC",
    title="Adversarial-class confidence",
    robust_when="lower",
    between=(0, 1),
    unit="probability",
    source="AISafety (Liu et al. 2021), eq 9; DEEPSEC (Ling et al. 2019)",
    formula="mean over images with F(xa) != y of P(xa)[F(xa)]",
    latex=r"\operatorname{mean}_{F(x_a) \neq y} P(x_a)_{F(x_a)}",
    needs=("confidences",),
    brief=True,
)
def adversarial_class_confidence(adv_logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Probability that the model assigns to its wrong prediction, over misclassified adversarial images.

    Equation 9 of the AISafety paper uses the true class. The text of the paper and both published programs (AISafety
    and DEEPSEC) use the predicted class.

    Args:
        adv_logits: logits of the adversarial images, shape (N, K).
        labels: true classes, shape (N,), int64.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A probability, as a scalar. For "none", one value for each image, shape (N,), and NaN where the model is right.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_classes(check_logits(adv_logits=adv_logits), labels=labels)
    predicted = adv_logits.argmax(1)
    return reduce(nan_where_undefined(confidence(adv_logits, predicted), predicted != labels), reduction)


@metric(
    symbol="ACTC",
    title="True-class confidence when fooled",
    robust_when="higher",
    between=(0, 1),
    unit="probability",
    source="AISafety (Liu et al. 2021), eq 10; DEEPSEC (Ling et al. 2019)",
    formula="mean over images with F(xa) != y of P(xa)[y]",
    latex=r"\operatorname{mean}_{F(x_a) \neq y} P(x_a)_y",
    needs=("confidences",),
    readings={"all": Reading({"over": "all"}, "over all images, as equation 10 prints it")},
)
def true_class_confidence_when_fooled(
    adv_logits: Tensor, labels: Tensor, *, over: Counted = "successes", reduction: Reduction = "mean"
) -> Tensor:
    """Probability that the model still assigns to the true class, over misclassified adversarial images.

    Args:
        adv_logits: logits of the adversarial images, shape (N, K).
        labels: true classes, shape (N,), int64.
        over: "successes" counts misclassified images only. "all" counts every image, as in equation 10 of the AISafety
            paper.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A probability, as a scalar. For "none", one value for each image, shape (N,), and NaN for images that do not
        count.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_classes(check_logits(adv_logits=adv_logits), labels=labels)
    return reduce(_counted(confidence(adv_logits, labels), adv_logits, labels, over), reduction)


@metric(
    symbol="NTE",
    title="Noise tolerance",
    robust_when="lower",
    between=(0, 1),
    unit="probability",
    source="AISafety (Liu et al. 2021), eq 11; DEEPSEC (Ling et al. 2019)",
    formula="mean over images with F(xa) != y of the largest minus the second largest P(xa)",
    latex=r"\operatorname{mean}_{F(x_a) \neq y} \left( \max_c P(x_a)_c - P_{(2)}(x_a) \right)",
    needs=("confidences",),
    readings={
        "all": Reading({"over": "all"}, "over all images"),
        "printed": Reading(
            {"over": "all", "of": "clean"},
            "equation 11 as printed: the clean prediction minus the largest other one, over all images",
            (-1, 1),
        ),
    },
)
def noise_tolerance(
    adv_logits: Tensor,
    labels: Tensor,
    *,
    over: Counted = "successes",
    of: Literal["predicted", "clean"] = "predicted",
    reduction: Reduction = "mean",
) -> Tensor:
    """Largest minus second-largest class probability, over misclassified adversarial images.

    Equation 11 of the AISafety paper uses the clean prediction instead of the most probable class. The value of every
    successful attack would then be negative.

    Args:
        adv_logits: logits of the adversarial images, shape (N, K), K >= 2.
        labels: true classes, shape (N,), int64.
        over: "successes" counts misclassified images only. "all" counts every image.
        of: class whose lead over the other classes is measured. "predicted" is the prediction under attack. "clean" is
            the clean prediction, as in the printed equation. The label is used as the clean prediction, so the clean
            images should be correctly classified.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A difference of probabilities, as a scalar. For "none", one value for each image, shape (N,), and NaN for images
        that do not count.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    sizes = check_logits(adv_logits=adv_logits)
    check_classes(sizes, labels=labels)
    if sizes["K"] < 2:
        raise ValueError(f"expected adv_logits of at least 2 classes, got {sizes['K']}")
    check_choice("of", of, ("predicted", "clean"))
    classes = adv_logits.argmax(1) if of == "predicted" else labels
    others = adv_logits.scatter(1, classes[:, None], -torch.inf).argmax(1)
    lead = confidence(adv_logits, classes) - confidence(adv_logits, others)
    return reduce(_counted(lead, adv_logits, labels, over), reduction)


def _counted(values: Tensor, adv_logits: Tensor, labels: Tensor, over: Counted) -> Tensor:
    check_choice("over", over, ("successes", "all"))
    return values if over == "all" else nan_where_undefined(values, adv_logits.argmax(1) != labels)

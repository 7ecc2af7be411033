"""Metrics of predicted classes under attack: rank of the clean prediction, number of classes, confusion in a group."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .common import as_float, at_least_float32, check_logits, nan_where_undefined
from .confusion import rank_of_clean, weight_similarity
from .registry import Reduction, metric, reduce

INFINITE = float("inf")


@metric(
    symbol="RANK",
    title="Demotion rank",
    robust_when="lower",
    between=(1, INFINITE),
    unit="rank",
    source="Mopuri et al. 2020, 3.1",
    formula="mean of 1 + #{classes c with P(xa)[c] > P(xa)[F(x)]}",
    latex=r"\operatorname{mean} \left( 1 + |\{c : P(x_a)_c > P(x_a)_{F(x)}\}| \right)",
    needs=("confidences",),
)
def demotion_rank(logits: Tensor, adv_logits: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Rank of the clean prediction among the scores of all classes under attack.

    Args:
        logits: logits of the clean images, shape (N, C). Mopuri et al. use correctly classified images only.
        adv_logits: logits of the adversarial images, shape (N, C).
        reduction: "mean" or "sum" over the images, or "none".

    Returns:
        A rank, 1 to C, as a scalar. For "none", one value for each image, shape (N,). Unchanged images give 1.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_logits(logits=logits, adv_logits=adv_logits)
    return reduce(as_float(rank_of_clean(logits, adv_logits), adv_logits), reduction)


@metric(
    symbol="RANK_max",
    title="Largest demotion rank",
    robust_when="lower",
    between=(1, INFINITE),
    unit="rank",
    source="Mopuri et al. 2020, 3.1",
    formula="max over images of 1 + #{classes c with P(xa)[c] > P(xa)[F(x)]}",
    latex=r"\max \left( 1 + |\{c : P(x_a)_c > P(x_a)_{F(x)}\}| \right)",
    kind="set",
    needs=("confidences",),
)
def largest_demotion_rank(logits: Tensor, adv_logits: Tensor) -> Tensor:
    """Worst rank of the clean prediction under attack, over all images.

    Mopuri et al. report 3 for DeepFool.

    Args:
        logits: logits of the clean images, shape (N, C). Mopuri et al. use correctly classified images only.
        adv_logits: logits of the adversarial images, shape (N, C).

    Returns:
        A rank, 1 to C, as a scalar. The rank cannot decrease if images are added. NaN if there are no images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    ranks = demotion_rank(logits, adv_logits, reduction="none")
    return ranks.max() if len(ranks) else ranks.mean()


@metric(
    symbol="CLASSES",
    title="Classes reached",
    robust_when=None,
    between=(0, 1),
    source="Mopuri et al. 2020, 3.2: dominant labels",
    formula="#{classes F(xa)} / C, C the number of classes",
    latex=r"\frac{|\{ F(x_a) \}|}{C}",
    kind="set",
)
def reached_classes(adv_logits: Tensor) -> Tensor:
    """Share of the classes that the model predicts for at least one adversarial image.

    The share is small if the model predicts the same few classes for most examples.

    Args:
        adv_logits: logits of the adversarial images, shape (N, C).

    Returns:
        A fraction, at most N / C, as a scalar. The fraction cannot decrease if images are added. NaN if there are no
        images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_logits(adv_logits=adv_logits)
    if not len(adv_logits):
        return at_least_float32(adv_logits).mean()
    counts = torch.bincount(adv_logits.argmax(1), minlength=adv_logits.shape[1])
    return as_float(counts > 0, adv_logits).mean()


@metric(
    symbol="WITHIN",
    title="Confusion within a group of classes",
    robust_when="lower",
    between=(0, 1),
    source="Mopuri et al. 2020, 4.3",
    formula="mean over images with F(x) in G of [F(xa) in G and F(xa) != F(x)], G a group (WITHIN@151-268: all dogs)",
    latex=r"\operatorname{mean}_{F(x) \in G} [F(x_a) \in G \text{ and } F(x_a) \neq F(x)]",
    kind="share",
    parameter="classes",
)
def confusion_within(
    logits: Tensor, adv_logits: Tensor, classes: Sequence[int] | None = None, *, reduction: Reduction = "mean"
) -> Tensor:
    """Share of the images that the attack moves from one class to another class of the same group of classes.

    Only images with a clean prediction in the group count.

    Args:
        logits: logits of the clean images, shape (N, C). Mopuri et al. use correctly classified images only.
        adv_logits: logits of the adversarial images, shape (N, C).
        classes: indices of the classes in the group. None means all classes.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A fraction, as a scalar. For "none", one value for each image, shape (N,), and NaN where the clean prediction is
        not in the group. Unchanged images give 0.

    Raises:
        ValueError: if shapes, types or values are not as described, or the group contains a class that does not exist.
    """
    sizes = check_logits(logits=logits, adv_logits=adv_logits)
    group = torch.zeros(sizes["K"], dtype=torch.bool, device=logits.device)
    chosen = range(sizes["K"]) if classes is None else list(classes)
    if not chosen or not all(0 <= each < sizes["K"] for each in chosen):
        raise ValueError(f"expected classes from 0 to {sizes['K'] - 1}, got {str(list(chosen))[:60]}")
    group[list(chosen)] = True
    before, after = logits.argmax(1), adv_logits.argmax(1)
    return reduce(nan_where_undefined(as_float(group[after] & (after != before), adv_logits), group[before]), reduction)


def similarity_variance(weights: Sequence[Tensor]) -> Tensor:
    """Disagreement of models about which classes look similar: the variance over the models of `weight_similarity`.

    The variance is the population variance. It is averaged over all pairs of different classes.

    Args:
        weights: weight of the last linear layer of each model, shape (C, d). The number d may differ between models.

    Returns:
        A scalar, float64. 0 if all models agree.

    Raises:
        ValueError: if there are fewer than two models, or their numbers of classes differ.
    """
    counts = {len(weight) for weight in weights}
    if len(weights) < 2 or len(counts) > 1 or counts == {1}:
        raise ValueError(
            f"expected 2 or more models with equal numbers of classes, got {len(weights)} models with "
            f"{sorted(counts)} classes"
        )
    alike = torch.stack([weight_similarity(weight).double() for weight in weights])
    above = torch.triu_indices(*alike.shape[1:], offset=1)
    return alike[:, above[0], above[1]].var(0, correction=0).mean()

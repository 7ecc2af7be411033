"""Semantic and visual difference between the class predicted under attack and the clean prediction or the target."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from .common import as_float, at_least_float32, check, check_classes, check_logits, nan_where_undefined
from .registry import Reading, Reduction, metric, reduce
from .wordnet import first_sense_similarity

FIRST_SENSE = Reading(
    {"similarity": first_sense_similarity},
    "each ImageNet class stands for the first sense of its name in WordNet, as in the paper (coral and jackfruit: "
    "0.46)",
)
PAPER_KS = (1, 2, 5, 10, 20, 50, 100)


@metric(
    symbol="FR@K",
    title="Fooling rate at K",
    robust_when="lower",
    between=(0, 1),
    source="Mopuri et al. 2020",
    formula="mean [1 + #{classes scored above F(x) after the attack} > K]",
    latex=r"\operatorname{mean} \left[ 1 + |\{c : P(x_a)_c > P(x_a)_{F(x)}\}| > K \right]",
    aliases=("FR",),
    kind="share",
    needs=("confidences",),
    parameter="k",
    usual=5,
)
def fooling_rate_at_k(logits: Tensor, adv_logits: Tensor, k: int, *, reduction: Reduction = "mean") -> Tensor:
    """Share of the images whose clean prediction is no longer among the K most probable classes under attack.

    Classes that tie with the clean prediction do not lower its rank, so a tie counts against the attack. If the model
    has at most K classes, every class is among the first K, and the rate is NaN.

    Args:
        logits: logits of the clean images, shape (N, C). Mopuri et al. use correctly classified images only.
        adv_logits: logits of the adversarial images, shape (N, C).
        k: number of most probable classes, at least 1.
        reduction: "mean" or "sum" over the images, or "none".

    Returns:
        A fraction, as a scalar. For "none", 0 or 1 for each image, shape (N,). Unchanged images give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_logits(logits=logits, adv_logits=adv_logits)
    if k < 1:
        raise ValueError(f"expected k >= 1, got {k}")
    fooled = as_float(rank_of_clean(logits, adv_logits) > k, adv_logits)
    return reduce(fooled if k < logits.shape[1] else torch.full_like(fooled, torch.nan), reduction)


@metric(
    symbol="FR_AUC",
    title="Area under the fooling rate",
    robust_when="lower",
    between=(0, 1),
    source="Mopuri et al. 2020",
    formula="area under FR@K by the trapezoid rule over K = 1, 2, 5, 10, 20, 50, 100, divided by K_max - K_min",
    latex=r"\frac{1}{K_{\max} - K_{\min}} \int_{K_{\min}}^{K_{\max}} \mathrm{FR@}K \, dK",
    aliases=("AuC",),
    needs=("confidences",),
)
def fooling_rate_auc(
    logits: Tensor, adv_logits: Tensor, ks: Sequence[int] = PAPER_KS, *, reduction: Reduction = "mean"
) -> Tensor:
    """Mean fooling rate over K: the area under the curve of the fooling rate at K, divided by the range of K.

    The area follows the trapezoid rule on a linear axis. Mopuri et al. do not specify the axis and the normalisation,
    and their values for the weakest attacks cannot be reproduced.

    Args:
        logits: logits of the clean images, shape (N, C). Mopuri et al. use correctly classified images only.
        adv_logits: logits of the adversarial images, shape (N, C).
        ks: values of K: at least two, increasing, at least 1. The default is the choice of Mopuri et al.
        reduction: "mean" or "sum" over the images, or "none".

    Returns:
        A fraction, as a scalar. For "none", one value for each image, shape (N,). Unchanged images give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_logits(logits=logits, adv_logits=adv_logits)
    ks = list(ks)
    if len(ks) < 2 or ks[0] < 1 or any(low >= high for low, high in pairwise(ks)):
        raise ValueError(f"expected at least two values of K, increasing and at least 1, got {ks}")
    rank = rank_of_clean(logits, adv_logits)
    area = as_float(torch.zeros_like(rank), adv_logits)
    for low, high in pairwise(ks):
        area += (high - low) / 2 * (as_float(rank > low, area) + as_float(rank > high, area))
    return reduce(area / (ks[-1] - ks[0]), reduction)


@metric(
    symbol="QI_Wup",
    title="Semantic confusion",
    robust_when="lower",
    between=(0, 1),
    source="Mopuri et al. 2020",
    formula="mean [Wup(F(x), F(xa)) < 0.7], Wup(a, b) = 2 depth(common) / (depth(a) + depth(b))",
    latex=r"\operatorname{mean} [\mathrm{Wup}(F(x), F(x_a)) < 0.7], "
    r"\quad \mathrm{Wup}(a, b) = \frac{2 \, \mathrm{depth}(\mathrm{lca}(a, b))}{\mathrm{depth}(a) + \mathrm{depth}(b)}",
    aliases=("QI-Wup",),
    parameter="threshold",
    readings={"first-sense": FIRST_SENSE},
)
def semantic_confusion(
    logits: Tensor,
    adv_logits: Tensor,
    similarity: Tensor,
    threshold: float = 0.7,
    *,
    reduction: Reduction = "mean",
) -> Tensor:
    """Share of the images whose prediction under attack has a different meaning from the clean prediction.

    Args:
        logits: logits of the clean images, shape (N, C). Mopuri et al. use correctly classified images only.
        adv_logits: logits of the adversarial images, shape (N, C).
        similarity: similarity of each pair of classes, shape (C, C), -1 to 1, such as `imagenet_wup` for ImageNet. NaN
            if the similarity of a pair is undefined.
        threshold: similarity below which two classes count as different.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A fraction, as a scalar. For "none", one value for each image, shape (N,), and NaN where the similarity is
        undefined. Unchanged images give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_logits(logits=logits, adv_logits=adv_logits)
    return reduce(_confused(logits.argmax(1), adv_logits, similarity, threshold), reduction)


@metric(
    symbol="QI_Vis",
    title="Visual confusion",
    robust_when="lower",
    between=(0, 1),
    source="Mopuri et al. 2020",
    formula="mean [cos(W_F(x), W_F(xa)) < 0.1], W the rows of the last layer's weight",
    latex=r"\operatorname{mean} [\cos(W_{F(x)}, W_{F(x_a)}) < 0.1]",
    aliases=("QI-Vis",),
    parameter="threshold",
)
def visual_confusion(
    logits: Tensor,
    adv_logits: Tensor,
    weight: Tensor,
    threshold: float = 0.1,
    *,
    reduction: Reduction = "mean",
) -> Tensor:
    """Share of the images whose prediction under attack is visually unlike the clean prediction.

    Args:
        logits: logits of the clean images, shape (N, C). Mopuri et al. use correctly classified images only.
        adv_logits: logits of the adversarial images, shape (N, C).
        weight: weight of the last linear layer of the model, shape (C, d).
        threshold: similarity below which two classes count as different.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A fraction, as a scalar. For "none", one value for each image, shape (N,), and NaN where the similarity is
        undefined. Unchanged images give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_logits(logits=logits, adv_logits=adv_logits)
    return reduce(_confused(logits.argmax(1), adv_logits, weight_similarity(weight), threshold), reduction)


@metric(
    symbol="QI_Wup_T",
    title="Targeted semantic confusion",
    robust_when="higher",
    between=(0, 1),
    source="Mopuri et al. 2020",
    formula="mean [Wup(t, F(xa)) < 0.7]; 1 is far from the target",
    latex=r"\operatorname{mean} [\mathrm{Wup}(t, F(x_a)) < 0.7]",
    aliases=("QI-Wup-Targeted",),
    parameter="threshold",
    readings={"first-sense": FIRST_SENSE},
)
def targeted_semantic_confusion(
    targets: Tensor,
    adv_logits: Tensor,
    similarity: Tensor,
    threshold: float = 0.7,
    *,
    reduction: Reduction = "mean",
) -> Tensor:
    """Share of the images whose prediction under attack has a different meaning from the target class.

    Args:
        targets: target classes, shape (N,), int64.
        adv_logits: logits of the adversarial images, shape (N, C).
        similarity: similarity of each pair of classes, shape (C, C), -1 to 1, such as `imagenet_wup` for ImageNet. NaN
            if the similarity of a pair is undefined.
        threshold: similarity below which two classes count as different.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A fraction, as a scalar. For "none", one value for each image, shape (N,), and NaN where the similarity is
        undefined. 0 if all images reach their target.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_classes(check_logits(adv_logits=adv_logits), targets=targets)
    return reduce(_confused(targets, adv_logits, similarity, threshold), reduction)


@metric(
    symbol="QI_Vis_T",
    title="Targeted visual confusion",
    robust_when="higher",
    between=(0, 1),
    source="Mopuri et al. 2020",
    formula="mean [cos(W_t, W_F(xa)) < 0.1]; 1 is far from the target",
    latex=r"\operatorname{mean} [\cos(W_t, W_{F(x_a)}) < 0.1]",
    aliases=("QI-Vis-Targeted",),
    parameter="threshold",
)
def targeted_visual_confusion(
    targets: Tensor,
    adv_logits: Tensor,
    weight: Tensor,
    threshold: float = 0.1,
    *,
    reduction: Reduction = "mean",
) -> Tensor:
    """Share of the images whose prediction under attack is visually unlike the target class.

    Args:
        targets: target classes, shape (N,), int64.
        adv_logits: logits of the adversarial images, shape (N, C).
        weight: weight of the last linear layer of the model, shape (C, d).
        threshold: similarity below which two classes count as different.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A fraction, as a scalar. For "none", one value for each image, shape (N,), and NaN where the similarity is
        undefined. 0 if all images reach their target.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_classes(check_logits(adv_logits=adv_logits), targets=targets)
    return reduce(_confused(targets, adv_logits, weight_similarity(weight), threshold), reduction)


def weight_similarity(weight: Tensor) -> Tensor:
    """Visual similarity of each pair of classes: the cosine of the classes' weights in the last layer, without bias.

    Args:
        weight: weight of the last linear layer of the model, shape (C, d).

    Returns:
        Similarities, shape (C, C), in [-1, 1], 1 on the diagonal. NaN for a class whose weights are all zero.

    Raises:
        ValueError: if the weight is not as described.
    """
    check({"weight": weight}, "C d")
    rows = at_least_float32(weight)
    directions = rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return (directions @ directions.T).clamp(-1, 1)


def rank_of_clean(logits: Tensor, adv_logits: Tensor) -> Tensor:
    """Return the rank of the clean prediction under attack: 1 plus the number of classes with a higher logit."""
    score = adv_logits.gather(1, logits.argmax(1, keepdim=True))
    return 1 + (adv_logits > score).sum(1)


def _confused(before: Tensor, adv_logits: Tensor, similarity: Tensor, threshold: float) -> Tensor:
    """Return 1 if the prediction under attack is less similar to the class `before` than `threshold`, otherwise 0.

    NaN if the similarity is undefined.
    """
    classes = adv_logits.shape[1]
    check({"similarity": similarity}, "C C", within=None, sizes={"C": classes})
    alike = similarity[before, adv_logits.argmax(1)]
    return nan_where_undefined(as_float(alike < threshold, adv_logits), ~alike.isnan())

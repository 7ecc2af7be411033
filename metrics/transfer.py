"""Transfer of attacks to models other than the source model, on which the examples were made.

Transfer rates have shape (A, M, M): attack, source model, target model. The values may be those of any metric. The
diagonal is not used. A NaN outside the diagonal makes the mean NaN.
"""

from math import nan
from typing import Literal

import torch
from torch import Tensor

from .common import as_float, check, check_choice, check_index, nan_where_undefined
from .registry import Reduction, metric, reduce


@metric(
    symbol="OTR",
    title="Observable transfer rate",
    robust_when="lower",
    between=(0, 1),
    source="CANARY (Sun et al. 2023), 3.1.2",
    formula="mean over successes on the source and over the other models t of [F_t(xa) != y]",
    latex=r"\operatorname{mean}_{\text{successes}, \, m \neq \text{source}} [F_m(x_a) \neq y]",
    kind="share",
    needs=("transfer",),
    tables=("attacks",),
    brief=True,
)
def observable_transfer_rate(
    predictions: Tensor,
    adv_predictions: Tensor,
    labels: Tensor,
    source: int,
    *,
    over: Literal["fooled", "valid"] = "fooled",
    reduction: Reduction = "mean",
) -> Tensor:
    """Share of the other models that an example fools, averaged over examples that fool their source model.

    Args:
        predictions: class that each of M models predicts for each clean image, shape (M, n), int64.
        adv_predictions: class that each model predicts for the examples made on model `source`, shape (M, n), int64.
        labels: true classes, shape (n,), int64.
        source: index of the source model, on which the examples were made.
        over: images that count. "fooled" counts images that the source model classifies correctly when clean and
            misclassifies under attack. "valid" counts all images that the source model classifies correctly when clean.
            A failed attack then counts as not transferred.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A fraction, as a scalar. For "none", one value for each image, shape (n,), and NaN for images that do not count.
        NaN if there is no other model.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    within = (0.0, float("inf"))
    named = {"predictions": predictions, "adv_predictions": adv_predictions}
    sizes = check(named, "M n", kind="int64", within=within)
    check({"labels": labels}, "n", kind="int64", within=within, sizes=sizes)
    check_index("source", source, sizes["M"])
    check_choice("over", over, ("fooled", "valid"))
    wrong = adv_predictions != labels
    fooled, valid = wrong[source], predictions[source] == labels
    others = wrong.sum(0) - fooled.long()
    rate = as_float(others * fooled, wrong) / (sizes["M"] - 1) if sizes["M"] > 1 else as_float(fooled, wrong) * nan
    return reduce(nan_where_undefined(rate, valid & fooled if over == "fooled" else valid), reduction)


def transfer_by_source(rates: Tensor) -> Tensor:
    """Mean transfer rate of each attack from each source model, over all target models.

    Args:
        rates: rates by attack, source model and target model, shape (A, M, M).

    Returns:
        Rates, shape (A, M). NaN if M = 1.

    Raises:
        ValueError: if the rates are not of shape (A, M, M).
    """
    return _without_diagonal(rates, 0).sum(2) / (rates.shape[2] - 1)


def transfer_by_target(rates: Tensor) -> Tensor:
    """Mean transfer rate of each attack to each target model, over all source models.

    Args:
        rates: rates by attack, source model and target model, shape (A, M, M).

    Returns:
        Rates, shape (A, M). NaN if M = 1.

    Raises:
        ValueError: if the rates are not of shape (A, M, M).
    """
    return _without_diagonal(rates, 0).sum(1) / (rates.shape[1] - 1)


def transfer_of_attack(rates: Tensor) -> Tensor:
    """Mean transfer rate of each attack over all pairs of different models.

    Args:
        rates: rates by attack, source model and target model, shape (A, M, M).

    Returns:
        Rates, shape (A,). NaN if M = 1.

    Raises:
        ValueError: if the rates are not of shape (A, M, M).
    """
    return transfer_by_source(rates).mean(1)


def transfer_threat(rates: Tensor) -> Tensor:
    """Mean transfer rate to each target model, over all attacks and source models.

    Args:
        rates: rates by attack, source model and target model, shape (A, M, M).

    Returns:
        Rates, shape (M,). NaN if M = 1.

    Raises:
        ValueError: if the rates are not of shape (A, M, M).
    """
    return transfer_by_target(rates).mean(0)


def simple_transfer_of_attack(rates: Tensor, tested: int) -> Tensor:
    """Mean transfer rate of each attack to one fixed target model, over all source models.

    Args:
        rates: rates by attack, source model and target model, shape (A, M, M).
        tested: index of the target model.

    Returns:
        Rates, shape (A,). NaN if M = 1.

    Raises:
        ValueError: if the rates are not of shape (A, M, M) or there is no such model.
    """
    by_target = transfer_by_target(rates)
    check_index("tested", tested, rates.shape[1])
    return by_target[:, tested]


def simple_transfer_threat(rates: Tensor, source: int) -> Tensor:
    """Mean transfer rate from one fixed source model to each target model, over all attacks.

    Args:
        rates: rates by attack, source model and target model, shape (A, M, M).
        source: index of the source model.

    Returns:
        Rates, shape (M,). NaN for the source model itself.

    Raises:
        ValueError: if the rates are not of shape (A, M, M) or there is no such model.
    """
    others = _without_diagonal(rates, nan)
    check_index("source", source, rates.shape[1])
    return others[:, source].mean(0)


def _without_diagonal(rates: Tensor, fill: float) -> Tensor:
    """Check transfer rates, and return them with `fill` on the diagonal, where the source model is the target model."""
    check({"rates": rates}, "A M M", within=None)
    return rates.masked_fill(torch.eye(rates.shape[1], dtype=torch.bool, device=rates.device), fill)

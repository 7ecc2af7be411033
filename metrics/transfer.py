"""Transfer of attacks made on one model to other models.

A table of rates has shape (A, M, M): attack, source model, target model. Any
metric may fill it; NaN off the diagonal stays NaN in its means, and the diagonal is not read.
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
    """Share of the other models that an example fools, over the examples that fool the model they were made on.

    Args:
        predictions: class that each of M models predicts for each clean image, shape (M, n), int64.
        adv_predictions: class that each model predicts for the examples made on model `source`, shape (M, n), int64.
        labels: true classes, shape (n,), int64.
        source: row of the source model, on which the examples were made.
        over: "fooled" counts the images that the source model classifies correctly when clean and wrongly under attack;
            "valid" counts all that it classifies correctly when clean, so that a failed attack transfers to no model.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A scalar, or shape (n,) for "none", NaN where the image does not count or there is no other model; a fraction.

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
    """Mean rate of an attack made on one model over the other models it is tested on.

    Args:
        rates: rates by attack, source model and target model, shape (A, M, M).

    Returns:
        Shape (A, M); the unit of the rates; NaN for M = 1.

    Raises:
        ValueError: if the rates are not of shape (A, M, M).
    """
    return _without_diagonal(rates, 0).sum(2) / (rates.shape[2] - 1)


def transfer_by_target(rates: Tensor) -> Tensor:
    """Mean rate of an attack on one tested model over the other models it is made on.

    Args:
        rates: rates by attack, source model and target model, shape (A, M, M).

    Returns:
        Shape (A, M); the unit of the rates; NaN for M = 1.

    Raises:
        ValueError: if the rates are not of shape (A, M, M).
    """
    return _without_diagonal(rates, 0).sum(1) / (rates.shape[1] - 1)


def transfer_of_attack(rates: Tensor) -> Tensor:
    """Mean rate of an attack over all pairs of different models.

    Args:
        rates: rates by attack, source model and target model, shape (A, M, M).

    Returns:
        Shape (A,); the unit of the rates; NaN for M = 1.

    Raises:
        ValueError: if the rates are not of shape (A, M, M).
    """
    return transfer_by_source(rates).mean(1)


def transfer_threat(rates: Tensor) -> Tensor:
    """Mean rate on a tested model over all attacks and the other models they are made on.

    Args:
        rates: rates by attack, source model and target model, shape (A, M, M).

    Returns:
        Shape (M,); the unit of the rates; NaN for M = 1.

    Raises:
        ValueError: if the rates are not of shape (A, M, M).
    """
    return transfer_by_target(rates).mean(0)


def simple_transfer_of_attack(rates: Tensor, tested: int) -> Tensor:
    """Mean rate of an attack on one fixed tested model over the other models it is made on.

    Args:
        rates: rates by attack, source model and target model, shape (A, M, M).
        tested: index of the target model.

    Returns:
        Shape (A,); the unit of the rates; NaN for M = 1.

    Raises:
        ValueError: if the rates are not of shape (A, M, M) or there is no such model.
    """
    by_target = transfer_by_target(rates)
    check_index("tested", tested, rates.shape[1])
    return by_target[:, tested]


def simple_transfer_threat(rates: Tensor, source: int) -> Tensor:
    """Mean rate on each tested model over all attacks made on one fixed model.

    Args:
        rates: rates by attack, source model and target model, shape (A, M, M).
        source: index of the source model.

    Returns:
        Shape (M,); the unit of the rates; NaN for the source model itself, which is not tested.

    Raises:
        ValueError: if the rates are not of shape (A, M, M) or there is no such model.
    """
    others = _without_diagonal(rates, nan)
    check_index("source", source, rates.shape[1])
    return others[:, source].mean(0)


def _without_diagonal(rates: Tensor, fill: float) -> Tensor:
    """Return checked rates with `fill` on the diagonal, where source and target model are equal."""
    check({"rates": rates}, "A M M", within=None)
    return rates.masked_fill(torch.eye(rates.shape[1], dtype=torch.bool, device=rates.device), fill)

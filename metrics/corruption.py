"""Robustness of a model to corruptions, and stability of its predictions along noise sequences."""

from typing import Literal

import torch
from torch import Tensor

from .common import as_float, at_least_float32, check, check_choice
from .registry import metric

INFINITE = float("inf")


@metric(
    symbol="CE",
    title="Corruption error",
    robust_when="lower",
    between=(0, INFINITE),
    unit="error rates, summed",
    source="AISafety (Liu et al. 2021), eq 12; after Hendrycks and Dietterich 2019",
    formula="sum over severities s of the error E[c, s]",
    latex=r"\sum_{s} E_{c,s}",
    kind="set",
)
def corruption_error(errors: Tensor, *, baseline_errors: Tensor | None = None) -> Tensor:
    """Error rate under each corruption, summed over its severities.

    Args:
        errors: error rate of each corruption at each severity, shape (corruptions, severities), in [0, 1].
        baseline_errors: error rates of a reference model, same shape; each sum is divided by that of the reference, as
            Hendrycks does.

    Returns:
        Shape (corruptions,); from 0 to the number of severities, or a ratio, NaN if the reference makes no error
        (`summarise` counts these).

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    sizes = check({"errors": errors}, "corruptions severities", within=(0, 1))
    if baseline_errors is None:
        return at_least_float32(errors).sum(1)
    check({"baseline_errors": baseline_errors}, "corruptions severities", within=(0, 1), sizes=sizes)
    return _ratio(at_least_float32(errors).sum(1), at_least_float32(baseline_errors).sum(1))


@metric(
    symbol="mCE",
    title="Mean corruption error",
    robust_when="lower",
    between=(0, INFINITE),
    unit="error rates, summed",
    source="AISafety (Liu et al. 2021), eq 12; after Hendrycks and Dietterich 2019",
    formula="mean over corruptions c of CE_c",
    latex=r"\frac{1}{C} \sum_{c} \mathrm{CE}_c",
    kind="set",
)
def mean_corruption_error(errors: Tensor, *, baseline_errors: Tensor | None = None) -> Tensor:
    """Corruption error averaged over the corruptions.

    Args:
        errors: error rate of each corruption at each severity, shape (corruptions, severities), in [0, 1].
        baseline_errors: error rates of a reference model, same shape, as in `corruption_error`.

    Returns:
        A scalar. Without a baseline: from 0 to the number of severities. With one: the mean of the ratios to
        the baseline over the corruptions whose ratio is defined, see `corruption_error`; NaN if it is defined
        for no corruption.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    return corruption_error(errors, baseline_errors=baseline_errors).nanmean()


@metric(
    symbol="RmCE",
    title="Relative mean corruption error",
    robust_when="lower",
    between=(-INFINITE, INFINITE),
    unit="error rates, summed",
    source="AISafety (Liu et al. 2021), eq 13; after Hendrycks and Dietterich 2019",
    formula="mean over corruptions c of the sum over severities s of (E[c, s] - E_clean)",
    latex=r"\frac{1}{C} \sum_{c} \sum_{s} (E_{c,s} - E_{\text{clean}})",
    aliases=("relative mCE",),
    kind="set",
)
def relative_corruption_error(
    errors: Tensor, clean_error: float, *, subtract: Literal["each", "once"] = "each"
) -> Tensor:
    """Rise of the error rate under corruption, summed over severities and averaged over corruptions.

    Args:
        errors: error rate of each corruption at each severity, shape (corruptions, severities), in [0, 1].
        clean_error: error rate without corruption, in [0, 1].
        subtract: whether the clean error is subtracted from "each" error rate, so that an insensitive model gets 0, or
            "once" from each sum, a different interpretation of the equation.

    Returns:
        A scalar; 0 ("each") if corruption changes nothing; NaN without corruptions.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check({"errors": errors}, "corruptions severities", within=(0, 1))
    check_choice("subtract", subtract, ("each", "once"))
    if not 0 <= clean_error <= 1:
        raise ValueError(f"expected clean_error from 0 to 1, got {clean_error}")
    rates = at_least_float32(errors)
    return ((rates - clean_error).sum(1) if subtract == "each" else rates.sum(1) - clean_error).mean()


@metric(
    symbol="FP",
    title="Flip probability",
    robust_when="lower",
    between=(0, 1),
    source="AISafety (Liu et al. 2021), eq 14; after Hendrycks and Dietterich 2019",
    formula="share of pairs of adjacent frames whose predictions differ",
    latex=r"\frac{|\{\text{adjacent frames with different predictions}\}|}{|\{\text{adjacent frames}\}|}",
    needs=("sequences",),
)
def flip_probability(frames: Tensor, *, against: Literal["previous", "first"] = "previous") -> Tensor:
    """Share of the frames of noise sequences whose prediction differs from the frame before.

    Args:
        frames: predictions along each sequence, shape (sequences, frames), int64, at least 2 frames.
        against: frame with which each frame is compared: "previous", or "first", as Hendrycks does for noise.

    Returns:
        A scalar; a fraction; 0 for constant predictions; NaN without sequences.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    sizes = check({"frames": frames}, "sequences frames", kind="int64", within=(0, INFINITE))
    check_choice("against", against, ("previous", "first"))
    if sizes["frames"] < 2:
        raise ValueError(f"expected at least 2 frames, got {sizes['frames']}")
    reference = frames[:, :-1] if against == "previous" else frames[:, :1]
    return as_float(frames[:, 1:] != reference, frames).mean()


@metric(
    symbol="mFR",
    title="Mean flip rate",
    robust_when="lower",
    between=(0, INFINITE),
    unit="ratio to the reference model",
    source="AISafety (Liu et al. 2021), after eq 14; after Hendrycks and Dietterich 2019",
    formula="mean over corruptions c of FP_c / FP_c of the reference model",
    latex=r"\frac{1}{C} \sum_{c} \frac{\mathrm{FP}_c}{\mathrm{FP}_c^{\text{reference}}}",
    kind="set",
    needs=("sequences", "baseline"),
)
def mean_flip_rate(flip_probabilities: Tensor, base_flip_probabilities: Tensor) -> Tensor:
    """Flip probability over that of a reference model, averaged over the corruptions.

    Args:
        flip_probabilities: flip probability of each corruption, shape (corruptions,), in [0, 1].
        base_flip_probabilities: those of the reference model, which the paper does not name, same shape.

    Returns:
        A scalar; a ratio, 1 for equal models; over the corruptions for which `flip_rates` is defined; NaN without such
        corruptions.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    return flip_rates(flip_probabilities, base_flip_probabilities).nanmean()


def flip_rates(flip_probabilities: Tensor, base_flip_probabilities: Tensor) -> Tensor:
    """Flip probability over that of a reference model for each corruption.

    Args:
        flip_probabilities: flip probability of each corruption, shape (corruptions,), in [0, 1].
        base_flip_probabilities: those of the reference model, same shape.

    Returns:
        Shape (corruptions,); a ratio; NaN if the reference never flips (`summarise` counts these).

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    named = {"flip_probabilities": flip_probabilities, "base_flip_probabilities": base_flip_probabilities}
    check(named, "corruptions", within=(0, 1))
    return _ratio(at_least_float32(flip_probabilities), at_least_float32(base_flip_probabilities))


def _ratio(values: Tensor, reference: Tensor) -> Tensor:
    """Return the quotient, NaN where the reference is 0."""
    return (values / reference).where(reference > 0, torch.nan)

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
    """Error rate of a model under each corruption, summed over the severities of the corruption.

    Args:
        errors: error rate of each corruption at each severity, shape (corruptions, severities), in [0, 1].
        baseline_errors: error rates of a reference model, same shape. Each sum is divided by the sum of the reference
            model, as in Hendrycks and Dietterich (2019). None means that the sums are not divided.

    Returns:
        Shape (corruptions,). Without a reference model, sums from 0 to the number of severities. With a reference
        model, ratios of sums. A ratio is NaN if the reference model makes no error.

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
        baseline_errors: error rates of a reference model, same shape (see `corruption_error`). None means no reference
            model.

    Returns:
        A scalar. Without a reference model, the mean sum, from 0 to the number of severities. With a reference model,
        the mean ratio over the corruptions for which the reference model makes errors. NaN if there is no such
        corruption.

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
    """Increase of the error rate due to corruption, summed over severities and averaged over corruptions.

    Args:
        errors: error rate of each corruption at each severity, shape (corruptions, severities), in [0, 1].
        clean_error: error rate without corruption, in [0, 1].
        subtract: "each" subtracts the clean error from every error rate, so that a model that is insensitive to
            corruption gets 0. "once" subtracts the clean error once from the sum over the severities, which is a
            different interpretation of equation 13.

    Returns:
        A scalar. For `subtract="each"`, the value is 0 if corruptions do not change the error rate. NaN if there are no
        corruptions.

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
    """Share of the frames in noise sequences whose prediction differs from that of the previous frame.

    Args:
        frames: predictions along each sequence, shape (sequences, frames), int64, at least 2 frames.
        against: frame with which each frame is compared: "previous", or "first", as Hendrycks does for noise.

    Returns:
        A fraction, as a scalar. 0 if the predictions along each sequence are constant. NaN if there are no sequences.

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
    """Flip probability of a model divided by that of a reference model, averaged over the corruptions.

    Args:
        flip_probabilities: flip probability of each corruption, shape (corruptions,), in [0, 1].
        base_flip_probabilities: flip probabilities of the reference model, same shape. The AISafety paper does not name
            the reference model.

    Returns:
        A ratio, as a scalar. Two equal models give 1. Corruptions under which the reference model never flips are
        excluded. NaN if no corruption remains.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    return flip_rates(flip_probabilities, base_flip_probabilities).nanmean()


def flip_rates(flip_probabilities: Tensor, base_flip_probabilities: Tensor) -> Tensor:
    """Flip probability of a model for each corruption, divided by that of a reference model.

    Args:
        flip_probabilities: flip probability of each corruption, shape (corruptions,), in [0, 1].
        base_flip_probabilities: flip probabilities of the reference model, same shape.

    Returns:
        Ratios, shape (corruptions,). NaN for a corruption under which the predictions of the reference model never
        flip.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    named = {"flip_probabilities": flip_probabilities, "base_flip_probabilities": base_flip_probabilities}
    check(named, "corruptions", within=(0, 1))
    return _ratio(at_least_float32(flip_probabilities), at_least_float32(base_flip_probabilities))


def _ratio(values: Tensor, reference: Tensor) -> Tensor:
    return (values / reference).where(reference > 0, torch.nan)

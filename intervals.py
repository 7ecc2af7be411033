"""Confidence intervals of proportions, differences and medians, without bootstrap. Imports nothing of davylamp."""

import math
from functools import cache
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

LEVEL = 0.95
TAIL = 0.025  # on each side of a 95 % interval


class Interval(NamedTuple):
    """An estimate and the bounds of its interval. NaN if undefined."""

    value: float
    low: float
    high: float


class Proportion(NamedTuple):
    """A proportion, the bounds of its interval, and its effective number of independent images.

    Each field is a number, or an array if there are several proportions.
    """

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    worth: np.ndarray


UNKNOWN = Interval(math.nan, math.nan, math.nan)


def proportion_interval(successes: float, count: float, level: float = LEVEL) -> tuple[float, float]:
    """Return Clopper and Pearson's interval of a proportion. Its coverage is at least `level` for any true proportion.

    Wilson's 95 % interval would be narrower, but it does not have this coverage. For proportions near 0 and 1, it
    covers the true value in only 83 % of cases with 3 images, and in 86 % with 100 images.

    Args:
        successes: number of successes, from 0 to `count`. It need not be an integer.
        count: number of trials. If the trials are not independent, the effective number of independent trials.
        level: confidence level, in (0, 1).

    Returns:
        The lower and the upper bound. (NaN, NaN) if `count` is 0.
    """
    low, high = proportion_bounds(np.asarray(successes, float), np.asarray(count, float), level)
    return float(low), float(high)


def proportion_bounds(successes: np.ndarray, count: np.ndarray, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray]:
    """Compute `proportion_interval` for arrays of one shape. Returns the lower and the upper bounds in that shape."""
    tail, small = (1 - level) / 2, 1e-9
    successes = np.where(np.abs(successes - np.round(successes)) < small, np.round(successes), successes)
    failures = np.where(np.abs(count - successes) < small, 0.0, count - successes)
    low = scipy.special.betaincinv(np.maximum(successes, small), failures + 1, tail)
    high = scipy.special.betaincinv(successes + 1, np.maximum(failures, small), 1 - tail)
    nothing = ~(count > 0)
    low = np.where(successes <= 0, 0.0, low)
    high = np.where(failures <= 0, 1.0, high)
    return np.where(nothing, math.nan, low)[()], np.where(nothing, math.nan, high)[()]


@cache
def tail_probability(n: int) -> float:
    """Return the proportion of bootstrap replicates to cut off on each side for a 95 % interval based on `n` images.

    Cutting off 2.5 % on each side gives intervals that are too narrow for few images, because the standard deviation of
    bootstrap replicates is too small by a factor of sqrt((n - 1) / n). This function returns a smaller proportion, with
    which the interval for normal data has the width of Student's interval. The result is the expanded percentile
    interval (Hesterberg 2015, What Teachers Should Know About the Bootstrap, 4.4).
    """
    if n < 2:
        return TAIL
    return float(scipy.special.ndtr(math.sqrt(n / (n - 1)) * scipy.special.stdtrit(n - 1, TAIL)))


def clustered_interval(values: ArrayLike, weights: ArrayLike | None = None, level: float = LEVEL) -> Proportion:
    """Return the mean of a rate over several attacks, seeds or models on the same images, with its interval.

    The outcomes for one image are not independent of each other: each image is a cluster. The effective number of
    independent outcomes (Kish's effective sample size) is estimated from how similar the outcomes within an image are.
    The interval is that of `proportion_interval` for this number (Korn and Graubard 1998). The effective number is at
    least the number for identical outcomes within each image, and at most the number for independent outcomes.

    Args:
        values: outcomes: 0 or 1, or proportions, NaN if undefined, shape (images, repeats) or (images, repeats, ...).
            A separate result is computed for each position along the axes after the second.
        weights: weight of each repeat in the mean, shape (repeats,). None for equal weights. A repeat without a defined
            value is omitted.
        level: confidence level, in (0, 1).

    Returns:
        A `Proportion` of arrays, whose shape is that of the axes after the second. NaN if no value is defined.

    Raises:
        ValueError: if the shapes do not fit or a value is outside [0, 1].
    """
    values = np.asarray(values, float)
    if values.ndim < 2 or (weights is not None and np.shape(weights) != values.shape[1:2]):
        raise ValueError(
            "expected values of shape (images, repeats, ...) and one weight per repeat, got values of shape "
            f"{values.shape} and weights {weights}"
        )
    if (values < 0).any() or (values > 1).any():
        raise ValueError("expected values from 0 to 1, got a value outside this range")
    given = np.ones(values.shape[1]) if weights is None else np.asarray(weights, float)
    known = ~np.isnan(values)
    images = known.sum(0)
    part = given.reshape(-1, *[1] * (values.ndim - 2)) * (images > 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = (part * np.nansum(values, 0) / np.maximum(images, 1)).sum(0) / part.sum(0)
        part = part / part.sum(0)  # NaN if nothing is defined
        entry = known * (part / np.maximum(images, 1))  # the weight of each outcome; they add up to 1
        whole = np.where(known, values, 0.0)
        worth = _worth(entry, whole, known, part)
        low, high = proportion_bounds(value * worth, worth, level)
    return Proportion(value, low, high, worth)


def whole_shares(counts: np.ndarray, images: int, level: float = LEVEL) -> Proportion:
    """Return proportions of images with their intervals, given numbers of images.

    Args:
        counts: numerator of each proportion: the number of images that count.
        images: denominator of all proportions: the number of all images.
        level: confidence level, in (0, 1).

    Returns:
        A `Proportion` of arrays with the shape of `counts`. NaN if `images` is 0.
    """
    worth = np.full(np.shape(counts), float(images))
    with np.errstate(invalid="ignore"):
        return Proportion(counts / worth, *proportion_bounds(np.asarray(counts, float), worth, level), worth)


def difference_bounds(
    first: tuple[float, float, float], second: tuple[float, float, float], alike: float = 0.0
) -> tuple[float, float]:
    """Return the bounds of the interval of a difference of two proportions.

    The method of variance estimates recovery (MOVER, Zou and Donner 2008) is used. For a correlation of 0, this is
    Newcombe's method (1998). The interval is then too wide if the true correlation is positive.

    Args:
        first: the first proportion, with the lower and the upper bound of its interval.
        second: the proportion to subtract, with the lower and the upper bound of its interval.
        alike: correlation of the two estimates.
    """
    (p, p_low, p_high), (q, q_low, q_high) = first, second
    sizes = [
        math.sqrt(x * x + y * y - 2 * alike * x * y) for x, y in ((p - p_low, q_high - q), (p_high - p, q - q_low))
    ]
    return max(p - q - sizes[0], -1.0), min(p - q + sizes[1], 1.0)


def discordant_correlation(p: float, q: float) -> float:
    """Return the correlation of the estimates of two mutually exclusive proportions of the same images."""
    return 0.0 if 1 in {p, q} else -math.sqrt(p * q / ((1 - p) * (1 - q)))


def _worth(entry: np.ndarray, whole: np.ndarray, known: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Return the effective number of independent outcomes, estimated from the variance between the images.

    For the estimate, one image that always counts and one that never counts are added. Without them, identical outcomes
    could give more than the number of images.
    """
    of_image = entry.sum(1)
    count = (of_image > 0).sum(0)
    square = (of_image**2).sum(0)
    means = (whole.sum(0) + 1) / (known.sum(0) + 2)  # of each repeat, with the two added images
    mean = (part * means).sum(0)
    between = ((entry * (whole - means)).sum(1) ** 2).sum(0)
    added = square / count * (mean**2 + (1 - mean) ** 2)
    worth = mean * (1 - mean) / (between + added) * (count + 2) / count
    return np.clip(worth, 1 / square, 1 / (entry**2).sum((0, 1)))


def difference_interval(only_first: int, only_second: int, count: int, level: float = 0.9) -> Interval:
    """Return the difference of the success rates of two attacks on the same images, with its interval.

    The interval is computed by `difference_bounds` from the proportions of images that only one of the attacks fools.
    If the interval at level 0.9 lies within a margin around 0, two one-sided tests at 5 % show that the attacks are
    equivalent.

    Args:
        only_first: number of images that only the first attack fools.
        only_second: number of images that only the second attack fools.
        count: number of all images.
        level: confidence level, in (0, 1).

    Returns:
        The rate of the first attack minus that of the second, from -1 to 1. NaN if there are no images.
    """
    if count == 0:
        return UNKNOWN
    p, q = only_first / count, only_second / count
    first, second = ((hits / count, *proportion_interval(hits, count, level)) for hits in (only_first, only_second))
    return Interval(p - q, *difference_bounds(first, second, discordant_correlation(p, q)))


def median_interval(values: ArrayLike, level: float = LEVEL) -> Interval:
    """Return the median of values, with an interval that is valid for any distribution (sign test).

    Args:
        values: the values, shape (n,). Infinite values are included, and NaN values are ignored.
        level: lowest confidence level of the interval, in (0, 1).

    Returns:
        The median, and the bounds of its interval. The bounds are NaN if there are too few values for this level.
    """
    known = np.asarray(values, float)
    known = np.sort(known[~np.isnan(known)])
    if not len(known):
        return UNKNOWN
    below = int(scipy.stats.binom.ppf((1 - level) / 2, len(known), 0.5))  # as few may lie below the lower end
    ends = (known[below - 1], known[-below]) if below else (math.nan, math.nan)
    return Interval(float(np.median(known)), *map(float, ends))


def ratio_interval(first: ArrayLike, second: ArrayLike, level: float = 0.9) -> Interval:
    """Return the median over images of first distance / second distance, with its interval from `median_interval`.

    Args:
        first: distances of the first attack, shape (n,), >= 0.
        second: distances of the second attack on the same images, shape (n,), >= 0. The ratio of two zeros is 1.
        level: lowest confidence level of the interval, in (0, 1).
    """
    near, far = np.asarray(first, float), np.asarray(second, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return median_interval(np.where(near == far, 1.0, near / far), level)

"""Intervals of shares over images that repeat, and of a difference of two shares."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ...intervals import LEVEL, share_ends


class Share(NamedTuple):
    """A share, its interval and the number of independent images that it is worth; arrays where many were asked for."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    worth: np.ndarray


def clustered_interval(values: ArrayLike, weights: ArrayLike | None = None, level: float = LEVEL) -> Share:
    """A mean of shares over the same images, such as a rate over several attacks, seeds or models.

    The images are the clusters. How many independent trials the outcomes are worth (Kish's effective sample size)
    is estimated from how alike the outcomes of an image are, and put into `share_interval` (Korn and Graubard
    1998). One image that always counts and one that never does are added for that estimate alone, so that outcomes
    which are all equal are worth their images and not more. It is never less than the images are worth if all
    outcomes of an image are the same, and never more than if all are independent.

    Args:
        values: 0 or 1, or shares of such, NaN where undefined, shape (images, repeats) or (images, repeats, ...): the
            axes after the second are other shares.
        weights: of the repeats' means, shape (repeats,); None: all equal. A repeat without a defined value is left out.
        level: of confidence, inside (0, 1).

    Returns:
        Arrays of the shape of the axes after the second; NaN where nothing is defined.

    Raises:
        ValueError: if the shapes do not fit or a value is outside [0, 1].
    """
    values = np.asarray(values, float)
    if values.ndim < 2 or (weights is not None and np.shape(weights) != values.shape[1:2]):
        raise ValueError(f"expected values (images, repeats, ...), weights (repeats,), got {values.shape}, {weights}")
    if (values < 0).any() or (values > 1).any():
        raise ValueError("expected values from 0 to 1, got others")
    given = np.ones(values.shape[1]) if weights is None else np.asarray(weights, float)
    known = ~np.isnan(values)
    images = known.sum(0)
    part = given.reshape(-1, *[1] * (values.ndim - 2)) * (images > 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = (part * np.nansum(values, 0) / np.maximum(images, 1)).sum(0) / part.sum(0)
        part = part / part.sum(0)  # NaN where nothing is defined
        entry = known * (part / np.maximum(images, 1))  # the weight of each outcome; they add up to 1
        whole = np.where(known, values, 0.0)
        worth = _worth(entry, whole, known, part)
        low, high = share_ends(value * worth, worth, level)
    return Share(value, low, high, worth)


def whole_shares(counts: np.ndarray, images: int, level: float = LEVEL) -> Share:
    """`clustered_interval` of shares over images that are 0 or 1, each once: it rests on how many are 1.

    Args:
        counts: of the images that are 1, for each share.
        images: all of them.
        level: of confidence, inside (0, 1).

    Returns:
        Arrays of the shape of `counts`; NaN without images.
    """
    worth = np.full(np.shape(counts), float(images))
    with np.errstate(invalid="ignore"):
        return Share(counts / worth, *share_ends(np.asarray(counts, float), worth, level), worth)


def difference_ends(
    first: tuple[float, float, float], second: tuple[float, float, float], alike: float = 0.0
) -> tuple[float, float]:
    """Ends of the interval of a difference of two shares, by the method of variance estimates recovery.

    Zou and Donner 2008; Newcombe 1998 for a correlation of 0, which is on the safe side where it is positive.

    Args:
        first: share and both ends of its interval.
        second: of what is taken from it.
        alike: correlation of the two estimates.
    """
    (p, p_low, p_high), (q, q_low, q_high) = first, second
    sizes = [
        math.sqrt(x * x + y * y - 2 * alike * x * y) for x, y in ((p - p_low, q_high - q), (p_high - p, q - q_low))
    ]
    return max(p - q - sizes[0], -1.0), min(p - q + sizes[1], 1.0)


def discordant_correlation(p: float, q: float) -> float:
    """Correlation of the estimates of two shares of the same images that exclude one another."""
    return 0.0 if 1 in {p, q} else -math.sqrt(p * q / ((1 - p) * (1 - q)))


def _worth(entry: np.ndarray, whole: np.ndarray, known: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Effective number of independent outcomes, from the variance between images."""
    of_image = entry.sum(1)
    count = (of_image > 0).sum(0)
    square = (of_image**2).sum(0)
    means = (whole.sum(0) + 1) / (known.sum(0) + 2)  # of each repeat, with the two added images
    mean = (part * means).sum(0)
    between = ((entry * (whole - means)).sum(1) ** 2).sum(0)
    added = square / count * (mean**2 + (1 - mean) ** 2)
    worth = mean * (1 - mean) / (between + added) * (count + 2) / count
    return np.clip(worth, 1 / square, 1 / (entry**2).sum((0, 1)))

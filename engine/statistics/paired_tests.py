"""Paired tests of two implementations on the same images, with SciPy."""

import math

import numpy as np
import scipy
from numpy.typing import ArrayLike

_ENUMERATED = 13  # most pairs for which the p-value is exact in spite of ties


def min_images_for_significance(level: float) -> int:
    """Return the smallest number of images with which McNemar's p-value can be below `level`.

    This p-value is reached if all images favour one attack. With fewer pairs, Wilcoxon's test cannot be significant
    either.
    """
    return math.floor(math.log2(2 / level)) + 1


def min_images_for_equivalence(margin: float, level: float = 0.9) -> int:
    """Return the number of images with equal outcomes at which `difference_interval` lies inside the margin."""
    return math.floor(math.log((1 - level) / 2) / math.log1p(-margin)) + 1


def mcnemar(first: ArrayLike, second: ArrayLike) -> float:
    """Test whether the images that only one attack fools are split evenly (McNemar, exact, two-sided).

    Args:
        first: success of the first on each image, shape (n,), bool.
        second: success of the second on the same images, shape (n,), bool.

    Returns:
        The p-value; 1 if no image is fooled by only one of them.
    """
    first, second = np.asarray(first, bool), np.asarray(second, bool)
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    if only_first + only_second == 0:
        return 1.0
    return float(scipy.stats.binomtest(only_first, only_first + only_second).pvalue)


def wilcoxon(first: ArrayLike, second: ArrayLike) -> float:
    """Compute the two-sided Wilcoxon signed-rank test on paired distances. Zero differences are dropped.

    Args:
        first: distances of the first, shape (n,), finite.
        second: distances of the second on the same images, shape (n,), finite.

    Returns:
        The p-value; 1 if every pair is equal, NaN without pairs.
    """
    difference = np.asarray(first, float) - np.asarray(second, float)
    if len(difference) == 0:
        return math.nan
    if not difference.any():
        return 1.0
    if len(difference) <= _ENUMERATED:  # as by SciPy, which calls a function for each of up to 2^13 sign patterns
        changed = difference[difference != 0]
        ranks = scipy.stats.rankdata(np.abs(changed))
        signs = 1 - 2 * ((np.arange(2 ** len(ranks))[:, None] >> np.arange(len(ranks))) & 1)
        return float((np.abs(signs @ ranks) >= abs(ranks @ np.sign(changed))).mean())
    # Exact for small samples without ties, as SciPy decides; a zero difference is dropped (Wilcoxon's rule).
    return float(np.asarray(scipy.stats.wilcoxon(difference, zero_method="wilcox"))[1])


def signed_rank_sum(first: ArrayLike, second: ArrayLike) -> float:
    """Return Wilcoxon's sum of signed ranks, which is positive if the first distances tend to be larger."""
    difference = np.asarray(first, float) - np.asarray(second, float)
    return float((scipy.stats.rankdata(np.abs(difference)) * np.sign(difference)).sum())

"""Paired tests of two attacks on the same images, with SciPy."""

import math

import numpy as np
import scipy
from numpy.typing import ArrayLike

_ENUMERATED = 13  # most pairs for which the p-value is exact in spite of ties


def min_images_for_significance(level: float) -> int:
    """Return the smallest number of images with which McNemar's test can be significant at a level.

    The p-value is smallest if all images favour the same attack. With fewer images, Wilcoxon's test cannot be
    significant either.
    """
    return math.floor(math.log2(2 / level)) + 1


def min_images_for_equivalence(margin: float, level: float = 0.9) -> int:
    """Return the smallest number of images with which two attacks can be equivalent.

    With this number, `difference_interval` lies inside the margin if both attacks fool the same images.
    """
    return math.floor(math.log((1 - level) / 2) / math.log1p(-margin)) + 1


def mcnemar(first: ArrayLike, second: ArrayLike) -> float:
    """Test whether two attacks fool equally many of the images that only one of them fools (McNemar, exact, two-sided).

    Args:
        first: success of the first attack on each image, shape (n,), bool.
        second: success of the second attack on the same images, shape (n,), bool.

    Returns:
        The p-value; 1 if no image is fooled by only one attack.
    """
    first, second = np.asarray(first, bool), np.asarray(second, bool)
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    if only_first + only_second == 0:
        return 1.0
    return float(scipy.stats.binomtest(only_first, only_first + only_second).pvalue)


def wilcoxon(first: ArrayLike, second: ArrayLike) -> float:
    """Compute the two-sided Wilcoxon signed-rank test on paired distances. Images with equal distances are ignored.

    Args:
        first: distances of the first attack, shape (n,), finite.
        second: distances of the second attack on the same images, shape (n,), finite.

    Returns:
        The p-value. 1 if the distances are equal on every image, NaN without images.
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
    """Return Wilcoxon's sum of signed ranks. The sum is positive if the first distances tend to be larger.

    As in `wilcoxon`, pairs of equal distances are dropped before the differences are ranked.
    """
    difference = np.asarray(first, float) - np.asarray(second, float)
    difference = difference[difference != 0]
    return float((scipy.stats.rankdata(np.abs(difference)) * np.sign(difference)).sum())

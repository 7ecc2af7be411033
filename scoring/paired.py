"""Whether two subjects differ beyond chance, by what they did on the same images: a sign-flip test."""

from collections.abc import Sequence

import numpy as np
from scipy.special import bdtr, ndtr
from scipy.stats import binom

_ENUMERATED = 16  # differing images without a common unit whose 2^k sums are all counted
_COUNTED = 1000  # units of all differences together, up to which the sums of several sizes are counted
_PARTS = 12  # of the smallest difference that are tried as the common unit
_ROUNDING = 1e-9


def paired_p_values(parts: np.ndarray, clusters: Sequence[str]) -> np.ndarray:
    """Two-sided p-values of every pair: if two subjects are alike, each image favours either with equal chance.

    The test flips the sign of each image's difference. Where images have one item and responses are 0 or 1 it is
    McNemar's exact test. It counts all signs where few images differ, or where the differences have a common unit;
    otherwise it takes the normal distribution of the same variance (with a unit: with the correction for continuity).

    Args:
        parts: of each item in the score of each subject, which is their mean: responses, or shares of comparisons won;
            shape (N, M), NaN is missing. An item counts for the pairs that have it.
        clusters: the image of each item, length M, whose differences keep one sign.

    Returns:
        Shape (N, N), symmetric; 1 where no image differs.
    """
    place = np.unique(np.asarray(clusters), return_inverse=True)[1]
    images, gaps = place.max() + 1, np.isnan(parts).any()
    sums = parts if gaps else np.stack([np.bincount(place, row, images) for row in parts])
    values = np.ones((len(parts), len(parts)))
    for one in range(len(parts)):
        for other in range(one):
            differences = sums[one] - sums[other]
            if gaps:
                differences = np.bincount(place, np.nan_to_num(differences), images)
            values[one, other] = values[other, one] = flip_test(differences)
    return values


def flip_test(differences: np.ndarray) -> float:
    """The two-sided p-value of a sum of differences whose signs are those of coins, see `paired_p_values`.

    Args:
        differences: of each image, shape (n,); 0 says nothing.
    """
    differences = differences[np.abs(differences) > _ROUNDING]
    if not len(differences):
        return 1.0
    sizes, total = np.abs(differences), abs(float(differences.sum()))
    units = _in_units(sizes)
    if units is not None:
        observed = round(total * units.sum() / sizes.sum())
        if (units == units[0]).all():
            fewer = (len(units) - observed // units[0]) // 2
            return min(1.0, 2 * float(bdtr(fewer, len(units), 0.5)))
        if units.sum() <= _COUNTED:
            return _counted(units, observed)
        return _normal(units, observed - 1)
    if len(sizes) <= _ENUMERATED:
        every = np.zeros(1)
        for size in sizes:
            every = np.concatenate([every + size, every - size])
        return float((np.abs(every) >= total - _ROUNDING * sizes.sum()).mean())
    return _normal(sizes, total)


def _in_units(sizes: np.ndarray) -> np.ndarray | None:
    """Sizes as whole numbers of a common unit, (n,) int; None without one."""
    least = sizes.min()
    for parts in range(1, _PARTS + 1):
        units = sizes * parts / least
        whole = np.round(units)
        if np.abs(units - whole).max() < _ROUNDING * whole.max():
            return whole.astype(int)
    return None


def _counted(units: np.ndarray, observed: int) -> float:
    """P(|sum| >= observed) of whole numbers under signs of coins."""
    chances = np.ones(1)  # of the sum of those with a plus: 0, 1, ...
    for size, count in zip(*np.unique(units, return_counts=True), strict=True):
        of_size = np.zeros(size * count + 1)
        of_size[::size] = binom.pmf(np.arange(count + 1), count, 0.5)
        chances = np.convolve(chances, of_size)
    sums = np.abs(2 * np.arange(len(chances)) - units.sum())
    return min(1.0, float(chances[sums >= observed].sum()))


def _normal(sizes: np.ndarray, total: float) -> float:
    return min(1.0, 2 * float(ndtr(-max(total, 0.0) / np.sqrt(np.square(sizes, dtype=float).sum()))))

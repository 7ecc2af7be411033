"""How well a score tells two kinds of images apart, with intervals by resampling images."""

from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from ...intervals import proportion_interval, tail_probability
from ..statistics.bootstrap import FEWEST, resample

REPLICATES = 1000


class CountedShare(NamedTuple):
    """Some of n images, and the 95 % interval of their share."""

    count: int
    n: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The share; NaN of none."""
        return self.count / self.n if self.n else float("nan")


class Area(NamedTuple):
    """Area under the ROC curve and its 95 % interval; NaN where it is undefined."""

    value: float
    low: float
    high: float


def share_of(flags: np.ndarray) -> CountedShare:
    """How many of the images, with Clopper and Pearson's interval."""
    count, n = int(np.sum(flags)), len(flags)
    return CountedShare(count, n, *proportion_interval(count, n))


def area_under_curve(clean: np.ndarray, adversarial: np.ndarray) -> float:
    """Probability that an adversarial image scores higher than a clean one; a tie counts half (Mann and Whitney).

    Args:
        clean: scores, shape (N,).
        adversarial: scores, shape (M,).

    Returns:
        In [0, 1]; NaN if one of them is empty.
    """
    n, m = len(clean), len(adversarial)
    if not n or not m:
        return float("nan")
    ranks = rankdata(np.concatenate([adversarial, clean]))
    return float((ranks[:m].sum() - m * (m + 1) / 2) / (n * m))


def area_of_images(clean: np.ndarray, adversarial: np.ndarray, fooled: np.ndarray, seed: int = 0) -> Area:
    """The area with an interval that resamples images: a clean image and what was made of it are drawn together.

    Args:
        clean: score of every image, shape (N,).
        adversarial: score of what was made of each, (N,).
        fooled: which of these count, (N,) bool.
        seed: random seed of the draws.

    Returns:
        The area and its expanded percentile interval, for as many images as are fooled (`tail_probability`). No interval (NaN)
        for fewer than 5 of them, nor where every pair agrees: a resample knows of no other.
    """
    value = area_under_curve(clean, adversarial[fooled])
    if fooled.sum() < FEWEST or value in (0.0, 1.0):
        return Area(value, float("nan"), float("nan"))
    # P(adversarial > clean) of a replicate is a weighted sum over pairs: one matrix of comparisons for all of them.
    above = (adversarial[fooled][:, None] > clean) + 0.5 * (adversarial[fooled][:, None] == clean)
    counts = resample(len(clean), REPLICATES, seed)[1:].astype(float)
    weights = counts[:, fooled]
    sums = np.einsum("rm,mn,rn->r", weights, above, counts, optimize=True)
    totals = weights.sum(1) * counts.sum(1)
    areas = sums[totals > 0] / totals[totals > 0]
    tail = tail_probability(int(fooled.sum()))
    low, high = np.quantile(areas, (tail, 1 - tail))
    return Area(value, float(low), float(high))

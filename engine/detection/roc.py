"""Area under the ROC curve of a score, with intervals by resampling images."""

from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from ...intervals import proportion_interval, tail_probability
from ..statistics.bootstrap import FEWEST, resample

REPLICATES = 1000


class CountedShare(NamedTuple):
    """A count among n images, and the 95 % interval of the proportion."""

    count: int
    n: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The proportion; NaN for no images."""
        return self.count / self.n if self.n else float("nan")


class Area(NamedTuple):
    """Area under the ROC curve and its 95 % interval; NaN if undefined."""

    value: float
    low: float
    high: float


def share_of(flags: np.ndarray) -> CountedShare:
    """Count the flagged images, with Clopper and Pearson's interval."""
    count, n = int(np.sum(flags)), len(flags)
    return CountedShare(count, n, *proportion_interval(count, n))


def area_under_curve(clean: np.ndarray, adversarial: np.ndarray) -> float:
    """Return the probability that an adversarial image scores above a clean one; ties count half (Mann-Whitney).

    Args:
        clean: scores, shape (N,).
        adversarial: scores, shape (M,).

    Returns:
        A value in [0, 1]; NaN if there are no clean or no adversarial scores.
    """
    n, m = len(clean), len(adversarial)
    if not n or not m:
        return float("nan")
    ranks = rankdata(np.concatenate([adversarial, clean]))
    return float((ranks[:m].sum() - m * (m + 1) / 2) / (n * m))


def area_of_images(clean: np.ndarray, adversarial: np.ndarray, fooled: np.ndarray, seed: int = 0) -> Area:
    """Return the area under the ROC curve, with an interval from resampled images.

    Each clean image is resampled together with its example.

    Args:
        clean: score of every image, shape (N,).
        adversarial: score of each example, (N,).
        fooled: whether to use each example, (N,) bool.
        seed: random seed of the resampling.

    Returns:
        The area and its expanded percentile interval, for the number of fooled images (`tail_probability`). The
        interval is NaN for fewer than 5 fooled images. It is also NaN if all examples score above, or all below, all
        clean images, because then all resamples are equal.
    """
    value = area_under_curve(clean, adversarial[fooled])
    if fooled.sum() < FEWEST or value in (0.0, 1.0):
        return Area(value, float("nan"), float("nan"))
    # P(adversarial > clean) of a replicate is a weighted sum over pairs: one comparison matrix serves all.
    above = (adversarial[fooled][:, None] > clean) + 0.5 * (adversarial[fooled][:, None] == clean)
    counts = resample(len(clean), REPLICATES, seed)[1:].astype(float)
    weights = counts[:, fooled]
    sums = np.einsum("rm,mn,rn->r", weights, above, counts, optimize=True)
    totals = weights.sum(1) * counts.sum(1)
    areas = sums[totals > 0] / totals[totals > 0]
    tail = tail_probability(int(fooled.sum()))
    low, high = np.quantile(areas, (tail, 1 - tail))
    return Area(value, float(low), float(high))

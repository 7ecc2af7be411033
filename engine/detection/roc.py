"""Area under the ROC curve of a score, with a confidence interval from resampled images."""

from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from ...intervals import proportion_interval, tail_probability
from ..statistics.bootstrap import FEWEST, resample

REPLICATES = 1000


class CountedShare(NamedTuple):
    """A proportion of n images, with its 95 % interval.

    Args:
        count: number of images that count.
        n: number of all images.
        low: lower bound of the interval.
        high: upper bound of the interval.
    """

    count: int
    n: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The proportion `count / n`; NaN if n is 0."""
        return self.count / self.n if self.n else float("nan")


class Area(NamedTuple):
    """Area under the ROC curve, with the bounds of its 95 % interval; NaN if undefined."""

    value: float
    low: float
    high: float


def share_of(flags: np.ndarray) -> CountedShare:
    """Return the proportion of True in a bool array, with the interval of Clopper and Pearson."""
    count, n = int(np.sum(flags)), len(flags)
    return CountedShare(count, n, *proportion_interval(count, n))


def area_under_curve(clean: np.ndarray, adversarial: np.ndarray) -> float:
    """Return the area under the ROC curve of a score that separates adversarial images from clean images.

    This is the probability that an adversarial image has a higher score than a clean image. Equal scores count half
    (Mann-Whitney).

    Args:
        clean: scores of clean images, shape (N,).
        adversarial: scores of adversarial images, shape (M,).

    Returns:
        The area in [0, 1]; NaN if N or M is 0.
    """
    n, m = len(clean), len(adversarial)
    if not n or not m:
        return float("nan")
    ranks = rankdata(np.concatenate([adversarial, clean]))
    return float((ranks[:m].sum() - m * (m + 1) / 2) / (n * m))


def area_of_images(clean: np.ndarray, adversarial: np.ndarray, fooled: np.ndarray, seed: int = 0) -> Area:
    """Return the area under the ROC curve of a detector on one run, with a bootstrap interval.

    A clean image and its adversarial example are resampled together.

    Args:
        clean: score of each clean image, shape (N,).
        adversarial: score of the example of each image, shape (N,).
        fooled: whether the example fools the model, (N,) bool. Other examples are not used.
        seed: random seed of the resampling.

    Returns:
        The area, with its expanded percentile interval (see `tail_probability`). The interval is NaN if fewer than 5
        examples fool the model. The interval is also NaN if the area is 0 or 1, because all resamples then have the
        same area.
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

"""Significance of differences between subjects, and the effect of correlated or selectively missing responses."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import bdtr, ndtr
from scipy.stats import binom, chi2, norm

from ..intervals import LEVEL

if TYPE_CHECKING:
    from .irt import IRTFit

NODES = 7  # nodes of the Gauss-Hermite rule over the difficulty of an item
_ENUMERATED = 16  # most differing images without a common unit for which all 2^k sums are enumerated
_COUNTED = 1000  # most units of all differences together for which sums of several sizes are counted
_PARTS = 12  # divisors of the smallest difference tried as the common unit
_ROUNDING = 1e-9


def tell_apart(deviations: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, float]:
    """Return which pairs of subjects differ significantly, corrected for the number of pairs.

    The method is step-down max-T (Westfall and Young 1993; Romano and Wolf 2005). If all subjects are equal, at least
    95 % of rankings have no significant pair. The draws are centred on their means, and the largest deviation over all
    pairs is computed in each draw. A pair differs if its deviations exceed the 95 % quantile of these largest
    deviations. The test is repeated for the remaining pairs until no further pair differs. The threshold is at least
    that for a single pair, the 97.5 % quantile of the normal distribution.

    Args:
        deviations: number of standard deviations by which subject i exceeds subject j, from `pair_deviations`, shape
            (N, N).
        draws: joint draws of the scores, shape (D, N). NaN is unknown.

    Returns:
        Whether each pair differs, shape (N, N), bool, and the last threshold, which no remaining pair exceeds.
    """
    single, apart = float(norm.ppf((1 + LEVEL) / 2)), np.zeros(deviations.shape, bool)
    centred, scale = _centred(draws)
    while True:
        left, critical = np.triu(~apart, 1), single
        if left.sum() > 1:
            largest = np.zeros(len(centred))
            for one in np.flatnonzero(left.any(1)):
                differences = np.abs(centred[:, [one]] - centred[:, left[one]]) * scale[one, left[one]]
                largest = np.maximum(largest, differences.max(1))
            critical = max(single, float(np.quantile(largest, LEVEL)))
        beyond = np.maximum(deviations, deviations.T) > critical
        if not (beyond & left).any():
            return apart, critical
        apart = apart | beyond


def pair_deviations(draws: np.ndarray, beats: np.ndarray, p_values: np.ndarray | None = None) -> np.ndarray:
    """Return the number of standard deviations by which subject i exceeds subject j, shape (N, N).

    The number is 0 if subject i does not exceed subject j. The result is the smallest of several estimates.

    Args:
        draws: draws of the scores, shape (D, N). NaN is unknown.
        beats: probability that subject i ranks above subject j, shape (N, N). Probabilities near 1 are imprecise,
            because the number of draws is finite. The difference of the means is therefore used, too.
        p_values: p-values of a paired test over images, shape (N, N). None means no such test.
    """
    known = ~np.isnan(draws)
    mean = np.where(known, draws, 0.0).sum(0) / np.maximum(known.sum(0), 1)
    difference, scale = np.maximum(mean[:, None] - mean, 0.0), _centred(draws)[1]
    by_mean = np.where(scale > 0, difference * scale, np.where(difference > 0, np.inf, 0.0))
    deviations = np.minimum(norm.ppf(np.clip(beats, 0.5, 1)), by_mean)
    return deviations if p_values is None else np.minimum(deviations, norm.isf(p_values / 2))


def _centred(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return centred draws, and the reciprocal standard deviation of the difference of each pair.

    A centred draw is 0 if the score is unknown. The reciprocal is 0 if the difference is constant.
    """
    known = ~np.isnan(draws)
    filled = np.where(known, draws, 0.0)
    centred = np.where(known, filled - filled.sum(0) / np.maximum(known.sum(0), 1), 0.0)
    covariance = centred.T @ centred / len(draws)
    variance = np.diag(covariance)
    spread = variance[:, None] + variance - 2 * covariance
    varies = spread > 1e-12 * max(variance.max(), 1e-300)
    return centred, np.where(varies, 1 / np.sqrt(np.where(varies, spread, 1.0)), 0.0)


def tie_groups(score: np.ndarray, apart: np.ndarray) -> tuple[str, ...]:
    """Return the tie group letters of each subject. Two subjects that share a letter do not differ significantly.

    Two subjects share a letter if and only if these two and all subjects with scores in between do not differ
    significantly from each other.

    Args:
        score: score of each subject, shape (N,).
        apart: whether each pair differs significantly, from `tell_apart`, shape (N, N).

    Returns:
        Letters of each subject. The letter "a" belongs to the best group.
    """
    order = np.argsort(-score, kind="stable")
    apart = apart[np.ix_(order, order)]
    groups: list[range] = []
    for start in range(len(order)):
        stop = start + 1
        while stop < len(order) and not apart[start : stop + 1, start : stop + 1].any():
            stop += 1
        if not groups or stop > groups[-1].stop:
            groups.append(range(start, stop))
    letters = [""] * len(order)
    for place, group in enumerate(groups):
        for member in group:
            letters[order[member]] += chr(ord("a") + place) if place < 26 else f"({place + 1})"
    return tuple(letters)


def paired_p_values(parts: np.ndarray, clusters: Sequence[str]) -> np.ndarray:
    """Return the p-value of the difference of each pair of subjects, by a two-sided sign-flip test over images.

    The null hypothesis is that each image favours either subject with equal probability. The test flips the sign of the
    difference on each image. If images have one item and responses are 0 or 1, the test equals McNemar's exact test.
    The test is exact if few images differ, or if all differences are multiples of a common unit. Otherwise, the test
    uses a normal distribution with the same variance.

    Args:
        parts: contribution of each item to the score of each subject, shape (N, M): responses, or rates of comparisons
            won. The score is the mean over items. NaN is missing. A pair is compared on the items for which both
            subjects have a value.
        clusters: image of each item, length M. The signs of all items of an image are flipped together.

    Returns:
        P-values, shape (N, N), symmetric. 1 if the two subjects differ on no image.
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
    """Return the two-sided p-value of a sum of differences, if each difference has a random sign.

    The test is described in `paired_p_values`.

    Args:
        differences: difference between two subjects on each image, shape (n,). Zeros are ignored.
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
    """Return the sizes as integer multiples of a common unit, shape (n,), or None if they have no common unit."""
    least = sizes.min()
    for parts in range(1, _PARTS + 1):
        units = sizes * parts / least
        whole = np.round(units)
        if np.abs(units - whole).max() < _ROUNDING * whole.max():
            return whole.astype(int)
    return None


def _counted(units: np.ndarray, observed: int) -> float:
    """Return the probability that the absolute sum of integers with random signs is at least `observed`."""
    chances = np.ones(1)  # probabilities of the sum of the positive ones: 0, 1, ...
    for size, count in zip(*np.unique(units, return_counts=True), strict=True):
        of_size = np.zeros(size * count + 1)
        of_size[::size] = binom.pmf(np.arange(count + 1), count, 0.5)
        chances = np.convolve(chances, of_size)
    sums = np.abs(2 * np.arange(len(chances)) - units.sum())
    return min(1.0, float(chances[sums >= observed].sum()))


def _normal(sizes: np.ndarray, total: float) -> float:
    return min(1.0, 2 * float(ndtr(-max(total, 0.0) / np.sqrt(np.square(sizes, dtype=float).sum()))))


def missing_by_subject(missing: np.ndarray) -> float:
    """Return the p-value of a test of whether the subjects differ in their number of missing responses.

    The test is Cochran's Q (1950) with the images as blocks. An image may have more than one missing response, so
    counts are used instead of 0 and 1 (Friedman 1937). Under the null hypothesis, the counts of an image belong to the
    subjects in random order. Dependent responses to one image therefore do not invalidate the test.

    Args:
        missing: number of missing responses of each subject to each image, shape (N, images).

    Returns:
        The p-value. 1 if no response is missing, or if all subjects lack the same responses.
    """
    spread = missing.var(0, ddof=1).sum() if len(missing) > 1 else 0.0
    if spread <= 0:
        return 1.0
    total = missing.sum(1)
    return float(chi2.sf(((total - total.mean()) ** 2).sum() / spread, len(missing) - 1))


def design_effect(fit: "IRTFit", responses: np.ndarray, clusters: Sequence[str]) -> float:
    """Return the factor by which correlated responses to one image increase the variance of the abilities.

    An item response model assumes that responses are independent given ability and item. Responses to five attacks on
    one image are not independent: an image that is unusual for a model is unusual under each attack. The middle matrix
    of the sandwich estimator (sums of squared scores) is computed twice, with images and with items as clusters (Liang
    and Zeger 1986). The ratio of the traces is the design effect (Kish 1965). All subjects have the same design effect,
    because separate values would need many images. A posterior that is widened by the square root of the design effect
    has the coverage of the sandwich estimator (Mueller 2013).

    The score of a response y is a (y - p), with p averaged over the posterior of the difficulty. The means of these
    scores over the subjects of an item and over the items of a subject are subtracted, because the responses determine
    only differences of abilities.

    Args:
        fit: fitted model of the responses, with the curve "difficulty".
        responses: shape (N, M). NaN is missing.
        clusters: image of each item, length M.

    Returns:
        The design effect, at least 1. Exactly 1 if no image has two items, and about 1 for independent items.
    """
    names, cluster = np.unique(np.asarray(clusters), return_inverse=True)
    if not 1 < len(names) < len(cluster):
        return 1.0
    scores = _scores(fit, responses)
    sums = np.zeros((len(names), len(scores)))
    np.add.at(sums, cluster, scores.T)
    alone = (scores**2).sum()
    if alone <= 0:
        return 1.0
    return max(1.0, float((sums**2).sum() / alone * len(names) / (len(names) - 1)))


def _scores(fit: "IRTFit", responses: np.ndarray) -> np.ndarray:
    """Return the derivative of the log-likelihood of each response with respect to the ability, shape (N, M).

    The derivative is 0 for a missing response. The means over subjects and over items are subtracted, because only
    differences of abilities are determined.
    """
    seen = ~np.isnan(responses)
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    expected = np.zeros(responses.shape)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        gap = fit.expected[:, None] - fit.difficulty - node * fit.difficulty_deviation
        expected += weight / (1 + np.exp(-fit.discrimination * gap))
    scores = np.where(seen, fit.discrimination * (responses - expected), 0.0)
    scores = np.where(seen, scores - scores.sum(0) / np.maximum(seen.sum(0), 1), 0.0)
    return np.where(seen, scores - scores.sum(1, keepdims=True) / np.maximum(seen.sum(1, keepdims=True), 1), 0.0)

"""Which differences are significant, and what correlated or selectively missing responses do to that."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import bdtr, ndtr
from scipy.stats import binom, chi2, norm

from ..intervals import LEVEL

if TYPE_CHECKING:
    from .irt import IRTFit

NODES = 7  # of the Gauss-Hermite rule over the difficulty of an item
_ENUMERATED = 16  # differing images without a common unit whose 2^k sums are all counted
_COUNTED = 1000  # units of all differences together, up to which the sums of several sizes are counted
_PARTS = 12  # of the smallest difference that are tried as the common unit
_ROUNDING = 1e-9


def tell_apart(deviations: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, float]:
    """Pairs that differ significantly, corrected over all pairs: of equal subjects some do in at most 5 % of rankings.

    Step-down max-T (Westfall and Young 1993; Romano and Wolf 2005): a pair differs if its deviations exceed what the
    largest of all pairs exceeds in 5 % of the joint draws about their means. That is found again for the pairs that are
    left until no more differ. A single pair needs the quantile of 97.5 % of the normal distribution, as all do at
    least.

    Args:
        deviations: from `pair_deviations`, shape (N, N).
        draws: of the scores, joint, shape (D, N); NaN is not known.

    Returns:
        Shape (N, N) bool, and the deviations that the pairs which are left would need.
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
    """How many standard deviations i is above j, (N, N), 0 where it is below: the least of what speaks of it.

    Args:
        draws: of the scores, shape (D, N); NaN is not known.
        beats: P(i ranks above j), shape (N, N), whose last digits few draws do not give: their mean difference counts,
            too.
        p_values: see `make_ranking`.
    """
    known = ~np.isnan(draws)
    mean = np.where(known, draws, 0.0).sum(0) / np.maximum(known.sum(0), 1)
    difference, scale = np.maximum(mean[:, None] - mean, 0.0), _centred(draws)[1]
    by_mean = np.where(scale > 0, difference * scale, np.where(difference > 0, np.inf, 0.0))
    deviations = np.minimum(norm.ppf(np.clip(beats, 0.5, 1)), by_mean)
    return deviations if p_values is None else np.minimum(deviations, norm.isf(p_values / 2))


def _centred(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draws about their means, 0 if not known, and one over the deviation of each difference, 0 if it is constant."""
    known = ~np.isnan(draws)
    filled = np.where(known, draws, 0.0)
    centred = np.where(known, filled - filled.sum(0) / np.maximum(known.sum(0), 1), 0.0)
    covariance = centred.T @ centred / len(draws)
    variance = np.diag(covariance)
    spread = variance[:, None] + variance - 2 * covariance
    varies = spread > 1e-12 * max(variance.max(), 1e-300)
    return centred, np.where(varies, 1 / np.sqrt(np.where(varies, spread, 1.0)), 0.0)


def tie_groups(score: np.ndarray, apart: np.ndarray) -> tuple[str, ...]:
    """Letters: two subjects share one exactly when of all from one to the other, by score, no two are told apart.

    Args:
        score: shape (N,).
        apart: from `tell_apart`, shape (N, N).

    Returns:
        Letters of each subject, those of the best group first.
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


def missing_by_subject(missing: np.ndarray) -> float:
    """Probability that the subjects' numbers of missing responses differ this much by chance.

    Cochran's Q (1950) with the images as blocks, and with counts instead of 0 and 1 (Friedman 1937): were the names of
    the subjects exchanged on an image, all of its responses would go along, so responses to one image may depend.

    Args:
        missing: number of missing responses of each subject to each image, shape (N, images).

    Returns:
        A p-value; 1 if there is nothing to test.
    """
    spread = missing.var(0, ddof=1).sum() if len(missing) > 1 else 0.0
    if spread <= 0:
        return 1.0
    total = missing.sum(1)
    return float(chi2.sf(((total - total.mean()) ** 2).sum() / spread, len(missing) - 1))


def design_effect(fit: "IRTFit", responses: np.ndarray, clusters: Sequence[str]) -> float:
    """How many times wider the variance of the abilities is because responses to one image are correlated.

    An item response model takes the responses to be independent given ability and item. Five attacks on one image are
    not: an image that is odd for a model is odd under each of them. The middle matrix of the sandwich estimator, sums
    of scores squared, is taken once with the images as clusters and once with the items (Liang and Zeger 1986); the
    ratio of the traces is the design effect (Kish 1965), one for all subjects, as few images would not tell them apart.
    The posterior, stretched by its root, covers as the sandwich does (Mueller 2013).

    Scores are a (y - p), with p averaged over the posterior of the difficulty and less their means over the subjects of
    an item and over the items of a subject: only differences of abilities are fixed by the responses.

    Args:
        fit: of the responses, with the curve "difficulty".
        responses: shape (N, M); NaN is missing.
        clusters: the image of each item, length M.

    Returns:
        1 where no image has two items, else about 1 where they are independent; never below 1.
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
    """What each response says about differences of abilities, shape (N, M); 0 where it is missing."""
    seen = ~np.isnan(responses)
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    expected = np.zeros(responses.shape)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        gap = fit.expected[:, None] - fit.difficulty - node * fit.difficulty_deviation
        expected += weight / (1 + np.exp(-fit.discrimination * gap))
    scores = np.where(seen, fit.discrimination * (responses - expected), 0.0)
    scores = np.where(seen, scores - scores.sum(0) / np.maximum(seen.sum(0), 1), 0.0)
    return np.where(seen, scores - scores.sum(1, keepdims=True) / np.maximum(seen.sum(1, keepdims=True), 1), 0.0)

"""What a fit takes for granted and results may not have: responses that are missing by chance, and are independent."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import chi2

from .irt import IRTFit

NODES = 7  # of the Gauss-Hermite rule over the difficulty of an item


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


def design_effect(fit: IRTFit, responses: np.ndarray, clusters: Sequence[str]) -> float:
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


def _scores(fit: IRTFit, responses: np.ndarray) -> np.ndarray:
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

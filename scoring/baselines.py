"""Rankings without a response model (mean, Borda count), bootstrap over images, and agreement of rankings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.stats import kendalltau, rankdata

FEWEST = 5  # fewest images to resample


def mean_response(responses: np.ndarray) -> np.ndarray:
    """Return the mean response of each subject over the items to which it has a response.

    Args:
        responses: shape (N, M). NaN is missing.

    Returns:
        Means, shape (N,). NaN for a subject without responses.
    """
    seen = ~np.isnan(responses)
    with np.errstate(invalid="ignore"):
        return np.where(seen, responses, 0.0).sum(1) / seen.sum(1)


def borda(responses: np.ndarray) -> np.ndarray:
    """Return the Borda count: the rate at which a subject's response exceeds other subjects' responses to an item.

    Ties count half.

    Args:
        responses: shape (N, M). NaN is missing. An item counts for the pairs in which both subjects have a response.

    Returns:
        Rate for each subject, averaged over the other subjects, in [0, 1], shape (N,). NaN for a subject that has no
        item in common with any other.
    """
    seen = ~np.isnan(responses)
    values = np.where(seen, responses, 0.0)
    won = np.full((len(values), len(values)), np.nan)
    for one in range(len(values)):
        both = seen[one] & seen
        above = (values[one] > values) + 0.5 * (values[one] == values)
        with np.errstate(invalid="ignore"):
            won[one] = (above * both).sum(1) / both.sum(1)
    np.fill_diagonal(won, np.nan)
    return mean_response(won)


def borda_parts(responses: np.ndarray) -> np.ndarray:
    """Return the contribution of each item to `borda`: the share of other subjects with a lower response.

    Args:
        responses: shape (N, M). NaN is missing and does not count.

    Returns:
        Shares, shape (N, M). NaN if the response is missing or if no other subject has the item. Without missing
        responses, the mean over items is `borda`.
    """
    seen = ~np.isnan(responses)
    parts = np.full(responses.shape, np.nan)
    rivals = seen.sum(0) - 1
    for one, values in enumerate(responses):
        with np.errstate(invalid="ignore"):
            won = ((values > responses) + 0.5 * (values == responses)).sum(0) - 0.5  # without the tie with itself
            parts[one] = np.where(seen[one] & (rivals > 0), won / rivals, np.nan)
    return parts


def expected_borda(shares: np.ndarray) -> np.ndarray:
    """Return the expected Borda count if each response is 1 with a given probability, independently.

    For probabilities p and q, the first response is greater with probability p (1 - q), and the responses are equal
    with probability p q + (1 - p) (1 - q). The first subject therefore scores 1/2 + (p - q) / 2. A direct comparison of
    the probabilities would be too extreme: a model that is robust in 99 of 100 samples would lose every image to a
    model that is robust in all samples. For probabilities 0 and 1 the result equals `borda`.

    Args:
        shares: probabilities, shape (N, M). NaN is missing. An item counts for the pairs in which both subjects have a
            value.

    Returns:
        Rate for each subject, as for `borda`.
    """
    seen = (~np.isnan(shares)).astype(float)
    values = np.where(seen > 0, shares, 0.0)
    both, sums = seen @ seen.T, values @ seen.T  # sums of i's probabilities over items shared with j
    with np.errstate(invalid="ignore"):
        won = 0.5 + (sums - sums.T) / (2 * both)
    np.fill_diagonal(won, np.nan)
    return mean_response(won)


def bootstrap(
    score: Callable[[np.ndarray], np.ndarray],
    responses: np.ndarray,
    clusters: Sequence[str],
    *,
    replicates: int = 1000,
    seed: int = 0,
) -> np.ndarray:
    """Return scores on resampled images, which show the uncertainty due to the choice of images.

    Args:
        score: function from a matrix like `responses` to the score of each subject.
        responses: shape (N, M). NaN is missing.
        clusters: image of each item, length M. All items of an image are resampled together.
        replicates: number of bootstrap replicates.
        seed: random seed of the resampling.

    Returns:
        Scores, shape (replicates, N). NaN if a replicate has no response of a subject. All are NaN for fewer than
        `FEWEST` images, because the replicates would be too similar.
    """
    names, cluster = np.unique(np.asarray(clusters), return_inverse=True)
    if len(names) < FEWEST:
        return np.full((replicates, len(responses)), np.nan)
    generator = np.random.default_rng(seed)
    chosen = generator.integers(len(names), size=(replicates, len(names)))
    if score is mean_response:
        return _resampled_means(responses, cluster, chosen)
    members = np.split(np.argsort(cluster, kind="stable"), np.bincount(cluster).cumsum()[:-1])
    return np.stack([score(responses[:, np.concatenate([members[each] for each in row])]) for row in chosen])


def _resampled_means(responses: np.ndarray, cluster: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return plain means over resampled clusters. They follow from the clusters' counts, without resampled matrices."""
    seen = ~np.isnan(responses)
    times = np.stack([np.bincount(row, minlength=chosen.shape[1]) for row in chosen])
    sums, counts = np.zeros((2, chosen.shape[1], len(responses)))
    np.add.at(sums, cluster, np.where(seen, responses, 0.0).T)
    np.add.at(counts, cluster, seen.T)
    with np.errstate(invalid="ignore"):
        return (times @ sums) / (times @ counts)


class LeaveOneOut(NamedTuple):
    """Effect of omitting one subject or item on a ranking.

    Attributes:
        name: omitted subject or item.
        tau: Kendall's tau-b between the ranking of all and the ranking without `name`, over common subjects. NaN if all
            subjects are tied in one of the rankings.
        moved: largest rank change of a common subject. NaN if the common subjects cannot be ranked.
    """

    name: str
    tau: float
    moved: float


def leave_one_out(
    score: Callable[[np.ndarray], np.ndarray], names: Sequence[str], *, axis: Literal["subjects", "items"]
) -> list[LeaveOneOut]:
    """Repeat the ranking once without each subject, item or metric.

    Args:
        score: function from the remaining indices of `names` to the scores of the remaining subjects. It raises
            ValueError if they cannot be ranked.
        names: names of the subjects or items.
        axis: whether `names` are subjects or items.

    Returns:
        One record for each name, the most influential first. Names that are necessary for a ranking come last.
    """
    everything = np.arange(len(names))
    full = score(everything)
    records = []
    for place, name in enumerate(names):
        kept = np.delete(everything, place)
        try:
            before, after = full[kept] if axis == "subjects" else full, score(kept)
        except ValueError:
            records.append(LeaveOneOut(name, float("nan"), float("nan")))
            continue
        moved = np.abs(rankdata(-before) - rankdata(-after)).max()
        records.append(LeaveOneOut(name, agreement(before, {"": after})[""], int(np.ceil(moved))))
    return sorted(records, key=lambda record: (np.isnan(record.moved), np.isnan(record.tau), record.tau))


def agreement(score: np.ndarray, others: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return Kendall's tau-b between a ranking and each of the other rankings.

    Args:
        score: higher is better, shape (N,).
        others: scores of the same subjects, by name of the ranking, such as the plain mean. NaN is excluded.

    Returns:
        Values in [-1, 1] by name. NaN if fewer than two subjects remain or if all are tied.
    """
    result = {}
    for name, other in others.items():
        known = ~(np.isnan(score) | np.isnan(other))
        enough = len(set(score[known])) > 1 and len(set(np.asarray(other)[known])) > 1
        tau: Any = kendalltau(score[known], other[known])[0] if enough else float("nan")
        result[name] = float(tau)
    return result

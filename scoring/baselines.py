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
    """Return the Borda count: how often a subject's response to an item exceeds that of another subject.

    Ties count half.

    Args:
        responses: shape (N, M). NaN is missing. A pair of subjects is compared on the items to which both have a
            response.

    Returns:
        Rate of comparisons won, averaged over the other subjects, in [0, 1], shape (N,). NaN for a subject that has no
        item in common with any other subject.
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
    """Return the contribution of each item to the Borda count: the share of other subjects with a lower response.

    Args:
        responses: shape (N, M). NaN is missing. Missing responses are not compared.

    Returns:
        Shares, shape (N, M). NaN if the response is missing or if no other subject has a response to the item. Without
        missing responses, the mean of a row is the subject's Borda count from `borda`.
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
    """Return the expected Borda counts if each response is 1 with a given probability, independently.

    For probabilities p and q, the first response is greater with probability p (1 - q), and the responses are equal
    with probability p q + (1 - p) (1 - q). The first subject therefore scores 1/2 + (p - q) / 2. To count a win
    whenever p > q would be too extreme: a model that is robust in 99 of 100 samples would lose every image to a model
    that is robust in all samples. If all probabilities are 0 or 1, the result equals that of `borda`.

    Args:
        shares: probabilities, shape (N, M). NaN is missing. A pair of subjects is compared on the items for which both
            have a probability.

    Returns:
        Expected rate of comparisons won, averaged over the other subjects, in [0, 1], shape (N,). NaN for a subject
        that has no item in common with any other subject.
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
    """Return the scores of subjects on resampled images, which show the uncertainty due to the choice of images.

    Args:
        score: function that computes the score of each subject, shape (N,), from a matrix of responses.
        responses: shape (N, M). NaN is missing.
        clusters: image of each item, length M. All items of an image are resampled together.
        replicates: number of bootstrap replicates.
        seed: random seed of the resampling.

    Returns:
        Scores, shape (replicates, N). A score is NaN if the replicate contains no response of the subject. All scores
        are NaN if there are fewer than `FEWEST` images, because the replicates would be too similar.
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
    """Return the mean responses of bootstrap replicates, computed from the sums over each image's items."""
    seen = ~np.isnan(responses)
    times = np.stack([np.bincount(row, minlength=chosen.shape[1]) for row in chosen])
    sums, counts = np.zeros((2, chosen.shape[1], len(responses)))
    np.add.at(sums, cluster, np.where(seen, responses, 0.0).T)
    np.add.at(counts, cluster, seen.T)
    with np.errstate(invalid="ignore"):
        return (times @ sums) / (times @ counts)


class LeaveOneOut(NamedTuple):
    """Effect on a ranking if one subject, item or metric is omitted.

    Attributes:
        name: omitted subject, item or metric.
        tau: Kendall's tau-b between the full ranking and the ranking without `name`, over the subjects in both. NaN if
            all these subjects are tied in one of the rankings.
        moved: largest rank change of a subject that is in both rankings. NaN if no ranking without `name` is possible.
    """

    name: str
    tau: float
    moved: float


def leave_one_out(
    score: Callable[[np.ndarray], np.ndarray], names: Sequence[str], *, axis: Literal["subjects", "items"]
) -> list[LeaveOneOut]:
    """Repeat a ranking, each time without one of its subjects, items or metrics.

    Args:
        score: function that receives the indices of the remaining `names` and returns the scores of the remaining
            subjects. If the remaining subjects cannot be ranked, the function raises ValueError.
        names: names of the subjects, items or metrics.
        axis: "subjects" if `names` are the ranked subjects, "items" if `names` are items or metrics.

    Returns:
        One record for each name, the most influential name first. Names without which no ranking is possible come last.
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
        Kendall's tau-b in [-1, 1], by name. NaN if fewer than two subjects remain, or if all subjects are tied in a
        ranking.
    """
    result = {}
    for name, other in others.items():
        known = ~(np.isnan(score) | np.isnan(other))
        enough = len(set(score[known])) > 1 and len(set(np.asarray(other)[known])) > 1
        tau: Any = kendalltau(score[known], other[known])[0] if enough else float("nan")
        result[name] = float(tau)
    return result

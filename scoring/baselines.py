"""Rankings without a model: mean, Borda count, bootstrap over images, agreement of two rankings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.stats import kendalltau, rankdata

FEWEST = 5  # images that are resampled


def mean_response(responses: np.ndarray) -> np.ndarray:
    """Mean response of each subject, over the items that it has.

    Args:
        responses: shape (N, M); NaN is missing.

    Returns:
        Shape (N,); NaN for a subject without responses.
    """
    seen = ~np.isnan(responses)
    with np.errstate(invalid="ignore"):
        return np.where(seen, responses, 0.0).sum(1) / seen.sum(1)


def borda(responses: np.ndarray) -> np.ndarray:
    """Borda count: how often a subject's response is above another's to the same item, a tie counting half.

    Args:
        responses: shape (N, M); NaN is missing, and an item counts for the pairs that have it.

    Returns:
        Mean over the other subjects, in [0, 1], shape (N,); NaN for a subject that shares no item.
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
    """What each item adds to `borda`: the share of the other subjects' responses to it that a subject's is above.

    Args:
        responses: shape (N, M); NaN is missing, and counts for nobody.

    Returns:
        Shape (N, M); NaN where it is missing or nobody else has it. Without gaps the mean over the items is `borda`.
    """
    seen = ~np.isnan(responses)
    parts = np.full(responses.shape, np.nan)
    rivals = seen.sum(0) - 1
    for one, values in enumerate(responses):
        with np.errstate(invalid="ignore"):
            won = ((values > responses) + 0.5 * (values == responses)).sum(0) - 0.5  # all but the tie with itself
            parts[one] = np.where(seen[one] & (rivals > 0), won / rivals, np.nan)
    return parts


def expected_borda(shares: np.ndarray) -> np.ndarray:
    """The Borda count that is expected where each response is 1 with the probability of its share, independently.

    Of two responses p and q the first is above with p (1 - q), both are equal with p q + (1 - p) (1 - q): the first
    wins 1/2 + (p - q) / 2. Were shares compared as numbers, a model that withstands in 99 of 100 draws would lose
    every image to one that withstands in all. Where all are 0 or 1 it is `borda`.

    Args:
        shares: probabilities, shape (N, M); NaN is missing, and an item counts for the pairs that have it.

    Returns:
        As `borda`.
    """
    seen = (~np.isnan(shares)).astype(float)
    values = np.where(seen > 0, shares, 0.0)
    both, sums = seen @ seen.T, values @ seen.T  # of i's shares over the items that j has, too
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
    """Scores of resampled images: the uncertainty that comes from which images were taken.

    Args:
        score: of each subject, from a matrix as `responses`.
        responses: shape (N, M); NaN is missing.
        clusters: what is resampled as a whole, the name of the image of each item, length M.
        replicates: number of resamplings.
        seed: random seed of the resampling.

    Returns:
        Shape (replicates, N); NaN where a resampling left a subject no response, and everywhere if there are fewer
        than `FEWEST` images: so few are too alike when drawn again to say anything about others.
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
    """Plain means of the chosen clusters, by how often each was chosen: no resampled matrix is made."""
    seen = ~np.isnan(responses)
    times = np.stack([np.bincount(row, minlength=chosen.shape[1]) for row in chosen])
    sums, counts = np.zeros((2, chosen.shape[1], len(responses)))
    np.add.at(sums, cluster, np.where(seen, responses, 0.0).T)
    np.add.at(counts, cluster, seen.T)
    with np.errstate(invalid="ignore"):
        return (times @ sums) / (times @ counts)


class LeaveOneOut(NamedTuple):
    """What leaving something out does to a ranking.

    Attributes:
        name: of what is left out.
        tau: Kendall's tau-b of the rankings with and without it, of the subjects that both have; NaN if one ties all.
        moved: largest change of a rank among them; NaN if nothing is left to rank by.
    """

    name: str
    tau: float
    moved: float


def leave_one_out(
    score: Callable[[np.ndarray], np.ndarray], names: Sequence[str], *, axis: Literal["subjects", "items"]
) -> list[LeaveOneOut]:
    """Rank again without each subject, or without each item (or metric), in turn.

    Args:
        score: of each subject that is kept, from the places in `names` that are kept; a ValueError says that there is
            nothing to rank by.
        names: of the subjects or items.
        axis: which of the two they are.

    Returns:
        One record for each name, the most influential first; last those without which nothing can be ranked.
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
    """Kendall's tau-b of a ranking with others.

    Args:
        score: higher is better, shape (N,).
        others: scores of the same subjects by name, as plain mean or optimality; NaN is left out.

    Returns:
        In [-1, 1] by name; NaN where fewer than two subjects remain or all are tied.
    """
    result = {}
    for name, other in others.items():
        known = ~(np.isnan(score) | np.isnan(other))
        enough = len(set(score[known])) > 1 and len(set(np.asarray(other)[known])) > 1
        tau: Any = kendalltau(score[known], other[known])[0] if enough else float("nan")
        result[name] = float(tau)
    return result

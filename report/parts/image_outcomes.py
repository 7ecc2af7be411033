"""What all attacks of a row together make of each image: withstood, fooled, or not decided as a result broke a rule."""

import math
from typing import NamedTuple

import numpy as np
import scipy

from ...engine.store.outcomes import Clean, Outcome
from ...engine.tables.groups import Group
from ...intervals import share_interval


class Kept(NamedTuple):
    """What is left of a model, over its images.

    `value` is the share of the decided images that withstand every attack, or the median of the smallest changes; `low`
    and `high` are the ends of its 95 % interval, which covers both bounds; `least` and `most` are the bounds: of all
    images, with the undecided ones as fooled and as not, NaN for medians. `undecided` and `unfooled` count images.
    """

    value: float
    low: float
    high: float
    least: float
    most: float
    images: int
    undecided: int
    unfooled: int


def share_kept(group: Group) -> Kept:
    """The share of the images that every attack of a row leaves robust; of a random model by shares of its draws."""
    low, high = robust_bounds(group)
    images, decided = len(low), len(low) - float((high - low).sum())  # of an undecided share what is decided counts
    value = float(low.sum()) / decided if decided > 0 else math.nan
    ends = share_interval(float(low.sum()), images)[0], share_interval(float(high.sum()), images)[1]
    undecided, unfooled = int((high > low).sum()), int((low == 1).sum())
    return Kept(value, *ends, float(low.mean()), float(high.mean()), images, undecided, unfooled)


def median_kept(group: Group) -> Kept:
    """The median of the smallest changes that any attack of a row has found."""
    changes = smallest_changes(group)
    unknown = np.isnan(changes)
    low = median_with_ends(np.where(unknown, 0.0, changes))[1]
    high = median_with_ends(np.where(unknown, math.inf, changes))[2]
    value, unfooled = median_with_ends(changes)[0], int(np.isinf(changes).sum())
    return Kept(value, low, high, math.nan, math.nan, len(changes), int(unknown.sum()), unfooled)


def robust_bounds(group: Group) -> tuple[np.ndarray, np.ndarray]:
    """How much of each image every attack of a row leaves robust, (n,) twice: at least and at most.

    They differ where a result broke a rule and no other attack fools the image: such a result proves nothing.
    """
    every = _every(group)
    results = [each.results for each in every]
    return np.minimum.reduce([each.robust for each in results]), np.minimum.reduce(
        [each.robust_at_most for each in results]
    )


def withstood(group: Group) -> np.ndarray:
    """1 where an image withstands every attack of a row, 0 where it does not, NaN where it is undecided, (n,).

    Of a random model by the majority of its draws: what a paired test needs.
    """
    every = _every(group)
    fooled = np.logical_or.reduce([~each.columns["attacked"] | _fooled(each) | each.results.by_model for each in every])
    broke = np.logical_or.reduce([each.results.undecided_robust for each in every])
    return np.where(fooled, 0.0, np.where(broke, math.nan, 1.0))


def smallest_changes(group: Group) -> np.ndarray:
    """The distance of the nearest example that any attack of a row has, (n,): 0 where the model is wrong or failed.

    Infinite where no attack succeeds; NaN where none does and a result broke a rule, so that nothing is known.
    """
    nearest = np.full(len(group.parts[0][0].columns["attacked"]), math.inf)
    for outcome in _every(group):
        nearest = np.fmin(nearest, np.where(_fooled(outcome), outcome.columns["distance"], math.inf))
        nearest[~outcome.columns["attacked"] | outcome.results.by_model] = 0.0
    broke = np.logical_or.reduce([outcome.results.undecided_robust for outcome in _every(group)])
    return np.where(np.isinf(nearest) & broke, math.nan, nearest)


def median_with_ends(values: np.ndarray) -> tuple[float, float, float]:
    """Median of what is known and the ends of its 95 % interval, by order statistics; infinite values count."""
    known = np.sort(values[~np.isnan(values)])
    if not len(known):
        return math.nan, math.nan, math.nan
    middle = (known[(len(known) - 1) // 2], known[len(known) // 2])
    median = middle[0] if middle[0] == middle[1] else float(np.mean(middle))
    outside = int(scipy.stats.binom.ppf(0.025, len(known), 0.5))
    if scipy.stats.binom.cdf(outside - 1, len(known), 0.5) > 0.025 or outside < 1:  # so few that no order says it
        return float(median), math.nan, math.nan
    return float(median), float(known[outside - 1]), float(known[len(known) - outside])


def right_of(clean: Clean) -> np.ndarray:
    """Images that a model gets right when clean, (n,) bool."""
    return clean.columns["predicted"] == clean.columns["label"]


def is_random(group: Group) -> bool:
    """Whether its model draws random numbers, and was judged by many draws."""
    return any(each.is_random for each in _every(group))


def _every(group: Group) -> list[Outcome]:
    return [outcome for part in group.parts for outcome in part]


def _fooled(outcome: Outcome) -> np.ndarray:
    return outcome.columns["success"] & outcome.results.proven

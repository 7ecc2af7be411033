"""The models under each threat model, the most robust first, and whether the first place is one."""

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import scipy

from ...adapters.words import threat_text
from ...engine.statistics.paired_tests import mcnemar
from ...engine.statistics.verdict import SIGNIFICANT, judge_rates
from ...engine.store.outcomes import Clean, Outcomes
from ...engine.tables.groups import Group, group_cells
from ...intervals import share_interval


class ModelPlace(NamedTuple):
    """A model under a threat model: value and ends of its interval, accuracy when clean, and what tells it apart.

    `value` is the share of all images that no attack fools, or the median of the smallest changes; `p` that of the
    paired test against the first, NaN for itself and where the images are others; `apart` whether it is told from it.
    """

    model: str
    value: float
    low: float
    high: float
    images: int
    clean: float
    p: float
    apart: bool


class Standing(NamedTuple):
    """All models under one threat model, the most robust first; none if all are at chance.

    `attacks` is how many settings of attacks count, `even` whether they are the same for all; `norm` is that of the
    distances, or "" where values are shares; `equivalent` whether the first two shares are, by the rule of verdicts.
    """

    threat: str
    places: tuple[ModelPlace, ...]
    attacks: int
    even: bool
    norm: str
    equivalent: bool


def list_standings(outcomes: Outcomes, guessing: Collection[str]) -> list[Standing]:
    """A standing for each threat model: balls before smallest changes, then those of the most models and attacks.

    Args:
        outcomes: of the folder.
        guessing: keys of the subjects that are at chance when clean, which have no place.
    """
    threats: dict[str, list[Group]] = {}
    for group in group_cells(outcomes, "models"):
        if group.parts:
            threats.setdefault(threat_of(group), []).append(group)
    standings = [_stand(threat, groups, guessing, outcomes) for threat, groups in sorted(threats.items())]
    return sorted(standings, key=lambda each: (each.norm != "", -len(each.places), -each.attacks))


def threat_of(group: Group) -> str:
    """The threat model of a row, and what tells it apart from rows of the same."""
    setting = f", {group.labels['setting']}" if group.labels["setting"] else ""
    return threat_text(group.parts[0][0].cell.threat_model) + setting


def robust_to_all(group: Group) -> np.ndarray:
    """Images that every attack of a row leaves robust, (n,) bool."""
    return np.logical_and.reduce([outcome.columns["robust"] for part in group.parts for outcome in part])


def smallest_changes(group: Group) -> np.ndarray:
    """The distance of the nearest example that any attack of a row has, (n,): 0 where the model is wrong when clean.

    Infinite where no attack succeeds; NaN where none does and a result broke a rule, so that nothing is known.
    """
    nearest = np.full(len(group.parts[0][0].columns["attacked"]), math.inf)
    for outcome in (outcome for part in group.parts for outcome in part):
        columns = outcome.columns
        nearest = np.fmin(nearest, np.where(columns["success"], columns["distance"], math.inf))
        nearest[~columns["attacked"]] = 0.0
    broke = np.logical_or.reduce([outcome.columns["violated"] for part in group.parts for outcome in part])
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


def _stand(threat: str, groups: Sequence[Group], guessing: Collection[str], outcomes: Outcomes) -> Standing:
    bounded = groups[0].parts[0][0].cell.threat_model.epsilon is not None
    norm = "" if bounded else groups[0].parts[0][0].cell.threat_model.norm
    values = robust_to_all if bounded else smallest_changes
    sound = [(group, values(group)) for group in groups if group.parts[0][0].cell.subject.key not in guessing]
    if not sound:
        return Standing(threat, (), max(len(group.parts) for group in groups), True, norm, False)
    key = np.mean if bounded else (lambda changes: median_with_ends(changes)[0])
    order = sorted(sound, key=lambda each: -float(np.nan_to_num(key(each[1]), nan=-1)))
    tests = [math.nan, *(_test(order[0], other) for other in order[1:])]
    known = [p for p in tests if not math.isnan(p)]
    # The winner against each rival at the full level if all of them are told apart (Gutmann and Maymin 1987).
    level = SIGNIFICANT if known and max(known) < SIGNIFICANT else SIGNIFICANT / max(1, len(known))
    places = tuple(_place(*each, outcomes, p=p, apart=p < level) for each, p in zip(order, tests, strict=True))
    attacks = {frozenset(outcome.cell.title for part in group.parts for outcome in part) for group, _ in order}
    alike = len(order) == 2 and bounded and not math.isnan(tests[1])
    equivalent = alike and judge_rates(("a", "b"), order[0][1], order[1][1]).verdict == "equivalent"
    most = max(len(group.parts) for group in groups)
    return Standing(threat, places, most, len(attacks) < 2, norm, equivalent)


def _place(group: Group, values: np.ndarray, outcomes: Outcomes, *, p: float, apart: bool) -> ModelPlace:
    clean = outcomes.clean.get(group.parts[0][0].cell.subject.key)
    bounded = values.dtype == bool
    shown = (float(values.mean()), *share_interval(int(values.sum()), len(values))) if bounded else None
    accuracy = math.nan if clean is None else float(right_of(clean).mean())
    return ModelPlace(group.labels["model"], *(shown or median_with_ends(values)), len(values), accuracy, p, apart)


def right_of(clean: Clean) -> np.ndarray:
    """Images that a model gets right when clean, (n,) bool."""
    return clean.columns["predicted"] == clean.columns["label"]


def _test(first: tuple[Group, np.ndarray], other: tuple[Group, np.ndarray]) -> float:
    """Exact McNemar test of two shares, sign test of two distances: p-value; NaN if they saw other images."""
    if not _same_images(first[0], other[0]):
        return math.nan
    if first[1].dtype == bool:
        return mcnemar(first[1], other[1])
    known = ~np.isnan(first[1]) & ~np.isnan(other[1])
    more, less = (first[1] > other[1])[known], (first[1] < other[1])[known]
    return mcnemar(more, less) if more.sum() > less.sum() else 1.0  # the larger median may be smaller on most images


def _same_images(first: Group, other: Group) -> bool:
    return first.parts[0][0].cell.subject.data_digest == other.parts[0][0].cell.subject.data_digest

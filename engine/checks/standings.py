"""Rankings of models and attacks under one threat model, with paired tests of each against the first."""

import json
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...adapters.display_text import format_threat_model
from ...intervals import LEVEL, Proportion, clustered_interval, median_interval
from ..attack_run import AttackRun
from ..finding import plain
from ..statistics.anytime import rate_interval
from ..statistics.paired_tests import mcnemar
from ..statistics.verdict import SIGNIFICANT, compare_rates, corrected_level
from ..store.notes import unsteady_subjects
from ..store.results import Results, RunResult
from ..tables.groups import TableGroup, group_cells

_Results = dict[tuple[str, str], np.ndarray]


class RobustnessEstimate(NamedTuple):
    """Robust accuracy of a model, or the median of its smallest distances, over its images.

    An image is undecided if no attack fools it and the result of an attack on it is invalid.

    Args:
        value: rate of the decided images that are robust to every attack, or the median of the smallest distances.
        low: lower bound of the 95 % interval. The interval covers all possible outcomes of undecided images.
        high: upper bound of the 95 % interval.
        least: rate of all images if undecided images count as fooled; NaN for a median.
        most: rate of all images if undecided images count as robust; NaN for a median.
        images: number of images.
        undecided: number of undecided images.
        unfooled: number of images that are certainly robust to every attack.
    """

    value: float
    low: float
    high: float
    least: float
    most: float
    images: int
    undecided: int
    unfooled: int


_NOTHING = RobustnessEstimate(math.nan, math.nan, math.nan, math.nan, math.nan, 0, 0, 0)


@dataclass(frozen=True)
class StandingRow:
    """A model or an attack in a ranking.

    Args:
        name: name of the model, or of the attack with its setting.
        value: number by which the ranking is ordered: the value of `kept` for a model, the fooling rate for an attack.
        low: lower bound of the 95 % interval of `value`.
        high: upper bound of the 95 % interval of `value`. For an attack, invalid results count as fooled here.
        results: values of the images for paired tests, (n,) each: 1 or 0, a distance, or a rate over samples; NaN for
            undecided images. The keys are the digest of the data and, for an attack, the key of the model on data (""
            for a model).
        images: number of images of a model. For an attack, number of attacked images over all models.
        violations: number of invalid results of an attack.
        runs: number of runs of an attack on each image, with different seeds.
        tries: number of attacked images of an attack, counted once for every run.
        attack: name of the attack without its setting.
        distance: mean distance of the attack's successes, in the norm of the threat model; NaN without successes.
        kept: robust accuracy or median distance of a model.
        clean: clean accuracy of a model; NaN for an attack.
        drawn: whether the rates are over samples of a random model.
        p: p-value of the paired test against the first row. If several rows are tied for the first place, the largest
            p-value against any of them. NaN for the first row, or if no test is possible.
        pairs: number of images in this test. None if the two rows have different images.
        apart: whether the row differs significantly from the first row.
    """

    name: str
    value: float
    low: float
    high: float
    results: _Results
    images: int
    violations: int = 0
    runs: int = 1
    tries: int = 0
    attack: str = ""
    distance: float = math.nan
    kept: RobustnessEstimate = _NOTHING
    clean: float = math.nan
    drawn: bool = False
    p: float = math.nan
    pairs: int | None = None
    apart: bool = False

    @property
    def height(self) -> tuple[float, float]:
        """Sort key: the rounded value.

        Rows with an infinite value are ordered by the rate of images that no attack fools.
        """
        if math.isnan(self.value):
            return -1.0, 0.0
        decided = self.kept.images - self.kept.undecided
        return float(f"{self.value:.9g}"), self.kept.unfooled / decided if math.isinf(self.value) else 0.0

    def document(self) -> dict[str, Any]:
        """Return the fields that `check --json` prints."""
        shown = ("name", "value", "low", "high", "images", "violations", "distance", "clean", "p", "pairs", "apart")
        counts = {"undecided": self.kept.undecided, "unfooled": self.kept.unfooled}
        return {name: plain(getattr(self, name)) for name in shown} | counts


@dataclass(frozen=True)
class ThreatModelRanking:
    """Ranking of all models, or of all attacks, under one threat model.

    Args:
        threat: description of the threat model.
        targeted: whether the attacks are targeted.
        norm: norm of the distances, if the values are medians of the smallest distances; "" if the values are rates.
        places: models or attacks in the order of the ranking; empty if there is no ranking.
        why: reason why there is no ranking.
        attacks: for models, the number of attack settings that were run on all models. Only these attacks count.
        left: for models, the names of the models without a result, by each attack that does not count.
        others: for attacks, the number of attacks that are not ranked because they ran on different models.
        equivalent: whether there are two models with equivalent rates, by the rule for comparisons (`RULE`).
    """

    threat: str
    targeted: bool
    norm: str = ""
    places: tuple[StandingRow, ...] = ()
    why: str = ""
    attacks: int = 0
    left: dict[str, list[str]] | None = None
    others: int = 0
    equivalent: bool = False

    @property
    def tied(self) -> tuple[StandingRow, ...]:
        """Models or attacks that share the first place, because their values are equal."""
        return tuple(place for place in self.places if place.height == self.places[0].height)

    @property
    def rest(self) -> tuple[StandingRow, ...]:
        """Models or attacks after the first place."""
        return self.places[len(self.tied) :]

    @property
    def level(self) -> float:
        """Significance level of each test against the first place, with Bonferroni's correction."""
        return corrected_level(sum(not math.isnan(place.p) for place in self.places))

    def document(self) -> dict[str, Any]:
        """Return the fields that `check --json` prints."""
        shown = ("threat", "targeted", "norm", "why", "attacks", "left", "others", "equivalent", "level")
        places = [each.document() for each in self.places]
        return {name: plain(getattr(self, name)) for name in shown} | {"first": len(self.tied), "places": places}

    @property
    def attacks_text(self) -> str:
        """The attacks that count in a ranking of models, as text: "every attack", "the 2 attacks that ran on both"."""
        if not self.left:
            return "every attack"
        one, models = self.attacks == 1, len(self.places)
        attacks = f"the {self.attacks} attack{'' if one else 's'} that"
        if models == 1:
            return f"{attacks} {'has' if one else 'have'} a result"
        return f"{attacks} ran on {'both' if models == 2 else f'all {models} models'}"


def rank_models(outcomes: Results, guessing: Collection[str]) -> list[ThreatModelRanking]:
    """Rank the models under each threat model.

    Threat models with a radius come first, then those with many models and many attacks.

    Args:
        outcomes: results of the folder.
        guessing: keys of models on data at chance accuracy, which are not ranked. Models that are not declared random
            but return different outputs for the same image are not ranked either.
    """
    unsteady = unsteady_subjects(outcomes)
    threats: dict[str, list[TableGroup]] = {}
    for group in group_cells(outcomes, "models"):
        if group.parts:
            threats.setdefault(threat_of(group), []).append(group)
    standings = [
        _models_under(threat, groups, guessing, unsteady, outcomes) for threat, groups in sorted(threats.items())
    ]
    return sorted(standings, key=lambda each: (each.norm != "", -len(each.places), -each.attacks))


def rank_attacks(outcomes: Results) -> list[ThreatModelRanking]:
    """Rank the attacks under each threat model with a radius, by fooling rate.

    Only attacks that ran on the same models are ranked together: those with the largest set of models. An untargeted
    attack fools an image if the model misclassifies the example. A targeted attack fools an image if the model predicts
    the target.
    """
    threats: dict[str, list[TableGroup]] = {}
    for group in group_cells(outcomes, "attacks"):
        if group.parts and _rules(group).epsilon is not None:
            threat = threat_of(group._replace(labels=group.labels | {"setting": ""}))  # settings are rivals here
            threats.setdefault(threat, []).append(group)
    rivals = sorted(((threat, _rivals(groups)) for threat, groups in threats.items()), key=lambda item: -len(item[1]))
    return [_attacks_under(threat, groups) for threat, groups in rivals]


def threat_of(group: TableGroup) -> str:
    """Describe the threat model of a table row, and the setting that distinguishes the row from others."""
    setting = f", {group.labels['setting']}" if group.labels["setting"] else ""
    return format_threat_model(_rules(group)) + setting


def place_attacks(groups: Sequence[TableGroup]) -> list[StandingRow]:
    """Rank the attacks of table rows that have the same models, by fooling rate."""
    return sorted(map(_attack, _rivals(groups)), key=lambda each: -np.nan_to_num(each.value, nan=-1))


def _rivals(groups: Sequence[TableGroup]) -> Sequence[TableGroup]:
    """Omit worst cases, which are as strong as their strongest attack. If there are only worst cases, all are kept."""
    return [group for group in groups if not group.parts[0][0].cell.search.sums_up] or groups


def _rules(group: TableGroup) -> Any:
    return group.parts[0][0].cell.threat_model


def _attacks_under(threat: str, groups: Sequence[TableGroup]) -> ThreatModelRanking:
    every = place_attacks(groups)
    sets = Counter(frozenset(each.results) for each in every)
    widest = max(sets, key=lambda met: (len(met), sets[met]))
    order = [each for each in every if frozenset(each.results) == widest]
    return ThreatModelRanking(
        threat, _rules(groups[0]).targeted, places=_compare(order), others=len(every) - len(order)
    )


def _models_under(
    threat: str, groups: Sequence[TableGroup], guessing: Collection[str], unsteady: Collection[str], outcomes: Results
) -> ThreatModelRanking:
    rules = _rules(groups[0])
    norm = "" if rules.epsilon is not None or rules.norm == "unrestricted" else rules.norm
    standing = ThreatModelRanking(threat, rules.targeted, norm)
    sound = [group for group in groups if group.parts[0][0].cell.subject.key not in {*guessing, *unsteady}]
    if not sound:
        guess = all(group.parts[0][0].cell.subject.key in guessing for group in groups)
        of = "is at chance accuracy" + ("" if guess else " or returns different outputs for the same image")
        return replace(standing, why=f"every model with a result {of}, so there is no first place")
    met = [{attempt_key(each.cell) for each in _every(group)} for group in sound]
    shared = set.intersection(*met)
    left = _left_out(sound, met, outcomes)
    if not shared:
        return replace(standing, why=_why_apart(sound), left=left)
    common = [group._replace(parts=restrict_parts(group, shared)) for group in sound]
    order = sorted((_model(group, norm, outcomes) for group in common), key=lambda each: each.height, reverse=True)
    places = _compare(order)
    return replace(
        standing,
        places=places,
        attacks=len({attempt[:-1] for attempt in shared}),
        left=left,
        equivalent=len(order) == 2 and not norm and _are_equivalent(*places),
    )


def _compare(order: Sequence[StandingRow]) -> tuple[StandingRow, ...]:
    """Test each row against the first row, and store the p-value in the row.

    If several rows are tied for the first place, the other rows are tested against all of them.
    """
    tied = [each for each in order if each.height == order[0].height]
    compared = list(order[:1])
    for place, other in enumerate(order[1:], start=1):
        behind = place >= len(tied)
        tests = [_test(first, other, sided=behind) for first in (tied if behind else tied[:1])]
        known = [test for test in tests if not math.isnan(test[0])]
        p, pairs = max(known) if known else tests[0]
        compared.append(replace(other, p=p, pairs=pairs))
    known = [each.p for each in compared if not math.isnan(each.p)]
    # The full level applies if the winner differs from every rival (Gutmann and Maymin 1987).
    level = SIGNIFICANT if known and max(known) < SIGNIFICANT else corrected_level(len(known))
    return tuple(replace(each, apart=each.p < level) for each in compared)


def _test(first: StandingRow, other: StandingRow, *, sided: bool) -> tuple[float, int | None]:
    """Compare two rows with an exact sign test (McNemar's test for two rates).

    Images that are undecided for either row are excluded.

    Args:
        first: the row with the larger value.
        other: the other row.
        sided: whether the p-value is 1 if `other` is better on more images in spite of its smaller value.

    Returns:
        The p-value, NaN without a test; and the number of images in the test, None if images or models differ.
    """
    if first.results.keys() != other.results.keys():
        return math.nan, None
    wins = losses = pairs = 0
    for data in {data for data, _ in first.results}:
        both = [(first.results[key], other.results[key]) for key in first.results if key[0] == data]
        known = [~np.isnan(one) & ~np.isnan(two) for one, two in both]
        differences = [np.where(at, _difference(*each), 0.0) for each, at in zip(both, known, strict=True)]
        balance = np.sum(differences, axis=0)
        wins, losses = wins + int((balance > 0).sum()), losses + int((balance < 0).sum())
        pairs += int(np.logical_or.reduce(known).sum())
    if not pairs:
        return math.nan, 0
    if sided and losses > wins:
        return 1.0, pairs
    more = np.repeat([True, False], [wins, losses])
    return mcnemar(more, ~more), pairs


def _difference(one: np.ndarray, two: np.ndarray) -> Any:
    """Return `one` - `two`; 0 if both are infinite."""
    with np.errstate(invalid="ignore"):
        return np.where(one == two, 0.0, one - two)


def _are_equivalent(first: StandingRow, other: StandingRow) -> bool:
    if math.isnan(other.p):
        return False
    (one,), (two,) = first.results.values(), other.results.values()
    known = ~np.isnan(one) & ~np.isnan(two)
    return compare_rates(("a", "b"), one[known] == 1, two[known] == 1).verdict == "equivalent"


def _attack(group: TableGroup) -> StandingRow:
    results: _Results = {}
    for repeats in group.parts:
        subject = repeats[0].cell.subject
        values = [np.where(r.undecided_fooled, math.nan, r.fooled) for r in (each.results for each in repeats)]
        results[subject.data_digest, subject.key] = np.mean(values, axis=0)
    attacked = [np.logical_or.reduce([each.results.attacked for each in repeats]) for repeats in group.parts]
    setting = f" ({group.labels['setting']})" if group.labels["setting"] else ""
    low, high = _share(group, "fooled"), _share(group, "fooled_at_most")
    return StandingRow(
        f"{group.labels['implementation']}{setting}",
        float(low.value),
        float(low.low),
        float(high.high),
        results,
        int(sum(each.sum() for each in attacked)),
        group.labels["violations"],
        max(map(len, group.parts)),
        int(sum(each.results.attacked.sum() for each in _every(group))),
        group.labels["implementation"],
        _mean_change(group),
    )


def _mean_change(group: TableGroup) -> float:
    changes = [each.columns["distance"][_fooled(each)] for each in _every(group)]
    means = [float(values.mean()) for values in changes if len(values)]
    return float(np.mean(means)) if means else math.nan


def _share(group: TableGroup, end: str) -> Proportion:
    """Return the fooling rate of an attack, or its upper bound, averaged over seeds and then over models.

    `end` is "fooled" for the rate and "fooled_at_most" for the upper bound.
    """
    columns = [(repeats, each, getattr(each.results, end)) for repeats in group.parts for each in repeats]
    rows: dict[str, int] = {}  # the first of each set of images
    total = 0
    for _, each, values in columns:
        if each.cell.subject.data_digest not in rows:
            rows[each.cell.subject.data_digest], total = total, total + len(values)
    whole = np.full((total, len(columns)), math.nan)
    for place, (_, each, values) in enumerate(columns):
        start = rows[each.cell.subject.data_digest]
        whole[start : start + len(values), place] = values
    return clustered_interval(whole, [1 / len(repeats) for repeats, _, _ in columns])


def _model(group: TableGroup, norm: str, outcomes: Results) -> StandingRow:
    subject = group.parts[0][0].cell.subject
    kept, compared = (median_distance_estimate, smallest_changes) if norm else (robust_accuracy_estimate, is_robust)
    left, clean = kept(group), outcomes.clean.get(subject.key)
    accuracy = math.nan
    if clean is not None:
        right = clean.columns["predicted"] == clean.columns["label"]
        accuracy = float(np.mean(clean.columns.get("CA", right)))
    return StandingRow(
        group.labels["model"],
        left.value,
        left.low,
        left.high,
        {(subject.data_digest, ""): compared(group)},
        left.images,
        kept=left,
        clean=accuracy,
        drawn=any(each.is_random for each in _every(group)),
    )


def robust_accuracy_estimate(group: TableGroup, level: float = LEVEL) -> RobustnessEstimate:
    """Estimate the rate of images that are robust to every attack.

    For a random model, the rate is a mean over samples.
    """
    low, high = worst_case_bounds(group)
    images, decided = len(low), len(low) - float((high - low).sum())  # the decided part of an undecided rate counts
    value = float(low.sum()) / decided if decided > 0 else math.nan
    ends = rate_interval(low, high, group.parts[0][0].cell.subject.population, level)
    undecided, unfooled = int((high > low).sum()), int((low == 1).sum())
    return RobustnessEstimate(value, *ends, float(low.mean()), float(high.mean()), images, undecided, unfooled)


def worst_case_bounds(group: TableGroup) -> tuple[np.ndarray, np.ndarray]:
    """Return two bounds of each image's robustness to all attacks, (n,) each.

    Undecided results count as 0 in the first bound, and as 1 in the second.
    """
    results = [each.results for each in _every(group)]
    low, high = (np.minimum.reduce([getattr(each, end) for each in results]) for end in ("robust", "robust_at_most"))
    return low, high


def median_distance_estimate(group: TableGroup) -> RobustnessEstimate:
    """Estimate the median over the images of the smallest distance that any attack found."""
    changes = smallest_changes(group)
    unknown = np.isnan(changes)
    low, high = (median_interval(np.where(unknown, end, changes)) for end in (0.0, math.inf))
    value, unfooled = median_interval(changes).value, int(np.isinf(changes).sum())
    return RobustnessEstimate(value, low.low, high.high, math.nan, math.nan, len(changes), int(unknown.sum()), unfooled)


def is_robust(group: TableGroup) -> np.ndarray:
    """Return whether each image is robust to every attack, (n,): 1 if it is, 0 if it is not, NaN if undecided.

    For a random model, the majority of the samples decides, because paired tests need one value per image.
    """
    results = [each.results for each in _every(group)]
    fooled = np.logical_or.reduce(
        [_fooled(each) | ~each.results.attacked | each.results.by_model for each in _every(group)]
    )
    undecided = np.logical_or.reduce([each.undecided_robust for each in results])
    return np.where(fooled, 0.0, np.where(undecided, math.nan, 1.0))


def smallest_changes(group: TableGroup) -> np.ndarray:
    """Return the distance of the nearest example that any attack found, (n,).

    The distance is 0 if the clean image is misclassified, or if the model caused an invalid result. It is infinite if
    no attack succeeds, and NaN if no attack succeeds and a result is undecided.
    """
    nearest = np.full(len(group.parts[0][0].results.attacked), math.inf)
    for outcome in _every(group):
        nearest = np.fmin(nearest, np.where(_fooled(outcome), outcome.columns["distance"], math.inf))
        nearest[~outcome.results.attacked | outcome.results.by_model] = 0.0
    undecided = np.logical_or.reduce([outcome.results.undecided_robust for outcome in _every(group)])
    return np.where(np.isinf(nearest) & undecided, math.nan, nearest)


def _fooled(outcome: RunResult) -> np.ndarray:
    return outcome.columns["success"] & outcome.results.proven


def _every(group: TableGroup) -> list[RunResult]:
    return [outcome for part in group.parts for outcome in part]


def restrict_parts(group: TableGroup, shared: set[tuple[Any, ...]]) -> list[list[RunResult]]:
    """Return the parts of a table row with only the runs whose `attempt_key` is in `shared`."""
    parts = [[each for each in part if attempt_key(each.cell) in shared] for part in group.parts]
    return [part for part in parts if part]


def _left_out(
    groups: Sequence[TableGroup], met: Sequence[set[tuple[Any, ...]]], outcomes: Results
) -> dict[str, list[str]]:
    """Return the names of the models without a result, by the name of each attack that some model lacks."""
    unfinished = [cell for cell, _ in outcomes.failed] + [*outcomes.running, *outcomes.waiting]
    asked = dict.fromkeys(attempt_key(cell) for cell in unfinished if any(_belongs(cell, group) for group in groups))
    asked |= dict.fromkeys(attempt_key(each.cell) for group in groups for each in _every(group))
    left: dict[str, list[str]] = {}
    for attempt in asked:
        for group, attempts in zip(groups, met, strict=True):
            if attempt not in attempts:
                otherwise = any(each[0] == attempt[0] for each in attempts)
                what = f"{attempt[0]} with other settings or a different seed" if otherwise else attempt[0]
                lacking = left.setdefault(what, [])
                lacking += [] if group.labels["model"] in lacking else [group.labels["model"]]
    return left


def attempt_key(cell: AttackRun) -> tuple[Any, ...]:
    """Return a tuple that is equal for runs of the same attack on different models. The last element is the seed."""
    settings = [dict(cell.parameters), {name: list(each) for name, each in cell.grid.items()}]
    return cell.title, cell.target, cell.pixels, json.dumps(settings, sort_keys=True), cell.seed


def _belongs(cell: AttackRun, group: TableGroup) -> bool:
    first = group.parts[0][0].cell
    alike = (cell.target, cell.pixels, cell.threat_model) == (first.target, first.pixels, first.threat_model)
    return alike and cell.subject.key == first.subject.key


def _why_apart(groups: Sequence[TableGroup]) -> str:
    met = [(group.labels["model"], [part[0].cell.title for part in group.parts]) for group in groups]
    which = "both" if len(met) == 2 else f"all {len(met)} models"
    said = [f"{model}: {listed(list(dict.fromkeys(attacks)))}" for model, attacks in met]
    return f"no attack has a result on {which}, so there is no test and no rank ({listed(said, between='; ')})"


NAMED = 3  # most names in a sentence


def listed(names: Sequence[str], *, between: str = ", ", last: str = "") -> str:
    """Join names to a text, with at most three names: "a, b, c and 2 more".

    Args:
        names: the names.
        between: separator of the names.
        last: separator before the last name, if all names are listed. "" for `between`.
    """
    if len(names) > NAMED:
        return f"{between.join(names[:NAMED])}{between.rstrip(', ')} and {len(names) - NAMED} more"
    return last.join([between.join(names[:-1]), names[-1]]) if last and len(names) > 1 else between.join(names)

"""The models under each threat model, the most robust first, and whether the first place is one."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...adapters.words import threat_text
from ...engine.statistics.paired_tests import mcnemar
from ...engine.statistics.verdict import SIGNIFICANT, judge_rates
from ...engine.store.outcomes import Outcomes
from ...engine.tables.groups import Group, group_cells
from .common_attacks import Common, common_attacks
from .image_outcomes import Kept, is_random, median_kept, right_of, share_kept, smallest_changes, withstood
from .listing import listed


class ModelPlace(NamedTuple):
    """A model under a threat model: what is left of it, its accuracy when clean, and what tells it apart.

    `random` is whether its shares are of draws. `p` is that of the paired test against the first, NaN for itself and
    where none can be made; `pairs` how many images that rests on, None if the two saw other images; `apart` whether it
    is told from the first.
    """

    model: str
    kept: Kept
    clean: float
    random: bool
    p: float
    pairs: int | None
    apart: bool


class Standing(NamedTuple):
    """All models under one threat model, the most robust first; none, and `why`, if there is no order.

    `attacks` is how many settings of attacks count: those that all have met; `left` names the others, each with the
    models that it has no result on. `tied` is how many models share the first place; `norm` is that of the distances,
    or "" where values are shares; `equivalent` whether the first two shares are, by the rule of verdicts.
    """

    threat: str
    places: tuple[ModelPlace, ...]
    why: str
    attacks: int
    left: dict[str, list[str]]
    tied: int
    norm: str
    targeted: bool
    equivalent: bool

    @property
    def under(self) -> str:
        """The attacks that count: "every attack", "the 2 attacks that ran on both"."""
        if not self.left:
            return "every attack"
        one, models = self.attacks == 1, len(self.places)
        attacks = f"the {self.attacks} attack{'' if one else 's'} that"
        if models == 1:
            return f"{attacks} {'has' if one else 'have'} a result"
        return f"{attacks} ran on {'both' if models == 2 else f'all {models} models'}"


class _Model(NamedTuple):
    """A model that competes; `compared` is what a paired test compares, (n,), NaN where an image is undecided."""

    group: Group
    kept: Kept
    compared: np.ndarray


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


def _stand(threat: str, groups: Sequence[Group], guessing: Collection[str], outcomes: Outcomes) -> Standing:
    rules = groups[0].parts[0][0].cell.threat_model
    norm = "" if rules.epsilon is not None or rules.norm == "unrestricted" else rules.norm
    sound = [group for group in groups if group.parts[0][0].cell.subject.key not in guessing]
    nothing = Standing(threat, (), "", 0, {}, 0, norm, rules.targeted, equivalent=False)
    if not sound:
        return nothing._replace(why="every model with a result is at chance when clean: there is no first place")
    common = common_attacks(sound, outcomes)
    if not common.groups:
        return nothing._replace(why=_why_apart(common), left=common.left)
    models = [_compete(group, norm) for group in common.groups]
    order = sorted(models, key=_height(norm), reverse=True)
    tied = sum(_height(norm)(each) == _height(norm)(order[0]) for each in order)
    tests = _tests(order, tied)
    known = [p for p, _ in tests if not math.isnan(p)]
    # The winner against each rival at the full level if all of them are told apart (Gutmann and Maymin 1987).
    level = SIGNIFICANT if known and max(known) < SIGNIFICANT else SIGNIFICANT / max(1, len(known))
    places = [_place(each, outcomes)._replace(p=p, pairs=n) for each, (p, n) in zip(order, tests, strict=True)]
    return nothing._replace(
        places=tuple(place._replace(apart=place.p < level) for place in places),
        attacks=common.attacks,
        left=common.left,
        tied=tied,
        equivalent=len(order) == 2 and not norm and not math.isnan(tests[1][0]) and _are_equivalent(*order),
    )


def _compete(group: Group, norm: str) -> _Model:
    if norm:
        return _Model(group, median_kept(group), smallest_changes(group))
    return _Model(group, share_kept(group), withstood(group))


def _height(norm: str) -> Callable[[_Model], tuple[float, float]]:
    """What models are ordered by: the share, or the median, and of infinite ones how many images withstand; rounded."""

    def height(model: _Model) -> tuple[float, float]:
        value, kept = model.kept.value, model.kept
        if math.isnan(value):
            return -1.0, 0.0
        unfooled = kept.unfooled / (kept.images - kept.undecided) if norm and math.isinf(value) else 0.0
        return float(f"{value:.9g}"), unfooled

    return height


def _tests(order: Sequence[_Model], tied: int) -> list[tuple[float, int | None]]:
    """For each model the p-value against the first, and the images it rests on; against all that share its place."""
    tests: list[tuple[float, int | None]] = [(math.nan, None)]
    tests += [_test(order[0], other, sided=False) for other in order[1:tied]]
    for other in order[tied:]:
        against = [_test(first, other, sided=True) for first in order[:tied]]
        known = [test for test in against if not math.isnan(test[0])]
        tests.append(max(known) if known else against[0])
    return tests


def _test(first: _Model, other: _Model, *, sided: bool) -> tuple[float, int | None]:
    """Exact McNemar test of two shares, sign test of two distances: p-value and number of pairs.

    Images that are undecided on either are left out. NaN without pairs, and None if they saw other images. If it is
    `sided`, 1 where the other is ahead on more of the images than the first, which has the larger share or median.
    """
    if first.group.parts[0][0].cell.subject.data_digest != other.group.parts[0][0].cell.subject.data_digest:
        return math.nan, None
    known = ~np.isnan(first.compared) & ~np.isnan(other.compared)
    if not known.any():
        return math.nan, 0
    more, less = (first.compared > other.compared)[known], (first.compared < other.compared)[known]
    return 1.0 if sided and less.sum() > more.sum() else mcnemar(more, less), int(known.sum())


def _are_equivalent(first: _Model, other: _Model) -> bool:
    known = ~np.isnan(first.compared) & ~np.isnan(other.compared)
    flags: Any = [each.compared[known] == 1 for each in (first, other)]
    return judge_rates(("a", "b"), *flags).verdict == "equivalent"


def _place(model: _Model, outcomes: Outcomes) -> ModelPlace:
    group = model.group
    clean = outcomes.clean.get(group.parts[0][0].cell.subject.key)
    right = None if clean is None else clean.columns["CA"] if "CA" in clean.columns else right_of(clean)
    accuracy = math.nan if right is None else float(np.mean(right))
    return ModelPlace(group.labels["model"], model.kept, accuracy, is_random(group), math.nan, None, apart=False)


def _why_apart(common: Common) -> str:
    """Why models that met no attack in common have no order."""
    met = [f"{model}: {listed(attacks)}" for model, attacks in common.met.items()]
    which = "both" if len(met) == 2 else f"all {len(met)} models"
    return f"no attack has a result on {which}, so there is no test and no rank ({listed(met, between='; ')})"

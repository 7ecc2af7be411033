"""Which attack is the strongest of those that ran under one threat model, and whether a test says so.

An attack fools an image if the model is wrong on its example; a targeted one if the model sees the target there.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...engine.statistics.paired_tests import least_decisive, mcnemar
from ...engine.statistics.shares import Share, clustered_interval
from ...engine.statistics.verdict import SIGNIFICANT
from ...engine.store.outcomes import Outcomes
from ...engine.tables.groups import Group, group_cells
from .blocks import Said
from .listing import listed
from .percent import percent_range, percent_text
from .standings import threat_of

_Success = dict[tuple[str, str], np.ndarray]


class Contender(NamedTuple):
    """An attack under a threat model: share of the attacked images that it fools, and what it did to each of them.

    `share` and the ends of its interval are those of the tables' MR, or TAS if it is targeted: a violation fools
    nothing, and the upper end is that of counting it as fooled. `violations` counts them over all seeds. `fooled` is
    (images,) by digest of the data and key of the subject: 1, 0, a share of draws, a mean over seeds, NaN where an
    image was not attacked or the result broke a rule.
    """

    name: str
    share: float
    low: float
    high: float
    attacked: int
    violations: int
    fooled: _Success


def judge_strongest(outcomes: Outcomes) -> list[Said]:
    """For each threat model with a radius: which attack fools most, of those that all models have met."""
    threats: dict[str, list[Group]] = {}
    for group in group_cells(outcomes, "attacks"):
        if group.parts and group.parts[0][0].cell.threat_model.epsilon is not None:
            threats.setdefault(_ball_of(group), []).append(group)
    for threat, groups in threats.items():  # a worst case does what all of its attacks do: no match for one of them
        single = [group for group in groups if group.parts[0][0].cell.search.kind != "worst-case"]
        threats[threat] = single or groups
    ordered = sorted(threats.items(), key=lambda item: -len(item[1]))
    return [_judge(threat, groups) for threat, groups in ordered]


def rank_attacks(groups: Sequence[Group]) -> list[Contender]:
    """Attacks that met the most models, all of them the same, the one that fools most first."""
    contenders = [_contender(group) for group in groups]
    sets = Counter(frozenset(each.fooled) for each in contenders)
    widest = max(sets, key=lambda met: (len(met), sets[met]))
    return sorted(
        (each for each in contenders if frozenset(each.fooled) == widest),
        key=lambda each: -np.nan_to_num(each.share, nan=-1),
    )


def sign_test(first: Contender, other: Contender, *, sided: bool) -> float:
    """Exact sign test over the images: on which does the first of two that met the same models fool more of them?

    What either of them did not attack, or broke a rule on, is left out. If it is `sided`, 1 where the other fools more
    on more of the images than the first, which has the larger share.
    """
    wins = losses = 0
    for data in {data for data, _ in first.fooled}:
        differences = [first.fooled[key] - other.fooled[key] for key in first.fooled if key[0] == data]
        balance = np.nansum(differences, axis=0)
        wins, losses = wins + int((balance > 0).sum()), losses + int((balance < 0).sum())
    if sided and losses > wins:
        return 1.0
    more = np.repeat([True, False], [wins, losses])
    return mcnemar(more, ~more)


def count_compared(first: Contender, other: Contender) -> int:
    """Images that both attacked by the rules, on any model."""
    count = 0
    for data in {data for data, _ in first.fooled}:
        known = [~np.isnan(first.fooled[key] - other.fooled[key]) for key in first.fooled if key[0] == data]
        count += int(np.logical_or.reduce(known).sum())
    return count


def _judge(threat: str, groups: Sequence[Group]) -> Said:
    order = rank_attacks(groups)
    targeted = groups[0].parts[0][0].cell.threat_model.targeted
    first, broken = order[0], sum(each.violations for each in order)
    if math.isnan(first.share):
        return Said(f"{threat}: no image was attacked.")
    if first.share == 0:
        does = "drives any of the {} attacked images to the target" if targeted else "fools any of the {} {}"
        said = f"no attack {does.format(first.attacked, 'images that were attacked')}"
        return Said(f"{threat}: {said}{f'; {_broke(broken)}' if broken else ''}.", link="trust")
    tied = [each for each in order if _is_equal(each.share, first.share)]
    left = len(groups) - len(order)
    fewer = f" {left} run on other models {'is' if left == 1 else 'are'} left out." if left else ""
    lead, text = _name_first(tied, alone=len(tied) == len(order), targeted=targeted)
    text = f"{text}; {threat}{', ranked by how often the target is reached' if targeted else ''}."
    if len(order) == 1:
        return Said(text, lead=lead, proof=f"No other attack was run on the same models.{fewer}", link="leaderboard")
    proof = f"{_compare(tied, order[len(tied) :])}.{_broken_others(order[len(tied) :])}{fewer}"
    return Said(text, lead=lead, proof=proof, link="leaderboard")


def _name_first(tied: Sequence[Contender], *, alone: bool, targeted: bool) -> tuple[str, str]:
    """The first, or all that share its place, and what they do."""
    first, models = tied[0], len(tied[0].fooled)
    size = f"{first.attacked} attacked images" if len({each.attacked for each in tied}) == 1 else "its attacked images"
    size += f" of {models} models" if models > 1 else ""
    broken = {each.violations for each in tied}
    known = f"95 % interval {percent_range(first.low, first.high)}; {_broke(first.violations)}"
    if len(broken) > 1:
        known = f"results that broke a rule count as not fooled: {_broken(tied)}"
    elif broken == {0}:
        known = f"95 % interval {percent_range(first.low, first.high)}"
    share = percent_text(first.share)
    does = f"drives {share} of {size} to the target" if targeted else f"fools {share} of {size}"
    if len(tied) == 1:
        return first.name, f"{does} ({known})"
    names = [each.name for each in tied]
    return listed(names, last=" and "), f"tie{'' if alone else ' for the first place'}: each {does} ({known})"


def _compare(tied: Sequence[Contender], rest: Sequence[Contender]) -> str:
    """What tests say of those that share an image with the first, and of which no image says anything."""
    first, others = tied[0], [*tied[1:], *rest]
    apart = [each.name for each in others if not count_compared(first, each)]
    lacking = f"No image is decided both under {first.name} and under {listed(apart)}: no test"
    if len(apart) == len(others):
        return lacking
    tested = [[each for each in those if each.name not in apart] for those in (tied, rest)]
    return _test(*tested) + (f". {lacking}" if apart else "")


def _test(tied: Sequence[Contender], rest: Sequence[Contender]) -> str:
    """Whether those behind are told from all that share the first place; or whether these are from one another."""
    images = min(count_compared(tied[0], each) for each in (*tied[1:], *rest))
    within = [sign_test(tied[0], each, sided=False) for each in tied[1:]]
    tests = [max(sign_test(first, other, sided=True) for first in tied) for other in rest]
    largest, level = max([*within, *tests]), SIGNIFICANT / len([*within, *tests])
    least = least_decisive(level)
    few = f"; {images} images are too few for a significant difference: at least {least} are needed"
    few = few if images < least else ""
    if not rest:
        differ = "Not significantly different" if min(within) >= level else "Significantly different on single images"
        return f"{differ}: {'' if len(within) == 1 else 'least '}sign test p = {min(within):.2g}{few}"
    if largest < SIGNIFICANT or (within and max(tests) < level):
        if len(rest) == 1:
            return f"More than {rest[0].name} ({percent_text(rest[0].share)}): sign test p = {max(tests):.2g}"
        return f"More than each of the {len(rest)} others: largest sign test p = {max(tests):.2g}"
    close = [other for other, p in zip(rest, tests, strict=True) if p >= level]
    names = listed([f"{other.name} ({percent_text(other.share)})" for other in close])
    test = f"sign test p = {largest:.2g}" if len(tests) == 1 and not within else "sign tests, Bonferroni"
    return f"Not significantly different from {names}: {test}{few}"


def _is_equal(share: float, other: float) -> bool:
    return math.isclose(share, other, rel_tol=1e-9)


def _broke(count: int) -> str:
    """What became of results that broke a rule."""
    return f"{count} result{'' if count == 1 else 's'} broke a rule and count{'s' if count == 1 else ''} as not fooled"


def _broken(contenders: Sequence[Contender]) -> str:
    return listed([f"{each.name} {each.violations}" for each in contenders if each.violations])


def _broken_others(rest: Sequence[Contender]) -> str:
    """A sentence on the violations of those behind the first."""
    broken = _broken(rest)
    return f" Results that broke a rule count as not fooled, and are left out of the tests: {broken}." if broken else ""


def _contender(group: Group) -> Contender:
    fooled: _Success = {}
    for repeats in group.parts:
        subject = repeats[0].cell.subject
        values = [np.where(r.undecided_fooled, math.nan, r.fooled) for r in (each.results for each in repeats)]
        fooled[subject.data_digest, subject.key] = np.mean(values, axis=0)
    every = [outcome for repeats in group.parts for outcome in repeats]
    attacked = int(sum(np.logical_or.reduce([each.columns["attacked"] for each in part]).sum() for part in group.parts))
    violations = int(sum(each.results.violated.sum() for each in every))
    low, high = _share(group, "fooled"), _share(group, "fooled_at_most")
    setting = f" ({group.labels['setting']})" if group.labels["setting"] else ""
    name = f"{group.labels['implementation']}{setting}"
    return Contender(name, float(low.value), float(low.low), float(high.high), attacked, violations, fooled)


def _share(group: Group, end: str) -> Share:
    """Mean over the models of the mean over their seeds, of either end of `ImageResults`."""
    columns: list[tuple[str, np.ndarray]] = []
    weights = []
    for repeats in group.parts:
        columns += [(each.cell.subject.data_digest, getattr(each.results, end)) for each in repeats]
        weights += [1 / len(repeats)] * len(repeats)
    rows: dict[str, int] = {}  # of each set of images the first
    total = 0
    for data, values in columns:
        if data not in rows:
            rows[data], total = total, total + len(values)
    whole = np.full((total, len(columns)), math.nan)
    for place, (data, values) in enumerate(columns):
        whole[rows[data] : rows[data] + len(values), place] = values
    return clustered_interval(whole, weights)


def _ball_of(group: Group) -> str:
    """The threat model alone: settings of one attack are rivals here."""
    return threat_of(group._replace(labels=group.labels | {"setting": ""}))

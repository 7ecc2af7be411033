"""Which attack is the strongest of those that ran under one threat model, and whether a test says so."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...engine.statistics.paired_tests import least_decisive, mcnemar
from ...engine.statistics.shares import clustered_interval
from ...engine.statistics.verdict import SIGNIFICANT
from ...engine.store.outcomes import Outcomes
from ...engine.tables.groups import Group, group_cells
from .blocks import Said
from .percent import percent_range, percent_text
from .standings import threat_of

_NAMED = 3  # attacks that a sentence names
_Success = dict[tuple[str, str], np.ndarray]


class Contender(NamedTuple):
    """An attack under a threat model: share of the attacked images that it fools, and what it did to each of them.

    `fooled` is (images,) by digest of the data and key of the subject: 1, 0, a mean over seeds, NaN where an image was
    not attacked or the result broke a rule.
    """

    name: str
    share: float
    low: float
    high: float
    attacked: int
    fooled: _Success


def judge_strongest(outcomes: Outcomes) -> list[Said]:
    """For each threat model with a radius: which attack fools most, of those that all models have met."""
    threats: dict[str, list[Group]] = {}
    for group in group_cells(outcomes, "attacks"):
        if group.parts and group.parts[0][0].cell.threat_model.epsilon is not None:
            threats.setdefault(_ball_of(group), []).append(group)
    for threat, groups in threats.items():  # a worst case does what all of its attacks do: no match for one of them
        threats[threat] = [group for group in groups if not group.parts[0][0].cell.is_worst_case] or groups
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


def test_against(first: Contender, other: Contender) -> float:
    """Exact sign test over the images: on which does the first of two that met the same models fool more of them?"""
    wins = losses = 0
    for data in {data for data, _ in first.fooled}:
        differences = [first.fooled[key] - other.fooled[key] for key in first.fooled if key[0] == data]
        balance = np.nansum(differences, axis=0)  # what one of them did not attack says nothing
        wins, losses = wins + int((balance > 0).sum()), losses + int((balance < 0).sum())
    more = np.repeat([True, False], [wins, losses])
    return mcnemar(more, ~more)


def _judge(threat: str, groups: Sequence[Group]) -> Said:
    first, *rest = rank_attacks(groups)
    if math.isnan(first.share):
        return Said(f"{threat}: no image was attacked.")
    if first.share == 0:
        return Said(f"{threat}: no attack fools any of the {first.attacked} images that were attacked.", link="trust")
    models = len(first.fooled)
    size = f"{first.attacked} attacked images" + (f" of {models} models" if models > 1 else "")
    text = (
        f"fools {percent_text(first.share)} of {size} (95 % interval {percent_range(first.low, first.high)}); {threat}."
    )
    left = len(groups) - 1 - len(rest)
    fewer = f" {left} run on other models {'is' if left == 1 else 'are'} left out." if left else ""
    if not rest:
        return Said(
            text, lead=first.name, proof=f"No other attack was run on the same models.{fewer}", link="leaderboard"
        )
    images = sum({data: len(values) for (data, _), values in first.fooled.items()}.values())
    proof = _compare(rest, [test_against(first, other) for other in rest], images)
    return Said(text, lead=first.name, proof=f"{proof}.{fewer}", link="leaderboard")


def _compare(rest: Sequence[Contender], tests: Sequence[float], images: int) -> str:
    largest, level = max(tests), SIGNIFICANT / len(rest)
    if largest < SIGNIFICANT:
        if len(rest) == 1:
            return f"More than {rest[0].name} ({percent_text(rest[0].share)}): sign test p = {largest:.2g}"
        return f"More than each of the {len(rest)} others: largest sign test p = {largest:.2g}"
    close = [other for other, p in zip(rest, tests, strict=True) if p >= level]
    names = ", ".join(f"{other.name} ({percent_text(other.share)})" for other in close[:_NAMED])
    more = f" and {len(close) - _NAMED} more" if len(close) > _NAMED else ""
    least = least_decisive(level)
    test = f"sign test p = {largest:.2g}" if len(rest) == 1 else "sign tests, Bonferroni"
    few = (
        f"; {images} images are too few for a significant difference: at least {least} are needed"
        if images < least
        else ""
    )
    return f"Not significantly different from {names}{more}: {test}{few}"


def _contender(group: Group) -> Contender:
    fooled: _Success = {}
    for repeats in group.parts:
        values = [_fooled(outcome.columns) for outcome in repeats]
        subject = repeats[0].cell.subject
        fooled[subject.data_digest, subject.key] = np.mean(values, axis=0)
    digests = list(dict.fromkeys(data for data, _ in fooled))
    blocks = [np.stack([fooled[key] for key in fooled if key[0] == data], axis=1) for data in digests]
    whole = np.full((sum(map(len, blocks)), sum(each.shape[1] for each in blocks)), math.nan)
    row = column = 0
    for values in blocks:
        whole[row : row + len(values), column : column + values.shape[1]] = values
        row, column = row + values.shape[0], column + values.shape[1]
    share = clustered_interval(whole)
    setting = f" ({group.labels['setting']})" if group.labels["setting"] else ""
    attacked = int((~np.isnan(whole)).sum())
    name = f"{group.labels['implementation']}{setting}"
    return Contender(name, float(share.value), float(share.low), float(share.high), attacked, fooled)


def _fooled(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.where(columns["attacked"] & ~columns["violated"], columns["success"].astype(float), math.nan)


def _ball_of(group: Group) -> str:
    """The threat model alone: settings of one attack are rivals here."""
    return threat_of(group._replace(labels=group.labels | {"setting": ""}))

"""The first thing on the page: how robust each model is in the worst case, and whether the first place is one."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from ..engine.paired import mcnemar
from ..engine.shares import share_interval
from ..engine.table import Table, TableRow
from ..engine.table_rows import Group, group_cells
from ..engine.verdicts import SIGNIFICANT
from ..engine.words import labels_text, threat_text
from .blocks import Column, Entry, Facts, PageTable, Section, Text, entry, make_table
from .figures import Bar, draw_intervals
from .folder import Folder


def write_verdict(folder: Folder, table: Table, warnings: str) -> Section:
    """Models, attacks, libraries, images; worst-case robust accuracy; is the first place distinguishable.

    Args:
        folder: the results.
        table: by models, with CA and RA_worst.
        warnings: what the trust page has found, in a few words.
    """
    groups = group_cells(folder.outcomes, "models")
    blocks: list[Any] = [Text(line, "lead") for line in judge_first_places(groups)]
    blocks += [Facts(_counts(folder, warnings), cards=True)]
    models = list(folder.models.values())
    for place, rows in enumerate(_by_threat(table)):
        bars = [
            Bar(name, row.metrics["RA_worst"].value, *_wilson(row), models.index(name))
            for row in rows
            for name in [row.labels["model"]]
        ]
        own = rows[0].labels
        threat = _threat_of(groups, own)
        caption = f"Worst-case robust accuracy under {threat}: images that no attack of it fools"
        blocks.append(draw_intervals(f"worst-{place}", bars, axis="share of all images", caption=caption))
    return Section("verdict", "Verdict", "", (*blocks, _table(table, groups)))


def judge_first_places(groups: Sequence[Group]) -> list[str]:
    """A sentence for each threat model with a radius: who is first, and whether a paired test tells it apart."""
    lines = [f"{threat}: {_judge_first(members)}" for threat, members in _groups_by_threat(groups)]
    return lines or ["No attack inside a ball was run, so there is no worst case; see Curves for the smallest changes."]


def _judge_first(groups: Sequence[Group]) -> str:
    first, *rest = sorted(groups, key=lambda group: -robust_to_all(group).mean())
    name, share = first.labels["model"], f"{robust_to_all(first).mean():.3g}"
    if not rest:
        return f"{name} keeps {share} of its images in the worst case; it is the only model."
    second = rest[0]
    other, other_share = second.labels["model"], f"{robust_to_all(second).mean():.3g}"
    a, b = first.parts[0][0].cell.subject, second.parts[0][0].cell.subject
    if a.data_digest != b.data_digest:
        return (
            f"{name} leads with {share}; {other} ({other_share}) saw different images, so no paired test is possible."
        )
    if share == other_share:
        return f"{name} and {other} are level at {share} on {a.images} images."
    p = mcnemar(robust_to_all(first), robust_to_all(second))
    told = "distinguishable" if p < SIGNIFICANT else "not distinguishable"
    return f"{name} leads with {share}, {told} from {other} ({other_share}): exact McNemar p = {p:.2g}, n = {a.images}."


def robust_to_all(group: Group) -> np.ndarray:
    """Images that every attack of a row leaves robust, (n,) bool."""
    return np.logical_and.reduce([own.columns["robust"] for part in group.parts for own in part])


def _counts(folder: Folder, warnings: str) -> tuple[tuple[str, str], ...]:
    done = folder.outcomes.done
    attacks = sorted({own.cell.row.attack for own in done})
    states = Counter(state.status for state in folder.states.values())
    images = sorted({own.cell.subject.images for own in done})
    return (
        ("Models", str(len(set(folder.models.values())))),
        ("Attacks", f"{len(attacks)} in {len({own.cell.attack for own in done})} rows"),
        ("Libraries", ", ".join(sorted({own.cell.row.library for own in done}))),
        ("Images", " and ".join(map(str, images))),
        ("Cells", ", ".join(f"{number} {state}" for state, number in sorted(states.items()))),
        ("Failure indicators", warnings),
    )


def _wilson(row: TableRow) -> tuple[float, float]:
    """Interval of a share of images, also where all or none of them are robust."""
    own = row.metrics["RA_worst"]
    return share_interval(round(own.value * own.n), own.n)


def _worst(row: TableRow) -> Entry:
    value = row.metrics["RA_worst"].value
    return entry(value)._replace(low=_wilson(row)[0], high=_wilson(row)[1])


def _table(table: Table, groups: Sequence[Group]) -> PageTable:
    rows = [
        (
            row.labels["model"],
            _threat_of(groups, row.labels),
            row.labels["attacks"],
            row.metrics["CA"],
            _worst(row),
            row.labels["failed"],
            row.labels["violations"],
        )
        for row in table.rows
        if row.labels["cells"] and _is_bounded(row)
    ]
    columns = (
        "model",
        "threat model",
        Column("attacks", "settings of attacks that count for the worst case"),
        Column("clean accuracy", "CA: share of the images that are right without an attack"),
        Column("worst-case robust accuracy", "share of all images that are right and robust to every attack"),
        Column("failed", "cells without a result: they prove nothing and count for nobody"),
        Column("violations", "examples that broke a rule: neither fooled nor robust, so they lower robust accuracy"),
    )
    return make_table(
        "verdict-table",
        "Clean and worst-case robust accuracy",
        columns,
        rows,
        note="95 % intervals: Wilson's for the worst case, percentile bootstrap over the images for clean accuracy. "
        "More attacks make the worst case worse. Attacks without a radius are in Curves: every image falls to them.",
    )


def _is_bounded(row: TableRow) -> bool:
    return not math.isnan(row.labels["epsilon"])


def _by_threat(table: Table) -> list[list[Any]]:
    def threat(row: Any) -> tuple[str, ...]:
        return tuple(str(row.labels[name]) for name in ("norm", "epsilon", "targeted", "setting"))

    ordered = sorted((row for row in table.rows if row.labels["cells"] and _is_bounded(row)), key=threat)
    return [list(rows) for _, rows in groupby(ordered, key=threat)]


def _groups_by_threat(groups: Sequence[Group]) -> list[tuple[str, list[Group]]]:
    found: dict[str, list[Group]] = {}
    for group in groups:
        if group.parts and group.parts[0][0].cell.threat_model.epsilon is not None:
            found.setdefault(_name(group), []).append(group)
    return sorted(found.items())


def _threat_of(groups: Sequence[Group], labels: Any) -> str:
    return next(
        (_name(group) for group in groups if group.parts and str(group.labels) == str(labels)),
        labels_text(labels),
    )


def _name(group: Group) -> str:
    setting = f", {group.labels['setting']}" if group.labels["setting"] else ""
    return threat_text(group.parts[0][0].cell.threat_model) + setting

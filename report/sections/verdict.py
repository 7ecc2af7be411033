"""The first thing on the page: how robust each model is in the worst case, and whether the first place is one."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ...adapters.words import labels_text
from ...engine.tables.groups import Group, group_cells
from ...engine.tables.table import Table, TableRow
from ..parts.blocks import Column, Entry, Facts, PageTable, Section, Text, make_table
from ..parts.figures import Bar, draw_intervals
from ..parts.headline import judge_first_places, threat_of, write_caveats
from ..parts.reading import Folder

_UNKNOWN = Entry("no clean predictions")


def write_verdict(folder: Folder, table: Table, warnings: str) -> Section:
    """Models, attacks, libraries, images; worst-case robust accuracy; is the first place distinguishable.

    Args:
        folder: the results.
        table: by models, with CA and RA_worst.
        warnings: what the trust page has found, in a few words.
    """
    groups = group_cells(folder.outcomes, "models")
    blocks: list[Any] = [Text(line, "warn") for line in write_caveats(folder.outcomes)]
    blocks += [Text(line, "lead") for line in judge_first_places(folder.outcomes)]
    blocks += [Facts(_counts(folder, warnings), cards=True)]
    models = list(folder.models.values())
    for place, rows in enumerate(_by_threat(table)):
        bars = [
            Bar(name, estimate.value, estimate.low, estimate.high, models.index(name))
            for row in rows
            for name, estimate in [(row.labels["model"], row.metrics["RA_worst"])]
        ]
        labels = rows[0].labels
        threat = _threat_of(groups, labels)
        caption = f"Worst-case robust accuracy under {threat}: images that no attack of it fools"
        blocks.append(draw_intervals(f"worst-{place}", bars, axis="share of all images", caption=caption))
    return Section("verdict", "Verdict", "", (*blocks, _table(table, groups)))


def _counts(folder: Folder, warnings: str) -> tuple[tuple[str, str], ...]:
    done = folder.outcomes.done
    attacks = sorted({outcome.cell.row.attack for outcome in done})
    states = Counter(state.status for state in folder.states.values())
    images = sorted({outcome.cell.subject.images for outcome in done})
    return (
        ("Models", str(len(set(folder.models.values())))),
        ("Attacks", f"{len(attacks)} in {len({outcome.cell.title for outcome in done})} rows"),
        ("Libraries", ", ".join(sorted({outcome.cell.row.library for outcome in done}))),
        ("Images", " and ".join(map(str, images))),
        ("Cells", ", ".join(f"{number} {state}" for state, number in sorted(states.items()))),
        ("Failure indicators", warnings),
    )


def _table(table: Table, groups: Sequence[Group]) -> PageTable:
    rows = [
        (
            row.labels["model"],
            _threat_of(groups, row.labels),
            row.labels["attacks"],
            row.metrics.get("CA", _UNKNOWN),
            row.metrics["RA_worst"],
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
        note="95 % intervals of shares, by Clopper and Pearson. More attacks make the worst case worse. "
        "Attacks without a radius are in Curves.",
    )


def _is_bounded(row: TableRow) -> bool:
    return not math.isnan(row.labels["epsilon"])


def _by_threat(table: Table) -> list[list[Any]]:
    def threat(row: Any) -> tuple[str, ...]:
        return tuple(str(row.labels[name]) for name in ("norm", "epsilon", "targeted", "setting"))

    ordered = sorted((row for row in table.rows if row.labels["cells"] and _is_bounded(row)), key=threat)
    return [list(rows) for _, rows in groupby(ordered, key=threat)]


def _threat_of(groups: Sequence[Group], labels: Any) -> str:
    return next(
        (threat_of(group) for group in groups if group.parts and str(group.labels) == str(labels)),
        labels_text(labels),
    )

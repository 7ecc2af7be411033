"""Sections on metrics: a heat map of models and attacks for any metric, and tables of all metrics."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...adapters.display_text import format_threat_labels
from ...engine.finding import plain
from ...engine.metric_names import base_symbol, metric_command
from ...engine.store.notes import unmeasured_line
from ...engine.tables.symbols import drop_absent, is_of_clean, is_of_distances, shown_symbol
from ...engine.tables.table import Table, TableRow
from ...metrics import METRICS, PLAIN, record_of
from ..parts.blocks import (
    Collapsible,
    Column,
    HeatMap,
    PageTable,
    Section,
    TableCell,
    Text,
    entry,
    label_column,
    list_table,
    make_table,
)
from ..parts.report_data import ReportData

FIRST = "RA"
_CELLS = 5000  # most cells in the table of all pairs
_ACROSS = 6  # models side by side
_LABELS = {"targeted": "targeted", "knowledge": "knowledge", "setting": "setting"}
_COUNTS = ("models", "attacks", "cells", "failed", "images", "violations")


def present_symbols(folder: ReportData) -> list[str]:
    """Return the symbols of the metrics that have a value in some run, in the order of `METRICS`.

    Metrics of distance curves are excluded.
    """
    symbols = [shown_symbol(name) for name, record in METRICS.items() if record.only != ("models",)]
    symbols += folder.outcomes.users_symbols
    return [name for name in drop_absent(symbols, folder.outcomes, explicit=False) if not is_of_distances(name)]


def write_leaderboard(pairs: Table) -> Section:
    """Build the section with the heat map of models and attacks.

    Args:
        pairs: table by pairs of attack and model.
    """
    title, lead = "Leaderboard", "Every attack on every model. Choose a metric; press a heading to sort by it."
    if any(row.labels["targeted"] for row in pairs.rows):
        lead += (
            " Under targeted attacks, MR counts every misclassification, TAS the targets that are reached, and RA the "
            "images that are correct when clean and not classified as the target."
        )
    models = list(dict.fromkeys(row.labels["model"] for row in pairs.rows))
    by_attack: dict[str, dict[str, TableRow]] = {}
    for row in pairs.rows:
        by_attack.setdefault(_attack_name(row), {})[row.labels["model"]] = row
    shown = [symbol for symbol in pairs.symbols if not is_of_clean(symbol)]
    first = FIRST if FIRST in shown else shown[0]
    down = len(models) > max(_ACROSS, len(by_attack))  # many models become rows, because they are compared
    grid = [[(attack, model) for attack in by_attack] for model in models]
    grid = grid if down else [[(attack, model) for model in models] for attack in by_attack]
    names = models if down else [*by_attack]
    rows = [
        (TableCell(name, name), *(_heat_entry(by_attack[attack].get(model), first) for attack, model in line))
        for name, line in zip(names, grid, strict=True)
    ]
    heads = ("model", *by_attack) if down else ("attack", *models)
    table = make_table("leaderboard-table", "Attacks and models", heads, rows)
    values = {
        symbol: [[_number(by_attack[attack].get(model), symbol) for attack, model in line] for line in grid]
        for symbol in shown
    }
    data = {"first": first, "values": plain(values), "about": {symbol: _direction(symbol) for symbol in shown}}
    choices = tuple((symbol, f"{symbol} - {describe(symbol)[0]}") for symbol in shown)
    return Section("leaderboard", title, lead, (HeatMap("leaderboard-heat", title, table, choices, data),))


def write_metrics(attacks: Table, models: Table, pairs: Table, folder: ReportData) -> Section:
    """Build the section with tables of all metrics by attack, by model and by pair, and definitions of the symbols."""
    results = folder.outcomes
    kept = (results.store.folder / "images").is_dir()
    lacking = unmeasured_line([each.cell for each in results.done], "FOLDER", kept=kept)
    notes = [Text(note, "note") for note in dict.fromkeys((*attacks.notes, *models.notes, lacking)) if note]
    more = f"Only the usual metrics of {len(pairs.rows)} rows are shown: `davylamp table FOLDER --by pairs` prints all."
    left = [] if _narrow(pairs) is pairs else [Text(more, "note")]
    blocks: list[Any] = [
        *(
            Collapsible(table.caption, (table, *more))
            for table, more in (
                (_metric_table("metrics-models", "Models: mean over the attacks of one threat model", models), ()),
                (_metric_table("metrics-attacks", "Attacks: mean over the models", attacks), ()),
                (_metric_table("metrics-pairs", "Every attack on every model", _narrow(pairs)), left),
            )
        ),
        Collapsible("What the symbols mean", (_definitions(pairs, folder),)),
        *notes,
    ]
    lead = (
        "All metrics for which the folder has values, with 95 % intervals. Intervals of proportions are Clopper and "
        "Pearson's. If the same images count several times, their effective number is used. Proportions of all images "
        "in a run with --until have betting intervals. Other means have bootstrap intervals over the images. To show "
        "more columns, press Columns."
    )
    return Section("metrics", "Metrics", lead, tuple(blocks))


def describe(symbol: str) -> tuple[str, str]:
    """Return title and one-line meaning of a metric."""
    known = record_of(symbol)
    return (symbol, "the user's own") if known is None else (known.title, known.meaning)


def _direction(symbol: str) -> dict[str, Any]:
    """Return the range of a metric and which values are good. The script of the page chooses colours from this."""
    known = record_of(symbol)
    low, high = known.between if known else (0.0, math.inf)
    robust = known.robust_when if known else "higher"
    direction = {"higher": "higher is better for the model", "lower": "lower is better for the model"}.get(
        robust or "", ""
    )
    whole = (low, high) == (0, 1)
    return {"robust": robust, "low": 0 if whole else None, "high": 1 if whole else None, "direction": direction}


def _metric_table(name: str, caption: str, table: Table) -> PageTable:
    labels = [label for label in table.labels if label not in _COUNTS and label not in ("norm", "epsilon", "targeted")]
    labels = [label for label in labels if any(row.labels[label] != "" for row in table.rows)]
    counts = [label for label in table.labels if label in _COUNTS]
    columns = [
        *labels,
        "threat model",
        *map(label_column, counts),
        *(_symbol_column(symbol, table) for symbol in table.symbols),
    ]
    rows = [
        (
            *(row.labels[label] for label in labels),
            format_threat_labels(row.labels),
            *(row.labels[label] for label in counts),
            *(entry(row.metrics[symbol]) for symbol in table.symbols),
        )
        for row in table.rows
    ]
    return make_table(name, caption, columns, rows)


def _narrow(pairs: Table) -> Table:
    """Return the table with only the usual metrics, if all metrics would make the page too large."""
    if len(pairs.rows) * len(pairs.symbols) <= _CELLS:
        return pairs
    return replace(pairs, symbols=tuple(symbol for symbol in pairs.symbols if METRICS.get(symbol, PLAIN).brief))


def _symbol_column(symbol: str, table: Table) -> Column:
    """Return the table column of a metric. If a table has many metrics, unusual metrics are hidden at first."""
    many = len(table.symbols) > sum(record.brief for record in METRICS.values())
    return Column(symbol, _tooltip(symbol), many and symbol in METRICS and not METRICS[symbol].brief)


def _definitions(pairs: Table, folder: ReportData) -> PageTable:
    why = {symbol: reason for outcome in folder.outcomes.done for symbol, reason in outcome.unmeasured.items()}
    here = dict.fromkeys(map(base_symbol, pairs.symbols), "yes")
    here |= dict.fromkeys(filter(is_of_distances, METRICS), "in Curves")
    columns = (
        ("symbol", lambda item: TableCell(item[0], item[0], kind="code")),
        ("name", lambda item: item[1].title),
        ("meaning", lambda item: item[1].meaning),
        (
            "direction",
            lambda item: f"{item[1].robust_when} is more robust" if item[1].robust_when else "neither",
        ),
        ("range", lambda item: f"{item[1].between[0]:g} to {item[1].between[1]:g}"),
        ("unit", lambda item: item[1].unit),
        ("source", lambda item: item[1].source),
        ("on this page", lambda item: here.get(item[0]) or why.get(item[0]) or _why_absent(item[0])),
    )
    named = [
        item for item in METRICS.items() if item[1].group != "recorded"
    ]  # the names of the others are self-explanatory
    return list_table("metrics-definitions", "Every symbol", named, columns)


def _why_absent(symbol: str) -> str:
    access = metric_command(symbol)
    if "table FOLDER --metric" not in access.shown_by:
        return f"shown by {access.shown_by.removesuffix(' --metric')}"
    return f"needs {access.needs}" if access.needs else "no run has a value"


def _tooltip(symbol: str) -> str:
    title, meaning = describe(symbol)
    known = record_of(symbol)
    if known is None or not known.source:
        return meaning
    direction = _direction(symbol)["direction"] or "Neither direction is better for the model"
    return f"{title}. {meaning} {direction}. {known.source}"


def _attack_name(row: TableRow) -> str:
    setting = f", {row.labels['setting']}" if row.labels["setting"] else ""
    return f"{row.labels['implementation']} {format_threat_labels(row.labels)}{setting}"


def _heat_entry(row: TableRow | None, symbol: str) -> TableCell:
    return TableCell("-") if row is None else entry(row.metrics[symbol])


def _number(row: TableRow | None, symbol: str) -> Sequence[float] | None:
    return None if row is None else tuple(float(f"{value:.6g}") for value in row.metrics[symbol][:3])

"""Figure of the fooling rate, or another metric, of each attack and library, with intervals."""

import math
from typing import Any

import numpy as np

from ...adapters.catalogue.lookup import LIBRARIES
from ...adapters.display_text import format_radius
from ...engine.tables.table import Table, TableRow
from ...errors import Unsupported
from .canvas import COLOURS, MARKERS, NORM_NAMES

_ROW, _BESIDE = 0.155, 0.62  # inches of a row, and of what is above and below


def draw_rates(make: type, width: float, table: Table, symbol: str = "MR") -> Any:
    """Draw the value of a metric with its 95 % interval for each row of a table.

    Args:
        make: Matplotlib's `Figure`.
        width: width of the figure, inches.
        table: result of `build_table` by attacks or by pairs, with the metric.
        symbol: symbol of the metric.

    Raises:
        Unsupported: If no row has the metric.
    """
    rows = [row for row in table.rows if not math.isnan(row.metrics[symbol].value)]
    if not rows:
        raise Unsupported(f"no attack in the folder has the metric {symbol}")
    rows = sorted(rows, key=_order)
    libraries = [*LIBRARIES, *dict.fromkeys(_library(row) for row in rows if _library(row) not in LIBRARIES)]
    places, groups = _places(rows)
    figure = make(figsize=(width, _ROW * (places[-1] + 1) + _BESIDE), layout="constrained")
    axes = figure.add_subplot()
    for row, place in zip(rows, places, strict=True):
        estimate = row.metrics[symbol]
        which = libraries.index(_library(row))
        ends = np.nan_to_num([[estimate.value - estimate.low], [estimate.high - estimate.value]]).clip(0)
        look = {"color": COLOURS[which % len(COLOURS)], "marker": MARKERS[which % len(MARKERS)]}
        axes.errorbar(
            [estimate.value], [place], xerr=ends, markersize=3.8, capsize=1.8, elinewidth=0.9, linestyle="none", **look
        )
    axes.set_yticks(places, [_name(row) for row in rows])
    axes.set_ylim(places[-1] + 0.7, -0.7)
    axes.tick_params(axis="y", length=0)
    for start in groups[1:]:
        axes.axhline(start - 0.75, color="#d0d0d0", linewidth=0.5)
    if all(0 <= row.metrics[symbol].value <= 1 for row in rows):
        axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel(f"{'fooling rate' if symbol == 'MR' else symbol} (95 % interval)")
    axes.grid(axis="x")
    return figure


def _places(rows: list[TableRow]) -> tuple[list[float], list[float]]:
    """Return the vertical position of each row, and the first position of each attack.

    There is a gap between attacks.
    """
    places, groups, at = [], [], 0.0
    for number, row in enumerate(rows):
        if number and _attack(row) != _attack(rows[number - 1]):
            at += 0.5
        if not number or _attack(row) != _attack(rows[number - 1]):
            groups.append(at)
        places.append(at)
        at += 1
    return places, groups


def _order(row: TableRow) -> tuple[str, ...]:
    labels = row.labels
    radius = labels.get("epsilon", math.nan)
    return (_attack(row), str(labels["norm"]), f"{radius:.6f}", _library(row))


def _library(row: TableRow) -> str:
    return str(row.labels["implementation"]).rpartition("(")[2].partition(":")[0]


def _attack(row: TableRow) -> str:
    name, _, rest = str(row.labels["implementation"]).partition(":")
    return (f"{name.rpartition('(')[0]}(" if "(" in name else "") + rest.partition("@")[0]


def _name(row: TableRow) -> str:
    labels = row.labels
    epsilon = labels["epsilon"]
    radius = "" if math.isnan(epsilon) else f" {format_radius(str(labels['norm']), epsilon)}"
    setting = f", {labels['setting']}" if labels.get("setting") else ""
    norm = NORM_NAMES.get(str(labels["norm"]), str(labels["norm"]))
    return f"{labels['implementation']}, {norm}{radius}{setting}"

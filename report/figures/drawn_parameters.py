"""Figures of a metric against its parameter: fooling rate against K, semantic confusion against its threshold."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...engine.tables.table import Table, TableRow
from ...errors import Unsupported
from .canvas import MARKERS
from .drawn_curves import curve_name, draw_panels, look_of


def draw_parameters(
    make: type,
    width: float,
    table: Table,
    symbols: Mapping[float, str],
    names: tuple[str, str],
    *,
    is_log: bool = False,
) -> Any:
    """Draw a metric against its parameter, with one panel per model and one line per attack.

    Args:
        make: Matplotlib's `Figure`.
        width: width of the figure, inches.
        table: result of `build_table` by pairs, with the metrics in `symbols` and their 95 % intervals.
        symbols: symbol of the metric for each value of the parameter, such as "FR@5" for 5.
        names: names of the parameter and of the metric, for the axes.
        is_log: whether the axis of the parameter is logarithmic.

    Raises:
        Unsupported: If no attack has the metric.
    """
    rows = [row for row in table.rows if any(not math.isnan(row.metrics[each].value) for each in symbols.values())]
    if not rows:
        raise Unsupported(f"no attack in the folder has the metric {next(iter(symbols.values()))}")
    every = list(dict.fromkeys(curve_name(row.labels) for row in rows))
    panels: dict[tuple[str, str], list[TableRow]] = {}
    for row in rows:
        panels.setdefault((str(row.labels["model"]), ""), []).append(row)

    def draw(axes: Any, key: tuple[str, str]) -> None:
        for row in panels[key]:
            place = every.index(curve_name(row.labels))
            _draw_line(axes, row, symbols, place)
        if is_log:
            axes.set_xscale("log")
        axes.set_xticks(list(symbols), [f"{value:g}" for value in symbols], minor=False)
        axes.minorticks_off()
        axes.set_ylim(-0.03, 1.03)
        axes.set_xlabel(names[0])

    return draw_panels(make, width, {key: key[0] for key in panels}, names[1], every, draw)


def _draw_line(axes: Any, row: TableRow, symbols: Mapping[float, str], place: int) -> None:
    """Draw the values of the metric for one attack, with their intervals. Undefined values are omitted."""
    known = {value: row.metrics[symbol] for value, symbol in symbols.items()}
    known = {value: each for value, each in known.items() if not math.isnan(each.value)}
    ends: Sequence[Sequence[float]] = [
        [0.0 if math.isnan(each.low) else max(0.0, each.value - each.low) for each in known.values()],
        [0.0 if math.isnan(each.high) else max(0.0, each.high - each.value) for each in known.values()],
    ]
    heights = [each.value for each in known.values()]
    marker = MARKERS[place % len(MARKERS)]
    look = {**look_of(place), "label": curve_name(row.labels), "marker": marker, "markersize": 3}
    axes.errorbar(list(known), heights, ends, capsize=1.5, elinewidth=0.6, **look)

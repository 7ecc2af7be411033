"""Median distances against passes, in a terminal, as CSV and as JSON."""

import json
import math
from typing import Any

from rich.console import Console

from ...engine.tables.distance_curves import DistanceCurve, DistanceCurves
from .console import format_cell, make_console, print_table
from .tables import print_notes, to_csv

_NUMBERS = ("passes", "median", "low", "high", "fooled")


def print_distances(curves: DistanceCurves, console: Console | None = None) -> None:
    """Print the median after round numbers of passes, a table for each norm."""
    console = console or make_console()
    for norm in dict.fromkeys(curve.labels["norm"] for curve in curves.curves):
        mine = [curve for curve in curves.curves if curve.labels["norm"] == norm]
        names = ["model", "implementation", *(n for n in ("targeted", "setting") if any(c.labels[n] for c in mine))]
        rows = [
            [
                *(str(curve.labels[name]) for name in names),
                str(curve.n),
                *(_cell(curve, passes) for passes in curves.shown),
                format_cell(float(curve.fooled[-1])),
            ]
            for curve in mine
        ]
        columns = [*names, "images", *map(str, curves.shown), "fooled"]
        print_table(f"Median {norm} distance after so many passes [95 % interval]", columns, rows, console)
    print_notes(curves.notes, console)


def distances_csv(curves: DistanceCurves) -> str:
    """One line for each curve and number of passes."""
    columns = [*curves.curves[0].labels, *_NUMBERS, "n", "repeats"]
    lines = [
        [*curve.labels.values(), *(float(getattr(curve, name)[place]) for name in _NUMBERS), curve.n, curve.repeats]
        for curve in curves.curves
        for place in range(len(curve.passes))
    ]
    return to_csv(columns, lines)


def distances_json(curves: DistanceCurves) -> str:
    """The curves at all their points; undefined and infinite numbers are null."""
    documents = [
        {
            **{name: _plain(value) for name, value in curve.labels.items()},
            **{name: [_plain(value) for value in getattr(curve, name).tolist()] for name in _NUMBERS},
            "n": curve.n,
            "repeats": curve.repeats,
        }
        for curve in curves.curves
    ]
    return json.dumps({"against": "passes", "curves": documents, "notes": list(curves.notes)}, indent=2)


def _cell(curve: DistanceCurve, passes: int) -> str:
    """The median with its interval; "" beyond the last pass of an attack, "-" where fewer than half are fooled."""
    if passes > curve.passes[-1]:
        return ""
    place = curve.at(passes)
    if place is None or not math.isfinite(curve.median[place]):
        return "-"
    ends = ["none" if math.isinf(end) else f"{end:.3g}" for end in (curve.low[place], curve.high[place])]
    interval = "" if math.isnan(curve.low[place]) else f" [{ends[0]}, {ends[1]}]"
    return f"{curve.median[place]:.3g}{interval}"


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value

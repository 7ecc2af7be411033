"""Draws accuracy curves to a file with Matplotlib, which is imported only when a figure is drawn."""

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...adapters.display_text import format_radius
from ...engine.store.atomic_files import write_atomic
from ...engine.tables.budget_curves import Curve, Curves
from ...errors import InvalidInput, MissingLibrary

# Okabe and Ito's colour-blind-safe palette. Line styles repeat the colours.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_LINES = ("-", "--", "-.", ":")
_MARKERS = "osD^vPX"
_SUFFIXES = (".svg", ".png", ".pdf")


def write_curve_figure(curves: Curves, path: str | Path) -> None:
    """Draw accuracy curves to a file, with one panel per norm and model.

    A curve is drawn as steps with a confidence band, or as points with intervals.

    Args:
        curves: curves to draw.
        path: path of the file. The suffix (.svg, .png or .pdf) selects the format.

    Raises:
        InvalidInput: If the suffix is not supported.
        MissingLibrary: If Matplotlib is not installed.
        Unavailable: If the file cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in _SUFFIXES:
        raise InvalidInput(f"expected a file that ends in {', '.join(_SUFFIXES)}, got {path}")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingLibrary("matplotlib", "plot") from error
    panels: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves.curves:
        panels.setdefault((curve.labels["norm"], curve.labels["model"]), []).append(curve)
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(6.4 * columns, 4.2 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    for place, ((norm, model), mine) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(rows, columns, place)
        looks = {name: place for place, name in enumerate(dict.fromkeys(_name(c.labels) for c in curves.curves))}
        for curve in mine:
            _draw(axes, curve, looks[_name(curve.labels)], queries=curves.against == "queries")
        axes.set_title(model)
        axes.set_ylabel("accuracy (proportion of all images)")
        axes.set_xlabel(_axis(curves, norm))
        axes.set_ylim(-0.02, 1.02)
        axes.grid(visible=True, alpha=0.25)
        axes.legend(fontsize="small")
    picture = io.BytesIO()
    figure.savefig(picture, dpi=150, format=path.suffix.lower().removeprefix("."))
    write_atomic(path, picture.getvalue())


def _draw(axes: Any, curve: Curve, place: int, *, queries: bool) -> None:
    colour, line = _COLOURS[place % len(_COLOURS)], _LINES[place % len(_LINES)]
    name = _name(curve.labels)
    if queries:
        axes.set_xscale("symlog", linthresh=1)
    if curve.kind == "points":
        ends = np.nan_to_num([curve.accuracy - curve.low, curve.high - curve.accuracy]).clip(0)
        look = {"color": colour, "marker": _MARKERS[place % len(_MARKERS)], "capsize": 3, "label": name}
        axes.errorbar(
            curve.budgets, curve.accuracy, ends, linestyle="none", **look
        )  # no line, because accuracy between them is unknown
        return
    axes.step(curve.budgets, curve.accuracy, where="post", color=colour, linestyle=line, label=name)
    axes.fill_between(curve.budgets, curve.low, curve.high, step="post", color=colour, alpha=0.15, linewidth=0)


def _name(labels: Mapping[str, Any]) -> str:
    parts = [
        labels["implementation"],
        "" if math.isnan(labels["epsilon"]) else f"epsilon {format_radius(labels['norm'], labels['epsilon'])}",
        labels["setting"],
    ]
    return ", ".join(part for part in (*parts, "targeted" if labels["targeted"] else "") if part)


def _axis(curves: Curves, norm: str) -> str:
    if curves.against == "queries":
        return f"queries under {norm} ({curves.unit[norm]})"
    return f"{'' if norm == 'unrestricted' else f'{norm} '}distance ({curves.unit[norm]})"

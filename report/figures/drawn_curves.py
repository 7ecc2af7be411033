"""Figures of accuracy against radius, and of distance against queries, with a panel for each model and norm."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...adapters.display_text import format_radius
from ...engine.tables.budget_curves import Curve, Curves
from ...engine.tables.distance_curves import DistanceCurves
from .canvas import COLOURS, LINES, MARKERS, NORM_NAMES

_PANEL, _LINE = 1.55, 0.15  # inches of a panel's height and of a legend's line
_CLEAN = "no attack"
_APART = 4.0  # points between intervals at the same radius
_WIDE = 5.0  # inches from which panels are placed side by side


def draw_accuracy(make: type, width: float, curves: Curves) -> Any:
    """Draw accuracy curves against the radius.

    Minimum-norm attacks and searches are drawn as steps with confidence bands. Attacks at fixed radii are drawn as
    points with intervals.

    Args:
        make: Matplotlib's `Figure`.
        width: width of the figure, inches.
        curves: result of `build_curves`, with epsilon as the horizontal axis.
    """
    panels: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves.curves:
        panels.setdefault((curve.labels["model"], curve.labels["norm"]), []).append(curve)
    names = list(dict.fromkeys(curve_name(curve.labels) for curve in curves.curves))
    several = len({norm for _, norm in panels}) > 1

    def draw(axes: Any, key: tuple[str, str]) -> None:
        for curve in panels[key]:
            _draw_curve(axes, curve, names.index(curve_name(curve.labels)), _shift(curve, panels[key]))
        clean = next((curve.accuracy[0] for curve in panels[key] if len(curve.accuracy)), math.nan)
        axes.axhline(clean, color="#606060", linewidth=0.7, linestyle=(0, (1, 2)), zorder=0, label=_CLEAN)
        axes.set_ylim(-0.06, 1.07)  # space for the markers at both ends
        axes.set_xlim(0, 1.06 * max(float(curve.budgets.max()) for curve in panels[key]))
        norm = key[1]
        _scale_greys(axes, norm, panels[key])
        unit = "" if norm == "linf" else f" ({curves.unit[norm]})"
        axes.set_xlabel(f"{NORM_NAMES.get(norm, norm)} radius{unit}")

    titles = {key: key[0] + (f", {NORM_NAMES.get(key[1], key[1])}" if several else "") for key in panels}
    return draw_panels(make, width, titles, "accuracy", [*names, _CLEAN], draw)


def draw_passes(make: type, width: float, curves: DistanceCurves) -> Any:
    """Draw the median distance against the number of model passes, with a confidence band where the interval is known.

    Args:
        make: Matplotlib's `Figure`.
        width: width of the figure, inches.
        curves: result of `build_distance_curves`.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    panels: dict[tuple[str, str], list[Any]] = {}
    for curve in curves.curves:
        panels.setdefault((curve.labels["model"], curve.labels["norm"]), []).append(curve)
    names = list(dict.fromkeys(curve_name(curve.labels) for curve in curves.curves))

    def draw(axes: Any, key: tuple[str, str]) -> None:
        for curve in panels[key]:
            name = curve_name(curve.labels)
            look = {**look_of(names.index(name)), "label": name}
            known = np.isfinite(curve.median)
            passes, median = curve.passes[known], curve.median[known]
            axes.step(passes, median, where="post", **look)
            low, high = curve.low[known], curve.high[known]
            banded = np.isfinite(low) & np.isfinite(high)
            axes.fill_between(
                passes, low, high, where=banded, step="post", color=look["color"], alpha=0.18, linewidth=0
            )
        axes.set_xscale("log")
        most, least = (end(float(end(curve.passes)) for curve in panels[key]) for end in (max, min))
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if most < 100 * least else (1,)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(bottom=0)
        axes.set_xlabel("forward + backward passes")
        axes.set_ylabel(f"median {NORM_NAMES.get(key[1], key[1])} distance")

    titles = {key: key[0] for key in panels}
    return draw_panels(make, width, titles, "", names, draw)


def curve_name(labels: Mapping[str, Any]) -> str:
    """Return the name of a curve in the legend: implementation, radius, setting and goal."""
    epsilon = labels["epsilon"]
    radius = "" if math.isnan(epsilon) else format_radius(labels["norm"], epsilon)
    parts = (labels["implementation"], radius, labels["setting"], "targeted" if labels["targeted"] else "")
    return ", ".join(filter(None, parts))


def draw_panels(
    make: type,
    width: float,
    titles: Mapping[tuple[str, str], str],
    label: str,
    names: Sequence[str],
    draw: Callable[[Any, tuple[str, str]], None],
) -> Any:
    """Draw several panels with a common legend below.

    Args:
        make: Matplotlib's `Figure`.
        width: width of the figure, inches.
        titles: title of each panel, by key. The key is a pair, such as model and norm.
        label: label of the vertical axis. "" means no label.
        names: entries of the legend, in order.
        draw: function that draws a panel, called with the axes and the key of the panel.
    """
    columns = min(len(titles), 3 if width >= _WIDE and len(titles) > 2 else 2 if width >= _WIDE else 1)
    rows = -(-len(titles) // columns)
    beside = max(1, int(width / (0.075 * max(map(len, names)) + 0.45)))
    height = rows * _PANEL + 0.1 + _LINE * -(-len(names) // beside)
    figure = make(figsize=(width, height), layout="constrained")
    for place, (key, title) in enumerate(titles.items()):
        axes = figure.add_subplot(rows, columns, place + 1)
        draw(axes, key)
        axes.set_title(title, loc="left")
        axes.grid(axis="y")
        if label and place % columns == 0:
            axes.set_ylabel(label)
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    shown = [name for name in names if name in handles]
    figure.legend([handles[name] for name in shown], shown, loc="outside lower center", ncols=beside)
    return figure


def _shift(curve: Curve, beside: Sequence[Curve]) -> float:
    """Return the horizontal shift of a curve's markers, in typographic points (1/72 inch).

    Without the shift, intervals at the same radius overlap.
    """
    points = [each for each in beside if each.kind == "points"]
    if curve.kind != "points" or len(points) < 2:
        return 0.0
    return _APART * (next(i for i, each in enumerate(points) if each is curve) - (len(points) - 1) / 2)


def _draw_curve(axes: Any, curve: Curve, place: int, shift: float) -> None:
    look = look_of(place)
    look["label"] = curve_name(curve.labels)
    if curve.kind == "points":
        from matplotlib.transforms import ScaledTranslation

        inside = curve.budgets > 0  # the clean accuracy is the dotted line
        ends = np.nan_to_num([curve.accuracy - curve.low, curve.high - curve.accuracy]).clip(0)[:, inside]
        del look["linestyle"]
        marker = MARKERS[place % len(MARKERS)]
        moved = axes.transData + ScaledTranslation(shift / 72, 0, axes.get_figure().dpi_scale_trans)
        axes.errorbar(
            curve.budgets[inside],
            curve.accuracy[inside],
            ends,
            linestyle="none",
            marker=marker,
            markersize=3.5,
            capsize=2,
            elinewidth=0.8,
            transform=moved,
            **look,
        )
        return
    axes.step(curve.budgets, curve.accuracy, where="post", **look)
    axes.fill_between(curve.budgets, curve.low, curve.high, step="post", color=look["color"], alpha=0.18, linewidth=0)


def look_of(place: int) -> dict[str, Any]:
    """Return colour and line style for the entry of the legend at an index."""
    line = LINES[(place + place // len(COLOURS)) % len(LINES)]
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": line}


def _scale_greys(axes: Any, norm: str, curves: Sequence[Curve]) -> None:
    """Label linf radii as multiples of 1/255. If a radius of a run is not such a multiple, the labels stay decimal."""
    largest = max((float(curve.budgets.max()) for curve in curves), default=0.0)
    runs = [budget for curve in curves if curve.kind == "points" for budget in curve.budgets if budget > 0]
    if not all(format_radius(norm, float(budget)).endswith("/255") for budget in runs):
        return
    if norm != "linf" or largest <= 0:
        return
    levels = largest * 255
    step = next((each for each in (1, 2, 4, 8, 16, 32, 64) if levels / each <= 5.5), 64)
    ticks = np.arange(0, levels + step / 2, step)
    axes.set_xticks(ticks / 255, ["0", *(f"{round(level)}/255" for level in ticks[1:])])

"""Drawings of the report as inline SVG. They have selectable text, the page's colours, and tooltips on points.

Matplotlib is used instead of Vega, because a line chart takes 29 KB of SVG (before shortening) and needs no script.
With inlined Vega, the chart takes 907 KB and is blank if scripts are disabled.
"""

import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from html import escape
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from ...errors import MissingLibrary
from ...scoring.plots import plot_item_map
from ...scoring.ranking import Ranking
from .blocks import Figure

# Placeholders for the page's CSS variables, so that one drawing serves light and dark mode.
_INK, _FAINT, _PAPER = "#010101", "#020202", "#030303"
SERIES = tuple(f"#0a0a{place:02x}" for place in range(16, 24))
_WHOLE = 4.9  # inches of every drawing: legible on a phone, two side by side on a desktop
_LABELLED = 7  # most lines that are labelled at their ends
_MARKERS = "osD^vPX*"
_BESIDE = (  # places of a point's name in points, and the side of the name that is there, the first free one is used
    (0, 9, "center"), (0, -9, "center"), (7, 0, "left"), (-7, 0, "right"),
    (0, 9, "left"), (0, 9, "right"), (0, -9, "left"), (0, -9, "right"), (0, 19, "center"), (0, -19, "center"),
    (0, 19, "right"), (0, -19, "right"),
)  # fmt: skip
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)), (0, (3, 2)), (0, (8, 2)), (0, (1, 1)))
_VARIABLES: Mapping[str, str] = {
    _INK: "var(--ink)",
    _FAINT: "var(--faint)",
    _PAPER: "var(--paper)",
    **{colour: f"var(--series-{place})" for place, colour in enumerate(SERIES)},
}


class Line(NamedTuple):
    """Curve in a drawing: steps with a band, or separate points with intervals if `steps` is False.

    `low` and `high` are the bounds of the intervals of the values `y`. `series` is a number that selects the colour.
    `dash` is a number that selects the line style or the marker.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    steps: bool = True
    series: int = 0
    dash: int = 0


class LabelledPoint(NamedTuple):
    """Point with a name in a drawing. `series` selects the colour. If `best` is True, the point is filled."""

    label: str
    x: float
    y: float
    series: int = 0
    best: bool = False


class PointWithIntervals(NamedTuple):
    """Point with intervals in both directions. `x` and `y` are tuples of value, lower bound and upper bound."""

    label: str
    x: tuple[float, float, float]
    y: tuple[float, float, float]


def draw_item_map(name: str, ranking: Ranking, difficulties: Mapping[str, np.ndarray], *, caption: str) -> Figure:
    """Draw the abilities of the models, and the difficulties of each kind of item, on one axis."""
    ranking = replace(ranking, subjects=tuple(map(_short, ranking.subjects)))
    difficulties = {_short(kind): values for kind, values in difficulties.items()}
    rows, labels = len(ranking.subjects) + len(difficulties) + 0.5, (*ranking.subjects, *difficulties)
    left = 0.25 + 0.085 * max(map(len, labels))
    with _axes(_WHOLE + 0.4 - left, 0.2 + 0.3 * rows, left=left) as (figure, axes):
        tips = plot_item_map(axes, ranking, difficulties, name=name)
        return Figure(name, _to_svg(figure, name, caption, tips), caption)


def draw_curves(
    name: str,
    lines: Sequence[Line],
    *,
    x_axis: str,
    y_axis: str = "robust accuracy",
    caption: str,
    log: bool = False,
    shares: bool = True,
) -> Figure:
    """Draw curves of proportions, or of other numbers if `shares` is False, against a budget.

    Each curve is labelled at its right end. If there are more than `_LABELLED` curves, a legend is drawn instead.
    """
    lines = _above_zero(lines) if log else lines
    labelled, tips = len(lines) <= _LABELLED, {}
    legend = 0.0 if labelled else _legend_height(len(lines))
    right = 0.2 + 0.066 * max(len(_short(line.label)) for line in lines) if labelled else 0.2
    with _axes(_WHOLE - 0.65 - right, 2.3, below=0.55 + legend, right=right) as (figure, axes):
        for place, line in enumerate(lines):
            tips[f"{name}-{place}"] = line.label
            _draw_line(axes, line, f"{name}-{place}")
        if log:
            axes.set_xscale("log")
            few = 1.0 if any(line.steps for line in lines) else 1.4  # keep points off the edge
            axes.set_xlim(min(min(line.x) for line in lines) / few, max(max(line.x) for line in lines) * 1.1 * few)
            _plain_ticks(axes)
        axes.set_ylim(*((-0.02, 1.02) if shares else (0, None)))
        axes.set_xlabel(x_axis)
        axes.set_ylabel(y_axis)
        axes.grid()
        if labelled:
            _label_ends(axes, lines)
        else:
            _add_legend(figure)
        return Figure(name, _to_svg(figure, name, caption, tips), caption)


def _draw_line(axes: Any, line: Line, tip: str) -> None:
    colour, style = SERIES[line.series % len(SERIES)], _DASHES[line.dash % len(_DASHES)]
    look: dict[str, Any] = {"drawstyle": "steps-post", "linestyle": style, "linewidth": 1.8}
    if line.steps:
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.13, step="post", linewidth=0)
    else:
        look = {"marker": _MARKERS[line.dash % 8], "linestyle": "none"}
        axes.vlines(line.x, line.low, line.high, color=colour, alpha=0.5, linewidth=1.8)
    axes.plot(line.x, line.y, color=colour, label=line.label, gid=tip, **look)


def _above_zero(lines: Sequence[Line]) -> list[Line]:
    """Prepare curves for a logarithmic axis. Steps begin left of the first budget, and points at 0 are removed."""
    first = min((x for line in lines for x in line.x if x > 0), default=1.0) / 1.3
    shown = []
    for line in lines:
        places = [place for place, x in enumerate(line.x) if x > 0 or line.steps]
        columns = ([column[place] for place in places] for column in (line.y, line.low, line.high))
        y, low, high = columns
        shown.append(line._replace(x=[max(line.x[place], first) for place in places], y=y, low=low, high=high))
    return [line for line in shown if line.x]


def _label_ends(axes: Any, lines: Sequence[Line]) -> None:
    """Write the name of each curve at its right end. Names that would overlap are moved apart."""
    to_axes = (axes.transData + axes.transAxes.inverted()).transform
    ends = [(line, to_axes((line.x[-1], line.y[-1]))) for line in lines]
    ends.sort(key=lambda each: -each[1][1])
    gap = 0.062
    heights = [min(max(float(end[1]), 0.0), 1.0) for _, end in ends]
    for place in range(1, len(heights)):
        heights[place] = min(heights[place], heights[place - 1] - gap)
    for place in reversed(range(len(heights))):  # labels below the axis push the others up
        heights[place] = max(heights[place], gap * (len(heights) - 1 - place) - 0.02)
    for (line, end), height in zip(ends, heights, strict=True):
        colour = SERIES[line.series % len(SERIES)]
        run = {"transform": axes.transAxes, "color": _FAINT, "linewidth": 0.8, "linestyle": (0, (1, 2))}
        axes.plot([min(float(end[0]), 1.0), 1.025], [float(end[1]), height], clip_on=False, **run)
        place = {"transform": axes.transAxes, "va": "center", "fontsize": 8.5, "color": colour}
        axes.text(1.035, height, _short(line.label), **place)


def _short(name: str, most: int = 25) -> str:
    """Shorten a name to `most` characters by omitting its middle."""
    half = (most - 1) // 2
    return name if len(name) <= most else f"{name[:half]}\N{HORIZONTAL ELLIPSIS}{name[-half:]}"


def draw_dots(
    name: str, dots: Sequence[LabelledPoint], series: Sequence[str], *, x_axis: str, y_axis: str, caption: str
) -> Figure:
    """Draw named points. The best points are filled and connected. The legend lists the names in `series`."""
    tips: dict[str, str] = {}
    with _axes(_WHOLE - 0.85, 2.3, below=0.55 + _legend_height(len(series))) as (figure, axes):
        front = sorted((dot.x, dot.y) for dot in dots if dot.best)
        axes.step([x for x, _ in front], [y for _, y in front], where="post", color=_FAINT, linewidth=1, zorder=1)
        for place, dot in enumerate(dots):
            tip = f"{name}-{place}"
            tips[tip] = f"{dot.label}: {dot.x:.3g}, {dot.y:.3g}{', on the front' if dot.best else ''}"
            face = SERIES[dot.series % len(SERIES)]
            axes.plot(
                [dot.x],
                [dot.y],
                _MARKERS[dot.series % len(_MARKERS)],
                color=face,
                markerfacecolor=face if dot.best else _PAPER,
                markersize=8,
                gid=tip,
            )
        for place, label in enumerate(series):
            axes.plot([], [], _MARKERS[place % len(_MARKERS)], color=SERIES[place % len(SERIES)], label=label)
        _add_legend(figure)
        axes.set_xscale("log")
        axes.set_xlim(min(dot.x for dot in dots) / 1.3, max(dot.x for dot in dots) * 1.3)
        _plain_ticks(axes)
        axes.set_ylim(-0.06, 1.1)
        axes.set_xlabel(x_axis)
        axes.set_ylabel(y_axis)
        axes.grid()
        _name_dots(axes, dots)
        return Figure(name, _to_svg(figure, name, caption, tips), caption)


def _name_dots(axes: Any, dots: Sequence[LabelledPoint]) -> None:
    """Write names next to the points where there is space, the best points first. All points have tooltips."""
    point = axes.get_figure().dpi / 72
    places = {dot: axes.transData.transform((dot.x, dot.y)) / point for dot in dots}
    (left, below), (right, above) = axes.transAxes.transform([(0, 0), (1, 1)]) / point
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in places.values()]
    front = sorted(tuple(map(float, places[dot])) for dot in dots if dot.best)  # its line is a step after each point
    for (x, y), (right_x, next_y) in pairwise(front):
        taken += [(x, y - 1, right_x, y + 1), (right_x - 1, min(y, next_y), right_x + 1, max(y, next_y))]
    alike = Counter((dot.x, dot.y) for dot in places)
    for dot in sorted(places, key=lambda each: not each.best):
        others = alike.pop((dot.x, dot.y), 0) - 1
        if others < 0:  # already labelled with another point at the same position
            continue
        label = f"{dot.label} and {others} more" if others else dot.label
        (x, y), width = places[dot], 4.6 * len(label)
        for dx, dy, side in _BESIDE:
            start = x + dx - {"left": 0, "right": width, "center": width / 2}[side]
            box = (start, y + dy - 5, start + width, y + dy + 5)
            outside = box[0] < left or box[2] > right or box[1] < below or box[3] > above
            if not outside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                look = {"ha": side, "va": "center", "fontsize": 8, "textcoords": "offset points"}
                axes.annotate(label, (dot.x, dot.y), (dx, dy), **look)
                break


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def draw_crosses(name: str, crosses: Sequence[PointWithIntervals], *, x_axis: str, y_axis: str, caption: str) -> Figure:
    """Draw points with intervals in both directions. The legend has their names, and both axes run from 0 to 1."""
    tips: dict[str, str] = {}
    with _axes(_WHOLE - 0.85, 2.4, below=0.55 + 0.1 + 0.21 * len(crosses)) as (figure, axes):
        for place, cross in enumerate(crosses):
            colour, tip = SERIES[place % len(SERIES)], f"{name}-{place}"
            (x, left, right), (y, low, high) = cross.x, cross.y
            axes.plot([left, right], [y, y], color=colour, linewidth=3, alpha=0.35, solid_capstyle="round")
            axes.plot([x, x], [low, high], color=colour, linewidth=3, alpha=0.35, solid_capstyle="round")
            look: dict[str, Any] = {"linestyle": "none", "marker": _MARKERS[place % len(_MARKERS)], "markersize": 8}
            axes.plot([x], [y], color=colour, label=cross.label, gid=tip, **look)
            ends = f"{left:.3g} to {right:.3g}", f"{low:.3g} to {high:.3g}"
            tips[tip] = f"{cross.label}: {x_axis} {x:.3g} ({ends[0]}), {y_axis} {y:.3g} ({ends[1]})"
        axes.set_xlim(-0.03, 1.03)
        axes.set_ylim(-0.03, 1.03)
        axes.set_xlabel(x_axis)
        axes.set_ylabel(y_axis)
        axes.grid()
        _add_legend(figure, columns=1)
        return Figure(name, _to_svg(figure, name, caption, tips), caption)


def draw_counts(name: str, counts: Sequence[int], *, x_axis: str, y_axis: str, caption: str) -> Figure:
    """Draw a bar for each count. The horizontal axis has the index of the count."""
    tips = {}
    with _axes(_WHOLE - 0.85, 1.7) as (figure, axes):
        for place, count in enumerate(counts):
            tip = f"{name}-{place}"
            axes.bar([place], [count], color=SERIES[0], width=0.8)[0].set_gid(tip)
            tips[tip] = f"{place}: {count}"
        axes.set_xlabel(x_axis)
        axes.set_ylabel(y_axis)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="y")
        return Figure(name, _to_svg(figure, name, caption, tips), caption)


@contextmanager
def _axes(
    width: float, height: float, *, left: float = 0.65, below: float = 0.55, right: float = 0.2
) -> Iterator[tuple[Any, Any]]:
    try:
        from cycler import cycler
        from matplotlib import rc_context
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise MissingLibrary("matplotlib", "plot") from error
    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "davylamp",
        "font.family": "DejaVu Sans",  # Matplotlib's own; font lists are searched for every text
        "path.simplify_threshold": 0.5,
        "font.size": 10,
        "text.parse_math": False,  # a name with two dollar signs is a name
        "text.color": _INK,
        "axes.prop_cycle": cycler(color=SERIES),
        "axes.edgecolor": _FAINT,
        "axes.labelcolor": _INK,
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.color": _FAINT,
        "grid.alpha": 0.35,
        "grid.linewidth": 0.6,
        "xtick.color": _INK,
        "ytick.color": _INK,
    }
    with rc_context(style):
        size = left + width + right, below + height + 0.15
        figure = Canvas(figsize=size)
        yield figure, figure.add_axes((left / size[0], below / size[1], width / size[0], height / size[1]))


def _legend_height(entries: int) -> float:
    return 0.1 + 0.21 * -(-entries // 2)


def _add_legend(figure: Any, columns: int = 2) -> None:
    left = figure.axes[0].get_position().x0
    figure.legend(loc="lower left", bbox_to_anchor=(left, 0), ncols=columns, frameon=False, fontsize=9, borderaxespad=0)


def _plain_ticks(axes: Any) -> None:
    """Label the ticks of a logarithmic axis 1, 2, 5, 10 instead of powers of ten.

    Matplotlib writes powers as formulas, and would then also read names with two "$" as formulas.
    """
    from matplotlib.ticker import FixedLocator, NullLocator

    low, high = axes.get_xlim()
    steps = [digit * 10.0**power for power in range(-3, 9) for digit in (1, 2, 5)]
    inside = [step for step in (0.0, *steps) if low <= step <= high]
    width = axes.get_window_extent().width / axes.get_figure().dpi * 72  # points
    needed = sum(6.4 * len(f"{step:g}") + 6 for step in inside)  # of a digit of 10 points, and a gap
    shown = inside if needed <= width else [step for step in inside if f"{step:e}"[0] in "01"]
    if len(shown) < 2:
        shown = [float(f"{low + share * (high - low):.2g}") for share in (0.2, 0.5, 0.8)]
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _to_svg(figure: Any, name: str, caption: str, tips: Mapping[str, str]) -> Markup:
    """Return a drawing as SVG for the page, with the page's colours, a description, and tooltips."""
    file = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for stand_in, variable in _VARIABLES.items():
        text = text.replace(stand_in, variable)
    used = set(re.findall(r"(?:url\(|href=\")#([^)\"]+)", text))
    kept = used | set(tips)
    text = re.sub(r' id="([^"]+)"', lambda match: match[0] if match[1] in kept else "", text)
    for key in used:
        text = text.replace(f'"{key}"', f'"{name}-{key}"').replace(f"#{key}", f"#{name}-{key}")
    for key, tip in tips.items():
        text = text.replace(f' id="{key}">', f' class="tip"><title>{escape(tip)}</title>')
    text = re.sub(r"<!--.*?-->|<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r"font-family: [^\"]*?; ", "", text)
    text = re.sub(r'="[^"]*"', lambda match: re.sub(r"(\d\.\d\d)\d+", r"\1", match[0]), text)
    text = re.sub(r">\s+<", "><", text)
    width, height = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)[0]
    box = f'viewBox="0 0 {width} {height}" style="--width: {width}"'
    body = text[text.index(">") + 1 :]
    label = escape(caption, quote=True)
    return Markup(f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" {box}>{body}')

"""Drawings as inline SVG by Matplotlib: text stays text, colours are those of the page, points say what they are.

Matplotlib rather than Vega: measured on the same line chart, 29 KB of SVG that shows without a script (before it is
shortened here) against 907 KB for Vega inlined once, which is blank without one.
"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from ...errors import MissingLibrary
from ...scoring.plots import plot_item_map
from ...scoring.ranking import Ranking
from .blocks import Figure

# Stand-ins for the page's variables: a drawing is made once and is right in light and in dark.
_INK, _FAINT, _PAPER = "#010101", "#020202", "#030303"
SERIES = tuple(f"#0a0a{place:02x}" for place in range(16, 24))
_MARKERS = "osD^vPX*"
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)), (0, (3, 2)), (0, (8, 2)), (0, (1, 1)))
_VARIABLES: Mapping[str, str] = {
    _INK: "var(--ink)",
    _FAINT: "var(--faint)",
    _PAPER: "var(--paper)",
    **{colour: f"var(--series-{place})" for place, colour in enumerate(SERIES)},
}


class Line(NamedTuple):
    """A curve with its band if `steps`, which changes only at its points; else points, and nothing known between.

    `series` and `dash` say what it looks like.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    steps: bool = True
    series: int = 0
    dash: int = 0


class Dot(NamedTuple):
    """A point with a name."""

    label: str
    x: float
    y: float
    series: int = 0
    best: bool = False


class Cross(NamedTuple):
    """A point with an interval in both directions: value, low, high of each."""

    label: str
    x: tuple[float, float, float]
    y: tuple[float, float, float]


def draw_item_map(name: str, ranking: Ranking, difficulties: Mapping[str, np.ndarray], *, caption: str) -> Figure:
    """Abilities and the difficulties of the items of each kind, on one axis."""
    rows, labels = len(ranking.subjects) + len(difficulties) + 0.5, (*ranking.subjects, *difficulties)
    with _axes(5.6, 0.2 + 0.3 * rows, left=0.25 + 0.085 * max(map(len, labels))) as (figure, axes):
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
    """Shares between 0 and 1, or other numbers, against a budget: steps with bands, points with intervals, a legend."""
    tips: dict[str, str] = {}
    with _axes(6.0, 3.2, below=0.55 + _legend_height(len(lines))) as (figure, axes):
        for place, line in enumerate(lines):
            colour, style = SERIES[line.series % len(SERIES)], _DASHES[line.dash % len(_DASHES)]
            tip = f"{name}-{place}"
            look: dict[str, Any] = {"drawstyle": "steps-post", "linestyle": style, "linewidth": 1.8}
            if line.steps:
                axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.13, step="post", linewidth=0)
            else:
                look = {"marker": _MARKERS[line.dash % 8], "linestyle": "none"}
                axes.vlines(line.x, line.low, line.high, color=colour, alpha=0.5, linewidth=1.8)
            axes.plot(line.x, line.y, color=colour, label=line.label, gid=tip, **look)
            tips[tip] = line.label
        if log:
            axes.set_xscale("symlog", linthresh=1)
            axes.set_xlim(0, max(max(line.x) for line in lines) * 1.1)
            _plain_ticks(axes)
        axes.set_ylim(*((-0.02, 1.02) if shares else (0, None)))
        axes.set_xlabel(x_axis)
        axes.set_ylabel(y_axis)
        axes.grid()
        _add_legend(figure)
        return Figure(name, _to_svg(figure, name, caption, tips), caption)


def draw_dots(
    name: str, dots: Sequence[Dot], series: Sequence[str], *, x_axis: str, y_axis: str, caption: str
) -> Figure:
    """Points with names; `series` are named by the legend; the best points are filled and joined by a line."""
    tips: dict[str, str] = {}
    with _axes(6.0, 3.0, below=0.55 + _legend_height(len(series))) as (figure, axes):
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
        axes.set_ylim(-0.04, 1.06)
        axes.set_xlabel(x_axis)
        axes.set_ylabel(y_axis)
        axes.grid()
        return Figure(name, _to_svg(figure, name, caption, tips), caption)


def draw_crosses(name: str, crosses: Sequence[Cross], *, x_axis: str, y_axis: str, caption: str) -> Figure:
    """Points with intervals in both directions, each named by the legend; both axes run from 0 to 1."""
    tips: dict[str, str] = {}
    with _axes(4.4, 3.4, below=0.55 + 0.1 + 0.21 * len(crosses)) as (figure, axes):
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
    """A bar for each count, from 0 upwards."""
    tips = {}
    with _axes(6.0, 1.9) as (figure, axes):
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
    """A canvas whose axes are of this size, with room beside and below, in inches; `tight` would draw it twice."""
    try:
        from cycler import cycler
        from matplotlib import rc_context
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise MissingLibrary("matplotlib", "plot") from error
    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "davylamp",
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
    """1, 2, 5, 10 instead of powers: their labels are formulas, and a name with two dollar signs must stay a name."""
    from matplotlib.ticker import FixedLocator, NullLocator

    low, high = axes.get_xlim()
    steps = [digit * 10.0**power for power in range(-3, 9) for digit in (1, 2, 5)]
    inside = [step for step in (0.0, *steps) if low <= step <= high]
    shown = inside if len(inside) <= 9 else [step for step in inside if f"{step:e}"[0] in "01"]
    if len(shown) < 2:
        shown = [float(f"{low + share * (high - low):.2g}") for share in (0.2, 0.5, 0.8)]
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _to_svg(figure: Any, name: str, caption: str, tips: Mapping[str, str]) -> Markup:
    """The drawing with the page's colours, a description, and what is under the pointer said."""
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

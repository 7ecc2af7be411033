"""Section with curves of accuracy against radius and queries, with confidence bands and summary statistics."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ...adapters.display_text import format_radius
from ...engine.tables.budget_curves import Curve, Curves
from ...engine.tables.distance_curves import DistanceCurve, DistanceCurves
from ..parts.blocks import Collapsible, Column, PageTable, Panels, Section, TableCell, Text, entry, list_table
from ..parts.figures import Line, draw_curves

AnyCurve = TypeVar("AnyCurve", Curve, DistanceCurve)
_DRAWN = 8  # drawings of each kind
_LINES = 7  # most models in one drawing
_PLAIN = "pixel range"
_WHAT: Mapping[str, str] = {
    "epsilon": "from distances of minimum-norm attacks, or one point for each evaluated radius",
    "queries": "forward plus backward queries until the attack on an image ended, which may be more than it needed; "
    "an attack with the same number on every image is one point",
}


def write_curves(
    epsilon: Curves | None,
    queries: Curves | None,
    distances: DistanceCurves | None = None,
    *,
    order: Sequence[str] = (),
) -> Section | None:
    """Build the section with curves of accuracy and distance.

    Args:
        epsilon: curves of accuracy against the radius. None if there are no such curves.
        queries: curves of accuracy against the number of queries. None if there are no such curves.
        distances: curves of median distance against the number of queries. None if there are no such curves.
        order: names of the models. Only the first models are drawn if there are too many.

    Returns:
        The section, or None if there are no curves.
    """
    blocks: list[Any] = []
    if epsilon is not None:
        blocks += _panels(_figures(epsilon, order), epsilon.against)
        blocks.append(Collapsible("Accuracy against epsilon, and half distortions, in numbers", (_table(epsilon),)))
    if queries is not None:
        drawings = _panels(_figures(queries, order), queries.against, shown=4)
        blocks.append(Collapsible("Accuracy against queries", (*drawings, _table(queries))))
    if distances is not None:
        drawings = _panels(_distance_figures(distances, order), "queries", shown=4)
        blocks.append(Collapsible("Median distance against queries", (*drawings, _distance_table(distances))))
    lead = (
        "Robust accuracy as the budget grows; bands and bars are 95 % intervals over the images. Points mark where an "
        "attack was run; accuracy between them was not measured."
    )
    return Section("curves", "Curves", lead, tuple(blocks)) if blocks else None


def _panels(jobs: Sequence[Callable[[], Any]], against: str, *, shown: int = 2) -> list[Any]:
    """Return the first `_DRAWN` drawings side by side, and a note on the number of drawings if there are more.

    With all drawings, the page of a folder with 40 models would be too large.
    """
    if not jobs:
        return []
    drawn = tuple(draw() for draw in jobs[:_DRAWN])
    blocks: list[Any] = [Panels(drawn, shown, f"More drawings against {against} ({{}})")]
    if len(jobs) > _DRAWN:
        text = f"The first {_DRAWN} of {len(jobs)} are drawn, the most robust models first; the table has all."
        blocks.append(Text(text, "note"))
    return blocks


def _figures(curves: Curves, order: Sequence[str]) -> list[Callable[[], Any]]:
    log = curves.against == "queries"
    drawn = [
        curve
        for curve in curves.curves
        if len(curve.budgets) > (1 if curve.kind == "distances" or log else 2)  # a single radius is not a curve
        and not (log and curve.kind == "points" and not curve.budgets.any())  # transfer needs no queries to the model
    ]
    panels, line_name = _by_panel(drawn, order)
    names = list(dict.fromkeys(map(line_name, drawn)))
    jobs = []
    for place, ((norm, title), in_panel) in enumerate(panels.items()):
        unit = curves.unit.get(norm, "")
        levels = norm == "linf" and unit == _PLAIN
        lines = [
            _line(curve, line_name(curve), names.index(line_name(curve)), scale=255 if levels else 1)
            for curve in in_panel
        ]
        caption = f"{title}: accuracy against {curves.against}{f' ({norm})' if norm else ''}"
        axis = f"{curves.against}{f', {unit}' if unit else ''}"
        axis = "linf radius, in 1/255" if levels else "queries per image" if log else axis
        name = f"curve-{curves.against}-{place}"
        jobs.append(partial(draw_curves, name, lines, x_axis=axis, caption=caption, log=log))
    return jobs


def _by_panel(
    curves: Sequence[AnyCurve], order: Sequence[str]
) -> tuple[dict[tuple[str, str], list[AnyCurve]], Callable[[AnyCurve], str]]:
    """Group curves into the panels of a figure.

    A panel has the curves of one norm and model. If there are few models and fewer attacks than models, a panel has the
    curves of one norm and attack.

    Returns:
        The curves by norm and panel title, with models in the given order, and a function that returns the name of a
        curve within its panel.
    """
    ranks = {model: rank for rank, model in enumerate(order)}
    models, attacks = {curve.labels["model"] for curve in curves}, {_short_name(curve) for curve in curves}
    by_attack = len(attacks) < len(models) <= _LINES
    panels: dict[tuple[str, str], list[AnyCurve]] = {}
    for curve in sorted(curves, key=lambda each: ranks.get(each.labels["model"], len(ranks))):
        title = _short_name(curve) if by_attack else curve.labels["model"]
        panels.setdefault((curve.labels["norm"], title), []).append(curve)
    return panels, (lambda curve: curve.labels["model"]) if by_attack else _short_name


def _distance_figures(curves: DistanceCurves, order: Sequence[str]) -> list[Callable[[], Any]]:
    panels, line_name = _by_panel(curves.curves, order)
    names = list(dict.fromkeys(map(line_name, curves.curves)))
    jobs = []
    for place, ((norm, title), in_panel) in enumerate(panels.items()):
        lines = []
        for curve in in_panel:
            known = np.isfinite(curve.median)
            if not known.any():
                continue
            ends = [np.where(np.isfinite(each), each, curve.median)[known].tolist() for each in (curve.low, curve.high)]
            name, x, y = line_name(curve), curve.passes[known].tolist(), curve.median[known].tolist()
            lines.append(Line(name, x, y, *ends, series=names.index(name), dash=names.index(name)))
        if lines:
            unit = "l2" if norm == "unrestricted" else norm
            words = {"x_axis": "queries per image", "y_axis": f"median distance, {unit}", "log": True}
            images = f"{in_panel[0].n} images" if len({curve.n for curve in in_panel}) == 1 else "images"
            caption = f"{title}: median distance of the nearest adversarial point against queries ({norm}, {images})"
            jobs.append(partial(draw_curves, f"curve-passes-{place}", lines, caption=caption, shares=False, **words))
    return jobs


def _distance_table(curves: DistanceCurves) -> PageTable:
    def median(curve: DistanceCurve, passes: int) -> float:
        place = curve.at(min(passes, int(curve.passes[-1])))
        return math.inf if place is None else float(curve.median[place])

    columns = [
        ("model", lambda curve: curve.labels["model"]),
        ("attack", _name),
        ("images", lambda curve: curve.n),
        ("fooled", lambda curve: float(curve.fooled[-1])),
        *((f"after {passes}", partial(median, passes=passes)) for passes in curves.shown),
    ]
    note = (
        "Median over all attacked images of the distance of the nearest point that fooled the model, whether or not it "
        "was returned; infinite if fewer than half have one. Bands are 95 % intervals of order statistics. An "
        f"attack that ended earlier keeps its last value. {' '.join(curves.notes)}"
    )
    return list_table("curves-passes", "Median distance against queries", curves.curves, columns, note=note.strip())


def _line(curve: Curve, name: str, place: int, *, scale: float) -> Line:
    x, *rest = curve.budgets * scale, curve.accuracy, curve.low, curve.high
    if curve.kind == "distances":  # only at changes
        moves = np.any([np.diff(values, prepend=math.nan) != 0 for values in rest], axis=0)
        moves[[0, -1]] = True
        x, rest = x[moves], [values[moves] for values in rest]
    return Line(
        name,
        *(column.tolist() for column in (x, *rest)),
        steps=curve.kind == "distances",
        series=place,
        dash=place,
    )


def _table(curves: Curves) -> PageTable:
    half = (
        "D_half: the radius at which an exponential fitted to the curve has halved; extrapolated if fewer than "
        "half of the images were fooled, or if it is beyond the radius that was run"
    )
    empirical = "smallest radius at which half of the images that are correct when clean are fooled"
    best = "local optimality: 1 for an attack that is the best of the folder on every image"
    columns: list[tuple[str | Column, Callable[[Any], Any]]] = [
        ("model", lambda curve: curve.labels["model"]),
        ("attack", _name),
        ("images", lambda curve: curve.n),
        ("clean accuracy", lambda curve: float(curve.accuracy[0])),
        ("accuracy at the largest budget", lambda curve: float(curve.accuracy[-1])),
    ]
    if curves.against == "epsilon":
        columns += [
            (Column("half distortion", half), _half_distortion),
            (
                Column("R2", "coefficient of determination of the exponential fitted for D_half"),
                lambda curve: curve.r_squared,
            ),
            (Column("empirical half", empirical), lambda curve: curve.empirical_half),
            (Column("OPT", best), lambda curve: curve.optimality),
        ]
    else:
        half_at = Column("half at", "queries at which the accuracy has halved")
        columns.append((half_at, lambda curve: curve.empirical_half))
    notes = " ".join((f"Budgets: {_WHAT[curves.against]}.", *curves.notes))
    name, caption = f"curves-{curves.against}", f"Accuracy against {curves.against}"
    return list_table(name, caption, curves.curves, columns, note=notes)


def _half_distortion(curve: Curve) -> TableCell:
    half = entry(curve.half_distortion)
    return half._replace(text=f"{half.text} extrapolated") if curve.is_extrapolated else half


def _short_name(curve: Curve | DistanceCurve) -> str:
    """Return the name of a curve without the norm, because the title of the drawing contains the norm."""
    return _name(curve).replace(f" {curve.labels['norm']}", "", 1)


def _name(curve: Curve | DistanceCurve) -> str:
    labels = curve.labels
    radius = "" if math.isnan(labels["epsilon"]) else f" {format_radius(labels['norm'], labels['epsilon'])}"
    parts: Sequence[str] = (f"{labels['implementation']} {labels['norm']}{radius}", labels["setting"])
    return ", ".join(part for part in parts if part)

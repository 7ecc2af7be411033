"""Accuracy against epsilon or queries, with the interval of each share, and the numbers that sum a curve up."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from ...adapters.threat_model import NORMS
from ...adapters.words import radius_text
from ...errors import InvalidInput, UnknownName, Unsupported
from ..at_once import map_at_once
from ..statistics.bootstrap import resample
from ..store.imported import Reference, envelopes_of, setting_of_reference
from ..store.outcomes import Outcomes, outcomes_of
from .curve_points import (
    Curve,
    Points,
    Run,
    comparable_key,
    draw_points,
    draw_reference,
    draw_run,
    grey_scale,
    make_cost_point,
    make_points,
    make_run,
    round_budgets,
)
from .groups import Group, group_cells, model_names
from .symbols import EXTRAPOLATED, best_distances_of

Against = Literal["epsilon", "grey-levels", "queries"]
_POINTS = 128  # of a drawn curve; the budgets of the table are added


@dataclass(frozen=True, eq=False)
class Curves:
    """Curves of a folder.

    Args:
        against: what the budgets are.
        unit: of the budgets, by norm.
        shown: round budgets, by norm, at which every "distances" curve of it has a value: those of a table.
        curves: ordered by norm, model, attack.
        notes: a line for everything that is not in the numbers.
    """

    against: Against
    unit: Mapping[str, str]
    shown: Mapping[str, tuple[float, ...]]
    curves: tuple[Curve, ...]
    notes: tuple[str, ...]


def build_curves(
    folder: str | Path | Outcomes,
    *,
    against: Against = "epsilon",
    norm: str | None = None,
    models: Sequence[str] | None = None,
    budgets: Sequence[float] | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
) -> Curves:
    """Accuracy curves of a results folder.

    Against epsilon: from the distances of minimum-norm attacks and of `best(...)` searches; fixed-budget attacks give a
    point for each epsilon that they were run at (step sizes relative to it are one setting), and nothing is said about
    radii between. Against queries: an image falls at the forward plus backward passes that the attack had spent on it
    when it ended, if it succeeded; an attack that spends the same on every image gives a point at that cost. An image
    that is wrong when clean falls at 0, a failure at no budget. A violation proves nothing: as in robust accuracy, such
    an image is not right at any budget above 0, which a note says. Repeats with other seeds are averaged.

    Args:
        folder: a results folder, or what was read of it.
        against: "epsilon", "queries", or "grey-levels": epsilon in RoBIC's unit, linf times 255 and l2 as the root mean
            square change times 255.
        norm: only this one.
        models: only these.
        budgets: those of the table, >= 0; None: round numbers, for linf of grey levels.
        bootstrap: replicates, over images; 0: no bands.
        seed: of the resampling.

    Raises:
        UnknownName: if there is no such norm, or no such model in the folder.
        InvalidInput: if a budget is negative, or `against` is neither.
        Unsupported: if a norm has no grey levels, or the folder has nothing of the norm.
        Unavailable: if there is no such folder, or no finished cell in it.
    """
    if against not in get_args(Against):
        raise InvalidInput(f"expected against as {', '.join(get_args(Against))}, got {against!r}")
    if any(not budget >= 0 for budget in budgets or ()):
        raise InvalidInput(f"expected budgets >= 0, got {', '.join(map(str, budgets or ()))}")
    queries, grey = against == "queries", against == "grey-levels"
    outcomes = outcomes_of(folder)
    groups = _choose(outcomes, norm, models)
    best = None if queries else best_distances_of(outcomes.done)
    envelopes = envelopes_of(outcomes.references)
    counts = lru_cache(maxsize=None)(lambda images: resample(images, bootstrap, seed))
    curves: list[Curve] = []
    notes: list[str] = []
    shown: dict[str, tuple[float, ...]] = {}
    for name, members in groupby(groups, key=lambda group: group.labels["norm"]):
        runs, points = _split([*members], queries=queries, grey=grey)
        top = _top(runs, points)
        imported = [] if queries else _imported(runs, outcomes.references, name, grey=grey)
        shown[name] = tuple(sorted({0.0, *map(float, budgets or _round(top, name, against, groups))}))
        grid = _grid(top, (*shown[name], *_budgets_run(points)), log=queries)
        curves += map_at_once(lambda run, grid=grid: draw_run(run, grid, counts, best, envelopes), runs)
        curves += map_at_once(lambda each: draw_points(each, counts), points)
        for reference, model, scale in imported:
            setting = setting_of_reference(reference, outcomes.references)
            curves.append(draw_reference(reference, model, setting, grid, counts, scale))
        notes += _limits(runs)
    unit = {name: _unit(name, queries=queries, grey=grey) for name in shown}
    notes = [*_targeted(curves), *_violations(curves), *notes, *outcomes.notes, *extrapolated_halves(curves)]
    return Curves(against, unit, shown, tuple(curves), tuple(notes))


def extrapolated_halves(curves: Sequence[Curve]) -> list[str]:
    """A note on half distortions that lie beyond what was measured."""
    beyond = [
        f"{curve.labels['implementation']} on {curve.labels['model']}" for curve in curves if curve.is_extrapolated
    ]
    return [f"{EXTRAPOLATED} (half at - or inf): {'; '.join(dict.fromkeys(beyond))}"] if beyond else []


def _round(top: float, norm: str, against: Against, groups: Sequence[Group]) -> list[float]:
    """Round budgets up to the largest: of linf so many 255ths, if its radii are written so."""
    radii = [group.labels["epsilon"] for group in groups if group.labels["norm"] == norm == "linf"]
    written = [radius_text(norm, radius) for radius in radii if radius and math.isfinite(radius)]
    if norm != "linf" or against != "epsilon" or not all(text.endswith("/255") for text in written):
        return list(round_budgets(top, log=against == "queries"))
    return [level / 255 for level in round_budgets(round(top * 255, 9), log=False)]


def _grid(top: float, budgets: Sequence[float], *, log: bool) -> np.ndarray:
    """Budgets from 0 or 1 up to `top` that a curve is drawn at, and those given, (G,), rising."""
    fine = np.geomspace(1, max(top, 1), _POINTS).round() if log else np.linspace(0, top, _POINTS + 1)
    return np.unique(np.concatenate([fine, budgets]))


def _budgets_run(points: Sequence[Points]) -> list[float]:
    return [budget for each in points for budget, _ in each.runs]


def _split(groups: Sequence[Group], *, queries: bool, grey: bool) -> tuple[list[Run], list[Points]]:
    """Attacks that say at which budget each image falls, and those that only say what fell at the budgets run."""
    if queries:
        points = {id(group): make_cost_point(group) for group in groups}
        runs = [make_run(group, queries=True, grey=grey) for group in groups if points[id(group)] is None]
        return runs, [each for each in points.values() if each is not None]
    steps = [group for group in groups if group.parts[0][0].is_minimum]
    runs = [make_run(group, queries=False, grey=grey) for group in steps]
    return runs, make_points([group for group in groups if group not in steps], grey=grey)


def _imported(
    runs: Sequence[Run], references: Sequence[Reference], norm: str, *, grey: bool
) -> list[tuple[Reference, str, float]]:
    """The imported rows that stand beside one of our curves, with their model's name and the scale of its budgets."""
    beside = {}
    for run in runs:
        beside.setdefault(comparable_key(run.repeats[0]), (run.labels["model"], grey_scale(run.repeats[0], grey=grey)))
    return [
        (each, *beside[each.subject.key, norm])
        for each in references
        if each.norm == norm and (each.subject.key, norm) in beside
    ]


def _targeted(curves: Sequence[Curve]) -> list[str]:
    """A line where some curve is of a targeted attack, which leaves an image alone that it only makes wrong."""
    line = "of targeted attacks accuracy is the share of images that are right when clean and not driven to the target"
    return [line] if any(curve.labels["targeted"] for curve in curves) else []


def _violations(curves: Sequence[Curve]) -> list[str]:
    """A line for each curve with images that are neither fooled nor robust."""
    return [
        f"{curve.labels['implementation']} on {curve.labels['model']}: {curve.labels['violations']} violations "
        "count neither as fooled nor as robust: they lower the accuracy at every budget above 0, not its upper ends"
        for curve in curves
        if curve.labels["violations"] and curve.judged
    ]


def _limits(runs: Sequence[Run]) -> list[str]:
    """A line for each search that did not look up to the largest change."""
    return [
        f"{run.labels['implementation']} on {run.labels['model']}: not searched beyond {run.limit:.4g} for every image "
        "that was not fooled"
        for run in runs
        if not math.isinf(run.limit)
    ]


def _choose(outcomes: Outcomes, norm: str | None, models: Sequence[str] | None) -> list[Group]:
    """The attack x model rows that are asked for, one norm after the other."""
    if norm is not None and norm not in NORMS:
        raise UnknownName("norm", norm, NORMS)
    names = model_names(outcomes)
    for model in models or ():
        if model not in names.values():
            raise UnknownName("model", model, set(names.values()))
    groups = group_cells(replace(outcomes, failed=()), "pairs")
    chosen = [
        group
        for group in groups
        if norm in (None, group.labels["norm"]) and (not models or group.labels["model"] in models)
    ]
    if not chosen:
        have = ", ".join(sorted({group.labels["norm"] for group in groups})) or "no finished cell"
        raise Unsupported(f"nothing here to draw: the folder has {have}")
    return sorted(chosen, key=lambda group: NORMS.index(group.labels["norm"]))


def _top(runs: Sequence[Run], points: Sequence[Points]) -> float:
    """The largest budget at which anything happens."""
    falls = [float(budgets[np.isfinite(budgets)].max(initial=0)) for run in runs for budgets in run.falls]
    return max([*falls, *_budgets_run(points)], default=0.0)


def _unit(norm: str, *, queries: bool, grey: bool) -> str:
    if queries:
        return "forward and backward passes per image"
    if grey:
        return "grey levels" if norm == "linf" else "grey levels, root mean square"
    return {"l0": "components", "unrestricted": "l2, pixel range"}.get(norm, "pixel range")

"""Accuracy against epsilon or queries, with intervals, and summary statistics of each curve."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from os import PathLike
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
import torch

from ...adapters.display_text import format_radius
from ...adapters.result import radius_with_tolerance
from ...adapters.threat_model import NORMS
from ...errors import InvalidInput, UnknownName, Unsupported
from ...intervals import Proportion, clustered_interval, whole_shares
from ...metrics import empirical_half_distortion, half_distortion
from ..displayed import Displayed
from ..finding import Finding, note, sentences
from ..statistics.bootstrap import Estimate, draw_half_distortion, draw_optimality, interval
from ..store.imported import UNJUDGED, Reference, envelopes_of, setting_of_reference
from ..store.results import Results, RunResult, as_results, distinguishing_settings
from ..thread_map import thread_map
from .estimates import (
    EXTRAPOLATED,
    NOTHING,
    Counts,
    Nearest,
    comparison_key,
    estimate_share,
    grey_scale,
    is_extrapolated,
    nearest_distances,
    population_of,
    resamples,
)
from .groups import TableGroup, distinguishing_text, group_cells

Against = Literal["epsilon", "grey-levels", "queries"]
_LABELS = ("model", "implementation", "norm", "epsilon", "targeted", "setting", "images", "violations")
IMPORTED = "OPT of imported"  # statistic of curves shown with imported rows
_POINTS = 128  # points of a drawn curve, besides the budgets of the table


@dataclass(frozen=True, eq=False)
class Curve:
    """The accuracy of one model under one attack, by budget.

    Args:
        labels: `model`, `implementation`, `norm`, `epsilon` (NaN without a radius, or if the budget is epsilon),
            `targeted`, `setting` (distinguishes curves with equal labels), `images` (number of attacked images),
            `violations` (number of invalid results).
        kind: "distances" for a step curve from one run. "points" for a run at each budget; the accuracy between these
            budgets is unknown.
        budgets: shape (G,), ascending from 0.
        accuracy: rate of all images that remain correct within each budget, shape (G,). At budget 0, it is the clean
            accuracy.
        low: lower bound of the 95 % interval of the accuracy, shape (G,).
        high: upper bound of the 95 % interval of the accuracy, shape (G,).
        n: number of images.
        half_distortion: `metrics.half_distortion`, in the unit of the budgets. Only for "distances" against epsilon.
        r_squared: R squared of the exponential fit of the half distortion.
        empirical_half: `metrics.empirical_half_distortion`, in the unit of the budgets. Only for "distances".
        optimality: `metrics.local_optimality`. The reference is the smallest distance on each image over all attacks of
            the folder with the same model, norm and target. Only for "distances" against epsilon.
        reference_optimality: `metrics.local_optimality`. The reference is the smallest distance on each image over all
            imported attacks (`Results.references`). Above 1 if the attack finds smaller distances than all of them.
        judged: False for an imported attack, whose results were judged by a different program.
        is_extrapolated: whether the half distortion of a run of the curve is extrapolated
            (`estimates.is_extrapolated`).
    """

    labels: Mapping[str, Any]
    kind: Literal["distances", "points"]
    budgets: np.ndarray
    accuracy: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: int
    half_distortion: Estimate = NOTHING
    r_squared: float = math.nan
    empirical_half: float = math.nan
    optimality: Estimate = NOTHING
    reference_optimality: Estimate = NOTHING
    judged: bool = True
    is_extrapolated: bool = False

    @property
    def name(self) -> str:
        """Names of the attack and the model."""
        return f"{self.labels['implementation']} on {self.labels['model']}"

    @property
    def statistics(self) -> dict[str, float | Estimate]:
        """Summary statistics, by their heading in tables."""
        return {
            "half at": self.empirical_half,
            "D_half": self.half_distortion,
            "R^2": self.r_squared,
            "OPT": self.optimality,
            IMPORTED: self.reference_optimality,
        }


@dataclass(frozen=True, eq=False, repr=False)
class Curves(Displayed):
    """Accuracy curves of a results folder.

    Args:
        against: the quantity that limits the attacks: "epsilon", "grey-levels" or "queries".
        unit: unit of the budgets, by norm.
        shown: round budgets that tables show, by norm. Every "distances" curve has a value at these budgets.
        curves: the curves, ordered by norm, model and attack.
        findings: notes.
    """

    against: Against
    unit: Mapping[str, str]
    shown: Mapping[str, tuple[float, ...]]
    curves: tuple[Curve, ...]
    findings: tuple[Finding, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences of the findings."""
        return sentences(self.findings)

    @property
    def statistics(self) -> list[str]:
        """Headings of the summary statistics.

        The comparison with imported attacks is omitted if there are no imported attacks.
        """
        return [
            name
            for name in self.curves[0].statistics
            if name != IMPORTED or any(not each.judged for each in self.curves)
        ]

    def to_frame(self) -> pd.DataFrame:
        """Return a data frame with a row for each curve and each budget that the table shows.

        Columns: the labels of the curve, `kind`, `unit`, `budget`, `accuracy`, `low`, `high`, `n`, and the summary
        statistics.
        """
        lines = []
        for curve in self.curves:
            norm = curve.labels["norm"]
            values = [curve.statistics[name] for name in self.statistics]
            sums = {
                name: each.value if isinstance(each, Estimate) else each
                for name, each in zip(self.statistics, values, strict=True)
            }
            for place, budget in enumerate(curve.budgets.tolist()):
                if curve.kind == "points" or budget in self.shown[norm]:
                    numbers = {name: float(getattr(curve, name)[place]) for name in ("accuracy", "low", "high")}
                    about = {"kind": curve.kind, "unit": self.unit[norm], "budget": budget}
                    lines.append({**curve.labels, **about, **numbers, "n": curve.n, **sums})
        return pd.DataFrame(lines)

    def tabulated(self, norm: str) -> list[float]:
        """Return the budgets that the table of a norm shows: round budgets, and the budgets of the "points" curves."""
        mine = [curve for curve in self.curves if curve.labels["norm"] == norm]
        points = {float(budget) for curve in mine if curve.kind == "points" for budget in curve.budgets}
        known = {budget for curve in mine for budget in curve.budgets.tolist()}
        return sorted({*self.shown[norm], *points} & known) or sorted(self.shown[norm])

    def budget_text(self, norm: str, budget: float) -> str:
        """Format a budget as the heading of a table column."""
        return format_radius(norm, budget) if self.against == "epsilon" else f"{budget:.4g}"

    def _shown(self) -> tuple[str, pd.DataFrame, Sequence[str]]:
        names = ["implementation", "model", "norm", "epsilon", "targeted", "setting"]
        budgets = {self.budget_text(norm, budget): budget for norm in self.shown for budget in self.tabulated(norm)}
        rows = []
        for curve in self.curves:
            norm, known = curve.labels["norm"], dict(zip(curve.budgets.tolist(), curve.accuracy.tolist(), strict=True))
            at = {self.budget_text(norm, budget): known.get(budget) for budget in self.tabulated(norm)}
            sums = {name: each.value if isinstance(each, Estimate) else each for name, each in curve.statistics.items()}
            labels = {name: curve.labels[name] or None for name in names}  # no column for empty labels
            rows.append({**labels, **at, **sums})
        columns = [*names, *sorted(budgets, key=budgets.__getitem__), *self.statistics]
        frame = pd.DataFrame(rows, columns=columns).dropna(axis="columns", how="all")
        count = f"{len(self.curves)} curve{'s' * (len(self.curves) > 1)}"
        return f"Curves of accuracy against {self.against}: {count}, with their accuracy", frame, self.notes


class _Steps(NamedTuple):
    """Runs of one attack on one model (one for each seed), with the budget at which the attack fools each image.

    `falls` has an array (n,) for each run. The search ended at `limit`: at larger budgets, the result of an image that
    is not fooled is unknown.
    """

    labels: dict[str, Any]
    repeats: list[RunResult]
    falls: list[np.ndarray]
    limit: float = math.inf


class _Points(NamedTuple):
    """Runs of one attack on one model at several budgets, as pairs of a budget and its repeats."""

    labels: dict[str, Any]
    runs: list[tuple[float, list[RunResult]]]


def build_curves(
    folder: str | PathLike[str] | Results,
    *,
    against: Against = "epsilon",
    norm: str | None = None,
    models: Sequence[str] | None = None,
    budgets: Sequence[float] | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
) -> Curves:
    """Build the accuracy curves of a results folder.

    Against epsilon, a minimum-norm attack or a `best(...)` search gives a step curve from its distances. A fixed-budget
    attack gives a point for each epsilon at which it was run, and the accuracy between these radii is unknown. Runs
    whose step sizes are the same multiple of epsilon belong to one curve.

    Against queries, an image is fooled at the number of forward plus backward passes with which the attack succeeded.
    An attack with the same cost for every image gives a point at that cost.

    Images that are misclassified when clean are fooled at 0, and robust images at no budget. Images with an invalid
    result are not correct at any budget above 0, as in robust accuracy, and a note gives their number. Repeats with
    different seeds are averaged.

    Args:
        folder: path of a results folder, or its `Results`.
        against: "epsilon", "queries", or "grey-levels". Grey levels are epsilon in RoBIC's unit: linf times 255, and l2
            as the root mean square change times 255.
        norm: norm of the curves. None for all norms.
        models: names of models. None or empty for all models.
        budgets: budgets of the table, >= 0. None for round numbers, which are multiples of 1/255 in linf.
        bootstrap: number of bootstrap replicates over the images. 0 for no intervals.
        seed: random seed of the bootstrap.

    Raises:
        UnknownName: if there is no such norm, or no such model in the folder.
        InvalidInput: if a budget is negative, or `against` is unknown.
        Unsupported: if a norm has no grey levels, or the folder has no runs of the norm.
        Unavailable: if there is no such folder, or the folder has no finished run.
    """
    if against not in get_args(Against):
        raise InvalidInput(f"expected `against` to be one of {', '.join(get_args(Against))}, got {against!r}")
    if any(not budget >= 0 for budget in budgets or ()):
        raise InvalidInput(f"expected budgets >= 0, got {', '.join(map(str, budgets or ()))}")
    queries, grey = against == "queries", against == "grey-levels"
    outcomes = as_results(folder)
    groups = _choose(outcomes, norm, models)
    nearest = None if queries else nearest_distances(outcomes.done)
    envelopes = envelopes_of(outcomes.references)
    counts, has_bands = resamples(bootstrap, seed), bootstrap > 0
    curves: list[Curve] = []
    shown: dict[str, tuple[float, ...]] = {}
    limits: list[Finding] = []
    for name, members in groupby(groups, key=lambda group: group.labels["norm"]):
        steps, points = _split([*members], queries=queries, grey=grey)
        reached = [budget for each in points for budget, _ in each.runs]
        falls = [float(each[np.isfinite(each)].max(initial=0)) for run in steps for each in run.falls]
        top = max([*falls, *reached], default=0.0)
        shown[name] = tuple(sorted({0.0, *map(float, budgets or _round(top, name, against, groups))}))
        grid = _grid(top, (*shown[name], *reached), log=queries)
        curves += thread_map(lambda run, grid=grid: _curve_of_steps(run, grid, counts, nearest, envelopes), steps)
        curves += thread_map(lambda each: _curve_of_points(each, has_bands=has_bands), points)
        beside = {comparable_key(run.repeats[0]): run for run in reversed(steps)}
        for reference in outcomes.references if not queries else ():
            run = beside.get((reference.subject.key, name)) if reference.norm == name else None
            if run is not None:
                setting = setting_of_reference(reference, outcomes.references)
                scale = grey_scale(run.repeats[0], grey=grey)
                curves.append(
                    _curve_of_reference(reference, run.labels["model"], setting, grid, scale, has_bands=has_bands)
                )
        limits += [
            note(
                "search-limit",
                "{subject}: the search stopped at {limit:.4g} for some images that it did not fool",
                subject=f"{run.labels['implementation']} on {run.labels['model']}",
                limit=run.limit,
            )
            for run in steps
            if not math.isinf(run.limit)
        ]
    unit = {name: _unit(name, queries=queries, grey=grey) for name in shown}
    findings = (*_find_in_curves(curves), *limits, *outcomes.findings, *extrapolated_halves(curves))
    return Curves(against, unit, shown, tuple(curves), findings)


def extrapolated_halves(curves: Sequence[Curve]) -> list[Finding]:
    """Return a note that names the curves whose half distortion is extrapolated beyond the measured budgets."""
    beyond = "; ".join(dict.fromkeys(curve.name for curve in curves if curve.is_extrapolated))
    sentence = f"{EXTRAPOLATED}: {{curves}}"
    return [note("extrapolated", sentence, curves=beyond)] if beyond else []


def comparable_key(outcome: RunResult) -> tuple[str, str]:
    """Return the key by which a run is matched with imported attacks: the key of model and data, and the norm.

    Both parts of the key are empty for targeted attacks and for 8-bit examples, because imported attacks have neither.
    """
    cell = outcome.cell
    return ("", "") if cell.threat_model.targeted or cell.pixels else (cell.subject.key, cell.threat_model.norm)


def round_budgets(top: float, *, log: bool) -> tuple[float, ...]:
    """Return round numbers from 0 to `top`.

    Args:
        top: largest budget.
        log: False for at most 11 numbers in equal steps. True for 1, 2, 5, 10, ... and `top` rounded up.
    """
    if top <= 0 or not math.isfinite(top):
        return (0.0,)
    if log:
        steps = [float(f"{mantissa}e{power}") for power in range(9) for mantissa in (1, 2, 5)]
        return (0.0, *(step for step in steps if step < top), float(math.ceil(top)))
    power = math.floor(math.log10(top)) - 1
    steps = [float(f"{mantissa}e{exponent}") for exponent in (power, power + 1) for mantissa in (1, 2, 5)]
    step = next(step for step in steps if top / step <= 10)
    return tuple(round(place * step, 12) for place in range(int(top / step + 1e-9) + 1))


def _choose(outcomes: Results, norm: str | None, models: Sequence[str] | None) -> list[TableGroup]:
    if norm is not None and norm not in NORMS:
        raise UnknownName("norm", norm, NORMS)
    names = {subject.name for subject in outcomes.subjects.values()}
    for model in models or ():
        if model not in names:
            raise UnknownName("model", model, names)
    groups = group_cells(replace(outcomes, failed=()), "pairs")
    chosen = [
        group
        for group in groups
        if norm in (None, group.labels["norm"]) and (not models or group.labels["model"] in models)
    ]
    if not chosen:
        have = ", ".join(sorted({group.labels["norm"] for group in groups})) or "none"
        raise Unsupported(f"no results of this norm and model; norms with results in the folder: {have}")
    return sorted(chosen, key=lambda group: NORMS.index(group.labels["norm"]))


def _split(groups: Sequence[TableGroup], *, queries: bool, grey: bool) -> tuple[list[_Steps], list[_Points]]:
    """Separate attacks that give a step curve (`_Steps`) from attacks that give points (`_Points`)."""
    if queries:
        points = [_cost_point(group) for group in groups]
        steps = [_fall_by_queries(group) for group, each in zip(groups, points, strict=True) if each is None]
        return steps, [each for each in points if each is not None]
    searches = [group for group in groups if group.parts[0][0].is_minimum]
    others = [group for group in groups if group not in searches]
    return [_fall_by_distance(group, grey=grey) for group in searches], _points_of(others, grey=grey)


def _fall_by_queries(group: TableGroup) -> _Steps:
    """Return the number of queries with which an attack fools each image.

    The number is 0 for an image that is misclassified when clean, and inf for an image that is not fooled.
    """
    falls = []
    for columns in (outcome.columns for outcome in group.outcomes):
        spent = np.where(columns["success"], columns["forwards"] + columns["backwards"], math.inf)
        falls.append(np.where(columns["attacked"], spent, 0.0))
    return _Steps(_labels(group), group.outcomes, falls)


def _fall_by_distance(group: TableGroup, *, grey: bool) -> _Steps:
    """Return the distance at which an attack fools each image.

    A distance that exceeds the radius only because of float32 rounding is set to the radius.
    """
    falls, limit = [], math.inf
    for outcome in group.outcomes:
        distance, threat_model = outcome.columns["distance"], outcome.cell.threat_model
        if threat_model.epsilon is not None:
            inside = distance <= radius_with_tolerance(threat_model)
            distance = np.where(inside, np.minimum(distance, threat_model.epsilon), distance)
        scale = grey_scale(outcome, grey=grey)
        falls.append(distance * scale)
        limit = min(limit, _searched_to(outcome) * scale)
    return _Steps(_labels(group), group.outcomes, falls, limit)


def _searched_to(outcome: RunResult) -> float:
    """Return the distance up to which every image was searched; inf if all images were fooled, or without a limit."""
    columns, cell = outcome.columns, outcome.cell
    left = columns["attacked"] & ~columns["success"] & outcome.results.proven
    if not cell.search.finds_smallest or not left.any():
        return math.inf
    if "searched" in columns:
        return float(columns["searched"][left].min())
    return math.inf if cell.threat_model.epsilon is None else cell.threat_model.epsilon


def _cost_point(group: TableGroup) -> _Points | None:
    """Return the point of a group whose attack has the same cost for every image; None for other groups."""
    spent = [
        (each.columns["forwards"] + each.columns["backwards"])[each.columns["attacked"]] for each in group.outcomes
    ]
    costs = np.unique(np.concatenate(spent))
    return _Points(_labels(group), [(float(costs[0]), group.outcomes)]) if len(costs) == 1 else None


def _points_of(groups: Sequence[TableGroup], *, grey: bool) -> list[_Points]:
    """Return the points of each fixed-budget attack: one `_Points` for all radii of a setting."""
    loose: dict[Any, list[TableGroup]] = {}
    for group in groups:
        loose.setdefault(_setting_but_radius(group, relative=False), []).append(group)
    sweeps: dict[Any, list[TableGroup]] = {}
    for key, members in loose.items():
        is_one = len({group.labels["epsilon"] for group in members}) == len(members)
        for group in members:
            sweeps.setdefault((key, None if is_one else _setting_but_radius(group, relative=True)), []).append(group)
    alike: dict[Any, list[list[TableGroup]]] = {}
    for sweep in sweeps.values():
        sweep.sort(key=lambda group: group.labels["epsilon"])
        names = tuple(str(sweep[0].labels[name]) for name in ("model", "implementation", "norm", "targeted"))
        alike.setdefault(names, []).append(sweep)
    settings: dict[int, str] = {}  # distinguishes sweeps with equal labels
    for peers in alike.values():
        texts = distinguishing_text([distinguishing_settings(sweep[0].outcomes[0].cell) for sweep in peers])
        settings |= {id(sweep): text for sweep, text in zip(peers, texts, strict=True)}
    return [
        _Points(
            _labels(sweep[0])
            | {"epsilon": math.nan, "setting": settings[id(sweep)]}
            | {"violations": sum(group.labels["violations"] for group in sweep)},
            [(group.labels["epsilon"] * grey_scale(group.outcomes[0], grey=grey), group.outcomes) for group in sweep],
        )
        for sweep in sweeps.values()
    ]


def _setting_but_radius(group: TableGroup, *, relative: bool) -> tuple[object, ...]:
    """Return the settings that all points of a curve share, without epsilon and step size.

    If `relative`, the step size as a multiple of epsilon is included.
    """
    cell = group.outcomes[0].cell
    settings, epsilon = dict(distinguishing_settings(cell)), cell.threat_model.epsilon
    step = settings.pop("step_size", "")
    if relative and epsilon and step:
        settings["step_size"] = f"{float(step) / epsilon:.6g}"
    return comparison_key(group.outcomes[0]), cell.attack, tuple(sorted(settings.items()))


def _curve_of_steps(
    run: _Steps,
    grid: np.ndarray,
    counts: Counts,
    nearest: Nearest | None,
    envelopes: Mapping[tuple[str, str], np.ndarray],
) -> Curve:
    """Return the step curve of an attack at the budgets of a grid.

    Without `nearest` (against queries), the curve has no half distortion and no optimality.
    """
    grid = np.union1d(grid[grid <= run.limit], [] if math.isinf(run.limit) else [run.limit])
    weights = counts(len(run.falls[0]))
    proven = [each.results.proven for each in run.repeats]
    has_bands = len(weights) > 1 and population_of([run.repeats]) is None
    curve = _step_curve(run.labels, grid, run.falls, proven, has_bands=has_bands, is_bounded=True)
    # Summary statistics omit invalid results.
    kept = [each for each in zip(run.repeats, run.falls, proven, strict=True) if each[2].any()]
    if not kept:
        return curve
    falls = [torch.tensor(falls[known]) for _, falls, known in kept]
    half = float(np.mean([empirical_half_distortion(each) for each in falls]))
    half = math.nan if math.isinf(half) and not math.isinf(run.limit) else half  # it may be larger
    curve = replace(curve, empirical_half=half)
    if nearest is None:
        return curve
    fits = [half_distortion(each) for each in falls]
    halves, optimality = [], []
    for (outcome, _, known), each, fit in zip(kept, falls, fits, strict=True):
        drawn = weights if known.all() else weights[:, known]
        halves.append(draw_half_distortion(drawn, each.numpy(), fit.value))
        optimality.append(
            draw_optimality(drawn, outcome.columns["distance"][known], nearest[comparison_key(outcome)][known])
        )
    least = min(map(len, falls))
    return replace(
        curve,
        half_distortion=interval(np.mean(halves, axis=0), least),
        r_squared=float(np.mean([fit.r_squared for fit in fits])),
        optimality=interval(np.mean(optimality, axis=0), least),
        reference_optimality=_reference_optimality(run, weights, envelopes),
        is_extrapolated=any(is_extrapolated(outcome) for outcome, _, _ in kept),
    )


def _reference_optimality(
    run: _Steps, weights: np.ndarray, envelopes: Mapping[tuple[str, str], np.ndarray]
) -> Estimate:
    """Compute the local optimality of an attack against the imported attacks, over images that have both results."""
    drawn, sizes = [], []
    for outcome in run.repeats:
        envelope = envelopes.get(comparable_key(outcome))
        kept = np.zeros(0, bool) if envelope is None else ~np.isnan(envelope) & outcome.results.proven
        if envelope is None or not kept.any():
            return NOTHING
        drawn.append(draw_optimality(weights[:, kept], outcome.columns["distance"][kept], envelope[kept]))
        sizes.append(int(kept.sum()))
    return interval(np.mean(drawn, axis=0), min(sizes))


def _curve_of_reference(
    reference: Reference, model: str, setting: str, grid: np.ndarray, scale: float, *, has_bands: bool
) -> Curve:
    """Return the curve of an imported attack over its images.

    Images on which the attack crashed are correct only at 0.
    """
    covered, known = reference.columns["covered"], reference.known[reference.columns["covered"]]
    falls = reference.columns["distance"][covered] * scale
    labels = {"model": model, "implementation": f"{reference.title} ({UNJUDGED})", "norm": reference.norm}
    labels |= {"epsilon": math.nan, "targeted": False, "setting": setting}
    labels |= {"images": int(reference.columns["attacked"].sum()), "violations": int((~known).sum())}
    curve = _step_curve(labels, grid, [falls], [known], has_bands=has_bands, is_bounded=False)
    half = float(empirical_half_distortion(torch.tensor(falls[known]))) if known.any() else math.nan
    return replace(curve, empirical_half=half, judged=False)


def _curve_of_points(points: _Points, *, has_bands: bool) -> Curve:
    """Return the curve of a fixed-budget attack: the clean accuracy at 0, and the robust accuracy at each budget.

    For a random model, the robustness of an image is the rate of samples that are not fooled. Whether the clean image
    is correct is decided by the majority of the samples.
    """
    right, population = points.runs[0][1][0].columns["attacked"].astype(float), population_of([points.runs[0][1]])
    shares = [estimate_share([[right]], population=population)]
    for _, repeats in points.runs:
        least, most = ([getattr(each.results, end) for each in repeats] for end in ("robust", "robust_at_most"))
        shares.append(estimate_share([least], [most], population=population))
    budgets = np.array([0.0, *(budget for budget, _ in points.runs)])
    return _curve(points.labels, "points", budgets, _joined(shares), len(right), has_bands=has_bands)


def _step_curve(
    labels: dict[str, Any],
    budgets: np.ndarray,
    falls: Sequence[np.ndarray],
    known: Sequence[np.ndarray],
    *,
    has_bands: bool,
    is_bounded: bool,
) -> Curve:
    """Build a curve from the budget at which each image is fooled, (n,) for each repeat.

    Images without a valid result (`known` is False) count as misclassified at budgets above 0. If `is_bounded`, these
    images count as correct in the upper bounds.
    """
    tiny = np.finfo(float).tiny
    pairs = list(zip(falls, known, strict=True))
    share = _right_at(budgets, [np.where(kept, each, np.minimum(each, tiny)) for each, kept in pairs])
    if is_bounded and not all(kept.all() for kept in known):
        able = [np.where(kept | (each == 0), each, math.inf) for each, kept in pairs]
        share = share._replace(high=_right_at(budgets, able).high)
    return _curve(labels, "distances", budgets, share, len(falls[0]), has_bands=has_bands)


def _right_at(budgets: np.ndarray, lasting: Sequence[np.ndarray]) -> Proportion:
    if len(lasting) == 1:
        ordered, images = np.sort(lasting[0]), len(lasting[0])
        return whole_shares(images - np.searchsorted(ordered, budgets, side="right"), images)
    return _joined([clustered_interval(np.stack(lasting, 1) > budget) for budget in budgets])


def _joined(shares: Sequence[Proportion | Estimate]) -> Proportion:
    return Proportion(*(np.array([float(each[part]) for each in shares]) for part in range(4)))


def _curve(
    labels: dict[str, Any], kind: Any, budgets: np.ndarray, share: Proportion, images: int, *, has_bands: bool
) -> Curve:
    low, high = (share.low, share.high) if has_bands else (np.full(len(budgets), math.nan) for _ in range(2))
    return Curve(labels, kind, budgets, share.value, low, high, images)


def _labels(group: TableGroup) -> dict[str, Any]:
    return {name: group.labels[name] for name in _LABELS}


def _find_in_curves(curves: Sequence[Curve]) -> Iterator[Finding]:
    if any(curve.labels["targeted"] for curve in curves):
        sentence = (
            "for targeted attacks, accuracy is the rate of images that are correct when clean and not assigned the "
        )
        yield note("targeted-accuracy", f"{sentence}target")
    sentence = (
        "{subject}: {violations} invalid results count as incorrect at every budget above 0, and as correct in the "
        "upper bounds of the intervals"
    )
    for curve in curves:
        if curve.labels["violations"] and curve.judged:
            yield note("violations", sentence, subject=curve.name, violations=curve.labels["violations"])


def _round(top: float, norm: str, against: Against, groups: Sequence[TableGroup]) -> list[float]:
    """Return round budgets up to `top`. In linf, the budgets are multiples of 1/255 if all radii of the runs are."""
    radii = [group.labels["epsilon"] for group in groups if group.labels["norm"] == norm == "linf"]
    written = [format_radius(norm, radius) for radius in radii if radius and math.isfinite(radius)]
    if norm != "linf" or against != "epsilon" or not all(text.endswith("/255") for text in written):
        return list(round_budgets(top, log=against == "queries"))
    return [level / 255 for level in round_budgets(round(top * 255, 9), log=False)]


def _grid(top: float, budgets: Sequence[float], *, log: bool) -> np.ndarray:
    """Return the budgets at which a curve is drawn, (G,): a fine grid from 0 (logarithmic: from 1), and `budgets`."""
    fine = np.geomspace(1, max(top, 1), _POINTS).round() if log else np.linspace(0, top, _POINTS + 1)
    return np.unique(np.concatenate([fine, budgets]))


def _unit(norm: str, *, queries: bool, grey: bool) -> str:
    if queries:
        return "forward and backward passes per image"
    if grey:
        return "grey levels" if norm == "linf" else "grey levels, root mean square"
    return {"l0": "components", "unrestricted": "l2, pixel range"}.get(norm, "pixel range")

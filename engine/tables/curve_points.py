"""One curve from the records of one attack on one model, with its band and the numbers that sum it up."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from ...adapters.result import allowed_radius
from ...errors import Unsupported
from ...intervals import Share, clustered_interval, whole_shares
from ...metrics import empirical_half_distortion, half_distortion
from ..statistics.bootstrap import Estimate, draw_half_distortion, draw_optimality, interval
from ..store.outcomes import Outcome, details
from ..store.references import UNJUDGED, Reference
from .groups import Group, differing
from .symbols import rivals

_NONE = Estimate(math.nan, math.nan, math.nan, 0)
_LABELS = ("model", "implementation", "norm", "epsilon", "targeted", "setting", "images", "violations")
Counts = Callable[[int], np.ndarray]


@dataclass(frozen=True, eq=False)
class Curve:
    """The accuracy of one model under one attack.

    Args:
        labels: `model`, `implementation`, `norm`, `epsilon` (NaN: none, or the budget is epsilon), `targeted`,
            `setting` (what tells it apart from curves with the same labels), `images` attacked, `violations`.
        kind: "distances": a step curve from one run; "points": one run for each budget, and nothing known between.
        budgets: shape (G,), rising from 0.
        accuracy: share of all images that are right within each budget, shape (G,); the clean accuracy at 0.
        low: lower end of the 95 % interval of that share, shape (G,).
        high: its upper end, shape (G,).
        n: images.
        half_distortion: `metrics.half_distortion`, in the unit of the budgets; of "distances" against epsilon.
        r_squared: of its exponential.
        empirical_half: `metrics.empirical_half_distortion`, in the unit of the budgets; of "distances".
        optimality: `metrics.local_optimality` against the per-image best of all attacks of the folder with the same
            model, norm and target; of "distances" against epsilon.
        reference_optimality: the same against the per-image best of all imported rows (`Outcomes.references`), over the
            images that these know; above 1 where the attack is nearer than all of them.
        judged: False for an imported row, whose numbers are its program's.
    """

    labels: Mapping[str, Any]
    kind: Literal["distances", "points"]
    budgets: np.ndarray
    accuracy: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: int
    half_distortion: Estimate = _NONE
    r_squared: float = math.nan
    empirical_half: float = math.nan
    optimality: Estimate = _NONE
    reference_optimality: Estimate = _NONE
    judged: bool = True

    @property
    def is_extrapolated(self) -> bool:
        """Whether its half distortion is a number beyond what was measured: no half of the images was fooled."""
        return math.isfinite(self.half_distortion.value) and not math.isfinite(self.empirical_half)


class Run(NamedTuple):
    """One attack on one model, all repeats: the budget that each image falls at, (n,) for each repeat.

    Above `limit` nothing is known: images that nothing had fooled were not searched beyond it.
    """

    labels: dict[str, Any]
    repeats: list[Outcome]
    falls: list[np.ndarray]
    limit: float = math.inf


class Points(NamedTuple):
    """One attack on one model at several budgets, all repeats of each."""

    labels: dict[str, Any]
    runs: list[tuple[float, list[Outcome]]]


def make_run(group: Group, *, queries: bool, grey: bool) -> Run:
    """A run against queries or distances: 0 for an image that is wrong when clean, inf for one that never falls."""
    (repeats,) = group.parts
    falls, limit = [], math.inf
    for outcome in repeats:
        columns = outcome.columns
        if not queries:
            limit = min(limit, searched_to(outcome) * grey_scale(outcome, grey=grey))
        if queries:
            spent = np.where(columns["success"], columns["forwards"] + columns["backwards"], math.inf)
            falls.append(np.where(columns["attacked"], spent, 0.0))
        else:
            falls.append(_distances_of(outcome) * grey_scale(outcome, grey=grey))
    return Run({name: group.labels[name] for name in _LABELS}, repeats, falls, limit)


def searched_to(outcome: Outcome) -> float:
    """The largest distance up to which a search looked for every image; inf where it fooled all, or looked for all."""
    columns, cell = outcome.columns, outcome.cell
    left = columns["attacked"] & ~columns["success"] & outcome.results.proven
    if not cell.is_best or not left.any():
        return math.inf
    if "searched" in columns:
        return float(columns["searched"][left].min())
    return math.inf if cell.threat_model.epsilon is None else cell.threat_model.epsilon


def _distances_of(outcome: Outcome) -> np.ndarray:
    """The distance at which each image falls: at most the radius, where float32 moved an example past it."""
    distance, threat_model = outcome.columns["distance"], outcome.cell.threat_model
    if threat_model.epsilon is None:
        return distance
    inside = distance <= allowed_radius(threat_model)
    return np.where(inside, np.minimum(distance, threat_model.epsilon), distance)


def make_points(groups: Sequence[Group], *, grey: bool) -> list[Points]:
    """Fixed-budget attacks at every epsilon they were run at; a step size relative to epsilon is one setting."""
    loose, sweeps = {}, []
    for group in groups:
        loose.setdefault(_bundle_key(group, relative=False), []).append(group)
    for members in loose.values():
        bundles = {None: members}
        if len({group.labels["epsilon"] for group in members}) < len(members):
            bundles = {}
            for group in members:
                bundles.setdefault(_bundle_key(group, relative=True), []).append(group)
        sweeps += [sorted(bundle, key=lambda group: group.labels["epsilon"]) for bundle in bundles.values()]
    settings = _settings(sweeps)
    points = []
    for bundle, setting in zip(sweeps, settings, strict=True):
        labels = {name: bundle[0].labels[name] for name in _LABELS} | {"epsilon": math.nan, "setting": setting}
        labels["violations"] = sum(group.labels["violations"] for group in bundle)
        runs = [
            (group.labels["epsilon"] * grey_scale(group.parts[0][0], grey=grey), group.parts[0]) for group in bundle
        ]
        points.append(Points(labels, runs))
    return points


def make_cost_point(group: Group) -> Points | None:
    """A run that spends the same on every image says nothing about fewer queries: one point; None for another run."""
    (repeats,) = group.parts
    attacked = [each.columns["attacked"] for each in repeats]
    spent = [each.columns["forwards"] + each.columns["backwards"] for each in repeats]
    costs = np.unique(np.concatenate([each[mask] for each, mask in zip(spent, attacked, strict=True)]))
    if len(costs) != 1:
        return None
    return Points({name: group.labels[name] for name in _LABELS}, [(float(costs[0]), repeats)])


def grey_scale(outcome: Outcome, *, grey: bool) -> float:
    """What turns a distance into grey levels: linf times 255, l2 into a root mean square times 255; 1 if not `grey`.

    Raises:
        Unsupported: for another norm.
    """
    if not grey:
        return 1.0
    norm = outcome.cell.threat_model.norm
    if norm == "linf":
        return 255.0
    if norm not in ("l2", "unrestricted"):
        raise Unsupported(f"{norm} has no grey levels: expected linf, l2 or unrestricted")
    rms, l2 = outcome.columns.get("AED"), outcome.columns["l2"]
    known = np.zeros(0) if rms is None else (rms[l2 > 0] / l2[l2 > 0])
    known = known[np.isfinite(known)]
    return 255 * float(np.median(known)) if len(known) else math.nan


def draw_run(
    run: Run,
    grid: np.ndarray,
    counts: Counts,
    best: Mapping[tuple[object, ...], np.ndarray] | None,
    envelopes: Mapping[tuple[str, str], np.ndarray] | None = None,
) -> Curve:
    """The curve at the budgets of a grid; against epsilon also what sums it up.

    Args:
        run: its repeats.
        grid: shape (G,).
        counts: gives the resamples for a number of images.
        best: per-image best distances by `rivals`; None against queries.
        envelopes: per-image best distances of imported rows, by `comparable_key`.
    """
    images = len(run.falls[0])
    grid = np.union1d(grid[grid <= run.limit], [] if math.isinf(run.limit) else [run.limit])
    weights, half, optimality, fits = counts(images), [], [], []
    # A violation says nothing: such an image is right at 0 only, and the numbers that sum the curve up leave it out.
    proven = [each.results.proven for each in run.repeats]
    for outcome, falls, kept in zip(run.repeats, run.falls, proven, strict=True):
        if best is not None and kept.any():
            drawn, nearest = weights if kept.all() else weights[:, kept], best[rivals(outcome)][kept]
            fits.append(half_distortion(torch.tensor(falls[kept])))
            half.append(draw_half_distortion(drawn, falls[kept], fits[-1].value))
            optimality.append(draw_optimality(drawn, outcome.columns["distance"][kept], nearest))
    lasting = [_lasting(falls, kept) for falls, kept in zip(run.falls, proven, strict=True)]
    able = [np.where(kept | (falls == 0), falls, math.inf) for falls, kept in zip(run.falls, proven, strict=True)]
    hidden = able if not all(kept.all() for kept in proven) else ()
    curve = _step_curve(run.labels, grid, lasting, banded=len(weights) > 1, able=hidden)
    tensors = [torch.tensor(falls[kept]) for falls, kept in zip(run.falls, proven, strict=True) if kept.any()]
    if not tensors:
        return curve
    empirical = float(np.mean([empirical_half_distortion(each) for each in tensors]))
    empirical = math.nan if math.isinf(empirical) and not math.isinf(run.limit) else empirical  # it may be farther
    if best is None:
        return Curve(**{**vars(curve), "empirical_half": empirical})
    return Curve(
        **{
            **vars(curve),
            "empirical_half": empirical,
            "half_distortion": interval(np.mean(half, axis=0), min(map(len, tensors))),
            "r_squared": float(np.mean([fit.r_squared for fit in fits])),
            "optimality": interval(np.mean(optimality, axis=0), min(map(len, tensors))),
            "reference_optimality": _reference_optimality(run, weights, envelopes or {}),
        }
    )


def draw_reference(
    reference: Reference, model: str, setting: str, grid: np.ndarray, counts: Counts, scale: float
) -> Curve:
    """The curve of an imported row, over the images that it covers; those it crashed on are right at 0 only.

    Args:
        reference: in the folder.
        model: as the folder names it.
        setting: what tells it apart from one that is called alike.
        grid: budgets, shape (G,).
        counts: gives the resamples for a number of images.
        scale: of its distances to the unit of the budgets.
    """
    covered, known = reference.columns["covered"], reference.known[reference.columns["covered"]]
    falls = reference.columns["distance"][covered] * scale
    labels = {"model": model, "implementation": f"{reference.title} ({UNJUDGED})", "norm": reference.norm}
    labels |= {"epsilon": math.nan, "targeted": False, "setting": setting}
    labels |= {"images": int(reference.columns["attacked"].sum()), "violations": int((~known).sum())}
    curve = _step_curve(labels, grid, [_lasting(falls, known)], banded=len(counts(len(falls))) > 1)
    half = float(empirical_half_distortion(torch.tensor(falls[known]))) if known.any() else math.nan
    return Curve(**{**vars(curve), "empirical_half": half, "judged": False})


def comparable_key(outcome: Outcome) -> tuple[str, str]:
    """The subject and norm whose imported rows a cell may stand beside; empty texts if none: targets, 8-bit images."""
    cell = outcome.cell
    if cell.threat_model.targeted or cell.pixels:
        return "", ""
    return cell.subject.key, cell.threat_model.norm


def _reference_optimality(run: Run, weights: np.ndarray, envelopes: Mapping[tuple[str, str], np.ndarray]) -> Estimate:
    """Local optimality of a run against imported rows, over the images that both know."""
    drawn, sizes = [], []
    for outcome in run.repeats:
        envelope = envelopes.get(comparable_key(outcome))
        kept = np.zeros(0, bool) if envelope is None else ~np.isnan(envelope) & outcome.results.proven
        if envelope is None or not kept.any():
            return _NONE
        drawn.append(draw_optimality(weights[:, kept], outcome.columns["distance"][kept], envelope[kept]))
        sizes.append(int(kept.sum()))
    return interval(np.mean(drawn, axis=0), min(sizes))


def draw_points(points: Points, counts: Counts) -> Curve:
    """The accuracy at 0 and at each budget: the share of images that are right when clean and shown to be robust.

    Of a random model an image is robust in the share of its draws, as in tables, right when clean by their majority.
    """
    right = points.runs[0][1][0].columns["attacked"]
    shares = [clustered_interval(right[:, None])]
    for _, repeats in points.runs:
        share = clustered_interval(np.stack([outcome.results.robust for outcome in repeats], axis=1))
        able = np.stack([outcome.results.robust_at_most for outcome in repeats], axis=1)
        shares.append(share._replace(high=clustered_interval(able).high))  # a violation may hide either
    budgets = np.array([0.0, *(budget for budget, _ in points.runs)])
    banded = len(counts(len(right))) > 1
    return _curve(points.labels, "points", budgets, _stacked(shares), len(right), banded=banded)


def round_budgets(top: float, *, log: bool) -> tuple[float, ...]:
    """Round numbers from 0 up to `top`: at most 11 in equal steps, or 1, 2, 5, 10, ... for a logarithmic axis."""
    if top <= 0 or not math.isfinite(top):
        return (0.0,)
    if log:
        steps = [float(f"{mantissa}e{power}") for power in range(9) for mantissa in (1, 2, 5)]
        return (0.0, *(step for step in steps if step < top), float(math.ceil(top)))
    power = math.floor(math.log10(top)) - 1
    step = next(
        step
        for exponent in (power, power + 1)
        for mantissa in (1, 2, 5)
        if top / (step := float(f"{mantissa}e{exponent}")) <= 10
    )
    return tuple(round(place * step, 12) for place in range(int(top / step + 1e-9) + 1))


def _lasting(falls: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The largest budget below which each image counts as right, (n,): what is not known says nothing above 0."""
    return np.where(known, falls, np.minimum(falls, np.finfo(float).tiny))


def _step_curve(
    labels: dict[str, Any],
    budgets: np.ndarray,
    lasting: Sequence[np.ndarray],
    *,
    banded: bool,
    able: Sequence[np.ndarray] = (),
) -> Curve:
    """A curve from the budget that each image is right below, (n,) for each repeat; `able`: the most it may be."""
    share = _right_at(budgets, lasting)
    if able:
        share = share._replace(high=_right_at(budgets, able).high)
    return _curve(labels, "distances", budgets, share, len(lasting[0]), banded=banded)


def _right_at(budgets: np.ndarray, lasting: Sequence[np.ndarray]) -> Share:
    """The share of the images that are right at each budget."""
    if len(lasting) == 1:
        ordered, images = np.sort(lasting[0]), len(lasting[0])
        return whole_shares(images - np.searchsorted(ordered, budgets, side="right"), images)
    return _stacked([clustered_interval(np.stack(lasting, 1) > budget) for budget in budgets])


def _stacked(shares: Sequence[Share]) -> Share:
    return Share(*(np.array([float(each[part]) for each in shares]) for part in range(4)))


def _curve(labels: dict[str, Any], kind: Any, budgets: np.ndarray, share: Share, images: int, *, banded: bool) -> Curve:
    """A curve from the share that is right at each budget."""
    low, high = (share.low, share.high) if banded else (np.full(len(budgets), math.nan) for _ in range(2))
    return Curve(labels, kind, budgets, share.value, low, high, images)


def _bundle_key(group: Group, *, relative: bool) -> tuple[object, ...]:
    """What the runs of a points curve share: everything but epsilon and the step size, or its ratio to epsilon."""
    cell = group.parts[0][0].cell
    settings, epsilon = dict(details(cell)), cell.threat_model.epsilon
    step = settings.pop("step_size", "")
    if relative and epsilon and step:
        settings["step_size"] = f"{float(step) / epsilon:.6g}"
    return rivals(group.parts[0][0]), cell.attack, tuple(sorted(settings.items()))


def _settings(bundles: Sequence[list[Group]]) -> list[str]:
    """What tells apart points curves of the same attack on the same model and norm."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for place, bundle in enumerate(bundles):
        alike.setdefault((rivals(bundle[0].parts[0][0]), bundle[0].labels["implementation"]), []).append(place)
    settings = [""] * len(bundles)
    for places in alike.values():
        texts = differing([details(bundles[place][0].parts[0][0].cell) for place in places])
        for place, text in zip(places, texts, strict=True):
            settings[place] = text
    return settings

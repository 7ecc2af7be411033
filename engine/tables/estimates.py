"""Estimates with 95 % intervals for every table, from the values of a metric for each image.

A table row consists of parts, such as the models of an attack. A part consists of repeats, which are runs with
different seeds.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch

from ...errors import Unsupported
from ...intervals import LEVEL, clustered_interval
from ...metrics import half_distortion
from ..metric_names import CLEAN, facts_of
from ..statistics.anytime import rate_interval
from ..statistics.bootstrap import (
    Estimate,
    Replicates,
    bootstrap_means,
    draw_half_distortion,
    draw_macro_f1,
    draw_optimality,
    draws_of,
    interval,
    resample,
)
from ..store.columns import coverage_of, coverage_values
from ..store.results import Results, RunResult
from ..store.stored_columns import hold_columns

GREY_HALF = "D_half@grey"  # the reading in RoBIC's unit
EXTRAPOLATED = "D_half is extrapolated, because too few images were fooled or D_half exceeds the radius of the run"
NOTHING = Estimate(math.nan, math.nan, math.nan, 0)
Values = Sequence[Sequence[np.ndarray]]  # for each part of a row the values of its repeats, (n,) each, NaN if undefined
Counts = Callable[[int], np.ndarray]  # from the number of images to their counts in every replicate, by `resample`
Nearest = Mapping[tuple[object, ...], np.ndarray]  # distances (n,) by `comparison_key`


def resamples(bootstrap: int, seed: int) -> Counts:
    """Return a function that draws the bootstrap counts for a number of images (see `resample`) and caches them."""
    return lru_cache(maxsize=None)(lambda images: resample(images, bootstrap, seed))


def mean_draws(parts: Sequence[Sequence[Replicates]], *, pooled: bool = False) -> Replicates:
    """Average the replicates of a metric over the runs of a table row.

    Args:
        parts: replicates of the repeats of each part.
        pooled: True for the mean over the images of all runs. False for the mean over the parts, in which the repeats
            of each part are averaged first.
    """
    every = [draws for part in parts for draws in part]
    n = sum(draws.n for draws in every)
    if not every:
        return draws_of(np.full(1, math.nan), 0)
    different = max(each.different or each.n for each in every)
    if pooled:
        return Replicates(
            np.sum([each.total for each in every], 0), np.sum([each.count for each in every], 0), n, different
        )
    means = [mean_of_defined([each.ratio for each in part]) for part in parts]
    return draws_of(mean_of_defined(means), n)._replace(different=different)


def estimate_draws(draws: Replicates) -> Estimate:
    """Compute an estimate and its bootstrap interval from replicates."""
    return interval(draws.ratio, draws.n, draws.different)


def estimate_share(
    parts: Values,
    most: Values | None = None,
    *,
    pooled: bool = False,
    has_interval: bool = True,
    population: int | None = None,
    level: float = LEVEL,
) -> Estimate:
    """Estimate a mean rate, first over the repeats of each part and then over the parts.

    The interval comes from `clustered_interval`. If the images were drawn at random from a population and every image
    has a value, the interval of `AnytimeMean` is used instead, which stays valid for any number of images.

    Args:
        parts: values of each image, from 0 to 1, for the repeats of each part. All arrays have the same images.
        most: upper bounds of the values, in which missing values count as 1 (Manski 2003). The upper bound of the
            interval is computed from them. None if the upper bounds equal the values.
        pooled: whether every image of every repeat has the same weight.
        has_interval: whether to compute the interval.
        population: size of the population if the images were drawn at random; otherwise None.
        level: confidence level, in (0, 1).
    """
    met = _defined(parts)
    columns = [column for part in met for column in part]
    if not columns:
        return NOTHING
    stacked = np.stack(columns, axis=1)
    means = iter(bootstrap_means(np.ones((1, len(stacked))), stacked))
    mean = mean_draws([[next(means) for _ in part] for part in met if part], pooled=pooled)
    low = high = math.nan
    if has_interval:
        weights = [float((~np.isnan(column)).sum()) if pooled else 1 / len(part) for part in met for column in part]
        if population is not None and not np.isnan(stacked).any():
            means_of_images = [
                np.average(np.stack([column for part in _defined(values) for column in part], axis=1), 1, weights)
                for values in (parts, most or parts)
            ]
            low, high = rate_interval(means_of_images[0].clip(0, 1), means_of_images[1].clip(0, 1), population)
            return Estimate(float(mean.ratio[0]), low, high, mean.n)
        share = clustered_interval(stacked.clip(0, 1), weights, level)
        low, high = float(share.low), float(share.high)
        high = high if most is None else estimate_share(most, pooled=pooled, level=level).high
    return Estimate(float(mean.ratio[0]), low, high, mean.n)


def _defined(parts: Values) -> list[list[np.ndarray]]:
    """Return the columns that have at least one value."""
    return [[column for column in part if not np.isnan(column).all()] for part in parts]


def values_of(outcome: RunResult, outcomes: Results, symbol: str, *, at_most: bool = False) -> np.ndarray:
    """Return the value of a metric for each image of a run, (n,); NaN where the metric is undefined.

    Args:
        outcome: the run.
        outcomes: results of the run's folder.
        symbol: symbol of the metric.
        at_most: True for upper bounds, in which undecided images count as 1 (see `ImageResults.at_most`).
    """
    record, columns = facts_of(symbol), outcome.columns
    clean = outcomes.clean.get(outcome.cell.subject.key)
    if record.stored == "clean" and clean is not None and symbol in clean.columns:
        return clean.columns[symbol]
    if record.stored == "always" and record.invalid:  # RA, and its mean over attacks
        return outcome.results.robust_at_most if at_most else outcome.results.robust
    column = columns.get(symbol)
    if column is None or column.dtype == object:
        return np.full(len(columns["label"]), np.nan)
    values = np.where(columns[record.over], column, np.nan) if record.over else column.astype(float)
    return outcome.results.at_most(values, record.invalid) if at_most else values


def estimate_row(
    parts: Sequence[Sequence[RunResult]],
    outcomes: Results,
    symbols: Sequence[str],
    drawn: "RunReplicates",
    *,
    pooled: bool = False,
    of_model: bool = False,
) -> dict[str, Estimate]:
    """Estimate every metric of a table row. Rates have an interval from `estimate_share`, others a bootstrap interval.

    Args:
        parts: repeats of each part of the row.
        outcomes: results of the runs' folder.
        symbols: metrics that are defined for a single run.
        drawn: replicates; its method `prepare` was called with these symbols.
        pooled: whether to take the mean over the images of all runs.
        of_model: whether the row is about a model. RA of a model is the worst case over the attacks of the row.
    """
    shares = [symbol for symbol in symbols if facts_of(symbol).kind == "share"]
    means = [symbol for symbol in symbols if symbol not in shares]
    estimates = {
        symbol: estimate_draws(each) for symbol, each in drawn.row(parts, outcomes, means, pooled=pooled).items()
    }
    held = [[replace(each, columns=hold_columns(each.columns, shares)) for each in part] for part in parts]
    has_interval = drawn.bootstrap > 0
    some_invalid = has_interval and any(each.results.violated.any() for part in held for each in part)
    for symbol in shares:
        values, most = row_values(held, outcomes, symbol, of_model=of_model), None
        if some_invalid and facts_of(symbol).invalid:
            most = row_values(held, outcomes, symbol, of_model=of_model, at_most=True)
        estimates[symbol] = estimate_share(
            values, most, pooled=pooled, has_interval=has_interval, population=population_of(parts)
        )
    images = sum({each.cell.subject.key: each.cell.subject.images for part in parts for each in part}.values())
    return {
        symbol: estimates[symbol]._replace(n=images) if facts_of(symbol).stored == "clean" else estimates[symbol]
        for symbol in symbols
    }


def population_of(parts: Sequence[Sequence[RunResult]]) -> int | None:
    """Return the size of the population from which the images of a row were drawn.

    None if the images were not drawn at random, or if the runs have different populations.
    """
    drawn = {each.cell.subject.drawn for part in parts for each in part}
    return None if len(drawn) != 1 else next(iter(drawn))[0] if any(drawn) else None


def undecided_rate(
    parts: Sequence[Sequence[RunResult]], outcomes: Results, symbol: str, *, of_model: bool = False
) -> float:
    """Return how much a rate of a table row would rise if every undecided image counted as 1.

    0 for metrics that are not rates.
    """
    if facts_of(symbol).kind != "share" or not facts_of(symbol).invalid:
        return 0.0
    least, most = (
        estimate_share(row_values(parts, outcomes, symbol, of_model=of_model, at_most=end), has_interval=False).value
        for end in (False, True)
    )
    return most - least


def row_values(
    parts: Sequence[Sequence[RunResult]], outcomes: Results, symbol: str, *, of_model: bool, at_most: bool = False
) -> Values:
    """Return the rate of each image in each run of a row, or its upper bound if `at_most`.

    For metrics of clean images there is one array for each model. For metrics of a model that take the worst case over
    attacks, there is a single array with the smallest value of each image.
    """
    record = facts_of(symbol)
    if record.stored == "clean":
        parts = [[each] for each in {each.cell.subject.key: each for part in parts for each in part}.values()]
    values = [[values_of(each, outcomes, symbol, at_most=at_most) for each in part] for part in parts]
    if record.across != "mean" and of_model and values:
        return [[np.minimum.reduce([column for part in values for column in part])]]
    return values


class RunReplicates:
    """Bootstrap replicates of a folder's runs, with a cache that several tables can share.

    Args:
        bootstrap: number of bootstrap replicates; 0 for no intervals.
        seed: random seed of the bootstrap.
        kept: symbols whose replicates are cached. With 1000 replicates, a symbol takes 16 KB per run.
    """

    def __init__(self, bootstrap: int, seed: int, kept: Collection[str] = ()):
        self.bootstrap, self.kept = bootstrap, frozenset({*kept, "seconds"})  # CTC ranks them after the rows are drawn
        self.counts = resamples(bootstrap, seed)
        self._nearest: Nearest = {}
        self._clean: dict[str, Replicates] = {}  # CF by model on data, the same for every attack
        self._exact: dict[int, np.ndarray] = {}  # counts as floating point numbers, for products
        self._drawn: dict[str, dict[str, Replicates]] = {}

    def prepare(self, outcomes: Results, symbols: Sequence[str]) -> None:
        """Compute the values that OPT and CF need from the whole folder: nearest distances, and CF of each model."""
        self._nearest = nearest_distances(outcomes.done) if "OPT" in symbols else {}
        attacked = {outcome.cell.subject.key for outcome in outcomes.done} if "CF" in symbols else set()
        for key in attacked & outcomes.clean.keys() - self._clean.keys():
            columns, n = outcomes.clean[key].columns, outcomes.clean[key].subject.images
            self._clean[key] = draws_of(draw_macro_f1(self.counts(n), columns["label"], columns["predicted"]), n)

    def row(
        self, parts: Sequence[Sequence[RunResult]], outcomes: Results, symbols: Sequence[str], *, pooled: bool = False
    ) -> dict[str, Replicates]:
        """Return the replicates of every symbol for a table row, averaged over the runs of the row by `mean_draws`."""
        cells = [[self.draw(each, outcomes, symbols) for each in part] for part in parts] if symbols else []
        return {
            symbol: mean_draws([[each[symbol] for each in part] for part in cells], pooled=pooled) for symbol in symbols
        }

    def draw(self, outcome: RunResult, outcomes: Results, symbols: Sequence[str]) -> dict[str, Replicates]:
        """Return the replicates of every symbol for a finished run. Call `prepare` first.

        CTC is NaN, because it compares several runs. D_half is NaN for a fixed-budget attack.

        Args:
            outcome: the run.
            outcomes: results of the run's folder.
            symbols: symbols of metrics that the folder has.
        """
        known = self._drawn.get(outcome.cell.key, {})
        lacking = [symbol for symbol in symbols if symbol not in known]
        if not lacking:
            return known
        images = outcome.cell.subject.images
        weights = self.counts(images)
        exact = self._exact.get(images)
        if exact is None:
            exact = weights.astype(float)
            self._exact = {images: exact}
        held = replace(outcome, columns=hold_columns(outcome.columns, lacking))
        columns = np.stack([values_of(held, outcomes, symbol) for symbol in lacking], axis=1)
        drawn = dict(zip(lacking, bootstrap_means(exact, columns), strict=True))
        for symbol in lacking:
            special = self._clean.get(outcome.cell.subject.key) if symbol == "CF" else None
            special = special or _draw_of_set(outcome, symbol, weights, self._nearest)
            drawn[symbol] = drawn[symbol] if special is None else special
        kept = {symbol: draws for symbol, draws in drawn.items() if symbol in self.kept and symbol != "OPT"}
        if kept:
            self._drawn[outcome.cell.key] = {**known, **kept}
        return {**known, **drawn}


def comparison_key(outcome: RunResult) -> tuple[object, ...]:
    """Return a key that is equal for runs with comparable distances.

    The key consists of model and data, norm, targeted or not, target rule, and 8-bit or not.
    """
    cell = outcome.cell
    return cell.subject.key, cell.threat_model.norm, cell.threat_model.targeted, cell.target, cell.pixels


def nearest_distances(done: Sequence[RunResult]) -> Nearest:
    """Return the smallest distance of each image over all runs with the same `comparison_key`."""
    nearest: dict[tuple[object, ...], np.ndarray] = {}
    for outcome in done:
        key, distance = comparison_key(outcome), outcome.columns["distance"]
        nearest[key] = np.minimum(nearest[key], distance) if key in nearest else distance
    return nearest


def proven_distances(outcome: RunResult) -> np.ndarray:
    """Return the distances of the images with a valid result."""
    return outcome.columns["distance"][outcome.results.proven]


def grey_scale(outcome: RunResult, *, grey: bool) -> float:
    """Return the factor that converts distances of a run to grey levels; 1 if `grey` is False.

    In linf, the factor is 255. In l2, the converted distance is the root mean square change times 255.

    Raises:
        Unsupported: for norms other than linf, l2 and unrestricted.
    """
    if not grey:
        return 1.0
    norm = outcome.cell.threat_model.norm
    if norm == "linf":
        return 255.0
    if norm not in ("l2", "unrestricted"):
        raise Unsupported(f"no grey levels for distances in {norm}; expected the norm linf, l2 or unrestricted")
    # of the same pair of images as AED: with 8-bit images, "l2" is to the rounded clean image
    rms, l2 = outcome.columns.get("AED"), outcome.columns["l2_8bit" if outcome.cell.pixels else "l2"]
    known = np.zeros(0) if rms is None else (rms[l2 > 0] / l2[l2 > 0])
    known = known[np.isfinite(known)]
    return 255 * float(np.median(known)) if len(known) else math.nan


def is_extrapolated(outcome: RunResult) -> bool:
    """Whether a run's D_half is extrapolated: too few images were fooled, or D_half exceeds the radius of the run."""
    distances = proven_distances(outcome)
    right = distances[distances > 0]
    if not outcome.is_minimum or not np.isfinite(right).any():
        return False
    epsilon = outcome.cell.threat_model.epsilon
    is_beyond = epsilon is not None and half_distortion(torch.as_tensor(distances)).value > epsilon
    return is_beyond or bool(2 * np.isfinite(right).sum() < len(right))


# Metrics of all distances of a run together: replicates from counts (R, n), valid distances (n,), and the nearest
# distances of any attack (n,).
_OF_DISTANCES: Mapping[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "D_half": lambda weights, distances, _: draw_half_distortion(weights, distances),
    GREY_HALF: lambda weights, distances, _: draw_half_distortion(weights, distances),
    "OPT": draw_optimality,
}


_OF_ALL_IMAGES = ("RANK_max", "CLASSES")  # the largest value of a column; without an interval, as they rise with n


def _draw_of_set(outcome: RunResult, symbol: str, counts: np.ndarray, nearest: Nearest) -> Replicates | None:
    """Return the replicates of a metric that is not a mean over images; None if the metric is a mean, or undefined."""
    record = facts_of(symbol)
    if "coverage" in record.needs:
        value = np.append(_coverage(outcome, symbol), np.full(len(counts) - 1, np.nan))
        return draws_of(value, int(outcome.usable.sum()))
    if symbol in _OF_ALL_IMAGES:
        column = outcome.columns.get(symbol, np.empty(0))
        known = column[~np.isnan(column)]
        value = np.append(known.max() if len(known) else np.nan, np.full(len(counts) - 1, np.nan))
        return draws_of(value, len(known))
    draw = _OF_DISTANCES.get(symbol)
    if draw is None or ("minimum norm" in record.needs and not outcome.is_minimum):
        return None
    proven, distances = outcome.results.proven, proven_distances(outcome)
    if not len(distances):
        return draws_of(np.full(len(counts), np.nan), 0)
    if symbol == GREY_HALF:
        has_levels = outcome.cell.threat_model.norm in ("linf", "l2", "unrestricted")
        scale = grey_scale(outcome, grey=True) if has_levels else math.nan
        if has_levels and not np.isfinite(distances[distances > 0]).any():
            scale = 1.0  # no image is fooled: infinite in any unit
        if math.isnan(scale):
            return draws_of(np.full(len(counts), np.nan), 0)
        distances = distances * scale
    weights = counts if proven.all() else counts[:, proven]
    best = nearest.get(comparison_key(outcome), outcome.columns["distance"])
    return draws_of(draw(weights, distances, best[proven]), len(distances))


def _coverage(outcome: RunResult, symbol: str) -> float:
    """Return a neuron coverage after the attack, or before the attack ("@clean"), over all layers or one ("@LAYER")."""
    base, *parts = symbol.split("@")
    coverage = coverage_of(outcome.columns, clean=CLEAN in parts)
    layer = next((part for part in parts if part != CLEAN), "")
    if coverage is None or (layer and layer not in coverage):
        return np.nan
    return coverage_values(coverage, layer)[base]


def mean_of_defined(values: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean over the defined values of each replicate."""
    if len(values) == 1:
        return values[0]
    stacked = np.stack(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.nansum(stacked, 0) / (~np.isnan(stacked)).sum(0)

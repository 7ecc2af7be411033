"""Which numbers a results folder can give: what a symbol means for one cell, and why some cannot be had."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from ...adapters.user_file import is_file_name
from ...errors import Unsupported
from ...metrics import METRICS, PLAIN, default_symbols, record_of
from ..cell import MEASURES
from ..measure_groups import GROUP_OF, group_names
from ..metric_names import (
    CLEAN,
    base_of,
    is_parametrised,
    needs_of,
    options_of,
    resolve_symbols,
    unknown_metric,
)
from ..statistics.bootstrap import (
    Draws,
    draw_half_distortion,
    draw_macro_f1,
    draw_means,
    draw_optimality,
    draws_of,
    resample,
)
from ..store.columns import coverage_of, coverage_values
from ..store.derived_columns import is_rate
from ..store.outcomes import Outcome, Outcomes
from ..store.stored_columns import hold_columns
from ..user_metrics import find_metric

By = Literal["attacks", "models", "pairs"]
_LACKING = {  # of what a metric needs, where no cell has it
    "transfer": "no example was tested on another model (evaluate with --transfer full)",
    "minimum norm": "no attack here looks for the smallest change (evaluate a minimum-norm one, or best(ATTACK))",
}
EXTRAPOLATED = "D_half is extrapolated by the fit where no half of the images was fooled"


def is_share(symbol: str) -> bool:
    """Whether an image is 0 or 1 in it, or a share of such: its interval is that of a share."""
    return (record_of(symbol) or PLAIN).kind == "share"


def is_of_clean(symbol: str) -> bool:
    """Whether a metric is of the predictions on clean images: the same for every attack on a model."""
    return METRICS.get(symbol, PLAIN).stored == "clean"


def is_of_distances(symbol: str) -> bool:
    """Whether a metric is of all distances of a cell together: an invalid result is left out of them."""
    record = METRICS.get(symbol, PLAIN)
    return record.kind == "set" and record.group == "curves"


def is_coverage(symbol: str) -> bool:
    """Whether a metric is of the set of images, from bits that are stored of all of them together."""
    return "coverage" in needs_of(symbol)


def choose_symbols(symbols: Sequence[str] | None, by: By) -> tuple[str, ...]:
    """Check symbols before anything is read; None: those of the table.

    Raises:
        UnknownName: if there is no such metric.
        Unsupported: if it exists, but not in this table.
    """
    chosen = default_symbols(by) if symbols is None else resolve_symbols(symbols)
    for symbol in chosen:
        if is_file_name(symbol):
            find_metric(symbol)
            continue
        record = record_of(symbol)
        if record is None:
            raise unknown_metric(symbol)
        if is_parametrised(symbol):
            options_of(symbol)
        if record.group == "corruption":
            raise Unsupported(f"{symbol} is about corrupted images: davylamp corrupt-table MODELS")
        if record.group.startswith("defence"):
            raise Unsupported(f"{symbol} compares a defended model with the original: add --defence ORIGINAL DEFENDED")
        if record.only and by not in record.only:
            tables = " or ".join(f"--by {each}" for each in record.only)
            raise Unsupported(f"{symbol} is no metric of a table by {by}: ask for it with {tables}")
    return tuple(map(shown_symbol, chosen))


def shown_symbol(symbol: str) -> str:
    """A symbol as tables have it: "FR@5" for FR@K."""
    usual = METRICS.get(symbol, PLAIN).usual
    return symbol if usual is None else symbol.replace("@K", f"@{usual}")


def drop_absent(symbols: Sequence[str], outcomes: Outcomes, *, explicit: bool) -> tuple[str, ...]:
    """The symbols that some cell has a value for; one that was asked for by name must be there.

    Raises:
        Unsupported: if a symbol was asked for and no cell can have it; the message says why.
    """
    kept = []
    for symbol in symbols:
        having = [outcome for outcome in outcomes.done if symbol in outcome.columns]
        here = METRICS.get(symbol, PLAIN).stored == "always"
        here |= is_of_clean(symbol) and bool(outcomes.clean)
        if "minimum norm" in needs_of(symbol):
            here = any(outcome.is_minimum for outcome in outcomes.done)
        if is_coverage(symbol):
            here = any("coverage" in outcome.columns for outcome in outcomes.done)
        if here or any(_has_values(outcome.columns[symbol]) for outcome in having):
            kept.append(symbol)
        elif explicit and outcomes.done and (not having or is_file_name(symbol)):
            why = _needs_images(symbol) if is_file_name(symbol) else _why_absent(symbol, outcomes)
            raise Unsupported(f"{symbol} cannot be had from this folder: {why}")
        elif explicit:
            kept.append(symbol)
    return tuple(kept)


def _has_values(column: np.ndarray) -> bool:
    return column.dtype != object and not np.isnan(column).all()


class CellDraws:
    """What is drawn of the cells of a folder, kept for the tables that are made of it one after the other.

    Args:
        bootstrap: replicates.
        seed: of the resampling.
        kept: symbols of which the draws are kept: 16 KB of each cell with 1000 replicates.
    """

    def __init__(self, bootstrap: int, seed: int, kept: Collection[str] = ()):
        self.bootstrap, self.seed, self.kept = bootstrap, seed, frozenset(kept)
        self._best: dict[tuple[object, ...], np.ndarray] = {}
        self._clean: dict[str, Draws] = {}
        self._exact: dict[int, np.ndarray] = {}  # counts as floating point numbers, which products turn them into
        self._counts: dict[int, np.ndarray] = {}
        self._drawn: dict[str, dict[str, Draws]] = {}

    def counts(self, images: int) -> np.ndarray:
        """From `resample`, of a number of images."""
        if images not in self._counts:
            self._counts[images] = resample(images, self.bootstrap, self.seed)
        return self._counts[images]

    def prepare(self, outcomes: Outcomes, symbols: Sequence[str]) -> None:
        """Look at all cells for what one cell alone does not say: the best distances of OPT, and CF of each model."""
        self._best = best_distances_of(outcomes.done) if "OPT" in symbols else {}
        if "CF" in symbols:
            self._clean = _draw_clean(outcomes, self.counts, self._clean)

    def draw(self, outcome: Outcome, outcomes: Outcomes, symbols: Sequence[str]) -> dict[str, Draws]:
        """Every symbol of a finished cell; `prepare` comes first.

        CTC, which is about several cells, stays NaN; so does D_half of a fixed budget. RA is that of the cell's attack
        alone. Of shares, whose intervals are not of draws, there is the value alone.

        Args:
            outcome: the cell.
            outcomes: the folder.
            symbols: chosen and present ones.
        """
        known = self._drawn.get(outcome.cell.key, {})
        lacking = [symbol for symbol in symbols if symbol not in known]
        if not lacking:
            return known
        images, subject = outcome.cell.subject.images, outcome.cell.subject.key
        weights = self.counts(images)
        exact = self._exact.get(images)
        if exact is None:
            exact = weights.astype(float)
            self._exact = {images: exact}
        held = replace(outcome, columns=hold_columns(outcome.columns, lacking))
        columns = np.stack([column_of(held, outcomes, symbol) for symbol in lacking], axis=1)
        plain = np.array([is_share(symbol) for symbol in lacking], bool)
        drawn: dict[str, Draws] = {}
        for chosen, rows in ((plain, 1), (~plain, len(weights))):
            names = [symbol for symbol, taken in zip(lacking, chosen, strict=True) if taken]
            if names:
                means = draw_means(exact[:rows], columns[:, chosen])
                drawn |= dict(zip(names, means, strict=True))
        for symbol in lacking:
            special = _draw_special(outcome, symbol, weights, self._best)
            special = self._clean.get(subject) if symbol == "CF" else special
            drawn[symbol] = drawn[symbol] if special is None else special
        kept = {symbol: draws for symbol, draws in drawn.items() if symbol in self.kept and symbol != "OPT"}
        if kept:
            self._drawn[outcome.cell.key] = {**known, **kept}
        return {**known, **drawn}


def best_distances_of(done: Sequence[Outcome]) -> dict[tuple[object, ...], np.ndarray]:
    """The least distance of each image over all attacks on the same model, norm and target, by `rivals` of a cell."""
    best: dict[tuple[object, ...], np.ndarray] = {}
    for outcome in done:
        key = rivals(outcome)
        best[key] = np.minimum(best[key], outcome.columns["distance"]) if key in best else outcome.columns["distance"]
    return best


def rivals(outcome: Outcome) -> tuple[object, ...]:
    """What attacks must share for their distances to be compared: model, images, norm, target, 8-bit or not."""
    cell = outcome.cell
    return cell.subject.key, cell.threat_model.norm, cell.threat_model.targeted, cell.target, cell.pixels


def column_of(outcome: Outcome, outcomes: Outcomes, symbol: str) -> np.ndarray:
    """The values of a cell's images, (n,); NaN where undefined."""
    columns, images = outcome.columns, len(outcome.columns["label"])
    if symbol in ("RA", "RA_mean"):
        return outcome.results.robust
    clean = outcomes.clean.get(outcome.cell.subject.key)
    if is_of_clean(symbol) and clean is not None and symbol in clean.columns:
        return clean.columns[symbol]
    column, over = columns.get(symbol), METRICS.get(symbol, PLAIN).over
    if column is None or column.dtype == object:
        return np.full(images, np.nan)
    return np.where(columns[over], column, np.nan) if over else column.astype(float)


def _draw_clean(
    outcomes: Outcomes, counts: Callable[[int], np.ndarray], known: Mapping[str, Draws]
) -> dict[str, Draws]:
    """CF by subject: the same for every attack on it, and in every table."""
    attacked = {outcome.cell.subject.key for outcome in outcomes.done}
    draws = dict(known)
    for key, clean in outcomes.clean.items():
        if key in attacked and key not in draws:
            columns, n = clean.columns, clean.subject.images
            draws[key] = draws_of(draw_macro_f1(counts(n), columns["label"], columns["predicted"]), n)
    return draws


def _draw_special(
    outcome: Outcome,
    symbol: str,
    counts: np.ndarray,
    best: Mapping[tuple[object, ...], np.ndarray],
) -> Draws | None:
    """The metrics that are no mean over images."""
    if is_coverage(symbol):
        return draws_of(
            np.append(_coverage(outcome, symbol), np.full(len(counts) - 1, np.nan)), int(outcome.usable.sum())
        )
    if symbol != "OPT" and not (symbol == "D_half" and outcome.is_minimum):
        return None
    proven = outcome.results.proven  # the others say nothing: neither how far they are nor that none is nearer
    if not proven.any():
        return draws_of(np.full(len(counts), np.nan), 0)
    weights = counts if proven.all() else counts[:, proven]
    distances, n = outcome.columns["distance"][proven], int(proven.sum())
    if symbol == "D_half":
        return draws_of(draw_half_distortion(weights, distances), n)
    return draws_of(draw_optimality(weights, distances, best[rivals(outcome)][proven]), n)


def is_extrapolated(outcome: Outcome) -> bool:
    """Whether D_half of a cell is a number, and lies beyond what was measured: fewer than half of the images fell."""
    distances = outcome.columns["distance"][outcome.results.proven]
    right = distances[distances > 0]
    fallen = np.isfinite(right).sum()
    return outcome.is_minimum and bool(0 < 2 * fallen < len(right))


def _coverage(outcome: Outcome, symbol: str) -> float:
    """Coverage of a cell's images after the attack, or before it ("@clean"), of all layers or one ("@LAYER")."""
    base, *parts = symbol.split("@")
    coverage = coverage_of(outcome.columns, clean=CLEAN in parts)
    layer = next((part for part in parts if part != CLEAN), "")
    if coverage is None or (layer and layer not in coverage):
        return np.nan
    return coverage_values(coverage, layer)[base]


def _needs_images(symbol: str) -> str:
    return f"it needs {', '.join(find_metric(symbol).needs)}: evaluate with --metric {symbol}"


def _how_to_measure(symbol: str) -> str:
    """How to get a metric that is measured only if it is asked for."""
    name = GROUP_OF.get(base_of(symbol), symbol)
    return f"evaluate with --metric {name}{' --profile DATA' if is_coverage(symbol) else ''}"


def optional_symbols(outcomes: Outcomes) -> tuple[str, ...]:
    """Metrics of the groups that are measured only if they are asked for, as far as records have them."""
    columns = {name for outcome in outcomes.done for name in outcome.columns}
    return tuple(symbol for symbol in GROUP_OF if symbol in columns or (is_coverage(symbol) and "coverage" in columns))


def _why_absent(symbol: str, outcomes: Outcomes) -> str:
    reasons = {outcome.unmeasured[symbol] for outcome in outcomes.done if symbol in outcome.unmeasured}
    if reasons or base_of(symbol) in GROUP_OF or is_parametrised(symbol):
        return "; ".join(sorted(reasons)) or _how_to_measure(symbol)
    group, needs = METRICS[base_of(symbol)].group, needs_of(symbol)
    if "target" in needs and not any(outcome.cell.threat_model.targeted for outcome in outcomes.done):
        failed = any(cell.threat_model.targeted for cell, _ in outcomes.failed)
        return "no attack here has a target" if not failed else "every attack with a target failed"
    if reasons := {_LACKING[need] for need in needs if need in _LACKING}:
        return "; ".join(reasons)
    if is_of_clean(symbol) or is_rate(symbol):
        return "it has no predictions on clean images"
    if group not in MEASURES:
        return "its records have no such column: evaluate it again"
    measured = any(group in group_names(outcome.cell.measures) for outcome in outcomes.done)
    lacking = "it needs what these models or data lack (ImageNet's classes, a last linear layer, a layer with maps)"
    return lacking if measured else f"it was evaluated without the measures {group!r}"

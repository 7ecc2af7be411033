"""Tables of attacks, of models, or of pairs of an attack and a model, with 95 % intervals over the images."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, get_args

import numpy as np
import pandas as pd

from ...deprecation import takes_old_names
from ...errors import InvalidInput, Unavailable, Unsupported
from ..displayed import Displayed
from ..finding import Finding, note, sentences
from ..metric_names import facts_of
from ..statistics.bootstrap import FEWEST, Estimate, Replicates, draw_levels, interval
from ..store.results import Results, as_results
from ..thread_map import thread_map
from .class_rows import build_class_rows, simultaneous_notes
from .estimates import EXTRAPOLATED, GREY_HALF, NOTHING, RunReplicates, estimate_row, is_extrapolated
from .groups import (
    Knowledge,
    TableGroup,
    ThreatUnion,
    find_union,
    group_cells,
    of_kind,
    uneven_rows,
    worst_case_bias_note,
)
from .symbols import By, choose_symbols, drop_absent, is_of_distances, is_union, optional_symbols

_REPR = 6  # metrics in a repr


def is_given(value: Any) -> bool:
    """Whether a label has a value: not empty, not 0, not NaN."""
    return value not in ("", False, 0, None) and not (isinstance(value, float) and math.isnan(value))


@dataclass(frozen=True)
class TableRow:
    """A row of a table: labels by name, and estimates by symbol."""

    labels: Mapping[str, Any]
    metrics: Mapping[str, Estimate]


@dataclass(frozen=True, repr=False)
class Table(Displayed):
    """A table of a results folder.

    Args:
        by: subject of a row ("attacks", "models", "pairs" or "classes"), or the name of a special table ("defence").
        labels: names of the label columns, the same in every row.
        symbols: symbols of the metrics, in order, the same in every row.
        rows: rows, in order.
        findings: notes, such as those on failed, unfinished and damaged runs.
    """

    by: str
    labels: tuple[str, ...]
    symbols: tuple[str, ...]
    rows: tuple[TableRow, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences of the findings."""
        return sentences(self.findings)

    @property
    def shown_labels(self) -> list[str]:
        """Names of the labels that have a value in at least one row, and "violations" in any case."""
        return [
            name for name in self.labels if name == "violations" or any(is_given(row.labels[name]) for row in self.rows)
        ]

    @property
    def unit(self) -> str:
        """The unit of n: "images", or "images of all runs"."""
        return "images of all runs" if any(row.labels.get("cells", 1) > 1 for row in self.rows) else "images"

    def _shown(self) -> tuple[str, pd.DataFrame, Sequence[str]]:
        size = f"{len(self.rows)} rows, {len(self.symbols)} metrics"
        about = [name for name in self.shown_labels if name not in ("cells", "images", "violations", "knowledge")]
        frame = self.frame().filter([*about, *self.symbols[:_REPR]])
        return f"Table by {self.by}: {size}; .to_frame() has every number with its interval", frame, self.notes

    def to_frame(self) -> pd.DataFrame:
        """Return the table as a pandas frame, see `frame`."""
        return self.frame()

    def frame(self) -> pd.DataFrame:
        """The table as a data frame.

        Columns: each label, then `SYMBOL`, `SYMBOL low`, `SYMBOL high` and `SYMBOL n` for each metric. `low` and `high`
        are the bounds of the interval.
        """
        ends = ("", " low", " high", " n")
        columns = [*self.labels, *(f"{symbol}{end}" for symbol in self.symbols for end in ends)]
        lines = [
            [*row.labels.values(), *(number for symbol in self.symbols for number in row.metrics[symbol])]
            for row in self.rows
        ]
        return pd.DataFrame(lines, columns=columns)


@takes_old_names()
def build_table(  # noqa: PLR0913 - what is read by position, the choices by keyword
    folder: str | PathLike[str] | Results,
    *,
    by: By = "attacks",
    metrics: Sequence[str] | None = None,
    pool_images: bool = False,
    knowledge: Knowledge | None = None,
    all_threat_models: bool = False,
    bootstrap: int = 1000,
    seed: int = 0,
    drawn: RunReplicates | None = None,
) -> Table:
    """Build a table of a results folder.

    The value of a run is the mean over the images for which the metric is defined. Invalid results count neither as
    fooled nor as robust. A row is the mean of these values, as in CANARY: over the models for an attack, and over the
    attacks of one threat model for a model. Repeats with different seeds are averaged first.

    RA of a model is different: an image counts as robust if it is robust to every attack of the row in every repeat.
    RA_mean is the mean over the attacks. RA_union is RA over the attacks of all untargeted threat models with a radius.
    By default, a table has RA_union if there are several norms.

    Intervals are 95 %: for rates from `clustered_interval`, for other metrics expanded percentile bootstrap intervals
    over images. Each bootstrap replicate draws the same images for every run.

    Rows never mix threat models, parameters or data: the label `setting` distinguishes rows with equal other labels.
    All rows have the labels `norm`, `epsilon`, `targeted`, `setting`, and the numbers `cells` (of runs), `failed` (of
    failed runs), `images` (of attacked images) and `violations` (of invalid results). Further labels, by kind of table:

    - "attacks": `implementation`, `knowledge` and `models`.
    - "models": `model` and `attacks`.
    - "pairs": `model` and `implementation`.
    - "classes": `model`, `attacks`, `class`, `class name` and `lowest` (the metrics that have their lowest value for
      this class).

    Args:
        folder: path of a results folder, or its `Results`.
        by: subject of a row. With "classes", a row is a model and a true class. The metrics are CA, RA and other rates
            of images, and the intervals hold together for all classes.
        metrics: symbols: those of `METRICS`, "FR@10" for any K, and user metrics, "my.py:function". None for the
            default metrics of the table and the user metrics of the folder.
        pool_images: whether a row is the mean over the images of all its runs. Metrics that are not means over images
            stay means over runs.
        knowledge: only attacks with this knowledge of the model: "white-box", "black-box" (all others), "score",
            "decision", "transfer". None for all attacks.
        all_threat_models: with `by="models"`, whether each model has a single row over the attacks of all threat models
            (CANARY's Table 8). Rows then have only the labels `model`, `setting` and `attacks`, and a note names
            attacks that a row lacks.
        bootstrap: number of bootstrap replicates; 0 for no intervals.
        seed: random seed of the bootstrap.
        drawn: replicates that are shared with other tables of the folder. If given, `bootstrap` and `seed` are ignored.

    Returns:
        The table. An estimate's `n` is the number of images for which the metric is defined, summed over the runs.

    Raises:
        UnknownName: if there is no such metric.
        Unsupported: if a metric is not available in this folder.
        InvalidInput: if `by` is unknown, or arguments cannot be combined.
        Unavailable: if there is no such folder, or the folder has no run.
    """
    if by not in get_args(By):
        raise InvalidInput(f"expected `by` to be one of {', '.join(get_args(By))}, got {by!r}")
    asked = choose_symbols(metrics, by)
    if all_threat_models and by != "models":
        raise InvalidInput(f"all_threat_models needs by='models', got by={by!r}")
    if pool_images and by == "classes":
        raise InvalidInput("pool_images cannot be combined with by='classes'")
    outcomes = of_kind(as_results(folder, asked), knowledge)
    if metrics is None and by != "classes":
        asked = (*asked, *optional_symbols(outcomes), *outcomes.users_symbols)
    symbols = drop_absent(asked, outcomes, explicit=metrics is not None)
    union = find_union(outcomes) if any(map(is_union, symbols)) else None
    if union and metrics is not None and union.lacking:
        raise Unsupported(union.lacking)
    if union and (union.lacking or (metrics is None and not union.has_several_norms)):
        symbols = tuple(symbol for symbol in symbols if not is_union(symbol))
    drawn = RunReplicates(bootstrap, seed) if drawn is None else drawn
    drawn.prepare(outcomes, symbols)
    groups = group_cells(outcomes, "models" if by == "classes" else by, mixed=all_threat_models)
    if by == "classes":
        lines = _class_lines(groups, outcomes, symbols, union, drawn)
    else:
        lines = _lines(groups, outcomes, symbols, union, drawn, pooled=pool_images, of_model=by == "models")
    of_models = by in ("models", "classes")
    judged = [*groups, *(union.rows.values() if union and any(map(is_union, symbols)) else [])]
    findings = [
        *outcomes.findings,
        *(uneven_rows(groups, mixed=all_threat_models) if of_models else []),
        *(worst_case_bias_note(judged) if of_models and any(map(is_worst, symbols)) else []),
        *(_about_union(union, symbols) if union else []),
        *(simultaneous_notes(groups) if by == "classes" and drawn.bootstrap else []),
        *_why_empty(outcomes, symbols),
        *_what_invalid_results_count_as(groups, symbols, intervals=drawn.bootstrap > 0),
        *(_extrapolated(outcomes) if {"D_half", GREY_HALF} & {*symbols} else []),
        *(_why_no_interval(lines) if by != "classes" and drawn.bootstrap else []),
    ]
    return Table(by, tuple(lines[0].labels), symbols, lines, tuple(findings))


def _class_lines(
    groups: Sequence[TableGroup],
    outcomes: Results,
    symbols: Sequence[str],
    union: ThreatUnion | None,
    drawn: RunReplicates,
) -> tuple[TableRow, ...]:
    has_intervals = drawn.bootstrap > 0
    rows = [build_class_rows(group, outcomes, symbols, union, has_intervals=has_intervals) for group in groups]
    if not any(rows):
        raise Unavailable(f"no finished runs in {outcomes.store.folder}")
    return tuple(TableRow(*row) for each in rows for row in each)


def _lines(
    groups: Sequence[TableGroup],
    outcomes: Results,
    symbols: Sequence[str],
    union: ThreatUnion | None,
    drawn: RunReplicates,
    *,
    pooled: bool,
    of_model: bool,
) -> tuple[TableRow, ...]:
    has_levels = "CTC" in symbols  # it ranks the seconds of several rows
    over_union = [symbol for symbol in symbols if is_union(symbol)]
    inner = tuple(symbol for symbol in symbols if symbol not in over_union)
    inner = (*inner, "seconds") if has_levels and "seconds" not in inner else inner

    def estimate(group: TableGroup) -> tuple[dict[str, Estimate], Replicates | None]:
        estimates = estimate_row(group.parts, outcomes, inner, drawn, pooled=pooled, of_model=of_model)
        if over_union:
            whole = None if union is None else union.row_of(group)
            estimates |= dict.fromkeys(over_union, NOTHING)
            estimates |= estimate_row(whole.parts, outcomes, over_union, drawn, of_model=True) if whole else {}
        return estimates, drawn.row(group.parts, outcomes, ["seconds"], pooled=pooled)[
            "seconds"
        ] if has_levels else None

    rows = list(thread_map(estimate, groups))
    if has_levels:
        _rank_times(groups, rows)
    return tuple(
        TableRow(group.labels, {symbol: estimates[symbol] for symbol in symbols})
        for group, (estimates, _) in zip(groups, rows, strict=True)
    )


def is_worst(symbol: str) -> bool:
    """Whether a metric takes the worst case over the attacks on each image."""
    return facts_of(symbol).across != "mean"


def _about_union(union: ThreatUnion, symbols: Sequence[str]) -> Iterator[Finding]:
    """Yield a note with the threat models of RA_union, or with the reason why several norms have no RA_union."""
    if any(map(is_union, symbols)):
        yield note("union", "RA_union is over {threat_models}", threat_models=union.text)
    elif union.lacking and union.has_several_norms:
        yield note("union", union.lacking)


def _rank_times(groups: Sequence[TableGroup], rows: Sequence[tuple[dict[str, Estimate], Any]]) -> None:
    """Compute CTC, the level of an attack's time, among the attacks of the table (or among the attacks on a model)."""
    models: dict[Any, list[tuple[dict[str, Estimate], Replicates]]] = {}
    for group, row in zip(groups, rows, strict=True):
        if group.parts:
            models.setdefault(group.labels.get("model", ""), []).append(row)
    for peers in models.values():
        levels = draw_levels(np.stack([seconds.ratio for _, seconds in peers], axis=1))
        for place, (estimates, seconds) in enumerate(peers):
            estimates["CTC"] = interval(levels[:, place], seconds.n)


def _what_invalid_results_count_as(
    groups: Sequence[TableGroup], symbols: Sequence[str], *, intervals: bool
) -> Iterator[Finding]:
    if not any(group.labels["violations"] for group in groups):
        return
    results = [each.results for group in groups for each in group.outcomes]
    of_model, of_library = (int(sum(getattr(each, by).sum() for each in results)) for by in ("by_model", "by_library"))
    faults = [f"{of_model} caused by the model count as not robust"] * bool(of_model)
    faults += [f"{of_library} caused by the library count as not fooled"] * bool(of_library)
    if counting := [symbol for symbol in symbols if facts_of(symbol).invalid]:
        ends = f", and as 1 in the upper bounds of the intervals{', unless the cause is known' * bool(faults)}"
        ends = (ends if intervals else "") + (f" ({', '.join(faults)})" if faults else "")
        sentence = "invalid results count as 0 in {symbols}{ends}"
        about: dict[str, Any] = {"by_model": of_model, "by_library": of_library}
        yield note("violations", sentence, symbols=", ".join(counting), ends=ends, **about)
    if leaving := [symbol for symbol in symbols if is_of_distances(symbol)]:
        yield note("violations-left-out", "invalid results are omitted from {symbols}", symbols=", ".join(leaving))


def _extrapolated(outcomes: Results) -> Iterator[Finding]:
    beyond = [f"{each.cell.title} on {each.cell.subject.name}" for each in outcomes.done if is_extrapolated(each)]
    if beyond:
        yield note("extrapolated", f"{EXTRAPOLATED}: {{cells}}", cells="; ".join(dict.fromkeys(beyond)))


def _why_empty(outcomes: Results, symbols: Sequence[str]) -> Iterator[Finding]:
    for symbol in symbols:
        if reasons := {each.unmeasured[symbol] for each in outcomes.done if symbol in each.unmeasured}:
            sentence = "{symbol} was not measured everywhere: {reasons}"
            yield note("not-measured", sentence, symbol=symbol, reasons="; ".join(sorted(reasons)))


def _why_no_interval(rows: Sequence[TableRow]) -> Iterator[Finding]:
    """Yield notes with the reasons why values have no interval."""
    bare = {
        symbol
        for row in rows
        for symbol, estimate in row.metrics.items()
        if math.isnan(estimate.low) and math.isfinite(estimate.value)
    }
    of_sets = sorted(symbol for symbol in bare if "coverage" in facts_of(symbol).needs)
    if len(bare) > len(of_sets):
        sentence = (
            "some values of {symbols} have no interval: there are fewer than {fewest} images, or all images "
            "have the same value"
        )
        symbols = [symbol for symbol in dict.fromkeys(rows[0].metrics) if symbol in bare.difference(of_sets)]
        yield note("no-interval", sentence, fewest=FEWEST, symbols=", ".join(symbols))
    if of_sets:
        sentence = "no interval for {symbols}: coverage is a property of the whole image set"
        yield note("no-interval-of-sets", sentence, symbols=", ".join(of_sets))

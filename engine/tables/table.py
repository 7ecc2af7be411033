"""The papers' tables: attacks, models, or attack x model, every metric with a bootstrap interval over the images."""

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd

from ...errors import InvalidInput
from ...intervals import clustered_interval
from ...metrics import METRICS, PLAIN
from ..at_once import map_at_once
from ..statistics.bootstrap import FEWEST, Draws, Estimate, draw_levels, draw_means, draws_of, interval
from ..store.outcomes import Outcome, Outcomes, outcomes_of
from ..store.stored_columns import hold_columns
from .groups import Group, Knowledge, group_cells, least_of_draws, model_names, of_kind, uneven_rows
from .symbols import (
    EXTRAPOLATED,
    By,
    CellDraws,
    choose_symbols,
    column_of,
    drop_absent,
    is_coverage,
    is_extrapolated,
    is_of_clean,
    is_of_distances,
    is_share,
    optional_symbols,
)


@dataclass(frozen=True)
class TableRow:
    """A line of a table: what it is about by label, and an estimate by symbol."""

    labels: Mapping[str, Any]
    metrics: Mapping[str, Estimate]


@dataclass(frozen=True, repr=False)
class Table:
    """A table of a results folder.

    Args:
        by: "attacks", "models" or "pairs", or "defence" of `build_defence`.
        labels: names of the labels, the same in every row.
        symbols: of the metrics, in order; every row has all of them.
        rows: in order.
        notes: a line for everything that is not in the numbers: failed, unfinished and damaged cells.
    """

    by: str
    labels: tuple[str, ...]
    symbols: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        size = f"{len(self.rows)} rows, {len(self.symbols)} metrics"
        return f"Table by {self.by}: {size}; {len(self.notes)} notes; .to_frame() has every number with its interval"

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return f"{self.to_frame().to_html(max_rows=60)}<ul>{notes}</ul>"

    def to_frame(self) -> pd.DataFrame:
        """The same as `frame`."""
        return self.frame()

    def frame(self) -> pd.DataFrame:
        """One line for each row: a column for each label, then SYMBOL, SYMBOL low, SYMBOL high, SYMBOL n."""
        ends = ("", " low", " high", " n")
        columns = [*self.labels, *(f"{symbol}{end}" for symbol in self.symbols for end in ends)]
        lines = [
            [*row.labels.values(), *(number for symbol in self.symbols for number in row.metrics[symbol])]
            for row in self.rows
        ]
        return pd.DataFrame(lines, columns=columns)


def build_table(  # noqa: PLR0913 - what is read by position, the choices by keyword
    folder: str | Path | Outcomes,
    *,
    by: By = "attacks",
    metrics: Sequence[str] | None = None,
    pooled: bool = False,
    knowledge: Knowledge | None = None,
    mixed: bool = False,
    bootstrap: int = 1000,
    seed: int = 0,
    drawn: CellDraws | None = None,
) -> Table:
    """The table of a results folder.

    A cell's value is the mean over the images where the metric is defined (violated images count neither as fooled nor
    as robust). A row is the mean of cell values, as CANARY has it: of attacks over the models, of models over the
    attacks of one threat model; repeats with other seeds are averaged first. RA of a model is no such mean: an image
    counts where every attack of the row, in every repeat, leaves it robust; RA_mean is the mean. With `pooled` a row is
    the mean over the images of all its cells instead; metrics that are no mean over images stay means over cells.
    Intervals are 95 %: those of shares (`is_share`) from `clustered_interval`, all others expanded percentile bootstrap
    intervals over images: each replicate draws the same images for every cell.

    Rows never mix threat models, parameters or data: what tells two rows apart beyond their labels is in `setting`.
    Labels, by attacks: `implementation`, `knowledge`, `norm`, `epsilon`, `targeted`, `setting`, `models`; by models:
    `model`, `norm`, `epsilon`, `targeted`, `setting`, `attacks`; by pairs: `model`, `implementation`, `norm`,
    `epsilon`, `targeted`, `setting`; then, for all, `cells` and `failed` ones, `images` attacked, `violations`.

    Args:
        folder: a results folder, or what was read of it.
        by: what a row is about.
        metrics: symbols: those of `METRICS`, "FR@10" for any K, and user metrics, "my.py:function"; None: those
            of the table and the user's, as far as the folder has them.
        pooled: see above.
        knowledge: only attacks that know this much of the model: "white-box", "black-box" (all others), "score",
            "decision", "transfer"; None: all.
        mixed: by models, one row for each over all its attacks, whatever their threat models (CANARY's Table 8); rows
            are then labelled by `model`, `setting` and `attacks` only, and a note names what a row lacks.
        bootstrap: replicates; 0: no intervals.
        seed: of the resampling.
        drawn: keeps what is drawn for other tables of the same folder, in place of `bootstrap` and `seed`.

    Returns:
        The table. An estimate's `n` is the number of images, summed over the cells, where the metric is defined.

    Raises:
        UnknownName: if there is no such metric.
        Unsupported: if a metric cannot be had from this folder.
        Unavailable: if there is no such folder, or no cell in it.
    """
    if by not in get_args(By):
        raise InvalidInput(f"expected by as one of {', '.join(get_args(By))}, got {by!r}")
    asked = choose_symbols(metrics, by)
    if mixed and by != "models":
        raise InvalidInput(f"expected mixed with by='models', got by={by!r}")
    outcomes = of_kind(outcomes_of(folder, asked), knowledge)
    asked = (*asked, *optional_symbols(outcomes), *outcomes.users_symbols) if metrics is None else asked
    symbols = drop_absent(asked, outcomes, explicit=metrics is not None)
    drawn = CellDraws(bootstrap, seed) if drawn is None else drawn
    inner = symbols if "seconds" in symbols else (*symbols, "seconds")  # CTC ranks them
    drawn.prepare(outcomes, inner)
    groups = group_cells(outcomes, by, mixed=mixed)
    shares = [symbol for symbol in symbols if is_share(symbol)] if drawn.bootstrap else []
    worst = [symbol for symbol in symbols if is_worst(symbol)]

    def estimate(group: Group) -> tuple[dict[str, Estimate], Draws, dict[str, tuple[float, float]]]:
        """A row's estimates, the draws of its seconds, and the ends of its shares."""
        group = _holding(group, shares)
        draws = _draw_group(group, outcomes, inner, drawn, pooled=pooled)
        if worst and _has_worst(group):
            draws |= dict.fromkeys(worst, _draw_worst(group.parts, drawn.counts))
        estimates = {symbol: interval(each.ratio, each.n, each.different) for symbol, each in draws.items()}
        return estimates, draws["seconds"], {name: _ends_of(group, outcomes, name, pooled=pooled) for name in shares}

    every, seconds, ends = zip(*map_at_once(estimate, groups), strict=True)
    if "CTC" in symbols:
        _rank_times(groups, seconds, every)
    lines = []
    for group, estimates, of_shares in zip(groups, every, ends, strict=True):
        for symbol, (low, high) in of_shares.items():
            estimates[symbol] = estimates[symbol]._replace(low=low, high=high)
        lines.append(TableRow(group.labels, {symbol: estimates[symbol] for symbol in symbols}))
    uneven = uneven_rows(groups, mixed=mixed) if by == "models" else []
    uneven += least_of_draws(groups) if by == "models" and worst else []
    notes = (
        outcomes.notes
        + uneven
        + _why_empty(outcomes, symbols)
        + _what_violations_count(groups, symbols, intervals=bool(drawn.bootstrap))
        + (_extrapolated(outcomes) if "D_half" in symbols else [])
    )
    notes += _why_no_interval(lines) if drawn.bootstrap else []
    return Table(by, tuple(groups[0].labels), symbols, tuple(lines), tuple(notes))


def _draw_group(
    group: Group, outcomes: Outcomes, symbols: Sequence[str], drawn: CellDraws, *, pooled: bool
) -> dict[str, Draws]:
    """Every symbol of a row, over its cells."""
    of_cells = [[drawn.draw(each, outcomes, symbols) for each in part] for part in group.parts]
    draws = {
        symbol: aggregate([[each[symbol] for each in part] for part in of_cells], pooled=pooled) for symbol in symbols
    }
    seen = {each.cell.subject.key: each.cell.subject.images for part in group.parts for each in part}
    for symbol in filter(is_of_clean, symbols):  # an image counts once, however many attacks it met
        draws[symbol] = draws[symbol]._replace(n=sum(seen.values()))
    return draws


def aggregate(parts: list[list[Draws]], *, pooled: bool = False) -> Draws:
    """The mean over parts of the mean over their repeats, or over all their images."""
    every = [draws for part in parts for draws in part]
    n = sum(draws.n for draws in every)
    if not every:
        return draws_of(np.full(1, math.nan), 0)
    different = max(each.different or each.n for each in every)
    if pooled:
        return Draws(np.sum([each.total for each in every], 0), np.sum([each.count for each in every], 0), n, different)
    return draws_of(_mean([_mean([each.ratio for each in part]) for part in parts]), n)._replace(different=different)


def share_ends(parts: list[list[np.ndarray]], *, pooled: bool = False) -> tuple[float, float]:
    """Interval of the mean that `aggregate` gives, of a share.

    Args:
        parts: of each part its repeats' values of the same images, (n,) each, from 0 to 1, NaN where undefined.
        pooled: every image of every repeat weighs the same.
    """
    weights, columns = [], []
    met = [[column for column in part if not np.isnan(column).all()] for part in parts]
    for part in met:
        columns += part
        weights += [float((~np.isnan(column)).sum()) if pooled else 1 / len(part) for column in part]
    if not columns:
        return math.nan, math.nan
    ends = clustered_interval(np.stack(columns, axis=1), weights)
    return float(ends.low), float(ends.high)


def _holding(group: Group, symbols: Sequence[str]) -> Group:
    """The same row with these columns of its cells held, for as long as it is worked at: one look at each file."""

    def held(outcome: Outcome) -> Outcome:
        return replace(outcome, columns=hold_columns(outcome.columns, symbols))

    return group._replace(parts=[[held(outcome) for outcome in part] for part in group.parts])


def _ends_of(group: Group, outcomes: Outcomes, symbol: str, *, pooled: bool) -> tuple[float, float]:
    """Interval of a share over the cells of a row.

    An image of which nothing is known (`undecided`) counts as 0 in the value, and as 1 in the upper end (the bounds of
    Manski 2003 for what is missing).
    """
    low, high = share_ends(_shares_of(group, outcomes, symbol), pooled=pooled)
    if _invalid(symbol) and group.labels["violations"]:
        high = share_ends(_shares_of(group, outcomes, symbol, counted=1), pooled=pooled)[1]
    return low, high


def _shares_of(group: Group, outcomes: Outcomes, symbol: str, counted: float = 0) -> list[list[np.ndarray]]:
    """A share of each image in each cell of a row; `counted` is what an undecided image counts as."""

    def of_cell(outcome: Outcome) -> np.ndarray:
        column = column_of(outcome, outcomes, symbol).clip(0, 1)
        if not counted:
            return column
        results = outcome.results
        undecided = results.undecided_fooled if _invalid(symbol) == "not fooled" else results.undecided_robust
        return np.where(undecided & ~np.isnan(column), counted, column)

    if is_worst(symbol) and _has_worst(group):
        return [[_worst(group.parts, counted)]]
    if is_of_clean(symbol):  # an image counts once, however many attacks it met
        models = {each.cell.subject.key: each for part in group.parts for each in part}
        return [[of_cell(each)] for each in models.values()]
    return [[of_cell(each) for each in part] for part in group.parts]


def is_worst(symbol: str) -> bool:
    """Whether a metric sums up the attacks on a model by the worst case on each image."""
    return METRICS.get(symbol, PLAIN).across == "worst"


def _invalid(symbol: str) -> str:
    """What an invalid result counts as in a metric, see `Metric.invalid`."""
    return METRICS.get(symbol, PLAIN).invalid


def _has_worst(group: Group) -> bool:
    """Whether a row is about a model, whose RA is the worst case over its attacks, and not about one attack."""
    return "implementation" not in group.labels and bool(group.parts)


def _worst(parts: list[list[Outcome]], counted: float = 0) -> np.ndarray:
    """How much of each image every attack of a row leaves robust, in every repeat, (n,): 0 or 1, or shares of draws."""
    every = [outcome for part in parts for outcome in part]
    return np.minimum.reduce([each.results.robust_at_most if counted else each.results.robust for each in every])


def _what_violations_count(groups: Sequence[Group], symbols: Sequence[str], *, intervals: bool) -> list[str]:
    """A line on what violations count as, where there are any, for the metrics that are about them."""
    if not any(group.labels["violations"] for group in groups):
        return []
    counting = [symbol for symbol in symbols if _invalid(symbol)]
    leaving = [symbol for symbol in symbols if is_of_distances(symbol)]
    results = [each.results for group in groups for part in group.parts for each in part]
    of_model, of_library = (
        int(sum(by.sum() for by in of))
        for of in ([each.by_model for each in results], [each.by_library for each in results])
    )
    faults = [f"{of_model} are the model's fault: not robust"] * bool(of_model)
    faults += [f"{of_library} the library's: not fooled"] * bool(of_library)
    ends = f", and as 1 in the upper ends of the intervals{', unless somebody is at fault' * bool(faults)}"
    lines = [f"violations prove nothing: they count as 0 in {', '.join(counting)}{ends if intervals else ''}"]
    said = f" ({', '.join(faults)})" if faults else ""
    lines = [lines[0] + said] if counting else []
    return [*lines, *([f"violations are left out of {', '.join(leaving)}"] if leaving else [])]


def _extrapolated(outcomes: Outcomes) -> list[str]:
    """A line on cells whose half distortion lies beyond what was measured."""
    names = model_names(outcomes)
    beyond = [f"{each.cell.title} on {names[each.cell.subject.key]}" for each in outcomes.done if is_extrapolated(each)]
    return [f"{EXTRAPOLATED}: {'; '.join(dict.fromkeys(beyond))}"] if beyond else []


def _why_no_interval(rows: Sequence[TableRow]) -> list[str]:
    """A line if an interval is missing where there is a value."""
    bare = {
        symbol
        for row in rows
        for symbol, estimate in row.metrics.items()
        if math.isnan(estimate.low) and math.isfinite(estimate.value)
    }
    of_sets = sorted(symbol for symbol in bare if is_coverage(symbol))
    lines = [f"no interval of {', '.join(of_sets)}: coverage is of the set of images"] if of_sets else []
    return [f"no interval: fewer than {FEWEST} images, or all of them with the same value", *lines][
        len(bare) == len(of_sets) :
    ]


def _mean(values: Sequence[np.ndarray]) -> np.ndarray:
    """Mean over the defined ones, replicate by replicate."""
    if len(values) == 1:
        return values[0]
    stacked = np.stack(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.nansum(stacked, 0) / (~np.isnan(stacked)).sum(0)


def _draw_worst(parts: list[list[Outcome]], counts: Callable[[int], np.ndarray]) -> Draws:
    """Share of the images that every attack of a row, in every repeat, leaves robust."""
    robust = _worst(parts)
    return draw_means(counts(len(robust)), robust[:, None])[0]


def _rank_times(groups: list[Group], seconds: Sequence[Draws], every: Sequence[dict[str, Estimate]]) -> None:
    """CTC: levels among the attacks of the table, or on one model among those on it."""
    models: dict[Any, list[int]] = {}
    for row, group in enumerate(groups):
        if group.parts:
            models.setdefault(group.labels.get("model", ""), []).append(row)
    for rows in models.values():
        levels = draw_levels(np.stack([seconds[row].ratio for row in rows], axis=1))
        for place, row in enumerate(rows):
            every[row]["CTC"] = interval(levels[:, place], seconds[row].n)


def _why_empty(outcomes: Outcomes, symbols: Sequence[str]) -> list[str]:
    """A line for each metric that was not measured somewhere, with the reason."""
    reasons: dict[str, set[str]] = {}
    for each in outcomes.done:
        for symbol in symbols:
            if symbol in each.unmeasured:
                reasons.setdefault(symbol, set()).add(each.unmeasured[symbol])
    return [f"{symbol} was not measured everywhere: {'; '.join(sorted(each))}" for symbol, each in reasons.items()]

"""Our rows beside those of another program on the same images, each against the other program's envelope."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import UnknownName, Unsupported
from ..statistics.bootstrap import Draws, Estimate, draw_means, draw_optimality, draws_of, interval, resample
from ..store.outcomes import Outcome, Outcomes, outcomes_of
from ..store.references import BESIDE, Reference, envelopes_of, setting_of_reference
from .curves import comparable_key
from .estimates import estimate_share
from .estimates import mean_draws as aggregate
from .groups import group_cells, model_names
from .table import Table, TableRow

SYMBOLS = ("fooled", "median", "gap", "OPT", "passes", "seconds")
READINGS: Mapping[str, str] = {
    "fooled": "share of the images that were right when clean",
    "median": "of the distances of these images, one that was not fooled infinitely far",
    "gap": "mean of the distance minus the envelope's, over images that both fooled",
    "OPT": "local optimality against the envelope: 1 as near, 0 nothing fooled, above 1 nearer than all its rows",
    "passes": "forward plus backward, per attacked image, each by the count of the program that judged it",
    "seconds": "per attacked image",
}
_LABELS = ("model", "implementation", "judged by", "norm", "epsilon", "setting", "images", "crashed")


class DistancesOfRun(NamedTuple):
    """What one run says of n images: `attacked` and `known` (n,) bool, the others (n,) float, NaN where undefined."""

    attacked: np.ndarray
    known: np.ndarray
    distance: np.ndarray
    passes: np.ndarray
    seconds: np.ndarray


def build_references(
    folder: str | Path | Outcomes, *, norm: str | None = None, bootstrap: int = 1000, seed: int = 0
) -> Table:
    """Every untargeted row of ours and every imported one, by model and norm, the nearest to the envelope first.

    The envelope is the least distance of each image over all imported rows of the model and norm. `READINGS` say what
    the symbols are. Images that no imported row covers are left out everywhere, and of each row those that it knows
    nothing of (violations, crashes). Repeats with other seeds are averaged. Intervals are 95 %: of shares as in
    `build_table`, all others expanded percentile bootstrap intervals over the images.

    Args:
        folder: a results folder, or what was read of it.
        norm: only this one; None: all that were imported.
        bootstrap: replicates; 0: no intervals.
        seed: of the resampling.

    Raises:
        Unsupported: if nothing was imported.
        UnknownName: if nothing was imported in that norm.
        Unavailable: if there is no such folder.
    """
    outcomes = outcomes_of(folder)
    if not outcomes.references:
        raise Unsupported(
            "expected imported results in the folder, got none: `davylamp import attackbench PATH -o FOLDER`"
        )
    norms = {each.norm for each in outcomes.references}
    if norm is not None and norm not in norms:
        raise UnknownName("norm of imported results", norm, norms)
    envelopes = {key: each for key, each in envelopes_of(outcomes.references).items() if norm in (None, key[1])}
    counts = lru_cache(maxsize=None)(lambda images: resample(images, bootstrap, seed))
    names, rows, notes = model_names(outcomes), [], []
    for key, envelope in envelopes.items():
        rows += [_draw(labels, runs, envelope, counts) for labels, runs in _runs(outcomes, key, names)]
        if unbroken := int(np.isinf(envelope).sum()):
            notes.append(f"{names[key[0]]}, {key[1]}: no imported row fooled {unbroken} images: OPT is undefined there")
    rows.sort(key=lambda row: (row.labels["model"], row.labels["norm"], *_order(row)))
    notes += [f"{symbol}: {text}" for symbol, text in READINGS.items()]
    rows = [row if bootstrap else _without_intervals(row) for row in rows]
    return Table("references", _LABELS, SYMBOLS, tuple(rows), (*notes, *_others(outcomes)))


def _runs(
    outcomes: Outcomes, key: tuple[str, str], names: Mapping[str, str]
) -> list[tuple[dict[str, Any], list[DistancesOfRun]]]:
    """Every row about a model and norm: its labels, and what each of its repeats says."""
    subject, norm = key
    done = tuple(outcome for outcome in outcomes.done if comparable_key(outcome) == key)
    lines = []
    for group in group_cells(replace(outcomes, done=done, failed=()), "pairs") if done else []:
        labels = {
            name: group.labels[name] for name in ("model", "implementation", "norm", "epsilon", "setting", "images")
        }
        labels |= {"judged by": "davylamp", "crashed": group.labels["violations"]}
        lines.append((labels, [_of_ours(outcome) for outcome in group.parts[0]]))
    for each in outcomes.references:
        if (each.subject.key, each.norm) == key:
            attacked, crashed = int(each.columns["attacked"].sum()), int(each.columns["crashed"].sum())
            labels = {"model": names[subject], "implementation": each.title, "norm": norm, "epsilon": math.nan}
            labels |= {
                "setting": setting_of_reference(each, outcomes.references),
                "images": attacked,
                "crashed": crashed,
            }
            lines.append(
                ({**labels, "judged by": f"{each.about['source']}, not davylamp"}, [distances_of_reference(each)])
            )
    return lines


def distances_of_reference(reference: Reference) -> DistancesOfRun:
    """What an imported row says; its seconds are those of its file, spread over its images."""
    columns = reference.columns
    seconds, images = reference.about.get("seconds"), max(1, int(reference.about.get("images") or 1))
    each = np.full(len(columns["distance"]), math.nan if seconds is None else seconds / images)
    return DistancesOfRun(columns["attacked"], reference.known, columns["distance"], reference.passes, each)


def _of_ours(outcome: Outcome) -> DistancesOfRun:
    columns = outcome.columns
    known, passes = outcome.results.proven, (columns["forwards"] + columns["backwards"]).astype(float)
    return DistancesOfRun(columns["attacked"], known, columns["distance"], passes, columns["seconds"])


def _draw(labels: dict[str, Any], runs: list[DistancesOfRun], envelope: np.ndarray, counts: Any) -> TableRow:
    weights = counts(len(envelope))
    covered = ~np.isnan(envelope)
    parts: dict[str, list[Draws]] = {symbol: [] for symbol in SYMBOLS}
    fooled_columns = []
    for run in runs:
        met = run.attacked & run.known & covered
        fooled = np.isfinite(run.distance)
        both = met & fooled & np.isfinite(envelope)
        gap = np.where(both, run.distance - np.where(both, envelope, 0.0), math.nan)
        columns = {"gap": gap, "passes": run.passes, "seconds": run.seconds, "fooled": fooled.astype(float)}
        columns |= {name: np.where(met, values, math.nan) for name, values in columns.items() if name != "gap"}
        drawn = draw_means(weights, np.stack([*columns.values()], axis=1))
        for name, draws in zip(columns, drawn, strict=True):
            parts[name].append(draws)
        parts["median"].append(draws_of(draw_medians(weights[:, met], run.distance[met]), int(met.sum())))
        kept = run.known & covered
        parts["OPT"].append(
            draws_of(_optimality(weights[:, kept], run.distance[kept], envelope[kept]), int(kept.sum()))
        )
        fooled_columns.append(columns["fooled"])
    estimates = {}
    for symbol, repeats in parts.items():
        draws = aggregate([repeats])
        estimates[symbol] = interval(draws.ratio, repeats[0].n)
    ends = estimate_share([fooled_columns])
    estimates["fooled"] = estimates["fooled"]._replace(low=ends.low, high=ends.high)
    return TableRow({name: labels[name] for name in _LABELS}, estimates)


def _others(outcomes: Outcomes) -> list[str]:
    """The folder's notes, without the one that leads here."""
    return [note for note in outcomes.notes if not note.endswith(BESIDE)]


def _optimality(weights: np.ndarray, distance: np.ndarray, envelope: np.ndarray) -> np.ndarray:
    if not len(distance):
        return np.full(len(weights), math.nan)
    return draw_optimality(weights, distance, envelope)


def draw_medians(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The median of values (n,) in each replicate, weights (R, n), (R,); inf where half of them are; NaN of none."""
    order = np.argsort(values, kind="stable")
    ordered, reached = values[order], np.cumsum(weights[:, order], axis=1, dtype=float)
    if not len(values):
        return np.full(len(weights), math.nan)
    half = reached[:, -1:] / 2
    low = ordered[np.minimum((reached < half).sum(1), len(values) - 1)]
    high = ordered[np.minimum((reached <= half).sum(1), len(values) - 1)]
    return np.where(reached[:, -1] > 0, (low + high) / 2, math.nan)


def _order(row: TableRow) -> tuple[float, float]:
    """The nearest to the envelope first; undefined ones last, by their median."""
    optimality, median = row.metrics["OPT"].value, row.metrics["median"].value
    last = math.inf
    return (last if math.isnan(optimality) else -optimality, last if math.isnan(median) else median)


def _without_intervals(row: TableRow) -> TableRow:
    metrics = {name: Estimate(each.value, math.nan, math.nan, each.n) for name, each in row.metrics.items()}
    return replace(row, metrics=metrics)

"""Tables of davylamp's results next to imported results of other programs and published leaderboards."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...adapters.threat_model import same_radius
from ...errors import Unavailable, UnknownName, Unsupported
from ...intervals import proportion_interval
from ..finding import Finding, note
from ..statistics.bootstrap import Estimate, Replicates, bootstrap_means, draw_optimality, draws_of, interval
from ..store.imported import PublishedRow, Reference, envelopes_of, read_published, setting_of_reference
from ..store.results import Results, RunResult, as_results
from ..store.store import ResultsStore
from .budget_curves import comparable_key
from .estimates import Counts, estimate_share, mean_draws, resamples
from .groups import group_cells
from .table import Table, TableRow, build_table

_REFERENCE_SYMBOLS = ("fooled", "median", "gap", "OPT", "passes", "seconds")
READINGS: Mapping[str, str] = {
    "fooled": "rate among the images that were correct when clean",
    "median": "median distance of the images that were correct when clean, infinite for images that were not fooled",
    "gap": "mean difference between the row's distance and the envelope's, over images with a finite value of both",
    "OPT": "local optimality against the envelope: 1 if the distances are equal, 0 if no image is fooled, above 1 if "
    "they are smaller than those of all imported rows",
    "passes": "forward plus backward passes per attacked image, as counted by the program that judged the row",
    "seconds": "per attacked image",
}
_REFERENCE_LABELS = ("model", "implementation", "judged by", "norm", "epsilon", "setting", "images", "crashed")
_PUBLISHED_LABELS = ("model", "judged by", "data", "norm", "epsilon", "attacks", "images", "setting")


class _Distances(NamedTuple):
    """Results of a run on n images, (n,) each.

    `attacked` and `known` (whether the result is valid) are bool. Numbers that are unknown are NaN.
    """

    attacked: np.ndarray
    known: np.ndarray
    distance: np.ndarray
    passes: np.ndarray
    seconds: np.ndarray


def build_references(
    folder: str | Path | Results, *, norm: str | None = None, bootstrap: int = 1000, seed: int = 0
) -> Table:
    """Build the table of untargeted runs and imported attacks, by model and norm.

    The envelope is the smallest distance of each image over all imported attacks on the model in the norm. For each
    model and norm, the attack nearest to the envelope is first. `READINGS` explains the symbols.

    Images without an imported result are omitted from all rows. Images whose result in a row is unknown (invalid or
    crashed) are omitted from that row. Repeats with other seeds are averaged. Intervals are 95 %: for rates as in
    `build_table`, otherwise expanded percentile bootstrap intervals over the images.

    Args:
        folder: path of a results folder, or its `Results`.
        norm: norm of the rows; None for all imported norms.
        bootstrap: number of bootstrap replicates; 0 for no intervals.
        seed: random seed of the bootstrap.

    Raises:
        Unsupported: if the folder has no imported attacks.
        UnknownName: if the folder has no imported attacks in that norm.
        Unavailable: if there is no such folder.
    """
    outcomes = as_results(folder)
    if not outcomes.references:
        raise Unsupported("the folder has no imported results: run `davylamp import attackbench PATH -o FOLDER`")
    norms = {each.norm for each in outcomes.references}
    if norm is not None and norm not in norms:
        raise UnknownName("norm of imported results", norm, norms)
    counts = resamples(bootstrap, seed)
    rows, findings = [], list[Finding]()
    for (subject, of_norm), envelope in envelopes_of(outcomes.references).items():
        if norm not in (None, of_norm):
            continue
        model = outcomes.subjects[subject].name
        runs = _runs(outcomes, subject, of_norm)
        rows += [_reference_row({"model": model, **labels}, each, envelope, counts) for labels, each in runs]
        if unbroken := int(np.isinf(envelope).sum()):
            sentence = "{subject}: no imported row fooled {images} images, so OPT is undefined there"
            findings.append(note("undefined-opt", sentence, subject=f"{model}, {of_norm}", images=unbroken))
    rows.sort(key=lambda row: (row.labels["model"], row.labels["norm"], *_nearest_first(row)))
    findings += [note("reading", f"{symbol}: {text}") for symbol, text in READINGS.items()]
    findings += [each for each in outcomes.findings if each.name != "imported"]  # it refers to this table
    return Table("references", _REFERENCE_LABELS, _REFERENCE_SYMBOLS, tuple(rows), tuple(findings))


def _runs(outcomes: Results, subject: str, norm: str) -> list[tuple[dict[str, Any], list[_Distances]]]:
    """Return the rows for a model and norm: the labels of each row, and the results of each of its repeats."""
    done = tuple(outcome for outcome in outcomes.done if comparable_key(outcome) == (subject, norm))
    lines = []
    for group in group_cells(replace(outcomes, done=done, failed=()), "pairs") if done else []:
        labels = {name: group.labels[name] for name in ("implementation", "norm", "epsilon", "setting", "images")}
        labels |= {"judged by": "davylamp", "crashed": group.labels["violations"]}
        lines.append((labels, [_distances_of_ours(outcome) for outcome in group.outcomes]))
    for each in outcomes.references:
        if (each.subject.key, each.norm) == (subject, norm):
            labels = {"implementation": each.title, "norm": norm, "epsilon": math.nan}
            labels |= {"setting": setting_of_reference(each, outcomes.references)}
            labels |= {"images": int(each.columns["attacked"].sum()), "crashed": int(each.columns["crashed"].sum())}
            labels |= {"judged by": f"{each.about['source']}, not davylamp"}
            lines.append((labels, [_distances_of_theirs(each)]))
    return lines


def _distances_of_ours(outcome: RunResult) -> _Distances:
    columns, known = outcome.columns, outcome.results.proven
    passes = (columns["forwards"] + columns["backwards"]).astype(float)
    return _Distances(columns["attacked"], known, columns["distance"], passes, columns["seconds"])


def _distances_of_theirs(reference: Reference) -> _Distances:
    """Return the results of an imported attack. The total seconds of the file are divided equally among the images."""
    columns = reference.columns
    seconds, images = reference.about.get("seconds"), max(1, int(reference.about.get("images") or 1))
    each = np.full(len(columns["distance"]), math.nan if seconds is None else seconds / images)
    return _Distances(columns["attacked"], reference.known, columns["distance"], reference.passes, each)


def _reference_row(labels: dict[str, Any], runs: list[_Distances], envelope: np.ndarray, counts: Counts) -> TableRow:
    """Build a row from its repeats, over the images with an imported result. Repeats are averaged."""
    weights, covered = counts(len(envelope)), ~np.isnan(envelope)
    drawn: dict[str, list[Replicates]] = {symbol: [] for symbol in _REFERENCE_SYMBOLS}
    shares = []
    for run in runs:
        kept = run.known & covered
        met, fooled = run.attacked & kept, np.isfinite(run.distance)
        both = met & fooled & np.isfinite(envelope)
        columns = {
            "fooled": np.where(met, fooled, math.nan),
            "gap": np.where(both, run.distance - np.where(both, envelope, 0.0), math.nan),
            "passes": np.where(met, run.passes, math.nan),
            "seconds": np.where(met, run.seconds, math.nan),
        }
        for name, draws in zip(columns, bootstrap_means(weights, np.stack([*columns.values()], axis=1)), strict=True):
            drawn[name].append(draws)
        drawn["median"].append(draws_of(draw_medians(weights[:, met], run.distance[met]), int(met.sum())))
        optimality = np.full(len(weights), math.nan)
        if kept.any():
            optimality = draw_optimality(weights[:, kept], run.distance[kept], envelope[kept])
        drawn["OPT"].append(draws_of(optimality, int(kept.sum())))
        shares.append(columns["fooled"])
    estimates = {symbol: interval(mean_draws([each]).ratio, each[0].n) for symbol, each in drawn.items()}
    share = estimate_share([shares], has_interval=len(weights) > 1)
    estimates["fooled"] = estimates["fooled"]._replace(low=share.low, high=share.high)
    return TableRow({name: labels[name] for name in _REFERENCE_LABELS}, estimates)


def draw_medians(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the median of values (n,) in each bootstrap replicate, (R,), with weights (R, n).

    The median is infinite if half of the values are infinite, and NaN if there are no values.
    """
    order = np.argsort(values, kind="stable")
    ordered, reached = values[order], np.cumsum(weights[:, order], axis=1, dtype=float)
    if not len(values):
        return np.full(len(weights), math.nan)
    half = reached[:, -1:] / 2
    low = ordered[np.minimum((reached < half).sum(1), len(values) - 1)]
    high = ordered[np.minimum((reached <= half).sum(1), len(values) - 1)]
    return np.where(reached[:, -1] > 0, (low + high) / 2, math.nan)


def _nearest_first(row: TableRow) -> tuple[float, float]:
    """Return a sort key: rows with a value of OPT first (the highest first), then other rows by their median."""
    return _last(-row.metrics["OPT"].value), _last(row.metrics["median"].value)


def build_published(folder: str | Path, *, bootstrap: int = 1000, seed: int = 0) -> Table:
    """Build a table of davylamp's results by model and threat model, with published results of equal norm and radius.

    If davylamp has no results with the norm and radius of a published row, all published rows are shown.

    CA is the accuracy on clean images, RA the accuracy under attack. RA of the folder's models is over all images: an
    image counts if it is correct when clean and robust to every attack. RA of published rows is the column "best known"
    of the leaderboard.

    Intervals are 95 %: for the folder's rows as in `build_table`, for published rows Clopper and Pearson's, from the
    published rate and the size of the test set. RA under corruptions has no interval, because it is a mean of rates.
    Published rows come from other images and attacks, so do not rank them with the folder's rows.

    Args:
        folder: a results folder with published rows.
        bootstrap: number of bootstrap replicates for the folder's rows; 0 for no intervals.
        seed: random seed of the bootstrap.

    Raises:
        Unsupported: if the folder has no published rows.
        Unavailable: if there is no such folder.
    """
    store = ResultsStore(folder, create=False)
    published, damaged = read_published(store)
    findings = [note("damaged", line, state="warn") for line in damaged]
    if not published:
        raise Unsupported("the folder has no published rows: run `davylamp import robustbench PATH -o FOLDER`")
    ours = _ours(store, bootstrap, seed)
    threats = [(row.labels["norm"], row.labels["epsilon"]) for row in ours]
    near = [each for each in published if any(_same_threat(each, *threat) for threat in threats)]
    if ours and not near:
        findings.append(note("other-threats", "no published row has a norm and radius of this folder; all are shown"))
    rows = [*ours, *(_theirs(each, has_interval=bootstrap > 0) for each in near or published)]
    rows.sort(key=lambda row: (str(row.labels["norm"]), _last(row.labels["epsilon"]), _last(-row.metrics["RA"].value)))
    unreliable = (each for each in near if each.note and each.unreliable)
    findings += [note("unreliable", f"{each.model} ({each.source}): {each.note}") for each in unreliable]
    sentence = (
        "published rows were measured on other images with other attacks, and not by davylamp: do not rank "
        "them with the other rows"
    )
    return Table("published", _PUBLISHED_LABELS, ("CA", "RA"), tuple(rows), (*findings, note("published", sentence)))


def _ours(store: ResultsStore, bootstrap: int, seed: int) -> list[TableRow]:
    """Return a row for each model and threat model of the folder; empty if the folder has no finished runs."""
    try:
        outcomes = as_results(store.folder)
    except Unavailable:
        return []
    if not outcomes.done:
        return []
    data = {subject.model: subject.data for subject in outcomes.subjects.values()}
    table = build_table(outcomes, by="models", metrics=["CA", "RA"], bootstrap=bootstrap, seed=seed)
    about = [{**row.labels, "judged by": "davylamp", "data": data.get(row.labels["model"], "")} for row in table.rows]
    return [
        TableRow({name: labels[name] for name in _PUBLISHED_LABELS}, row.metrics)
        for labels, row in zip(about, table.rows, strict=True)
    ]


def _theirs(row: PublishedRow, *, has_interval: bool) -> TableRow:
    extra = ["more training data"] * row.additional_data + ["AutoAttack may be unreliable"] * row.unreliable
    is_corrupted = row.norm == "corruptions"  # its RA is a mean of rates
    labels = {
        "model": row.model,
        "judged by": row.judge,
        "data": row.data,
        "norm": row.norm,
        "epsilon": row.epsilon,
        "attacks": "corruptions" if is_corrupted else "best known",
        "images": row.images or math.nan,
        "setting": ", ".join([row.architecture, row.venue, *extra]),
    }
    estimates = {}
    for symbol, share in {"CA": row.clean, "RA": row.robust}.items():
        is_banded = has_interval and row.images and not (is_corrupted and symbol == "RA")
        ends = proportion_interval(share * row.images, row.images) if is_banded else (math.nan, math.nan)
        estimates[symbol] = Estimate(share, *ends, row.images)
    return TableRow(labels, estimates)


def _same_threat(row: PublishedRow, norm: str, epsilon: float) -> bool:
    return row.norm == norm and (same_radius(row.epsilon, epsilon) or math.isnan(epsilon))


def _last(number: float) -> float:
    """Return a sort key that places NaN last."""
    return math.inf if math.isnan(number) else number

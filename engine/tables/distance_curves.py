"""Median distance of the nearest adversarial example, by number of queries."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binom

from ...errors import Unsupported
from ..displayed import Displayed
from ..finding import Finding, note, sentences
from ..store.results import Results, RunResult, as_results, check_models
from .groups import group_cells

_SHOWN = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
_POINTS = 160  # largest number of points of a curve
COLUMNS = ("passes", "median", "low", "high", "fooled")  # numeric columns of a curve
_LABELS = ("model", "implementation", "norm", "epsilon", "targeted", "setting")


@dataclass(frozen=True, eq=False)
class DistanceCurve:
    """Distances found by one attack on one model, by number of passes.

    Args:
        labels: `model`, `implementation`, `norm`, `epsilon` (NaN without a radius), `targeted`, `setting`.
        passes: numbers of forward plus backward passes, ascending, up to the largest cost of an image; shape (P,).
        median: median over the images of the distance of the nearest example; shape (P,). The median is inf if fewer
            than half of the images have an example.
        low: lower bound of the median's 95 % interval, shape (P,). NaN if there are too few images.
        high: upper bound of the median's 95 % interval, shape (P,). NaN if there are too few images.
        fooled: rate of images that have an example, shape (P,).
        n: number of images that were attacked and have valid results in all repeats.
        repeats: number of seeds. The distance of an image is its median over the seeds.
    """

    labels: dict[str, Any]
    passes: np.ndarray
    median: np.ndarray
    low: np.ndarray
    high: np.ndarray
    fooled: np.ndarray
    n: int
    repeats: int

    def at(self, passes: int) -> int | None:
        """Return the index of the last point of the curve with at most `passes` passes.

        None if there is no such point.
        """
        place = int(np.searchsorted(self.passes, passes, side="right")) - 1
        return place if place >= 0 else None


@dataclass(frozen=True, repr=False)
class DistanceCurves(Displayed):
    """Curves of distance against passes for all attacks of a results folder.

    Args:
        curves: a curve for each attack and model.
        shown: numbers of passes for which tables show the distance.
        findings: notes.
    """

    curves: tuple[DistanceCurve, ...]
    shown: tuple[int, ...]
    findings: tuple[Finding, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences of the findings."""
        return sentences(self.findings)

    def to_frame(self) -> pd.DataFrame:
        """Return a data frame with a row for each point of each curve.

        Columns: the labels and fields of `DistanceCurve`.
        """
        lines = [
            {
                **curve.labels,
                **{name: float(getattr(curve, name)[place]) for name in COLUMNS},
                "n": curve.n,
                "repeats": curve.repeats,
            }
            for curve in self.curves
            for place in range(len(curve.passes))
        ]
        return pd.DataFrame(lines)

    def _shown(self) -> tuple[str, pd.DataFrame, Sequence[str]]:
        last = self.to_frame().drop_duplicates([*self.curves[0].labels], keep="last")
        names = ["implementation", "model", "norm", *COLUMNS, "n"]
        return f"Median distance against passes: {len(last)} curves, last values", last.filter(names), self.notes


def build_distance_curves(
    folder: str | PathLike[str] | Results, *, norm: str | None = None, models: Sequence[str] | None = None
) -> DistanceCurves:
    """Build the curve of median distance against passes, for every attack whose records contain this curve.

    The records of portfolio searches (`best(A,B)`) contain the curve, and those of minimum-norm attacks that were
    evaluated with `--metric curve`. The interval of the median comes from order statistics (binomial) and assumes no
    distribution. The interval is NaN for fewer than 6 images.

    Args:
        folder: path of a results folder, or its `Results`.
        norm: norm of the curves; None for all norms.
        models: names of models; None or empty for all models.

    Raises:
        Unsupported: if no selected record has a curve.
        UnknownName: if there is no such model.
        Unavailable: if there is no such folder, or the folder has no run.
    """
    outcomes = as_results(folder)
    check_models(outcomes, models)
    curves, without = [], 0
    for group in group_cells(outcomes, "pairs"):
        if not group.parts or norm not in (None, group.labels["norm"]):
            continue
        (repeats,) = group.parts
        if models and not repeats[0].cell.subject.is_called(models):
            continue
        if all("curve_passes" in outcome.columns for outcome in repeats):
            curves.append(_curve({name: group.labels[name] for name in _LABELS}, repeats))
        else:
            without += 1
    if not curves:
        where = outcomes.store.folder
        raise Unsupported(
            f"no record in {where} has a curve of distance against passes: evaluate minimum-norm attacks with "
            "`measures=curve` (on the CPU), or best(A,B)"
        )
    most = max(int(curve.passes[-1]) for curve in curves)
    sentence = "omitted: {without} attacks without such a curve"
    findings = [note("no-curve", sentence, without=without)] if without else []
    for curve in (each for each in curves if each.repeats > 1):
        subject = f"{curve.labels['implementation']} on {curve.labels['model']}"
        sentence = "{subject}: the distance of each image is the median over {repeats} seeds"
        findings.append(note("median-over-seeds", sentence, subject=subject, repeats=curve.repeats))
    shown = tuple(passes for passes in _SHOWN if passes < most)
    return DistanceCurves(tuple(curves), (*shown, most), (*findings, *outcomes.findings))


def has_curves(outcomes: Results) -> bool:
    """Whether any record has a curve of distance against passes."""
    return any("curve_passes" in outcome.columns for outcome in outcomes.done)


def _curve(labels: dict[str, Any], repeats: list[RunResult]) -> DistanceCurve:
    counted = np.logical_and.reduce([each.results.attacked & each.results.proven for each in repeats])
    images = np.flatnonzero(counted)
    spent = max(
        (int((each.columns["forwards"] + each.columns["backwards"])[images].max()) for each in repeats if len(images)),
        default=1,
    )
    passes = _grid([each.columns["curve_passes"][image] for each in repeats for image in images], spent)
    steps = np.stack([_distances(each, images, passes) for each in repeats])
    distances = np.sort(np.median(steps, 0), 0)  # image, passes
    n = len(images)
    if not n:
        nothing = np.full(len(passes), np.nan)
        return DistanceCurve(labels, passes, nothing, nothing, nothing, nothing, 0, len(repeats))
    low, high = (np.full(len(passes), np.nan) for _ in range(2))
    place = int(binom.ppf(0.025, n, 0.5))  # bounds: order statistics place and n + 1 - place
    if place >= 1:
        low, high = distances[place - 1], distances[n - place]
    middle = (distances[(n - 1) // 2] + distances[n // 2]) / 2
    fooled = np.isfinite(distances).mean(0)
    return DistanceCurve(labels, passes, middle, low, high, fooled, n, len(repeats))


def _grid(curves: Sequence[Sequence[int]], spent: int) -> np.ndarray:
    """Return the numbers of passes at which a curve changes: about 160 in geometric spacing, and the last number."""
    changes = np.unique(np.concatenate([*(np.asarray(each, dtype=np.int64) for each in curves), [spent]]))
    changes = changes[changes <= spent]
    if len(changes) <= _POINTS:
        return changes
    wanted = np.geomspace(max(1, changes[0]), spent, _POINTS)
    return np.unique([*changes[np.searchsorted(changes, wanted, side="right").clip(1) - 1], spent])


def _distances(outcome: RunResult, images: np.ndarray, passes: np.ndarray) -> np.ndarray:
    """Return the distance of the nearest example of each image after each number of passes, (images, P).

    The distance is inf before an example is found.
    """
    table = np.full((len(images), len(passes)), np.inf)
    for row, image in enumerate(images):
        known = np.asarray(outcome.columns["curve_passes"][image], dtype=np.int64)
        distances = np.asarray(outcome.columns["curve_distances"][image], dtype=float)
        places = np.searchsorted(known, passes, side="right") - 1
        table[row, places >= 0] = distances[places[places >= 0]]
    return table

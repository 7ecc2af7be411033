"""Our models beside those of published leaderboards: accuracies over different images, each with who says so."""

import math
from pathlib import Path
from typing import Any

from ...errors import Unavailable, Unsupported
from ...intervals import share_interval
from ..statistics.bootstrap import Estimate
from ..store.imported import PublishedRow, read_published
from ..store.outcomes import outcomes_of
from ..store.store import ResultsStore
from .table import Table, TableRow, build_table

SYMBOLS = ("CA", "RA")
_LABELS = ("model", "judged by", "data", "norm", "epsilon", "attacks", "images", "setting")
_CLOSE = 1e-6  # between radii that are one


def build_published(folder: str | Path, *, bootstrap: int = 1000, seed: int = 0) -> Table:
    """Ours by model and threat model, and the published rows of a norm and radius that ours have; of all where none is.

    CA is the accuracy on clean images, RA the share that stays right under every attack that was run: ours the worst
    over the attacks of the folder, of images that were right when clean and wrong times CA; theirs "best known".
    Intervals are 95 %: ours as in `build_table`, theirs Clopper and Pearson's of the published share and the size of
    their test set; none under corruptions, where it is a mean of shares. Rows of different images, attacks and effort
    cannot be ranked against each other, and nothing here does.

    Args:
        folder: a results folder with published rows.
        bootstrap: replicates of ours; 0: no intervals.
        seed: of the resampling.

    Raises:
        Unsupported: if nothing published was imported.
        Unavailable: if there is no such folder.
    """
    store = ResultsStore(folder, create=False)
    published, notes = read_published(store)
    if not published:
        raise Unsupported(
            "expected published rows in the folder, got none: `davylamp import robustbench PATH -o FOLDER`"
        )
    ours = _ours(store, bootstrap, seed)
    threats = [(row.labels["norm"], row.labels["epsilon"]) for row in ours]
    near = [each for each in published if any(_same_threat(each, *threat) for threat in threats)]
    if ours and not near:
        notes.append("no published row has a norm and radius of ours: all of them are shown")
    rows = [*ours, *(_theirs(each, bool(bootstrap)) for each in near or published)]
    rows.sort(key=lambda row: (str(row.labels["norm"]), _last(row.labels["epsilon"]), -_first(row.metrics["RA"].value)))
    notes += [f"{each.model} ({each.source}): {each.note}" for each in near if each.note and each.unreliable]
    notes.append("published rows: over their images and attacks, not judged by davylamp; no rank among ours follows")
    return Table("published", _LABELS, SYMBOLS, tuple(rows), tuple(notes))


def _ours(store: ResultsStore, bootstrap: int, seed: int) -> list[TableRow]:
    """A row for each of our models and threat models; [] where the folder has no finished cell."""
    try:
        outcomes = outcomes_of(store.folder)
    except Unavailable:
        return []
    if not outcomes.done:
        return []
    data = {subject.model: subject.data for subject in outcomes.subjects.values()}
    table = build_table(outcomes, by="models", metrics=["CA", "RA"], bootstrap=bootstrap, seed=seed)
    rows = []
    for row in table.rows:
        labels = {name: row.labels[name] for name in ("model", "norm", "epsilon", "attacks", "images", "setting")}
        labels |= {"judged by": "davylamp", "data": data.get(row.labels["model"], "")}
        rows.append(TableRow({name: labels[name] for name in _LABELS}, row.metrics))
    return rows


def _theirs(row: PublishedRow, intervals: bool) -> TableRow:
    extra = ["more training data"] * row.additional_data + ["AutoAttack may be unreliable"] * row.unreliable
    setting = ", ".join([row.architecture, row.venue, *extra])
    attacks = "corruptions" if row.norm == "corruptions" else "best known"
    labels: dict[str, Any] = {"model": row.model, "judged by": row.judge, "data": row.data, "norm": row.norm}
    labels |= {"epsilon": row.epsilon, "attacks": attacks, "images": row.images or math.nan, "setting": setting}
    shares = {"CA": row.clean, "RA": row.robust}
    estimates = {
        name: _estimate(share, row.images, intervals and (name == "CA" or row.norm != "corruptions"))
        for name, share in shares.items()
    }
    return TableRow({name: labels[name] for name in _LABELS}, estimates)


def _estimate(share: float, images: int, interval: bool) -> Estimate:
    low, high = share_interval(share * images, images) if interval and images else (math.nan, math.nan)
    return Estimate(share, low, high, images)


def _same_threat(row: PublishedRow, norm: str, epsilon: float) -> bool:
    return row.norm == norm and (abs(row.epsilon - epsilon) < _CLOSE or math.isnan(epsilon))


def _last(epsilon: float) -> float:
    return math.inf if math.isnan(epsilon) else epsilon


def _first(share: float) -> float:
    return -math.inf if math.isnan(share) else share

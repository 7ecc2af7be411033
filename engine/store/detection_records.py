"""What a trained detector scores the images of a cell and its examples: a record for each cell and detector file."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from .contents import find_fault, read_records
from .outcomes import Outcome, Outcomes
from .sealed import Damaged, Record
from .store import ResultsStore

_DIGITS = 20  # of a file's digest, in the name of a record


@dataclass(frozen=True, eq=False)
class DetectorScores:
    """The scores of one detector on the n images of a cell: what every rate, area and line follows from.

    Args:
        file: of the detector, as it was named when it was measured.
        digest: SHA-256 of that file.
        name: of the detector.
        calibration: scores of clean images that neither trained nor test it, (m,).
        clean: of the clean images, (n,).
        adversarial: of the examples, (n,).
        seen: which images the detector was trained or calibrated on, (n,) bool.
    """

    file: str
    digest: str
    name: str
    calibration: np.ndarray
    clean: np.ndarray
    adversarial: np.ndarray
    seen: np.ndarray


def keep_scores(store: ResultsStore, outcome: Outcome, scores: DetectorScores) -> None:
    """Write a record, which `read_scores` gives back as long as the cell's stays the same.

    Raises:
        Unavailable: if the disk is full or not writable.
    """
    columns = {"score": scores.clean.astype(np.float64), "adv_score": scores.adversarial.astype(np.float64)}
    table = pa.table({"index": np.arange(len(scores.clean)), **columns, "seen": scores.seen.astype(bool)})
    line = [float(score) for score in scores.calibration]
    about = {"file": scores.file, "digest": scores.digest, "name": scores.name, "calibration": line}
    meta = {"kind": "detection", "status": "done", "reason": "", "spec": outcome.cell.spec}
    meta |= {"about": outcome.meta.get("about"), "detector": about, "examples_of": _content(store, outcome)}
    store.write("detections", _key(outcome, scores.digest), table, meta)


def read_scores(store: ResultsStore, outcome: Outcome, digest: str) -> DetectorScores | None:
    """The scores that a detector gave a cell; None: not measured, damaged, or the cell was run again since."""
    key = _key(outcome, digest)
    try:
        record = store.read("detections", key)
    except (FileNotFoundError, Damaged):
        return None
    if find_fault("detections", key, record):
        return None
    return _scores_of(store, outcome, record)


def list_scores(outcomes: Outcomes) -> Iterator[tuple[Outcome, DetectorScores]]:
    """Every kept detection of a folder's finished cells, by cell, then by detector."""
    kept: dict[str, list[Record]] = {}
    for key, record in read_records(outcomes.store, "detections"):
        if not isinstance(record, Damaged):
            kept.setdefault(key.partition("-")[0], []).append(record)
    for outcome in outcomes.done:
        for record in kept.get(outcome.cell.key, ()):
            scores = _scores_of(outcomes.store, outcome, record)
            if scores is not None:
                yield outcome, scores


def _scores_of(store: ResultsStore, outcome: Outcome, record: Record) -> DetectorScores | None:
    if record.failed or record.meta["examples_of"] != _content(store, outcome):
        return None
    about, columns = record.meta["detector"], record.table
    scores = (columns[name].to_numpy() for name in ("score", "adv_score", "seen"))
    said = str(about["file"]), str(about["digest"]), str(about["name"])
    return DetectorScores(*said, np.asarray(about["calibration"], float), *scores)


def _key(outcome: Outcome, digest: str) -> str:
    return f"{outcome.cell.key}-{digest[:_DIGITS]}"


def _content(store: ResultsStore, outcome: Outcome) -> str:
    """What the cell's record holds, as its name says."""
    return store.path("cells", outcome.cell.key).name

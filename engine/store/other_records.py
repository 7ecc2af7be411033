"""Records other than attack runs: fitted attacks, predictions on corrupted images, and scores of detectors."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...adapters.attack import name_from_record, name_in_record
from ...adapters.data.corruptions.corrupted_sets import ON_DISK
from ...adapters.running.fit import Fitted
from ...adapters.threat_model import ThreatModel
from ..attack_run import json_digest
from .checksummed import DamagedRecordError, Record
from .record_validation import read_records, usable_record
from .store import ResultsStore

if TYPE_CHECKING:
    from .results import Results, RunResult

_COSTS = ("fit_forwards", "fit_backwards", "fit_seconds")
_DIGITS = 20  # digits of a detector file's digest in a record's name


def fit_table(fitted: Fitted) -> pa.Table:
    """Convert fitted arrays to a table. Each number has a row, with the name of its array.

    The shapes are not stored in it.
    """
    names = np.repeat(np.array([*fitted.arrays], object), [array.size for array in fitted.arrays.values()])
    values = np.concatenate([array.astype(np.float32).ravel() for array in fitted.arrays.values()])
    return pa.table({"array": pa.array(names), "value": pa.array(values)})


def describe_fit(fitted: Fitted) -> dict[str, Any]:
    """Return the metadata of a fit as JSON types. The fitted numbers and the seconds are not included."""
    rules = fitted.threat_model
    return {
        "implementation": name_in_record(fitted.implementation),
        "threat_model": {"norm": rules.norm, "epsilon": rules.epsilon, "targeted": rules.targeted},
        "parameters": dict(fitted.parameters),
        "seed": fitted.seed,
        "model": fitted.model,
        "shapes": {name: list(array.shape) for name, array in fitted.arrays.items()},
        "images": fitted.images,
        "forwards": fitted.forwards,
        "backwards": fitted.backwards,
        "digest": fitted.digest,
        **({} if fitted.target is None else {"target": fitted.target}),
    }


def fitted_of(record: Record) -> Fitted:
    """Convert the record of a fit to a `Fitted` attack.

    Raises:
        DamagedRecordError: if the record is not a fit, or its numbers do not match its digest.
    """
    try:
        about, seconds = dict(record.meta["fit"]), float(record.meta["fit_seconds"])
        shapes, digest = about.pop("shapes"), about.pop("digest")
        names = record.table["array"].combine_chunks().dictionary_encode()
        values, places = record.table["value"].to_numpy(), names.indices.to_numpy()
        known = {name: place for place, name in enumerate(names.dictionary.to_pylist())}
        arrays = {name: values[places == known[name]].reshape(shape) for name, shape in shapes.items()}
        rules = ThreatModel(**about.pop("threat_model"))
        about["implementation"] = name_from_record(about["implementation"])
        fitted = Fitted(threat_model=rules, arrays=arrays, seconds=seconds, **about)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedRecordError(f"the record contains no fitted arrays ({type(error).__name__})") from error
    if fitted.digest != digest:
        raise DamagedRecordError("the digest of the fitted arrays does not match")
    return fitted


def load_fitted(folder: str | PathLike[str]) -> dict[str, Fitted]:
    """Load the fitted attacks of a results folder, by key of the fit (`AttackRun.fit_key`). Failed fits are omitted.

    Raises:
        Unavailable: if there is no such folder.
    """
    records = read_records(ResultsStore(folder, create=False), "fits")
    return {key: fitted_of(record) for key, record in records if not record.failed}


def fit_costs(meta: Mapping[str, Any]) -> dict[str, float]:
    """Return the total cost of a fit, by symbol of the metric.

    Args:
        meta: metadata of a run.

    Returns:
        The costs. Empty if the attack of the run is not fitted.
    """
    fit = meta.get("fit")
    if not isinstance(fit, Mapping):
        return {}
    numbers = (fit.get("forwards"), fit.get("backwards"), meta.get("fit_seconds"))
    return {
        name: float(number) for name, number in zip(_COSTS, numbers, strict=True) if isinstance(number, (int, float))
    }


@dataclass(frozen=True)
class CorruptionCell:
    """One corruption run: a model on images with one corruption at one severity, or on the frames of a sequence.

    Args:
        model: name of the model.
        model_digest: hash of everything that can change the model's outputs.
        data: name of the clean images, or of the corrupted data set on disk.
        data_digest: hash of the clean pixels and labels. For a data set on disk, hash of the names and sizes of its
            files.
        images: number of images.
        corruption: name of the corruption. "" for the clean images.
        severity: 1 to 5. 0 for clean images and sequences.
        sequence: whether `corruption` is the name of a perturbation sequence.
        seed: random seed.
        source: library that corrupted the images, with its version. "" for clean images, and for images that are read
            from disk.
        torch: first two parts of torch's version, "2.5".
        device: type of the device, "cpu" or "cuda".
    """

    model: str
    model_digest: str
    data: str
    data_digest: str
    images: int
    corruption: str = ""
    severity: int = 0
    sequence: bool = False
    seed: int = 0
    source: str = ""
    torch: str = ""
    device: str = ""

    @property
    def spec(self) -> dict[str, Any]:
        """The fields from which `key` is computed, as JSON types."""
        return asdict(self)

    @cached_property
    def key(self) -> str:
        """Name of the record: 20 hexadecimal digits of a hash of the spec."""
        return json_digest({"corruption": self.spec})

    @property
    def setting(self) -> tuple[Any, ...]:
        """Images, seed and device. Two corruption runs can be compared only if these are equal."""
        read = self.data.partition(":")[0] in ON_DISK  # each corruption has its own files and digest there
        return self.data, "" if read else self.data_digest, self.images, self.seed, self.device

    @property
    def title(self) -> str:
        """Name in progress and messages: "fog:3 on NAME"."""
        what = f"sequence {self.corruption}" if self.sequence else f"{self.corruption}:{self.severity}"
        return f"{what if self.corruption else 'clean'} on {self.model}"


@dataclass(frozen=True)
class CorruptionRecord:
    """A corruption run with its predictions.

    Args:
        cell: the run.
        names: names of the images.
        labels: true classes, shape (n,).
        predicted: predicted classes, shape (n,), or (n, frames) for a sequence. -1 for non-finite logits.
        picture: the first corrupted image as PNG. None if it is not stored.
    """

    cell: CorruptionCell
    names: tuple[str, ...]
    labels: np.ndarray
    predicted: np.ndarray
    picture: bytes | None = None

    @property
    def wrong(self) -> np.ndarray:
        """1 for each misclassified image, otherwise 0, (n,)."""
        return (self.predicted != self.labels).astype(float)


def corruption_table_of(names: list[str], labels: np.ndarray, predicted: np.ndarray, picture: bytes | None) -> pa.Table:
    """Build the table of a corruption record.

    Columns: `index`, `image`, `label`, `predicted` (for a sequence, `frames` with a list of predictions) and `picture`.
    """
    columns: dict[str, Any] = {"index": pa.array(range(len(labels))), "image": pa.array(names), "label": labels}
    if predicted.ndim == 2:
        flat = pa.array(predicted.astype(np.int32).reshape(-1))
        columns["frames"] = pa.FixedSizeListArray.from_arrays(flat, predicted.shape[1])
    else:
        columns["predicted"] = predicted.astype(np.int64)
    pictures = [picture if place == 0 else None for place in range(len(labels))]
    return pa.table({**columns, "picture": pa.array(pictures, pa.binary())})


def read_corruption(store: ResultsStore, cell: CorruptionCell) -> CorruptionRecord | None:
    """Return the record of a corruption run. None if the record is missing or damaged, or if the run failed."""
    record = usable_record(store, "corruptions", cell.key)
    try:
        return None if record is None or record.failed else _open(cell.key, record)
    except DamagedRecordError:
        return None


def read_corruptions(folder: str | PathLike[str]) -> tuple[list[CorruptionRecord], dict[str, str]]:
    """Read the corruption records of a folder.

    Returns:
        The usable records, those of clean images first. Also the reason for each unusable record, by its title.
    """
    records, failed = [], {}
    for key, record in ResultsStore(folder, create=False).read_all("corruptions"):
        if isinstance(record, Record) and record.failed:
            failed[_title_of(record.meta, key)] = record.meta["reason"]
            continue
        try:
            if isinstance(record, DamagedRecordError):
                raise record
            records.append(_open(key, record))
        except DamagedRecordError as damage:
            failed[key] = str(damage)
    ordered = sorted(
        records, key=lambda each: (each.cell.data, each.cell.model, each.cell.corruption, each.cell.severity)
    )
    return ordered, failed


def _open(key: str, record: Record) -> CorruptionRecord:
    """Convert a record of predictions on corrupted images to a `CorruptionRecord`.

    Raises:
        DamagedRecordError: if the record is not of this kind.
    """
    try:
        cell = CorruptionCell(**record.meta["spec"])
        table = record.table
        names = tuple(map(str, table["image"].to_pylist()))
        labels = table["label"].to_numpy()
        column = table["frames" if cell.sequence else "predicted"].combine_chunks()
        flat = column.flatten() if cell.sequence else column
        predicted = flat.to_numpy(zero_copy_only=False)
        predicted = predicted.reshape(len(labels), -1) if cell.sequence else predicted
        picture = table["picture"].to_pylist()[0] if len(table) else None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedRecordError(f"corruptions/{key} is not a valid record ({type(error).__name__})") from error
    if cell.key != key or len(labels) != cell.images or predicted.dtype.kind != "i" or labels.dtype.kind != "i":
        raise DamagedRecordError(f"the metadata of corruptions/{key} do not match its file name")
    return CorruptionRecord(cell, names, labels, predicted, picture)


def _title_of(meta: Mapping[str, Any], key: str) -> str:
    try:
        return CorruptionCell(**meta["spec"]).title
    except (KeyError, TypeError):
        return key


@dataclass(frozen=True, eq=False)
class DetectorScores:
    """Scores of one detector on the n images of a run.

    Args:
        file: path of the detector's file, as given when the scores were computed.
        digest: SHA-256 of that file.
        name: name of the detector.
        calibration: scores of clean images that are used neither for training nor for testing the detector, (m,).
        clean: scores of the clean images, (n,).
        adversarial: scores of the examples, (n,).
        seen: whether each image was used to train or calibrate the detector, (n,) bool.
    """

    file: str
    digest: str
    name: str
    calibration: np.ndarray
    clean: np.ndarray
    adversarial: np.ndarray
    seen: np.ndarray


def keep_scores(store: ResultsStore, outcome: "RunResult", scores: DetectorScores) -> None:
    """Store the scores of a detector on a run. They are valid until the record of the run changes.

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


def read_scores(store: ResultsStore, outcome: "RunResult", digest: str) -> DetectorScores | None:
    """Return the scores of a detector on a run.

    None if the scores are missing or damaged, or if they are older than the record of the run.
    """
    record = usable_record(store, "detections", _key(outcome, digest))
    return None if record is None else _scores_of(store, outcome, record)


def list_scores(outcomes: "Results") -> Iterator[tuple["RunResult", DetectorScores]]:
    """Yield all stored detector scores for a folder's finished runs, by run, then by detector."""
    kept: dict[str, list[Record]] = {}
    for key, record in read_records(outcomes.store, "detections"):
        kept.setdefault(key.partition("-")[0], []).append(record)
    for outcome in outcomes.done:
        for record in kept.get(outcome.cell.key, ()):
            scores = _scores_of(outcomes.store, outcome, record)
            if scores is not None:
                yield outcome, scores


def _scores_of(store: ResultsStore, outcome: "RunResult", record: Record) -> DetectorScores | None:
    if record.failed or record.meta["examples_of"] != _content(store, outcome):
        return None
    about, columns = record.meta["detector"], record.table
    scores = (columns[name].to_numpy() for name in ("score", "adv_score", "seen"))
    said = str(about["file"]), str(about["digest"]), str(about["name"])
    return DetectorScores(*said, np.asarray(about["calibration"], float), *scores)


def _key(outcome: "RunResult", digest: str) -> str:
    return f"{outcome.cell.key}-{digest[:_DIGITS]}"


def _content(store: ResultsStore, outcome: "RunResult") -> str:
    return store.path("cells", outcome.cell.key).name

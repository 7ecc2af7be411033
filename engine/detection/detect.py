"""Measures detectors on the examples of a results folder. Scores are stored, so rates can be chosen later."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ...adapters import Classifier
from ...adapters.data.datasets import Data
from ...adapters.models.detectors.detector_file import TrainedDetector, read_detector, threshold_at
from ...adapters.models.detectors.scorer import Scorer
from ...adapters.models.remote.server_usage import ServerUsage, pop_usage
from ...adapters.models.remote.transport import transport_with_cache
from ...adapters.models.sandbox.isolation import NOT_ISOLATED, Isolation
from ...adapters.paths import expand_path
from ...adapters.torch_state import full_float32
from ...errors import DavylampError, InvalidInput, Unavailable, Unsupported
from ..attack_run import ModelOnData
from ..sources import LoadedCache, LoadOptions, ModelSource, load_evaluated
from ..store.columns import read_examples
from ..store.other_records import DetectorScores, keep_scores, read_scores
from ..store.results import Results, RunResult, as_results
from ..training.held_out import digest_image
from .detection_rates import RATES, Detection, evaluate_scores


@dataclass(frozen=True)
class DetectionSummary:
    """Results of all detectors on a folder, and a note for each run that could not be measured."""

    rows: tuple[Detection, ...]
    notes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return all fields as JSON types."""
        notes = dict.fromkeys([*self.notes, *(note for row in self.rows for note in row.notes)])
        return {"detections": [row.document() for row in self.rows], "notes": [*notes]}


class DetectorFile(NamedTuple):
    """A trained detector, its file, and the file's SHA-256."""

    file: str
    digest: str
    trained: TrainedDetector


def read_detectors(files: Sequence[str | Path], rates: Sequence[float] = RATES) -> list[DetectorFile]:
    """Read detector files, without duplicates, and check the false-positive rates.

    Raises:
        Unavailable: If a file cannot be read.
        InvalidInput: If a file is not a detector, or a rate is invalid.
    """
    detectors: dict[str, DetectorFile] = {}
    for file in files:
        path = expand_path(file)
        trained = read_detector(path)
        for rate in rates:
            threshold_at(trained.calibration, rate)
        digest = sha256(path.read_bytes()).hexdigest()
        detectors.setdefault(digest, DetectorFile(str(file), digest, trained))
    return list(detectors.values())


def check_detectors_match(
    detectors: Sequence[DetectorFile], subjects: Sequence[ModelOnData], isolation: Isolation = NOT_ISOLATED
) -> None:
    """Check that each detector belongs to one of the evaluated models, before anything is computed.

    Args:
        detectors: trained detectors.
        subjects: evaluated models on data.
        isolation: isolation of those models.

    Raises:
        InvalidInput: If a detector was trained for none of these models.
        Unsupported: If a detector reads the layers of a model that runs in a separate process.
    """
    for file, _, trained in detectors:
        beside = [subject.model for subject in subjects if subject.model_digest == trained.model_digest]
        isolated = [name for name in beside if isolation.covers(name)]
        if trained.row.reads_layers and isolated:
            raise Unsupported(
                f"{file} ({trained.row.full_name}) reads the layers of {isolated[0]}, which "
                "runs in a separate process; use `isolate=no`"
            )
        if not beside:
            there = ", ".join(dict.fromkeys(subject.model for subject in subjects))
            raise InvalidInput(
                f"{file} was trained for {trained.model or 'a different model'}, but the results are for {there}, "
                "or for different weights, code or preprocessing; train a detector for each model"
            )


def models_to_score(outcomes: Results, detectors: Sequence[DetectorFile]) -> list[str]:
    """Return the names of the models whose detectors have not scored all finished runs yet."""
    names = []
    for outcome in outcomes.done:
        subject = outcome.cell.subject
        mine = [each.digest for each in detectors if each.trained.model_digest == subject.model_digest]
        if subject.model not in names and any(read_scores(outcomes.store, outcome, digest) is None for digest in mine):
            names.append(subject.model)
    return names


def detect_folder(
    folder: str | Path | Results,
    files: Sequence[str | Path],
    *,
    rates: Sequence[float] = RATES,
    models: Mapping[str, Classifier] | None = None,
    data: Data | None = None,
    device: str = "cpu",
    loading: LoadOptions | None = None,
) -> DetectionSummary:
    """Measure trained detectors on the stored examples of every finished run on their model.

    Args:
        folder: results folder with stored examples (`--keep-images`).
        files: detector files.
        rates: false-positive rates in [0, 1).
        models: classifiers by name, instead of loading them.
        data: images, instead of loading them.
        device: device of the computation.
        loading: options for loading models by name. None to load them in this process, with the folder's answer cache
            for servers.

    Raises:
        Unavailable: If there is no such folder, or a file cannot be read.
        InvalidInput: If no run is on a detector's model, or the detector was trained on all test images.
    """
    how = {"rates": rates, "models": models, "data": data, "device": device, "loading": loading}
    return measure_detectors(folder, read_detectors(files, rates), **how)


def measure_detectors(
    folder: str | Path | Results,
    detectors: Sequence[DetectorFile],
    *,
    rates: Sequence[float] = RATES,
    models: Mapping[str, Classifier] | None = None,
    data: Data | None = None,
    device: str = "cpu",
    loading: LoadOptions | None = None,
) -> DetectionSummary:
    """Measure loaded detectors as `detect_folder` does."""
    outcomes, bench = as_results(folder), LoadedCache()
    check_detectors_match(detectors, [*outcomes.subjects.values()])
    traffic = ServerUsage()
    rows: list[Detection] = []
    notes: list[str] = []
    for detector in detectors:
        mine = [s for s in outcomes.subjects.values() if s.model_digest == detector.trained.model_digest]
        for subject in mine:
            given = None if models is None else models.get(subject.model)
            source = ModelSource(
                subject.model, given, loading or LoadOptions(transport_with_cache(outcomes.store.folder))
            )
            scoring = _Scoring(detector, subject, source, data, device, bench)
            try:
                for outcome, scores in _score_all(scoring, outcomes, notes):
                    rows.append(evaluate_scores(scores, outcome, rates))
            except (Unavailable, Unsupported) as error:
                notes.append(f"{subject.model}: {error}")
            traffic += pop_usage(scoring.model)
    if traffic:
        notes.append(traffic.line)
    return DetectionSummary(tuple(rows), tuple(dict.fromkeys(notes)))


class _Scoring:
    """A detector and its model, which is loaded only if a score is missing."""

    def __init__(
        self,
        detector: DetectorFile,
        subject: ModelOnData,
        source: ModelSource,
        data: Data | None,
        device: str,
        bench: LoadedCache,
    ):
        self.detector, self.subject = detector, subject
        self._load = lambda: load_evaluated(bench, subject, source, data, device)
        self._ready: tuple[Scorer, Classifier, np.ndarray, np.ndarray] | None = None

    @property
    def model(self) -> Classifier | None:
        """The model, if it was loaded."""
        return None if self._ready is None else self._ready[1]

    @full_float32()
    def score(self, examples: Tensor) -> DetectorScores:
        """Compute the scores of the clean images and of the given examples, (n, C, H, W)."""
        file, digest, trained = self.detector
        if self._ready is None:
            classifier, images = self._load()
            scorer = trained.bind(classifier, self.subject.model_digest)
            seen = np.array([digest_image(image) in trained.seen for image in images.inputs])
            if seen.all():
                raise InvalidInput(f"all {len(seen)} test images were used to train {file}; measure it on other images")
            self._ready = scorer, classifier, scorer.score(images.inputs.to(classifier.device)).numpy(), seen
        scorer, classifier, clean, seen = self._ready
        adversarial = scorer.score(examples.to(classifier.device)).numpy()
        name = trained.row.full_name
        return DetectorScores(file, digest, name, trained.calibration.numpy(), clean, adversarial, seen)


def _score_all(scoring: _Scoring, outcomes: Results, notes: list[str]) -> Iterator[tuple[RunResult, DetectorScores]]:
    """Yield the detector's scores on each finished run of its model. New scores are stored immediately."""
    for outcome in outcomes.done:
        if outcome.cell.subject != scoring.subject:
            continue
        scores = read_scores(outcomes.store, outcome, scoring.detector.digest)
        if scores is not None:
            yield outcome, replace(scores, file=scoring.detector.file)
            continue
        try:
            examples = read_examples(outcomes.store, outcome.cell)
        except (DavylampError, OSError):
            notes.append(
                f"omitted: {outcome.cell.title} on {scoring.subject.model}: its examples were not stored "
                "(--keep-images)"
            )
            continue
        scores = scoring.score(examples)
        try:
            keep_scores(outcomes.store, outcome, scores)
        except Unavailable as error:  # a read-only folder
            notes.append(f"not stored for the report: {error}")
        yield outcome, scores

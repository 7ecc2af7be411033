"""Measures how well detectors recognise the adversarial examples of a results folder.

The scores are stored in the folder, so that other false-positive rates need no new computation.
"""

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
    """Results of detectors on a results folder.

    Args:
        rows: metrics of each detector on each run.
        notes: notes for the user, such as runs that could not be measured.
    """

    rows: tuple[Detection, ...]
    notes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return the results as JSON types, with all notes in one list."""
        notes = dict.fromkeys([*self.notes, *(note for row in self.rows for note in row.notes)])
        return {"detections": [row.document() for row in self.rows], "notes": [*notes]}


class DetectorFile(NamedTuple):
    """A trained detector that was read from a file.

    Args:
        file: path of the file.
        digest: SHA-256 hash of the file.
        trained: the detector.
    """

    file: str
    digest: str
    trained: TrainedDetector


def read_detectors(files: Sequence[str | Path], rates: Sequence[float] = RATES) -> list[DetectorFile]:
    """Read detector files, and return one detector for each different file.

    Args:
        files: detector files.
        rates: false-positive rates at which the detectors will be measured. The rates are only validated here.

    Raises:
        Unavailable: If a file cannot be read.
        InvalidInput: If a file does not contain a detector, or if a rate is invalid.
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
    """Check that each detector was trained for one of the evaluated models.

    Args:
        detectors: trained detectors.
        subjects: the evaluated models with their data.
        isolation: which of the evaluated models run in a separate process.

    Raises:
        InvalidInput: If a detector was trained for a model that is not evaluated.
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
                f"{file} was trained for {trained.model or 'a different model'}, but the results are for {there}; "
                "models of the same name differ if their weights, code or preprocessing differ. Train a detector for "
                "each model"
            )


def models_to_score(outcomes: Results, detectors: Sequence[DetectorFile]) -> list[str]:
    """Return the names of models with a finished run for which the scores of a detector are not stored yet."""
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
    """Measure detectors on the stored adversarial examples of a results folder.

    Each detector was trained for one model. The detector is measured on every finished run on this model.

    Args:
        folder: results folder with stored examples (`--keep-images`), or its results.
        files: detector files.
        rates: false-positive rates in [0, 1).
        models: classifiers by name. Models that are not in this mapping are loaded by name.
        data: the evaluated images. None loads the images by the name in the folder.
        device: device of the computation.
        loading: options for loading models by name. None loads models in this process, and uses the cached answers of
            model servers in the folder.

    Raises:
        Unavailable: If the folder does not exist, or if a detector file cannot be read.
        InvalidInput: If the folder has no results of a detector's model, or if all images were used to train the
            detector.
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
    """Measure detectors that were read with `read_detectors`. The other arguments are those of `detect_folder`."""
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
    """Computes the scores of a detector on images. The model of the detector is loaded at the first computation."""

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
        """The loaded model; None if the model was not needed yet."""
        return None if self._ready is None else self._ready[1]

    @full_float32()
    def score(self, examples: Tensor) -> DetectorScores:
        """Compute the scores of all n clean images and of their examples, (n, C, H, W)."""
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
    """Yield each finished run of a detector's model with the scores of the detector.

    Scores that are not stored yet are computed and stored. For each run without stored examples, a note is added to
    `notes`.
    """
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
            notes.append(f"the detector's scores could not be stored, so the report will lack them: {error}")
        yield outcome, scores

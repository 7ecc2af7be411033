"""Detectors on the examples of a results folder: scored once, kept there, and judged at any rate of false alarms."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ...adapters import Classifier
from ...adapters.data.datasets import Data
from ...adapters.models.detectors.detector_file import TrainedDetector, read_detector
from ...adapters.models.detectors.scorer import Scorer
from ...adapters.models.identity.digest import digest_data, digest_model
from ...adapters.models.remote.server_usage import ServerUsage, pop_usage
from ...adapters.models.remote.transport import transport_with_cache
from ...adapters.models.sandbox.isolation import NOT_ISOLATED, Isolation
from ...adapters.paths import expand_path
from ...adapters.torch_state import full_float32
from ...errors import DavylampError, InvalidInput, Unavailable, Unsupported
from ..attack_run import ModelOnData
from ..sources import DataSource, LoadedCache, LoadOptions, ModelSource
from ..store.columns import read_examples
from ..store.other_records import DetectorScores, keep_scores, read_scores
from ..store.results import Results, RunResult, as_results
from ..training.held_out import digest_image
from .detection_rates import RATES, Detection, evaluate_scores


@dataclass(frozen=True)
class DetectionSummary:
    """All detectors of a folder, and a line for each cell that could not be measured."""

    rows: tuple[Detection, ...]
    notes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """All of it as JSON types."""
        notes = dict.fromkeys([*self.notes, *(note for row in self.rows for note in row.notes)])
        return {"detections": [row.document() for row in self.rows], "notes": [*notes]}


class DetectorFile(NamedTuple):
    """A trained detector, where it was read, and the SHA-256 of that file."""

    file: str
    digest: str
    trained: TrainedDetector


def read_detectors(files: Sequence[str | Path], rates: Sequence[float] = RATES) -> list[DetectorFile]:
    """The detectors of some files, each once.

    Raises:
        Unavailable: if a file cannot be read.
        InvalidInput: if it holds something else, or a rate is none.
    """
    detectors: dict[str, DetectorFile] = {}
    for file in files:
        path = expand_path(file)
        trained = read_detector(path)
        for rate in rates:
            trained.threshold(rate)
        digest = sha256(path.read_bytes()).hexdigest()
        detectors.setdefault(digest, DetectorFile(str(file), digest, trained))
    return list(detectors.values())


def check_detectors_match(
    detectors: Sequence[DetectorFile], subjects: Sequence[ModelOnData], isolation: Isolation = NOT_ISOLATED
) -> None:
    """Check, before anything is computed, that each detector has a model beside which it can be measured.

    Args:
        detectors: trained ones.
        subjects: what is evaluated.
        isolation: how those models are going to run.

    Raises:
        InvalidInput: if one was trained beside none of these models.
        Unsupported: if one reads the layers of a model that runs in a process of its own.
    """
    for file, _, trained in detectors:
        beside = [subject.model for subject in subjects if subject.model_digest == trained.model_digest]
        isolated = [name for name in beside if isolation.covers(name)]
        if trained.row.reads_layers and isolated:
            raise Unsupported(
                f"expected to see the layers of {isolated[0]}, which {file} ({trained.row.full_name}) reads, but it "
                "runs in a process of its own: `isolate=no` runs it here"
            )
        if not beside:
            there = ", ".join(dict.fromkeys(subject.model for subject in subjects))
            raise InvalidInput(
                f"expected results of {trained.model or 'its model'} as {file} was trained for, got those of {there}"
                " (or of other weights, code or preprocessing); train a detector for each model"
            )


def models_to_score(outcomes: Results, detectors: Sequence[DetectorFile]) -> list[str]:
    """The models that have to be asked: those with a finished cell which a detector of theirs has not scored yet."""
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
    """Measure trained detectors on the kept examples of every finished cell of their model.

    Args:
        folder: a results folder whose examples were kept (`--keep-images`).
        files: of the detectors.
        rates: of false alarms, inside [0, 1).
        models: classifiers by name, in place of loading them by name.
        data: images, in place of loading them by name.
        device: where to compute.
        loading: how models are loaded by name; None: in this process, servers asked through the answers kept in the
            folder.

    Raises:
        Unavailable: if there is no such folder, or a file cannot be read.
        InvalidInput: if no cell is of a detector's model, or all test images were seen by it.
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
    """As `detect_folder`, of detectors that are read already."""
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
    """One detector beside one model, which is loaded when the first score is missing."""

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
        self._load = lambda: _load(bench, subject, source, data, device)
        self._ready: tuple[Scorer, Classifier, np.ndarray, np.ndarray] | None = None

    @property
    def model(self) -> Classifier | None:
        """The model, if it was loaded."""
        return None if self._ready is None else self._ready[1]

    @full_float32()
    def score(self, examples: Tensor) -> DetectorScores:
        """The scores of the clean images and of what was made of them, (n, C, H, W)."""
        file, digest, trained = self.detector
        if self._ready is None:
            classifier, images = self._load()
            scorer = trained.bind(classifier, self.subject.model_digest)
            seen = np.array([digest_image(image) in trained.seen for image in images.inputs])
            if seen.all():
                raise InvalidInput(
                    f"expected test images that {file} was not trained on, got {len(seen)} of {len(seen)} that it was"
                )
            self._ready = scorer, classifier, scorer.score(images.inputs.to(classifier.device)).numpy(), seen
        scorer, classifier, clean, seen = self._ready
        adversarial = scorer.score(examples.to(classifier.device)).numpy()
        name = trained.row.full_name
        return DetectorScores(file, digest, name, trained.calibration.numpy(), clean, adversarial, seen)


def _score_all(scoring: _Scoring, outcomes: Results, notes: list[str]) -> Iterator[tuple[RunResult, DetectorScores]]:
    """The scores on each finished cell of a model: those that are kept, or new ones, which are kept at once."""
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
                f"left out: {outcome.cell.title} on {scoring.subject.model}: its examples were not kept (--keep-images)"
            )
            continue
        scores = scoring.score(examples)
        try:
            keep_scores(outcomes.store, outcome, scores)
        except Unavailable as error:  # a folder that may only be read
            notes.append(f"not kept for the report: {error}")
        yield outcome, scores


def _load(
    bench: LoadedCache, subject: ModelOnData, source: ModelSource, data: Data | None, device: str
) -> tuple[Classifier, Data]:
    """The subject's model and images; Unavailable if they are not those that were evaluated."""
    classifier = bench.model(source, device)
    limit = None if subject.chosen else subject.images
    images = bench.data(DataSource(subject.data, limit, data, subject.chosen), classifier)
    if digest_model(classifier, source.name) != subject.model_digest:
        raise Unavailable("expected the model that was evaluated, got another; evaluate it again")
    if digest_data(images.inputs, images.labels) != subject.data_digest:
        raise Unavailable(f"expected the images that were evaluated, got other ones as {subject.data}")
    return classifier, images

"""Detectors on the examples of a results folder: what they see, what they miss, and what they call by mistake."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...adapters import Classifier
from ...adapters.data.datasets import Data
from ...adapters.models.detectors.detector_file import TrainedDetector, read_detector
from ...adapters.models.identity.digest import digest_data, digest_model
from ...adapters.models.remote.transport import kept_in
from ...adapters.paths import expand_path
from ...errors import DavylampError, InvalidInput, Unavailable
from ..cell import Cell, ModelOnData
from ..sources import DataSource, LastLoaded, Loading, ModelSource
from ..store.examples import read_examples
from ..store.outcomes import Outcome, Outcomes, outcomes_of
from ..training.held_out import digest_image
from .roc import Area, CountedShare, area_of_images, share_of

RATES = (0.01, 0.05)  # of false alarms


@dataclass(frozen=True)
class AtRate:
    """A detector whose line is drawn at a rate of false alarms on its calibration images.

    Args:
        rate: that was asked for.
        threshold: the score above which it calls an image adversarial.
        detected: of the images that fooled the model, those above it.
        false_alarms: of the clean test images, those above it.
        missed: of the images that were attacked by the rules, those that fooled the model and were not detected.
    """

    rate: float
    threshold: float
    detected: CountedShare
    false_alarms: CountedShare
    missed: CountedShare


@dataclass(frozen=True)
class Detection:
    """A detector against the examples of one cell.

    Args:
        detector: its file.
        name: of the detector.
        cell: whose examples these are.
        area: under the ROC curve, fooled against clean images.
        fooled: how many images fooled the model.
        clean: how many clean test images there are.
        rates: one for each rate of false alarms.
        left_out: test images that the detector has seen when it was trained.
        notes: what is worth saying.
    """

    detector: str
    name: str
    cell: Cell
    area: Area
    fooled: int
    clean: int
    rates: tuple[AtRate, ...]
    left_out: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """All detectors of a folder, and a line for each cell that could not be measured."""

    rows: tuple[Detection, ...]
    notes: tuple[str, ...]


def detect_folder(
    folder: str | Path | Outcomes,
    files: Sequence[str | Path],
    *,
    rates: Sequence[float] = RATES,
    models: Mapping[str, Classifier] | None = None,
    data: Data | None = None,
    device: str = "cpu",
    loading: Loading | None = None,
) -> Measured:
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
    detectors = {str(file): read_detector(expand_path(file)) for file in files}
    for trained in detectors.values():
        for rate in rates:
            trained.threshold(rate)
    outcomes, bench = outcomes_of(folder), LastLoaded()
    rows: list[Detection] = []
    notes: list[str] = []
    for file, trained in detectors.items():
        mine = {key: s for key, s in outcomes.subjects.items() if s.model_digest == trained.model_digest}
        if not mine:
            there = ", ".join(dict.fromkeys(subject.model for subject in outcomes.subjects.values()))
            raise InvalidInput(
                f"expected results of {trained.model or 'its model'} as {file} was trained for, got those of {there}"
                " (or of other weights, code or preprocessing); train a detector for each model"
            )
        for subject in mine.values():
            try:
                given = None if models is None else models.get(subject.model)
                source = ModelSource(subject.model, given, loading or Loading(kept_in(outcomes.store.folder)))
                classifier, images = _load(bench, subject, source, data, device)
                rows += _measure(file, trained, subject, classifier, images, outcomes, rates, notes)
            except Unavailable as error:
                notes.append(f"{subject.model}: {error}")
    return Measured(tuple(rows), tuple(dict.fromkeys(notes)))


def _load(
    bench: LastLoaded, subject: ModelOnData, source: ModelSource, data: Data | None, device: str
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


def _measure(  # noqa: PLR0913, PLR0917 - the parts of one row
    file: str,
    trained: TrainedDetector,
    subject: ModelOnData,
    classifier: Classifier,
    images: Data,
    outcomes: Outcomes,
    rates: Sequence[float],
    notes: list[str],
) -> Iterator[Detection]:
    scorer = trained.beside(classifier, subject.model_digest)
    fresh = np.array([digest_image(image) not in trained.seen for image in images.inputs])
    if not fresh.any():
        raise InvalidInput(
            f"expected test images that {file} was not trained on, got {len(fresh)} of {len(fresh)} that it was"
        )
    clean = scorer.score(images.inputs.to(classifier.device)).numpy()
    for outcome in outcomes.done:
        if outcome.cell.subject != subject:
            continue
        try:
            examples = read_examples(outcomes.store, outcome.cell)
        except (DavylampError, OSError):
            notes.append(
                f"left out: {outcome.cell.title} on {subject.model}: its examples were not kept (--keep-images)"
            )
            continue
        adversarial = scorer.score(examples.to(classifier.device)).numpy()
        yield judge_scores(file, trained, outcome, (clean, adversarial, fresh), rates)


def judge_scores(
    file: str,
    trained: TrainedDetector,
    outcome: Outcome,
    scored: tuple[np.ndarray, np.ndarray, np.ndarray],
    rates: Sequence[float],
) -> Detection:
    """One detector against one cell.

    Args:
        file: of the detector.
        trained: the detector.
        outcome: the cell, n images.
        scored: scores of the clean images and of the examples, and which images count, each of shape (n,).
        rates: of false alarms.
    """
    clean, adversarial, fresh = scored
    unseen, silent = fresh, fresh & ~(np.isfinite(clean) & (np.isfinite(adversarial) | ~outcome.usable))
    fresh = fresh & ~silent
    usable = outcome.usable & fresh
    fooled = usable & outcome.columns["success"]
    at_rates = []
    for rate in rates:
        line = trained.threshold(rate)
        detected, missed = share_of(adversarial[fooled] > line), share_of((fooled & (adversarial <= line))[usable])
        at_rates.append(AtRate(rate, line, detected, share_of(clean[fresh] > line), missed))
    few = [rate for rate in rates if rate * len(trained.calibration) < 1]
    notes = [
        f"{file}: {rate:.3g} of its {len(trained.calibration)} calibration images is less than one: no alarm there"
        for rate in few
    ]
    area = area_of_images(clean[fresh], adversarial[fresh], fooled[fresh])
    numbers = int(fooled.sum()), int(fresh.sum())
    left_out = int((~unseen).sum())
    if silent.any():
        notes.append(f"{file}: {int(silent.sum())} of {len(silent)} images left out, whose scores are NaN or infinite")
    if left_out:
        notes.append(f"{file}: {left_out} of {len(fresh)} test images left out, which it was trained on")
    name = trained.row.full_name
    return Detection(file, name, outcome.cell, area, *numbers, tuple(at_rates), left_out, tuple(notes))

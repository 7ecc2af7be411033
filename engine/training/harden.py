"""Trains a robust model, measures the model on held-out images, and writes weights file and model card."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ...adapters.data.datasets import Data
from ...adapters.models.classifier import Classifier
from ...adapters.models.identity.digest import digest_data, digest_model
from ...adapters.models.images import check_images, check_labels
from ...adapters.models.zoo.weights_file import pack_weights, read_weights
from ...adapters.threat_model import ThreatModel
from ...adapters.user_code_guard import one_line
from ...errors import InvalidInput, Unavailable, Unsupported
from ..store.atomic_files import check_output_path, replace_file, write_atomic
from .card import environment_versions, measure_model
from .checkpoint import Checkpoint
from .held_out import check_disjoint
from .loop import Progress, train
from .methods import METHODS
from .settings import TrainingSettings
from .student import TrainableModel


class TrainingResult(NamedTuple):
    """Result of `harden`.

    Args:
        classifier: the trained model.
        card: model card as JSON types, with settings and with measurements before and after the training.
        path: the weights file. None if no file was written.
    """

    classifier: Classifier
    card: dict[str, Any]
    path: Path | None

    def __repr__(self) -> str:
        from .card import describe_measured

        where = "" if self.path is None else f" in {self.path}"
        return f"Hardened by {self.card['settings']['method']}{where}: {describe_measured(self.card['after'])}"


def harden(
    classifier: Classifier,
    training: Data,
    held_out: Data,
    settings: TrainingSettings,
    *,
    base: str = "",
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> TrainingResult:
    """Train a robust copy of a classifier, and measure its accuracy on held-out images before and after training.

    If an interrupted training is repeated with the same arguments, it resumes and gives the same weights. Trainings on
    a CPU are reproducible to the bit if torch's version and the number of threads are the same.

    Args:
        classifier: the initial model, which is not changed.
        training: images and labels for the training.
        held_out: images and labels for the measurements. No image may also be in `training`.
        settings: settings from `make_settings`.
        base: name by which the classifier can be loaded again. "" if the classifier was not loaded by name.
        out: weights file NAME.pt. The model card is written to NAME.json, and the checkpoint of an unfinished training
            to NAME.pt.partial. If the file exists and has the same settings, it is read instead of training again. None
            writes no files.
        progress: function that is called after each batch with the current stage and the number of images in the batch.

    Raises:
        InvalidInput: If images, labels or sizes do not fit the model, if an image is in both sets, or if the file
            belongs to a different training.
        Unsupported: If the model cannot be trained, or if this device does not support mixed precision.
        TrainingFailed: If the loss is not finite.
        Unavailable: If a file cannot be written.
    """
    _check(classifier, training, held_out, settings)
    path = None if out is None else _check_out(out)
    spec = {
        "base": base,
        "base_digest": digest_model(classifier, base),
        "training_digest": digest_data(training.inputs, training.labels),
        "held_out_digest": digest_data(held_out.inputs, held_out.labels),
        "settings": json.loads(json.dumps(settings.to_dict())),
        "device": classifier.device.type,
    }
    if path is not None and path.exists():
        return _read_finished(path, spec, classifier)
    student = TrainableModel(classifier)
    checkpoint = None if path is None else Checkpoint(path.with_name(f"{path.name}.partial"), spec)
    before = measure_model(classifier, held_out, settings)
    devices = [student.learning[0].device] if student.learning[0].is_cuda else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(settings.seed)
        if settings.fresh:
            student.reinitialise()
        train(student, training.inputs, training.labels, settings, checkpoint=checkpoint, progress=progress)
    trained = _as_classifier(student, classifier, f"{classifier.name}+{settings.method}")
    sizes = {
        "trained_on": len(training.labels),
        "measured_on": len(held_out.labels),
        "shape": [*training.inputs.shape[1:]],
    }
    row = METHODS[settings.method]
    card = {**spec, **sizes, "title": row.title, "source": row.source, "versions": environment_versions()}
    card |= {"before": before, "after": measure_model(trained, held_out, settings)}
    if path is not None:
        _write(path, base, student, card)
        trained.name = str(out)
    if checkpoint is not None:
        checkpoint.remove()
    return TrainingResult(trained, card, path)


def _check(classifier: Classifier, training: Data, held_out: Data, settings: TrainingSettings) -> None:
    for name, data in (("train on", training), ("measure on", held_out)):
        if not len(data.labels):
            raise InvalidInput(f"{name} needs images, got none")
        check_images(data.inputs)
    if training.inputs.shape[1:] != held_out.inputs.shape[1:]:
        sizes = " and ".join(" x ".join(map(str, data.inputs.shape[1:])) for data in (training, held_out))
        raise InvalidInput(f"expected training images and held-out images of the same size, got {sizes}")
    classifier.check(held_out.inputs[:2], held_out.labels[:2])
    for data in (training, held_out):
        check_labels(data.labels, len(data.inputs), classifier.num_classes or 0)
    check_disjoint(training, held_out)
    components = training.inputs[0].numel()
    ThreatModel(settings.norm, settings.epsilon).check_radius(components)  # type: ignore[arg-type]
    if settings.mixed_precision and classifier.device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise Unsupported("mixed precision needs a GPU with bfloat16, which this GPU lacks; omit `mixed_precision`")


def _check_out(out: str | Path) -> Path:
    path = check_output_path(out)
    if path.suffix != ".pt":
        raise InvalidInput(f"expected the name of the weights file (-o) to end in .pt, got {path}")
    return path


def _read_finished(path: Path, spec: dict[str, Any], classifier: Classifier) -> TrainingResult:
    stored = read_weights(path)
    for word, value in spec.items():
        if stored.card.get(word) != value:
            raise InvalidInput(
                f"{path} already exists, from a training with a different {word}; choose a different file for `out`"
            )
    student = TrainableModel(classifier)
    student.model.load_state_dict(stored.weights)
    return TrainingResult(_as_classifier(student, classifier, str(path)), stored.card, path)


def _as_classifier(student: TrainableModel, original: Classifier, name: str) -> Classifier:
    """Return the trained model as a frozen classifier with the preprocessing of the original classifier."""
    words = ("resize", "crop", "interpolation")
    sizes: dict[str, Any] = {word: getattr(original, word) for word in words}
    mean, std = (None if each is None else each.flatten().tolist() for each in (original.mean, original.std))
    how: dict[str, Any] = {"num_classes": original.stated_classes, "outputs": original.answers.stated}
    made = Classifier(student.model, mean=mean, std=std, name=name, **how, **sizes)
    made.surroundings = original.surroundings
    return made.freeze()


def _write(path: Path, base: str, student: TrainableModel, card: dict[str, Any]) -> None:
    packed = pack_weights(base, student.model.state_dict(), card)
    write_atomic(path.with_suffix(".json"), json.dumps(card, indent=2))
    try:
        replace_file(path, lambda draft: torch.save(packed, draft))
    except (OSError, RuntimeError) as error:
        raise Unavailable(f"could not write {path} ({one_line(error)}); choose a different file for `out`") from error

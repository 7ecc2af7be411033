"""Trains a detector of adversarial images for one model, and calibrates its threshold on held-out clean images."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...adapters import Classifier, ThreatModel, canonical_attack, run_attack
from ...adapters.catalogue.lookup import resolve_implementation
from ...adapters.data.datasets import Data
from ...adapters.models.detectors.detector_file import TrainedDetector, pack_detector
from ...adapters.models.detectors.detector_rows import find_detector
from ...adapters.models.detectors.layer_outputs import check_layers_here
from ...adapters.models.detectors.scorer import DetectorSpec, ExamplePairs
from ...adapters.models.identity.digest import digest_data, digest_model
from ...adapters.running.seeding import seeded
from ...adapters.running.targets import choose_targets
from ...adapters.torch_state import full_float32
from ...adapters.user_code_guard import one_line
from ...errors import InvalidInput, Unavailable
from ..store.atomic_files import check_output_path, replace_file
from ..training.card import environment_versions
from ..training.held_out import digest_image, split_data

CALIBRATION = 0.3  # proportion of the images for calibration
_FEWEST = 10  # fewest adversarial images for training


class TrainingAttack(NamedTuple):
    """The attack that makes the examples on which a detector is trained.

    Args:
        attack: name of the attack or of the implementation.
        threat_model: norm, radius and whether the attack is targeted.
        parameters: parameters of the attack.
        target: rule that chooses the target class, if the attack is targeted.
    """

    attack: str
    threat_model: ThreatModel
    parameters: Mapping[str, Any]
    target: str = "second-likely"


def train_detector(
    name: str,
    classifier: Classifier,
    data: Data,
    shown: TrainingAttack | None = None,
    *,
    model: str = "",
    seed: int = 0,
    **parameters: Any,
) -> TrainedDetector:
    """Train a detector of adversarial images for one model.

    Args:
        name: name of the detector, from `adapters.models.detectors.detector_rows`.
        classifier: the model whose adversarial images are to be detected.
        data: clean images and labels, which must not be used to test the detector. 70 % of the images are used for
            training. The scores of the other 30 % later determine the threshold for a false-positive rate.
        shown: attack whose successful examples are used for training. None if the detector is trained on clean images.
        model: name by which the classifier was loaded. "" if the classifier was not loaded by name.
        seed: random seed.
        **parameters: parameters of the detector.

    Raises:
        UnknownName: If the detector or the parameter does not exist.
        InvalidInput: If an attack is given or missing contrary to the detector's needs, or if the attack fools fewer
            than 10 images.
        MissingLibrary: If the library of the detector is not installed.
        Unsupported: If the detector reads layers of a model that runs in a separate process.
    """
    row = find_detector(name)
    values = row.complete(parameters)
    check_shown(row, shown)
    if row.reads_layers:
        check_layers_here(classifier, row.name)
    scorer = row.load()(classifier, **values)
    logits = classifier.check(data.inputs, data.labels)
    if not (logits.argmax(1).cpu() == data.labels.cpu()).any():
        raise InvalidInput(
            f"expected images that {classifier.name} classifies correctly, got none among {len(data.labels)}"
        )
    training, calibration = split_data(data, CALIBRATION, seed)
    device = classifier.device
    made = None if shown is None else _attack(classifier, training, shown, seed)
    with seeded(seed), full_float32():
        pairs = None if made is None else ExamplePairs(*(part.to(device) for part in made))
        scorer.fit(training.inputs.to(device), training.labels.to(device), pairs)
        scores = scorer.score(calibration.inputs.to(device)).double().cpu()
    if not torch.isfinite(scores).all():
        raise InvalidInput(f"expected finite scores of clean images from {row.full_name}, got NaN or infinity")
    card = {
        "detector": row.full_name,
        "title": row.title,
        "source": row.source,
        "parameters": values,
        "model": model,
        "data_digest": digest_data(data.inputs, data.labels),
        "trained_on": {"clean": len(training.labels), "adversarial": 0 if made is None else len(made.adversarial)},
        "calibrated_on": len(scores),
        "attack": None if shown is None else _describe(shown),
        "seed": seed,
        "versions": environment_versions(),
    }
    state = {key: tensor.detach().clone() for key, tensor in scorer.state().items()}
    seen = frozenset(digest_image(image) for image in data.inputs)
    return TrainedDetector(row, values, state, scores, model, digest_model(classifier, model), seen, card)


def check_shown(row: DetectorSpec, shown: TrainingAttack | None) -> None:
    """Check that an attack is given if, and only if, the detector is trained on examples.

    Raises:
        InvalidInput: If an attack is missing or not needed.
    """
    if row.learns_examples and shown is None:
        raise InvalidInput(f"{row.full_name} is trained on the examples of an attack; give `attack`")
    if not row.learns_examples and shown is not None:
        raise InvalidInput(f"{row.full_name} is trained on clean images only; omit the attack {shown.attack}")


def save_detector(trained: TrainedDetector, out: str | Path) -> Path:
    """Write a trained detector to a file, and return its path. Raises Unavailable if the file cannot be written."""
    path = check_output_path(out)
    try:
        replace_file(path, lambda draft: torch.save(pack_detector(trained), draft))
    except (OSError, RuntimeError) as error:
        raise Unavailable(f"could not write {path} ({one_line(error)}); choose a different file for `out`") from error
    return path


def _attack(classifier: Classifier, data: Data, shown: TrainingAttack, seed: int) -> ExamplePairs:
    row, rules = resolve_implementation(shown.attack), shown.threat_model
    more: dict[str, Tensor] = {}
    if rules.targeted:
        logits = classifier.predict_logits(data.inputs)
        more["targets"] = choose_targets(logits, data.labels, shown.target, seed)
    result = run_attack(row, classifier, data.inputs, data.labels, rules, seed=seed, **more, **shown.parameters)
    count = int(result.success.sum())
    if count < _FEWEST:
        fooled = f"{count} of {int(result.attacked.sum())} by {row.name}"
        raise InvalidInput(
            f"expected at least {_FEWEST} examples for training, got {fooled}; use a larger radius or more images"
        )
    fooled_images = result.success.cpu()
    return ExamplePairs(data.inputs.cpu()[fooled_images], result.adv_inputs.cpu()[fooled_images])


def _describe(shown: TrainingAttack) -> dict[str, Any]:
    rules = shown.threat_model
    kind = canonical_attack(resolve_implementation(shown.attack)).title
    said = {"attack": shown.attack, "title": kind, "norm": rules.norm, "epsilon": rules.epsilon}
    return {**said, "targeted": rules.targeted, "parameters": dict(shown.parameters)}

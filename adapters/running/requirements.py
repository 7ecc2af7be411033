"""Checks whether a model provides what an attack needs, before anything is computed."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ...errors import ModelDied, ModelFailed, Unsupported
from ..attack import Implementation
from ..catalogue.lookup import IMPLEMENTATIONS, canonical_attack
from ..models.classifier import Classifier
from ..models.sandbox.isolated import runs_in_process
from .seeding import seeded

# Attacks that a refusal may name, the first three that have the norm.
_BY_DECISIONS = ("hopskipjump", "boundary", "rays", "geoda", "pointwise", "spatial")
_BY_SCORES = ("square", "spsa", "simba", "one-pixel", *_BY_DECISIONS)
_ELSEWHERE = (
    "needs the model's layers, but the model runs in a separate process; use --isolate no to run it in this process"
)


def check_requirements(
    row: Implementation, classifier: Classifier, inputs: Tensor, *, norm: str = "", aimed: bool = False
) -> None:
    """Raise Unsupported if the model does not provide what the attack needs, such as gradients or scores.

    Args:
        row: the implementation.
        classifier: the model under attack. If it is not known whether it has gradients, this is tested once.
        inputs: images in [0, 1], shape (N, C, H, W). The first image is queried if necessary.
        norm: norm of the attacks that the error suggests instead.
        aimed: whether target classes are given.
    """
    if why := missing_requirement(row, classifier, inputs, aimed=aimed):
        raise Unsupported(f"{row.name} {why}" + ("" if why == _ELSEWHERE else f"; {suggest_attacks(classifier, norm)}"))


def check_any_access(
    rows: Sequence[Implementation], classifier: Classifier, inputs: Tensor, *, norm: str = "", aimed: bool = False
) -> None:
    """Raise Unsupported if none of several attacks can run on the model.

    The message has the reason of the first attack.
    """
    if all(missing_requirement(row, classifier, inputs, aimed=aimed) for row in rows):
        check_requirements(rows[0], classifier, inputs, norm=norm, aimed=aimed)


def missing_requirement(row: Implementation, classifier: Classifier, inputs: Tensor, *, aimed: bool = False) -> str:
    """Return the reason why an attack cannot run on a model, as a text that follows the attack's name.

    "" if it can run.
    """
    knowledge = canonical_attack(row).knowledge
    detect_output_format(classifier, inputs)
    if knowledge == "white-box" and not has_gradients(classifier, inputs):
        why = classifier.answers.no_gradients
        gives = "labels only" if classifier.outputs == "labels" else f"none{f' ({why})' if why else ''}"
        assumed = f" ({'; '.join(row.assumed)})" if row.assumed else ""
        return f"needs gradients{assumed}, but the model returns {gives}"
    if classifier.outputs == "labels":
        if knowledge == "score-based":
            return "needs scores, and the model returns labels only"
        if row.targeted == "only" and not aimed:
            return "chooses its target by scores, but the model returns labels only"
    return why_no_layers(row, classifier)


def why_no_layers(row: Implementation, classifier: Classifier) -> str:
    """Return the reason why an attack cannot read the model's layers, as a text that follows the attack's name.

    "" if the attack can read the layers, or does not need them.
    """
    return _ELSEWHERE if row.reads_layers and runs_in_process(classifier) else ""


def detect_output_format(classifier: Classifier, inputs: Tensor) -> None:
    """Detect the model's output format by a query of one image, if the format is not known yet.

    Args:
        classifier: the model.
        inputs: images, shape (N, C, H, W).
    """
    if classifier.outputs is None:
        classifier.predict_logits(inputs[:1])


def has_gradients(classifier: Classifier, inputs: Tensor) -> bool:
    """Whether the output of the model has a gradient with respect to the image. This is tested once per classifier.

    Args:
        classifier: the model.
        inputs: images in [0, 1], shape (N, C, H, W). The first image is queried.
    """
    answers = classifier.answers
    if answers.gradients and not answers.looked:
        with classifier.frozen(), seeded(0), torch.enable_grad():
            image = inputs[:1].detach().clone().requires_grad_()
            try:
                answers.note_gradients(there=classifier(image).requires_grad)
            except ModelDied as failure:  # once is enough: attacks without gradients continue in a new process
                answers.note_gradients(there=False, why=str(failure))
                raise
            except ModelFailed as failure:  # as of one that turns its images into arrays
                answers.note_gradients(there=False, why=str(failure))
                try:
                    classifier(image)  # without gradients
                except ModelFailed:  # not the reason: the next call reports it
                    answers.note_gradients(there=True)
    return answers.gradients


def suggest_attacks(classifier: Classifier, norm: str) -> str:
    """Return a sentence that suggests attacks which the model supports, for a norm."""
    only_labels = classifier.outputs == "labels"
    names: dict[str, str] = {}
    for row in IMPLEMENTATIONS.values():
        if not (row.broken or row.variant) and (not norm or norm in row.classes):
            names.setdefault(row.attack, row.name)
    named = [names[attack] for attack in (_BY_DECISIONS if only_labels else _BY_SCORES) if attack in names]
    kind = "decision-based" if only_labels else "score-based or decision-based"
    return f"choose a {kind} attack: {', '.join(named[:3])}; or make the examples on a surrogate"

"""What an attack needs of a model and the model does not give: one line, before anything runs."""

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
_ELSEWHERE = "needs the model's layers, and they are in a process of their own; --isolate no runs it here"


def check_requirements(
    row: Implementation, classifier: Classifier, inputs: Tensor, *, norm: str = "", aimed: bool = False
) -> None:
    """Raise Unsupported if the attack needs what the model does not give.

    Args:
        row: the implementation.
        classifier: what it asks. Of one that nobody knows better, it is looked once whether it has gradients.
        inputs: images in [0, 1], shape (N, C, H, W), of which the first is asked about where that is not known yet.
        norm: in which other attacks are named.
        aimed: it is given its target classes.
    """
    if why := missing_requirement(row, classifier, inputs, aimed=aimed):
        raise Unsupported(f"{row.name} {why}" + ("" if why == _ELSEWHERE else f"; {suggest_attacks(classifier, norm)}"))


def check_any_access(
    rows: Sequence[Implementation], classifier: Classifier, inputs: Tensor, *, norm: str = "", aimed: bool = False
) -> None:
    """Raise Unsupported, for the first of some attacks, if the model does not give what any of them needs."""
    if all(missing_requirement(row, classifier, inputs, aimed=aimed) for row in rows):
        check_requirements(rows[0], classifier, inputs, norm=norm, aimed=aimed)


def missing_requirement(row: Implementation, classifier: Classifier, inputs: Tensor, *, aimed: bool = False) -> str:
    """Why an attack cannot be run on a model that it asks, said after its name; "" if it can. See `check_requirements`."""
    knowledge = canonical_attack(row).knowledge
    detect_output_format(classifier, inputs)
    if knowledge == "white-box" and not has_gradients(classifier, inputs):
        why = classifier.answers.no_gradients
        gives = "labels only" if classifier.outputs == "labels" else f"none{f' ({why})' if why else ''}"
        assumed = f" ({'; '.join(row.assumed)})" if row.assumed else ""
        return f"needs gradients{assumed}, and the model gives {gives}"
    if classifier.outputs == "labels":
        if knowledge == "score-based":
            return "needs scores, and the model gives labels only"
        if row.targeted == "only" and not aimed:
            return "aims by scores, and the model gives labels only"
    return why_no_layers(row, classifier)


def why_no_layers(row: Implementation, classifier: Classifier) -> str:
    """Why an attack cannot look into a model, said after its name; "" if it can, or need not."""
    return _ELSEWHERE if row.reads_layers and runs_in_process(classifier) else ""


def detect_output_format(classifier: Classifier, inputs: Tensor) -> None:
    """Ask about one image, shape (N, C, H, W) with the others, where it is not known yet what the model gives."""
    if classifier.outputs is None:
        classifier.predict_logits(inputs[:1])


def has_gradients(classifier: Classifier, inputs: Tensor) -> bool:
    """Whether the answer about an image can be differentiated by it; asked once for each classifier.

    Args:
        classifier: the model.
        inputs: images in [0, 1], shape (N, C, H, W), of which the first is asked about.
    """
    answers = classifier.answers
    if answers.gradients and not answers.looked:
        with classifier.frozen(), seeded(0), torch.enable_grad():
            image = inputs[:1].detach().clone().requires_grad_()
            try:
                answers.note_gradients(there=classifier(image).requires_grad)
            except ModelDied as failure:  # once is enough: what needs none goes on in a new process
                answers.note_gradients(there=False, why=str(failure))
                raise
            except ModelFailed as failure:  # as of one that turns its images into arrays
                answers.note_gradients(there=False, why=str(failure))
                try:
                    classifier(image)  # without gradients
                except ModelFailed:  # that was not the reason: whoever asks it next is told what is
                    answers.note_gradients(there=True)
    return answers.gradients


def suggest_attacks(classifier: Classifier, norm: str) -> str:
    """Which attacks the model has answers for."""
    only_labels = classifier.outputs == "labels"
    names: dict[str, str] = {}
    for row in IMPLEMENTATIONS.values():
        if not (row.broken or row.variant) and (not norm or norm in row.classes):
            names.setdefault(row.attack, row.name)
    named = [names[attack] for attack in (_BY_DECISIONS if only_labels else _BY_SCORES) if attack in names]
    kind = "decision-based" if only_labels else "score-based or decision-based"
    return f"choose a {kind} attack: {', '.join(named[:3])}; or make the examples on a surrogate"

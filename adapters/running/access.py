"""What an attack needs of a model and the model does not give: one line, before anything runs."""

import torch
from torch import Tensor

from ...errors import ModelDied, ModelFailed, Unsupported
from ..attack import Implementation
from ..catalogue.lookup import IMPLEMENTATIONS, attack_of
from ..models.classifier import Classifier
from .seeding import seeded

# Attacks that a refusal may name, the first three that have the norm.
_BY_DECISIONS = ("hopskipjump", "boundary", "rays", "geoda", "pointwise", "spatial")
_BY_SCORES = ("square", "spsa", "simba", "one-pixel", *_BY_DECISIONS)


def check_access(
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
    if why := why_no_access(row, classifier, inputs, aimed=aimed):
        raise Unsupported(f"{why}; {_advice(classifier, norm)}")


def why_no_access(row: Implementation, classifier: Classifier, inputs: Tensor, *, aimed: bool = False) -> str:
    """Why an attack cannot be run on a model that it asks; "" if it can. See `check_access`."""
    knowledge = attack_of(row).knowledge
    if classifier.outputs is None:
        classifier.predict_logits(inputs[:1])
    if knowledge == "white-box" and not has_gradients(classifier, inputs):
        gives = "labels only" if classifier.outputs == "labels" else "none"
        assumed = f" ({'; '.join(row.assumed)})" if row.assumed else ""
        return f"{row.name} needs gradients{assumed}, and the model gives {gives}"
    if classifier.outputs == "labels":
        if knowledge == "score-based":
            return f"{row.name} needs scores, and the model gives labels only"
        if row.targeted == "only" and not aimed:
            return f"{row.name} aims by scores, and the model gives labels only"
    return ""


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
            except ModelDied:
                raise
            except ModelFailed:  # as of one that turns its images into arrays
                answers.note_gradients(there=False)
                classifier(image)  # without gradients: fails again if that was not the reason
    return answers.gradients


def _advice(classifier: Classifier, norm: str) -> str:
    """Which attacks the model has answers for."""
    only_labels = classifier.outputs == "labels"
    names: dict[str, str] = {}
    for row in IMPLEMENTATIONS.values():
        if not (row.broken or row.variant) and (not norm or norm in row.classes):
            names.setdefault(row.attack, row.name)
    named = [names[attack] for attack in (_BY_DECISIONS if only_labels else _BY_SCORES) if attack in names]
    kind = "decision-based" if only_labels else "score-based or decision-based"
    return f"choose a {kind} attack: {', '.join(named[:3])}; or make the examples on a surrogate"

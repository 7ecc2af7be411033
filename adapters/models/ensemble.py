"""Ensembles: several models combined into one that returns the mean of their logits."""

from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor, nn

from ...errors import InvalidInput
from .classifier import Classifier


class MeanLogits(nn.Module):
    """Model that returns the unweighted mean of several classifiers' logits (Dong et al. 2018, eq. 9)."""

    def __init__(self, members: Sequence[Classifier]):
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits of shape (N, K) for images in [0, 1] of shape (N, C, H, W)."""
        answers = [member(inputs) for member in self.members]
        return torch.stack([answer.to(answers[0].device) for answer in answers]).mean(0)


def mean_logit_ensemble(members: Sequence[Classifier]) -> Classifier:
    """Build a classifier that returns the mean of several classifiers' logits.

    A single classifier is returned unchanged. One query of the ensemble costs one query of each member.

    Args:
        members: classifiers that take the same images and have the same classes in the same order.

    Raises:
        InvalidInput: if `members` is empty.
    """
    if not members:
        raise InvalidInput("expected at least one surrogate, got none")
    if len(members) == 1:
        return members[0]
    is_random = any(member.random for member in members)
    return Classifier(MeanLogits(members), name=ensemble_name([member.name for member in members]), random=is_random)


def members_of(classifier: Classifier) -> list[Classifier]:
    """Return the members of an ensemble. For any other classifier, the list has only the classifier itself."""
    members = classifier.model.members if isinstance(classifier.model, MeanLogits) else [classifier]
    return [member for member in members if isinstance(member, Classifier)]


def ensemble_name(names: Sequence[str]) -> str:
    """Return the joint name of several models, such as "demo:a + demo:b"."""
    return " + ".join(names)


def base_classifiers(classifier: Classifier) -> list[Classifier]:
    """Return the innermost classifiers inside a classifier, such as the model behind its defences.

    If the classifier contains no other classifier, the list has only the classifier itself.
    """
    inner = [part for part in classifier.model.modules() if isinstance(part, Classifier)]
    return [part for part in inner if not any(isinstance(each, Classifier) for each in part.model.modules())] or [
        classifier
    ]


def is_float32_in_torch(classifier: Classifier) -> bool:
    """Whether torch computes all innermost models in float32. Models in a separate process count, too."""
    return all(_is_in_torch(part) and part.anchor.dtype == torch.float32 for part in base_classifiers(classifier))


def _is_in_torch(classifier: Classifier) -> bool:
    """Whether a model has weights in torch. False for models on a server and for models in ONNX Runtime."""
    of_process: bool | None = getattr(classifier, "in_torch", None)
    held = chain(classifier.model.parameters(), classifier.model.buffers())
    return any(each.is_floating_point() and each.numel() for each in held) if of_process is None else of_process

"""Several models as one: the mean of their logits."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...errors import InvalidInput
from .classifier import Classifier


class MeanLogits(nn.Module):
    """The mean of the logits of several classifiers, with equal weights (Dong et al. 2018, eq. 9)."""

    def __init__(self, members: Sequence[Classifier]):
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of shape (N, K) for images in [0, 1] of shape (N, C, H, W)."""
        answers = [member(inputs) for member in self.members]
        return torch.stack([answer.to(answers[0].device) for answer in answers]).mean(0)


def mean_logit_ensemble(members: Sequence[Classifier]) -> Classifier:
    """A classifier of the mean of several classifiers' logits; a single one is returned as it is.

    One pass of the ensemble is one pass of each member.

    Args:
        members: they see the same images, and have the same classes in the same order.

    Raises:
        InvalidInput: if there is none.
    """
    if not members:
        raise InvalidInput("expected at least one surrogate, got none")
    if len(members) == 1:
        return members[0]
    is_random = any(member.random for member in members)
    return Classifier(MeanLogits(members), name=ensemble_name([member.name for member in members]), random=is_random)


def members_of(classifier: Classifier) -> list[Classifier]:
    """The classifiers whose logits an ensemble averages; of any other classifier itself."""
    members = classifier.model.members if isinstance(classifier.model, MeanLogits) else [classifier]
    return [member for member in members if isinstance(member, Classifier)]


def ensemble_name(names: Sequence[str]) -> str:
    """What several models are called together: "demo:a + demo:b"."""
    return " + ".join(names)

"""Multi-label models (one sigmoid for each label) as classifiers, by a stated criterion of what counts as fooled."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import InvalidInput, ModelFailed
from ..coercion import read_int
from .classifier import Classifier
from .extract_logits import extract_logits

Scores = Literal["logits", "probabilities"]


def from_multi_label(
    model: nn.Module, targets: Any, *, label: int | None = None, outputs: Scores = "logits", **settings: Any
) -> tuple[Classifier, Tensor]:
    """Convert a multi-label model and its labels to a classifier and class indices.

    The argument `label` decides when an image counts as fooled.

    Without `label`, an image is fooled if any of its labels flips. Each combination of labels that occurs in `targets`
    is then a class, and all other combinations together are one more class. The logit of a combination is the smallest
    of its labels' logits. The logit of an absent label counts with the opposite sign. The class of all other
    combinations has the logit 0. So the class with the largest logit is the predicted combination. The margin of the
    true class is the smallest margin of a label. Clean accuracy is the rate of images for which the whole combination
    is right.

    With `label`, an image is fooled if this label flips. The model then has two classes: 0 for absent, 1 for present.

    Args:
        model: returns a score for each label, shape (N, L), for images in [0, 1].
        targets: labels of the evaluation images, 0 or 1, shape (N, L).
        label: index of the only label that counts. None for any label.
        outputs: "logits", or "probabilities" if the model ends with a sigmoid.
        **settings: further arguments of `Classifier`, such as `mean`, `std` and `name`.

    Returns:
        The classifier, and the class of each image, int64, shape (N,). It replaces the labels of the image.

    Raises:
        InvalidInput: if the targets are not 0 or 1 of shape (N, L), there is no such label, or `outputs` is unknown.
    """
    present = _read_targets(targets)
    if outputs not in ("logits", "probabilities"):
        raise InvalidInput(f"expected outputs as logits or probabilities, one for each label, got {outputs!r}")
    count = present.shape[1]
    if label is not None:
        place = read_int(label, f"label as a whole number from 0 to {count - 1}", 0, count - 1)
        wrapped: nn.Module = _OneLabel(model, place, count)
        made = Classifier(wrapped, outputs="logit" if outputs == "logits" else "probability", **settings)
        criterion, classes = f"label {place} of {count} flips", present[:, place].long()
    else:
        sets, classes = present.unique(dim=0, return_inverse=True)
        wrapped = _LabelSets(model, sets, outputs)
        made = Classifier(wrapped, num_classes=len(sets) + 1, outputs="logits", **settings)
        criterion = f"any of the {count} labels flips (classes: {len(sets)} combinations of labels, and all others)"
    made.name = settings.get("name") or type(model).__name__
    made.loading_notes = (f"{made.name}: a multi-label model; an image is fooled if {criterion}",)
    return made, classes


class _OneLabel(nn.Module):
    """The score of one label, (N,)."""

    def __init__(self, model: nn.Module, place: int, count: int):
        super().__init__()
        self.inner, self.place, self.count = model, place, count

    def forward(self, inputs: Tensor) -> Tensor:
        return _scores(self.inner, inputs, self.count)[:, self.place]


class _LabelSets(nn.Module):
    """Logits of combinations of labels, and 0 for all other combinations, (N, S + 1)."""

    signs: Tensor

    def __init__(self, model: nn.Module, sets: Tensor, kind: Scores):
        super().__init__()
        self.inner, self.kind = model, kind
        self.register_buffer("signs", sets.float() * 2 - 1)

    def forward(self, inputs: Tensor) -> Tensor:
        scores = _scores(self.inner, inputs, self.signs.shape[1])
        if self.kind == "probabilities":
            if bool(((scores < 0) | (scores > 1)).any()):
                raise ModelFailed("expected probabilities in [0, 1] as declared, got others; declare outputs logits")
            scores = scores.logit(eps=torch.finfo(scores.dtype).eps)
        margins = (scores[:, None] * self.signs.to(scores)).amin(2)
        return torch.cat([margins, torch.zeros_like(margins[:, :1])], 1)


def _scores(model: nn.Module, inputs: Tensor, count: int) -> Tensor:
    scores = extract_logits(model(inputs), "the multi-label model", len(inputs), count)[0]
    if scores.shape != (len(inputs), count) or not scores.is_floating_point():
        raise ModelFailed(f"expected a score for each of {count} labels, got {scores.dtype} {tuple(scores.shape)}")
    return scores


def _read_targets(targets: Any) -> Tensor:
    """Convert labels to bool, shape (N, L)."""
    present = targets.detach().cpu() if isinstance(targets, Tensor) else torch.as_tensor(np.asarray(targets))
    if present.ndim != 2 or 0 in present.shape or not bool(((present == 0) | (present == 1)).all()):
        got = f"{present.dtype} of shape {tuple(present.shape)}"
        raise InvalidInput(f"expected the labels of each image as 0 or 1, shape (N, L), got {got}")
    return present.bool()

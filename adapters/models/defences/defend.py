"""Puts a defence in front of a model."""

from typing import Any

import torch
from torch import Tensor, nn

from ....errors import ModelFailed
from ..clamp import clamp_with_edge_gradient, describe_out_of_range
from ..classifier import Classifier
from .catalogue import Gradients
from .names import parse_defence


def defend(classifier: Classifier, defence: str, name: str = "") -> Classifier:
    """Put a defence in front of a classifier, without changing the classifier.

    Args:
        classifier: the undefended model.
        defence: name of the defence, such as "jpeg", "art:jpeg:quality=50", "jpeg:gradients=none", "ensemble:MODEL"
            or "purify:FILE.py:NAME:steps=2".
            `davylamp defences` lists all names.
        name: name of the defended model. If empty, it is built from the names of the model and the defence.

    Returns:
        A classifier with the same number of classes, for images of the same size. Each query costs one query of the
        undefended model. For `smoothing` it costs one per noise sample, and for `ensemble` also one query of each other
        member. The result is `random` if the defence or one of the models is.

    Raises:
        UnknownName: if there is no such defence or parameter.
        InvalidInput: if the value of a parameter is invalid.
        MissingLibrary: if the library that implements the defence is not installed.
    """
    row, parameters, gradients = parse_defence(defence)
    build = row.load()
    sizes: dict[str, Any] = {word: getattr(classifier, word) for word in ("resize", "crop", "interpolation")}
    defended = (
        build(classifier, **parameters)
        if row.wraps
        else Defended(classifier, build(**parameters).to(classifier.device), row.full_name, gradients)
    )
    members = (each for each in defended.modules() if isinstance(each, Classifier))
    is_random = row.random or any(each.random for each in members)
    made_of = Classifier(defended, num_classes=classifier.stated_classes, random=is_random, **sizes)
    made_of.name = name or f"{classifier.name}+{defence}"
    return made_of


class Defended(nn.Module):
    """A classifier whose input images are transformed.

    Args:
        classifier: the undefended model.
        transform: maps images (N, C, H, W) in [0, 1] to images of the same shape.
        defence: name of the defence, for messages.
        gradients: how gradients pass through the transformation, see `DefenceSpec`.
    """

    def __init__(self, classifier: Classifier, transform: nn.Module, defence: str, gradients: Gradients):
        super().__init__()
        self.classifier, self.transform = classifier, transform
        self.defence, self.gradients = defence, gradients

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits of the transformed images. Input values outside [0, 1] are clipped first."""
        if self.gradients == "exact":
            return self.classifier(self._check(inputs, self.transform(clamp_with_edge_gradient(inputs.nan_to_num()))))
        with torch.no_grad():
            changed = self._check(inputs, self.transform(inputs.nan_to_num().clamp(0, 1)))
        passed = inputs if self.gradients == "straight-through" else inputs * 0
        return self.classifier(_Replaced.apply(passed, changed))

    def _check(self, inputs: Tensor, changed: Tensor) -> Tensor:
        if changed.shape != inputs.shape:
            got = f"{tuple(inputs.shape)} to {tuple(changed.shape)}"
            raise ModelFailed(f"{self.defence} must keep the shape of the images, but changed it from {got}")
        if reach := describe_out_of_range(changed):
            raise ModelFailed(f"{self.defence} must return images in [0, 1], got values {reach}")
        return changed.where(inputs.isfinite(), torch.nan)  # non-finite pixels stay non-finite


class _Replaced(torch.autograd.Function):
    """Returns the second tensor in the forward pass, and gives its gradient to the first in the backward pass."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, changed: Tensor) -> Tensor:  # noqa: ARG004 - torch's signature
        return changed.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # noqa: ARG004
        return gradients[0], None

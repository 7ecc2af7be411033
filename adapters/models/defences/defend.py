"""A model with a defence in front of it."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from ....errors import MissingLibrary, ModelFailed
from ..clamp import clamp_with_edge_gradient, describe_out_of_range
from ..classifier import Classifier
from .names import parse_defence
from .spec import Gradients

_EXTRAS = {"art": "art", "kornia": "kornia"}  # of davylamp, that install what a defence needs


def defend(classifier: Classifier, defence: str, name: str = "") -> Classifier:
    """Put a defence in front of a classifier, which stays as it is.

    Args:
        classifier: the original.
        defence: "jpeg", "art:jpeg:quality=50", "jpeg:gradients=none": see `davylamp defences`.
        name: of the defended model; empty: the original's and the defence's.

    Returns:
        A classifier of as many classes, for images of the same size; each pass through it is one through the original
        (of `smoothing` as many as it has draws). It is `random` if the defence draws random numbers or the original is.

    Raises:
        UnknownName: if there is no such defence or parameter.
        InvalidInput: if a parameter has no such value.
        MissingLibrary: if the library whose code it is is not installed.
    """
    row, parameters, gradients = parse_defence(defence)
    if find_spec(row.module) is None:
        raise MissingLibrary(row.library, _EXTRAS.get(row.library, ""), f"for {row.full_name}")
    module, _, made = row.build.partition(":")
    build = getattr(import_module(module, __package__), made)
    sizes: dict[str, Any] = {word: getattr(classifier, word) for word in ("resize", "crop", "interpolation")}
    defended = (
        build(classifier, **parameters)
        if row.wraps
        else Defended(classifier, build(**parameters), row.full_name, gradients)
    )
    is_random = row.random or classifier.random
    made_of = Classifier(defended, num_classes=classifier.stated_classes, random=is_random, **sizes)
    made_of.name = name or f"{classifier.name}+{defence}"
    return made_of


class Defended(nn.Module):
    """A transformation of the images before a classifier.

    Args:
        classifier: the original.
        transform: maps images (N, C, H, W) in [0, 1] to images of the same shape.
        defence: its name, for messages.
        gradients: how they pass the transformation.
    """

    def __init__(self, classifier: Classifier, transform: nn.Module, defence: str, gradients: Gradients):
        super().__init__()
        self.classifier, self.transform = classifier, transform
        self.defence, self.gradients = defence, gradients

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of the transformed images; outside [0, 1], where no defence is defined, of the nearest inside."""
        if self.gradients == "exact":
            return self.classifier(self._check(inputs, self.transform(clamp_with_edge_gradient(inputs.nan_to_num()))))
        with torch.no_grad():
            changed = self._check(inputs, self.transform(inputs.nan_to_num().clamp(0, 1)))
        passed = inputs if self.gradients == "straight-through" else inputs * 0
        return self.classifier(_Replaced.apply(passed, changed))

    def _check(self, inputs: Tensor, changed: Tensor) -> Tensor:
        if changed.shape != inputs.shape:
            got = f"{tuple(inputs.shape)} to {tuple(changed.shape)}"
            raise ModelFailed(f"expected {self.defence} to keep the shape of the images, got {got}")
        if reach := describe_out_of_range(changed):
            raise ModelFailed(f"expected {self.defence} to give images in [0, 1], got values {reach}")
        return changed.where(inputs.isfinite(), torch.nan)  # what was no image stays none


class _Replaced(torch.autograd.Function):
    """The second tensor, with gradients that go to the first."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, changed: Tensor) -> Tensor:  # noqa: ARG004 - torch's signature
        return changed.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # noqa: ARG004
        return gradients[0], None

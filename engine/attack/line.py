"""Bisection between an example and its clean image: what is left to gain along the line, for a forward pass a step."""

from collections.abc import Callable

import torch
from torch import Tensor

from ...adapters import Implementation, as_implementation
from ...adapters.criterion import fooled
from ...adapters.threat_model import NORMS

PASSES = 6  # the line is known to 0.16 % of its length then
_DEEPEST = 0.1  # share of the line that is searched


def on_the_line(examples: Tensor, passes: int) -> Implementation:
    """A row that looks for the nearest example between each image and its example by so many forward passes.

    Args:
        examples: of the images of the run, shape (n, C, H, W).
        passes: of each image.
    """

    def line(model: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
        low, high = (torch.full_like(labels, share, dtype=torch.double) for share in (1 - _DEEPEST, 1.0))
        change = examples.to(inputs) - inputs
        for _ in range(passes):
            middle = (low + high) / 2
            hit = fooled(model(inputs + change * middle.to(inputs).view(-1, 1, 1, 1)), labels, targets)
            low, high = low.where(hit, middle), middle.where(hit, high)
        return inputs + change * high.to(inputs).view(-1, 1, 1, 1)

    return as_implementation(line, norms=NORMS, kind="minimum-norm", order="kept", targeted="yes")


def handing_in(examples: Tensor) -> Implementation:
    """A row that hands in these examples and asks nothing."""

    def best(model: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        del model, inputs, labels
        return examples

    return as_implementation(best, norms=NORMS, kind="minimum-norm", order="kept", targeted="yes")

"""Counts the passes of a model inside the model, to check davylamp's own count of an attack's queries."""

import copy
from typing import Any

import torch
from torch import Tensor, nn


class QueryTally:
    """Counts the images that pass forward and the gradients that pass back through a model and all its copies."""

    def __init__(self) -> None:
        self.forwards = self.backwards = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> "QueryTally":
        return self

    def take(self) -> tuple[int, int]:
        """Return the numbers of forward and backward passes since the previous call of this method."""
        taken = self.forwards, self.backwards
        self.forwards = self.backwards = 0
        return taken

    def note_input(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """Count a forward pass. This is a forward pre-hook of the first layer."""
        del module
        self.forwards += len(arguments[0])

    def pass_output(self, module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
        """Count backward passes. This is a forward hook of the last layer and returns the output unchanged."""
        del module, arguments
        return _Identity.apply(output, self)


def with_tally(module: nn.Module, tally: QueryTally) -> nn.Module:
    """Return a copy of a model that counts its passes in its first and last layers.

    The count is complete even if an attack unwraps or copies the model, unless it copies only the weights.
    """
    module = copy.deepcopy(module)
    layers = [layer for layer in module.modules() if next(layer.parameters(recurse=False), None) is not None]
    layers[0].register_forward_pre_hook(tally.note_input)
    layers[-1].register_forward_hook(tally.pass_output)
    return module


class _Identity(torch.autograd.Function):
    """Returns logits and gradients unchanged, and counts the gradients."""

    generate_vmap_rule = True

    @staticmethod
    def forward(outputs: Tensor, tally: QueryTally) -> Tensor:
        del tally
        return outputs.view_as(outputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, QueryTally], output: Tensor) -> None:
        del output
        ctx.tally = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.tally.backwards += len(gradient)
        return gradient, None

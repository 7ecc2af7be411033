"""A model that counts for itself what it is asked, wherever an attack takes hold of it."""

import copy
from typing import Any

import torch
from torch import Tensor, nn


class QueryTally:
    """Images that went through a model forwards, and gradients that came back; copies count on the same tally."""

    def __init__(self) -> None:
        self.forwards = self.backwards = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> "QueryTally":
        return self

    def take(self) -> tuple[int, int]:
        """Forward and backward passes since the last time."""
        taken = self.forwards, self.backwards
        self.forwards = self.backwards = 0
        return taken

    def note_input(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """Count a forward pass: a hook of the first layer."""
        del module
        self.forwards += len(arguments[0])

    def pass_output(self, module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
        """Count backward passes: a hook of the last layer, which changes nothing."""
        del module, arguments
        return _Identity.apply(output, self)


def with_tally(module: nn.Module, tally: QueryTally) -> nn.Module:
    """A copy of a model that keeps a tally in its innermost layers, of which every whole pass needs the first and last.

    An attack that unwraps the model, or copies it, still asks these. Only who copies the bare weights does not.
    """
    module = copy.deepcopy(module)
    layers = [layer for layer in module.modules() if next(layer.parameters(recurse=False), None) is not None]
    layers[0].register_forward_pre_hook(tally.note_input)
    layers[-1].register_forward_hook(tally.pass_output)
    return module


class _Identity(torch.autograd.Function):
    """Hands logits and gradients on, and counts the gradients."""

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

"""A user's module as a classifier for a while, and afterwards as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from .classifier import Classifier


@contextmanager
def borrowed(model: nn.Module) -> Iterator[Classifier]:
    """The module as a classifier inside the block; its modes and what of it requires gradients are put back after it.

    Nothing is copied. A `Classifier` is handed through as it is.

    Args:
        model: returns logits for images in [0, 1].

    Raises:
        TypeError: if it is no module.
    """
    if isinstance(model, Classifier):
        yield model
        return
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a model as a torch.nn.Module, got {type(model).__name__}")
    modes = [(module, module.training) for module in model.modules()]
    gradients = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        yield Classifier(model)
    finally:
        for module, training in modes:
            module.training = training
        for parameter, required in gradients:
            parameter.requires_grad_(required)

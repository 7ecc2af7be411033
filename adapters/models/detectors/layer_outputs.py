"""Outputs of a model's layers, one row per image."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ....errors import InvalidInput, UnknownName, Unsupported
from ..classifier import PASS_SIZE, Classifier
from ..sandbox.isolated import runs_in_process

_WITH_WEIGHTS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.MultiheadAttention)


def activations_of(classifier: Classifier, images: Tensor, layer: str = "") -> Tensor:
    """Compute the flattened output of a layer, shape (N, features), with gradients if they are enabled.

    Args:
        classifier: the model.
        images: shape (N, C, H, W), for one forward pass.
        layer: name of the layer in the model. If empty, the input of the last linear layer is returned.

    Raises:
        UnknownName: if there is no such layer.
        Unsupported: if the layers are not in this process.
        InvalidInput: if the layer does not run exactly once, or does not return one row per image.
    """
    layers_of(classifier)
    seen: list[Tensor] = []
    module, takes_input = find_layer(classifier.model, layer)

    def note(_: nn.Module, given: Any, output: Any) -> None:
        seen.append(given[0] if takes_input else output)

    handle = module.register_forward_hook(note)
    try:
        classifier(images)
    finally:
        handle.remove()
    name = layer or "the last linear layer"
    if len(seen) != 1 or not isinstance(seen[0], Tensor) or len(seen[0]) != len(images):
        raise InvalidInput(
            f"expected {name} to run once per batch and return one row per image; it ran {len(seen)} times"
        )
    return seen[0].flatten(1).float()


@torch.no_grad()
def collect_activations(classifier: Classifier, images: Tensor, layer: str = "") -> Tensor:
    """Compute a layer's output for any number of images, without gradients, on the CPU."""
    with classifier.frozen():
        return torch.cat([activations_of(classifier, part, layer).cpu() for part in images.split(PASS_SIZE)])


def find_layer(model: nn.Module, layer: str) -> tuple[nn.Module, bool]:
    """Find a layer by its name in the model.

    Args:
        model: the model.
        layer: name of the layer. "" for the input of the last linear layer, or for the output of a model without one.

    Returns:
        The module, and whether its input is used instead of its output.
    """
    if layer:
        modules = dict(model.named_modules())
        if layer not in modules:
            raise UnknownName("layer", layer, [name for name in modules if name])
        return modules[layer], False
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    return (linear[-1], True) if linear else (model, False)


def layers_of(classifier: Classifier) -> list[nn.Module]:
    """Return the layers of a model that have weights.

    Raises:
        Unsupported: if the model's layers are not in this process, because it is on a server, in an ONNX file, or in a
            separate process.
    """
    layers: list[nn.Module] = [part for part in classifier.model.modules() if isinstance(part, _WITH_WEIGHTS)]
    if not layers:
        check_layers_here(classifier, "this")
        raise Unsupported(
            f"expected a model whose layers can be read, but only the outputs of {classifier.name} are available"
        )
    return layers


def check_layers_here(classifier: Classifier, reader: str) -> None:
    """Raise Unsupported if a model's layers are in a different process.

    Args:
        classifier: the model.
        reader: name of the attack, metric or detector that needs the layers, for the message.
    """
    if runs_in_process(classifier):
        raise Unsupported(
            f"{reader} needs the layers of {classifier.name}, which runs in a separate process; add `isolate='no'`"
        )


@contextmanager
def watching_layers(classifier: Classifier, note: Callable[[Tensor], object]) -> Iterator[None]:
    """Observe the outputs of all layers with weights inside the block.

    Args:
        classifier: the model.
        note: called with the flattened output of each layer, in the order in which the layers run.

    Raises:
        Unsupported: if the layers are not in this process.
    """

    def see(_: nn.Module, __: Any, output: Any) -> None:
        note((output[0] if isinstance(output, tuple) else output).flatten(1))

    handles = [layer.register_forward_hook(see) for layer in layers_of(classifier)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()

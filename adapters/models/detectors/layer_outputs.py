"""What layers of a model compute for images: a row for each image."""

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
    """The output of a layer, flattened, shape (N, features), with gradients where they are on.

    Args:
        classifier: the model.
        images: shape (N, C, H, W), one pass.
        layer: its name in the model; empty: what the last linear layer gets.

    Raises:
        UnknownName: if there is no such layer.
        Unsupported: if no layers can be seen here.
        InvalidInput: if it is not asked once, or has no row for each image.
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
        raise InvalidInput(f"expected {name} to be run once, with a row for each image, got {len(seen)} runs")
    return seen[0].flatten(1).float()


@torch.no_grad()
def collect_activations(classifier: Classifier, images: Tensor, layer: str = "") -> Tensor:
    """The same for any number of images, without gradients, on the CPU."""
    with classifier.frozen():
        return torch.cat([activations_of(classifier, part, layer).cpu() for part in images.split(PASS_SIZE)])


def find_layer(model: nn.Module, layer: str) -> tuple[nn.Module, bool]:
    """A module by its name, and whether what it gets is meant: of the last linear layer, for the empty name.

    A model without a linear layer is taken whole: its output.
    """
    if layer:
        modules = dict(model.named_modules())
        if layer not in modules:
            raise UnknownName("layer", layer, [name for name in modules if name])
        return modules[layer], False
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    return (linear[-1], True) if linear else (model, False)


def layers_of(classifier: Classifier) -> list[nn.Module]:
    """The layers of a model that have weights.

    Raises:
        Unsupported: if none is in this process: it is behind a server, a file for another program, or in a room.
    """
    layers: list[nn.Module] = [part for part in classifier.model.modules() if isinstance(part, _WITH_WEIGHTS)]
    if not layers:
        check_layers_here(classifier, "this")
        raise Unsupported(
            f"expected a model whose layers can be seen here, got {classifier.name}: only its answers are"
        )
    return layers


def check_layers_here(classifier: Classifier, reader: str) -> None:
    """Raise Unsupported if a model's layers are in a room, for something that reads them."""
    if runs_in_process(classifier):
        raise Unsupported(
            f"{reader} needs the model's layers, and {classifier.name} runs in a process of its own, which gives only "
            "answers: add --isolate no"
        )


@contextmanager
def watching_layers(classifier: Classifier, note: Callable[[Tensor], object]) -> Iterator[None]:
    """Call `note` with the output of every layer that has weights, in the order in which they run, flattened.

    Raises:
        Unsupported: if no layers can be seen here.
    """
    layers = layers_of(classifier)
    handles = [layer.register_forward_hook(lambda _, __, output: note(_first(output).flatten(1))) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _first(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output

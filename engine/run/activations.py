"""Computes the outputs of a model's layers. Only a few images are processed at a time, to limit memory."""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from ...adapters import Classifier
from ...adapters.data.datasets import Data
from ...adapters.models.sandbox.isolated import call_where_layers_are, is_isolated
from ...adapters.torch_state import full_float32
from ...errors import Unsupported
from ...metrics.coverage import Neurons, neuron_values

GROUP = 16  # images per forward pass
MOST_NEURONS = 2**22  # total of all layers
_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.Linear)
Visit = Callable[[str, Tensor], object]
Ranges = Mapping[str, tuple[Tensor, Tensor]]


@full_float32()
def visit_layers(classifier: Classifier, inputs: Tensor, visit: Visit) -> None:
    """Call a function with the name and output of every convolution and linear layer.

    The images are processed a few at a time. The output of a layer has the shape (N, C, h, w) for maps, (N, units) for
    vectors, and (N, features, tokens, 1) for tokens. If a layer is called several times, the later calls get new names
    ("fc#2").

    Args:
        classifier: a model.
        inputs: images for at most one pass, shape (N, C, H, W).
        visit: called with a name and an output, in the order of the layers.

    Raises:
        Unsupported: if the model calls no such layer.
    """
    if is_isolated(classifier):
        for name, values in call_where_layers_are(classifier, layer_outputs, inputs):
            visit(name, values)
        return
    calls: dict[str, int] = {}

    def hook_of(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, __: object, output: Tensor) -> None:
            calls[name] = calls.get(name, 0) + 1
            values = _as_maps(output.detach(), len(inputs))
            if values is not None:
                visit(name if calls[name] == 1 else f"{name}#{calls[name]}", values)

        return hook

    layers = {name: part for name, part in classifier.model.named_modules() if isinstance(part, _LAYERS)}
    hooks = [part.register_forward_hook(hook_of(name or "model")) for name, part in layers.items()]
    try:
        with torch.no_grad():
            classifier(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    if not calls:
        why = "calls no convolution or linear layer, so metrics of layers cannot be computed"
        raise Unsupported(f"{classifier.name} {why}")


def layer_outputs(classifier: Classifier, inputs: Tensor) -> list[tuple[str, Tensor]]:
    """Return the names and outputs of the layers that `visit_layers` visits, as a list."""
    seen: list[tuple[str, Tensor]] = []
    visit_layers(classifier, inputs, lambda name, values: seen.append((name, values)))
    return seen


def ranges_of(classifier: Classifier, blocks: Iterable[Data], neurons: Neurons) -> dict[str, tuple[Tensor, Tensor]]:
    """Compute the smallest and largest value of every neuron over a set of images.

    Args:
        classifier: a model.
        blocks: blocks of images.
        neurons: unit that counts as a neuron, see `metrics.coverage`.

    Returns:
        For each layer the smallest and the largest values, shape (units,) each.

    Raises:
        Unsupported: if the model has no layers, or more than `MOST_NEURONS` neurons.
    """
    ranges: dict[str, tuple[Tensor, Tensor]] = {}

    def widen(name: str, output: Tensor) -> None:
        values = neuron_values(output, neurons)
        low, high = values.amin(0), values.amax(0)
        if name in ranges:
            low, high = torch.minimum(low, ranges[name][0]), torch.maximum(high, ranges[name][1])
        ranges[name] = low, high
        if sum(len(each) for each, _ in ranges.values()) > MOST_NEURONS:
            raise Unsupported(f"expected at most {MOST_NEURONS} neurons, got more; use coverage:neurons=channel")

    for block in blocks:
        for part in block.inputs.split(GROUP):
            visit_layers(classifier, part.to(classifier.device), widen)
    return ranges


def _as_maps(output: object, count: int) -> Tensor | None:
    """Reshape the output of a layer to (N, units) or (N, C, h, w).

    None if the output does not have one entry per image.
    """
    if not isinstance(output, Tensor) or output.ndim < 2 or not len(output) or len(output) % count:
        return None
    values = output.float()
    if len(values) != count:  # windows of each image
        values = values.reshape(count, -1, values.shape[-1])
    if values.ndim == 2:
        return values
    if values.ndim == 3:  # tokens with their features last
        return values.transpose(1, 2)[..., None]
    return values.flatten(3) if values.ndim > 4 else values

"""torchattack's attacks on the outputs of a layer. They are changed to support any layer, and to count queries.

This module is imported only when such an attack runs, so that listing the catalogue loads no library.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torchattack
from torch import Tensor, nn

_LIBRARY: Any = torchattack


class LayerTap(nn.Module):
    """A model whose submodule `tap` receives and returns the outputs of the attacked layer.

    The attacks of the library observe the layer by a hook on `tap`.

    Args:
        model: maps images to logits and counts every query.
        images: whether the input images are attacked instead of the outputs of a layer.
    """

    def __init__(self, model: nn.Module, images: bool):
        super().__init__()
        self.asked, self.tap, self._images = model, nn.Identity(), images
        self.logits = torch.zeros(())

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits, and store them until the next query."""
        self.logits = self.asked(self.tap(inputs).clone() if self._images else inputs)
        return self.logits


@contextmanager
def tapped(model: nn.Module, network: nn.Module, name: str) -> Iterator[LayerTap]:
    """Context manager that passes the outputs of a layer through a `LayerTap`, and yields the `LayerTap`.

    Args:
        model: maps images to logits and counts every query.
        network: network that contains the layer.
        name: name of the layer. "" for the middle convolution, number (n + 1) // 2 of n in the order of the modules. In
            VGG-16, this is conv3_3, as in FIA's paper. In a network without convolutions, "" stands for the input.

    Raises:
        ValueError: if the network has no layer with this name.
    """
    layer = _named(network, name) if name else _middle(network)
    wrapped = LayerTap(model, images=layer is None)
    if layer is None:
        yield wrapped
        return
    # The model continues with a copy, which it may overwrite.
    hook = layer.register_forward_hook(lambda _, __, output: wrapped.tap(output).clone())
    try:
        yield wrapped
    finally:
        hook.remove()


def run_on_layer(
    attack_class: Any, model: nn.Module, layer: str, words: dict[str, Any], inputs: Tensor, goal: Tensor
) -> Tensor:
    """Run an attack on the outputs of a layer. Hooks that the attack leaves on the model are removed.

    Args:
        attack_class: an attack class of this module or of the library.
        model: maps images to logits, counts every query, and wraps the network (`classifier.model`).
        layer: dotted name of a module of the network. "" for the default layer, see `tapped`.
        words: arguments by torchattack's names, except the layer.
        inputs: clean images, shape (n, C, H, W).
        goal: labels of an untargeted attack, or targets of a targeted attack, shape (n,).

    Raises:
        ValueError: if the network has no such layer.
    """
    counter: Any = model
    with tapped(model, counter.classifier.model, layer) as reached:
        if "feature_layer_cfg" in inspect.signature(attack_class.__init__).parameters:
            words = words | {"feature_layer_cfg": "tap"}
        attack = attack_class(reached, normalize=requires_grad, **words)
        try:
            return attack(inputs, goal)
        finally:
            for hook in getattr(attack, "hooks", ()):  # FDA's on the model itself; the others' go with the tap
                hook.remove()


def requires_grad(inputs: Tensor) -> Tensor:
    """Return the images with `requires_grad`, if gradients are enabled.

    Without this, the outputs of a model with frozen weights would have no gradient.
    """
    return inputs.clone().requires_grad_() if torch.is_grad_enabled() and not inputs.requires_grad else inputs


def _named(model: nn.Module, name: str) -> nn.Module:
    layers = dict(model.named_modules())
    if name not in layers:
        some = ", ".join(list(layers)[1:6])
        raise ValueError(f"expected layer as the name of a module of the model ({some}, ...), got {name!r}")
    return layers[name]


def _middle(model: nn.Module) -> nn.Module | None:
    convolutions = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    return convolutions[(len(convolutions) - 1) // 2] if convolutions else None


def _counted(word: str) -> property:
    """Build a property for the features of a layer, to which zero times the logits is added.

    A gradient of the features then also passes through the logits, where it is counted as a backward pass.
    """
    kept = f"kept_{word}"

    def read(self: Any) -> Tensor:
        features, logits = getattr(self, kept), self.model.logits
        if self.raw or not logits.requires_grad:
            return features
        return features + 0 * logits.sum()

    def write(self: Any, features: Tensor) -> None:
        setattr(self, kept, features)

    return property(read, write)


class FIA(_LIBRARY.FIA):
    """FIA with counted backward passes, see `_counted`."""

    raw = False
    mid_output = _counted("mid_output")


class NAA(_LIBRARY.NAA):
    """NAA with counted backward passes, see `_counted`."""

    raw = False
    mid_output = _counted("mid_output")


class DANAA(_LIBRARY.DANAA):
    """DANAA with counted backward passes, see `_counted`."""

    raw = False
    mid_output = _counted("mid_output")


class DR(_LIBRARY.DR):
    """DR with counted backward passes, see `_counted`."""

    raw = False
    features = _counted("features")


class BFA(_LIBRARY.BFA):
    """BFA with counted backward passes, see `_counted`."""

    raw = False
    feature_maps = _counted("feature_maps")

    def _get_aggregate_grad(self, x: Tensor, y: Tensor) -> Tensor:
        self.raw = True  # here it takes the gradient of the logits with respect to the features
        try:
            return super()._get_aggregate_grad(x, y)
        finally:
            self.raw = False


class FDA(_LIBRARY.FDA):
    """FDA with counted backward passes, see `_counted`."""

    def _get_fda_loss(self, batch_size: int) -> Tensor:
        loss = super()._get_fda_loss(batch_size)
        return loss + 0 * self.model.logits.sum()

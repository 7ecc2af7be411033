"""torchattack's attacks on a layer's outputs, changed so that they work on any layer and their queries are counted.

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
    """A wrapped model for an attack on a layer. The layer's outputs pass through the submodule `tap`.

    Args:
        model: maps images to logits and counts every query.
        images: whether the attacked layer is the input image itself.
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
    """Route the outputs of the named layer through a `LayerTap` inside the block. "" selects the default layer.

    The default is the middle convolution in the order of the network's modules: number (n + 1) // 2 of n, which is
    conv3_3 of VGG-16, as in FIA's paper. In a network without convolutions, it is the input image.

    Raises:
        ValueError: if the network has no layer of that name.
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
    """Run an attack on the named layer ("" for the default one), and leave no hook on the model.

    Args:
        attack_class: an attack class of this module or of the library.
        model: maps images to logits, counts every query, and wraps the network (`classifier.model`).
        layer: dotted name of a module of the network.
        words: arguments under torchattack's names, without the layer, which this function sets.
        inputs: clean images, shape (n, C, H, W).
        goal: labels or, if targeted, targets, shape (n,).

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

    If the weights are frozen, there would be no gradient otherwise.
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
    """Build a property that adds zero times the logits to the features, so that gradients count as backward passes."""
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
    """FIA whose backward passes are counted."""

    raw = False
    mid_output = _counted("mid_output")


class NAA(_LIBRARY.NAA):
    """NAA whose backward passes are counted."""

    raw = False
    mid_output = _counted("mid_output")


class DANAA(_LIBRARY.DANAA):
    """DANAA whose backward passes are counted."""

    raw = False
    mid_output = _counted("mid_output")


class DR(_LIBRARY.DR):
    """DR whose backward passes are counted."""

    raw = False
    features = _counted("features")


class BFA(_LIBRARY.BFA):
    """BFA whose backward passes are counted."""

    raw = False
    feature_maps = _counted("feature_maps")

    def _get_aggregate_grad(self, x: Tensor, y: Tensor) -> Tensor:
        self.raw = True  # here it takes the gradient of the logits with respect to the features
        try:
            return super()._get_aggregate_grad(x, y)
        finally:
            self.raw = False


class FDA(_LIBRARY.FDA):
    """FDA whose backward passes are counted."""

    def _get_fda_loss(self, batch_size: int) -> Tensor:
        loss = super()._get_fda_loss(batch_size)
        return loss + 0 * self.model.logits.sum()

"""torchattack's attacks that change parts of one kind of network, such as a ResNet or a vision transformer.

This module is imported only when such an attack runs, so that listing the catalogue loads no library.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torchattack
from torch import Tensor, nn
from torchvision.models import DenseNet, ResNet
from torchvision.models.resnet import BasicBlock

from .features import requires_grad

_LIBRARY: Any = torchattack
_TABLES = ("_backward_hooks", "_forward_hooks", "_modules")  # the tables of each module that the attacks change
_BLOCKS, _SIDE, _PATCH = 12, 224, 16  # of the one vision transformer among those that they name


class PNAPatchOut(_LIBRARY.PNAPatchOut):
    """PNA-PatchOut that preserves the state of torch's random generator. The library seeds it with 0, 1, 2, ..."""

    def _apply_patch_out(self, delta: Tensor, seed: int) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            return super()._apply_patch_out(delta, seed)


class _Asked(nn.Module):
    """Stands for the network in an attack. It has the attributes that the attack expects of a network.

    Calls are passed to the model that counts queries.
    """

    def __init__(self, model: nn.Module, network: nn.Module):
        super().__init__()
        self.model, self.network = model, network

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.network, name)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.model(inputs)


def run_on_structure(
    attack_class: Any, model: nn.Module, words: dict[str, Any], inputs: Tensor, goal: Tensor
) -> Tensor:
    """Run an attack on parts of a network, and restore the network.

    Args:
        attack_class: SGM, BPA, or an attack on vision transformers.
        model: maps images to logits, counts every query, and wraps the network (`classifier.model`).
        words: arguments by torchattack's names, except the kind of network.
        inputs: clean images, shape (1, C, H, W).
        goal: label or, if targeted, target, shape (1,).

    Raises:
        ValueError: if the model contains no network of a kind that the attack supports.
    """
    counter: Any = model
    name = attack_class.__name__
    network, kind = _network_in(counter.classifier.model, name)
    with _as_before(network):
        attack = attack_class(network, hook_cfg=kind, normalize=requires_grad, **words)
        attack.model = _Asked(model, network)
        return attack(inputs, goal)


def why_not_on(model: nn.Module, name: str) -> str:
    """Return the reason why an attack cannot run on a model. "" if it can run.

    The reason is a text that follows the attack's name.
    """
    try:
        _network_in(model, name)
    except ValueError as error:
        return str(error)
    return ""


def _network_in(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    """Return the network that an attack changes, and the library's name for this kind of network.

    Raises:
        ValueError: if the model contains no such network.
    """
    return {"SGM": _residual, "BPA": _resnet}.get(name, _transformer)(model, name)


def _resnet(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    """Return torchvision's ResNet in a model, and a name by which the attack recognises the depth of its blocks."""
    network = next((part for part in model.modules() if isinstance(part, ResNet)), None)
    if network is None:
        other = ", or a DenseNet" if name == "SGM" else ""
        raise ValueError(f"needs a ResNet of torchvision{other}, got {type(model).__name__}")
    basic = any(isinstance(part, BasicBlock) for part in network.modules())
    return network, "resnet18" if basic else "resnet50"


def _residual(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    """Return torchvision's ResNet or DenseNet in a model, and the library's name for this kind of network."""
    dense = next((part for part in model.modules() if isinstance(part, DenseNet)), None)
    return (dense, "densenet121") if dense is not None else _resnet(model, name)


def _transformer(model: nn.Module, _: str) -> tuple[nn.Module, str]:
    """Return timm's vision transformer in a model: 12 blocks, a class token, 224 pixels in patches of 16."""
    timm = sys.modules.get("timm.models.vision_transformer")
    parts: list[Any] = (
        [] if timm is None else [part for part in model.modules() if isinstance(part, timm.VisionTransformer)]
    )
    for part in parts:
        patches = part.patch_embed
        sides = (*patches.img_size, *patches.patch_size)
        if sides == (_SIDE, _SIDE, _PATCH, _PATCH) and (len(part.blocks), part.num_prefix_tokens) == (_BLOCKS, 1):
            return part, "vit_base_patch16_224"
    raise ValueError(
        f"needs a VisionTransformer of timm with {_BLOCKS} blocks, on {_SIDE} pixels in patches of {_PATCH}, "
        f"got {type(model).__name__}"
    )


@contextmanager
def _as_before(network: nn.Module) -> Iterator[None]:
    """Context manager that disables fused attention, and restores the hooks and parts of all modules on exit.

    The attacks need hooks on timm's dropout modules, which fused attention does not call.
    """
    parts: list[Any] = list(network.modules())
    kept = [(part, {name: dict(getattr(part, name)) for name in _TABLES}, vars(part).copy()) for part in parts]
    for part in parts:
        if hasattr(part, "fused_attn"):
            part.fused_attn = False
    try:
        yield
    finally:
        for part, tables, plain in kept:
            for name, table in tables.items():
                getattr(part, name).clear()
                getattr(part, name).update(table)
            for name in ("_is_full_backward_hook", "fused_attn"):
                if name in plain:
                    setattr(part, name, plain[name])

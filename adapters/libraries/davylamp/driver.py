"""Driver that calls davylamp's own implementations."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import Conv2d, Linear

from ...attack import Implementation, RunSetting
from ...threat_model import ThreatModel
from .queries import Model


def refuses(row: Implementation, setting: RunSetting) -> str:
    """Return the reason why an attack cannot run in a setting, see `Library.refuses`. "" if it can run."""
    if row.attack == "ssah" and min(setting.shape[1:]) < 2:
        return f"needs images of at least 2 x 2 pixels, got {setting.shape[1]} x {setting.shape[2]}"
    if row.attack == "gd-uap" and not any(isinstance(part, (Conv2d, Linear)) for part in setting.model.modules()):
        return "needs a model with convolutions or linear layers, got a model without either"
    return ""


def run(
    attack: Callable[..., Tensor],
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    targets: Tensor | None = None,
    **kwargs: Any,
) -> Tensor:
    """Run an attack of this package.

    Args:
        attack: a function of this package with the arguments (model, inputs, labels, *, ...), which returns images.
        model: maps images to logits.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: true classes, shape (n,).
        threat_model: the radius is passed to functions that accept `epsilon`.
        targets: target classes, shape (n,), if targeted.
        **kwargs: keyword arguments of the function.

    Returns:
        The images that the attack returns, shape (n, C, H, W).
    """
    radius = threat_model.radius if threat_model.per_image_step_radius is None else threat_model.per_image_step_radius
    words = {"epsilon": radius, "targets": targets}
    taken = inspect.signature(attack).parameters
    return attack(model, inputs, labels, **{word: value for word, value in words.items() if word in taken}, **kwargs)

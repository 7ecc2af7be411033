"""davylamp's attacks: the one call that runs any of their functions."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ...threat_model import ThreatModel
from .queries import Model


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
        attack: a function (model, inputs, labels, *, ...) -> images.
        model: maps images to logits.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: ground truth, shape (n,).
        threat_model: its radius is passed to the functions that take `epsilon`.
        targets: target classes, shape (n,), if targeted.
        **kwargs: in the function's words.

    Returns:
        The images that it returns, shape (n, C, H, W).
    """
    radius = threat_model.radius if threat_model.reach is None else threat_model.reach
    words = {"epsilon": radius, "targets": targets}
    taken = inspect.signature(attack).parameters
    return attack(model, inputs, labels, **{word: value for word, value in words.items() if word in taken}, **kwargs)

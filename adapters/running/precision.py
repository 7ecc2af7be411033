"""Precision of an attack's forward and backward passes. A lower precision is faster and may weaken the attack.

The judge always computes in full float32 (`torch_state.full_float32`), so an example that fools the model only in
lower precision is not a success.
"""

from collections.abc import Mapping
from typing import Any

import torch

from ...errors import Unsupported
from ..attack import Implementation
from ..models.classifier import Classifier
from ..models.ensemble import base_classifiers, is_float32_in_torch
from ..parameters import PRECISIONS

_AMPERE = 8  # major compute capability of the first GPUs with TF32 and bfloat16


def precision_of(row: Implementation, settings: Mapping[str, Any]) -> str | None:
    """Return the precision of an attack's passes. None for torch's settings.

    A user's attack may have its own parameter `precision`. Then the result is None.
    """
    return None if "precision" in row.more else settings.get("precision")


def check_precision(precision: str | None, classifier: Classifier, row: Implementation) -> None:
    """Raise Unsupported if an attack's passes cannot have this precision.

    Args:
        precision: one of `parameters.PRECISIONS`, or None for torch's settings.
        classifier: the model. If it contains other models (a defence, an ensemble), each of them is checked.
        row: the attack.

    Raises:
        Unsupported: if the device does not support the precision, or the model already has a different precision or is
            not run by torch (a server, ONNX Runtime). Also if the attack computes with layer outputs, because these
            would be rounded.
    """
    if why := precision_error(precision, classifier, row, classifier.device):
        raise Unsupported(why)


def precision_error(precision: str | None, classifier: Classifier, row: Implementation, device: torch.device) -> str:
    """Return the reason why the passes of an attack cannot have a precision on a device, see `check_precision`.

    "" if they can have it.
    """
    if precision is None:
        return ""
    asked = f"precision {precision}"
    for part in base_classifiers(classifier):
        if not is_float32_in_torch(part):
            kind = str(part.anchor.dtype).removeprefix("torch.")
            why = "is not computed by torch here" if kind == "float32" else f"computes in {kind} by itself"
            return f"{asked} is not possible, because {part.name} {why}; omit precision"
    if precision == "bfloat16" and row.reads_layers:
        return f"{asked} is not available for {row.name}, which reads layer outputs; choose float32 or tf32"
    if precision == "tf32" and device.type != "cuda":
        others = " or ".join(each for each in PRECISIONS if each != precision)
        return f"{asked} needs an NVIDIA GPU, and {classifier.name} computes on {device}; choose {others}"
    has_it = (
        precision == "float32" or device.type != "cuda" or not torch.cuda.is_available()
    )  # not checked in this process but where the model runs
    if has_it or torch.cuda.get_device_capability(device)[0] >= _AMPERE:
        return ""
    return f"{asked} needs an NVIDIA Ampere GPU or later, got {torch.cuda.get_device_name(device)}; choose float32"

"""In how many bits an attack may ask the model: what it gains in speed it may lose in strength, never in what is true.

The judge asks in full float32 whatever an attack was allowed (`switches.full_float32`), so an example that fools the
model in fewer bits only is no success.
"""

from collections.abc import Mapping
from typing import Any

import torch

from ...errors import Unsupported
from ..attack import Implementation
from ..models.base_models import base_classifiers, is_float32_in_torch
from ..models.classifier import Classifier
from ..parameters import PRECISIONS

_AMPERE = 8  # major compute capability of the first GPUs that know TF32 and bfloat16


def precision_of(row: Implementation, settings: Mapping[str, Any]) -> str | None:
    """What the passes of a row are made in; None: as torch is set. A user's attack may call something else so."""
    return None if "precision" in row.more else settings.get("precision")


def check_precision(precision: str | None, classifier: Classifier, row: Implementation) -> None:
    """Refuse a precision that the model is not computed in here, or that would round the attack, too.

    Args:
        precision: one of `parameters.PRECISIONS`; None: as torch is set.
        classifier: the model; of one around others (a defence, an ensemble) each of these.
        row: the attack.

    Raises:
        Unsupported: if its device cannot, if the model is in another precision already, if torch here does not compute
            it (a server, ONNX Runtime), or if the attack computes with what the model's layers give.
    """
    if why := precision_error(precision, classifier, row, classifier.device):
        raise Unsupported(why)


def precision_error(precision: str | None, classifier: Classifier, row: Implementation, device: torch.device) -> str:
    """Why the passes of an attack cannot be made in a precision on a device; "" if they can. See `check_precision`."""
    if precision is None:
        return ""
    asked = f"precision {precision}"
    for part in base_classifiers(classifier):
        if not is_float32_in_torch(part):
            kind = str(part.anchor.dtype).removeprefix("torch.")
            why = "is not computed by torch here" if kind == "float32" else f"computes in {kind} by itself"
            return f"{asked}: {part.name} {why}; leave precision out"
    if precision == "bfloat16" and row.reads_layers:
        return f"{asked}: {row.name} computes with what the model's layers give; choose float32 or tf32"
    if precision == "tf32" and device.type != "cuda":
        others = " or ".join(each for each in PRECISIONS if each != precision)
        return f"{asked} is of NVIDIA GPUs, and {classifier.name} computes on {device}; choose {others}"
    has_it = precision == "float32" or device.type != "cuda" or not torch.cuda.is_available()  # not here: where it runs
    if has_it or torch.cuda.get_device_capability(device)[0] >= _AMPERE:
        return ""
    return f"{asked} needs an NVIDIA GPU from Ampere on, got {torch.cuda.get_device_name(device)}; choose float32"

"""In how many bits an attack may ask the model: what it gains in speed it may lose in strength, never in what is true.

The judge asks in full float32 whatever an attack was allowed (`switches.full_float32`), so an example that fools the
model in fewer bits only is no success.
"""

import torch

from ...errors import Unsupported
from ..models.classifier import Classifier
from ..models.room.isolated import holds_room
from ..parameters import PRECISIONS

_AMPERE = 8  # major compute capability of the first GPUs that know TF32 and bfloat16


def check_precision(precision: str | None, classifier: Classifier) -> None:
    """Refuse a precision that the model is not computed in here.

    Args:
        precision: one of `parameters.PRECISIONS`; None: as torch is set.
        classifier: the model.

    Raises:
        Unsupported: if its device cannot, if the model is in another precision already, or if torch here does not
            compute it (a server, ONNX Runtime).
    """
    if precision is None:
        return
    asked, name, device = f"precision {precision}", classifier.name, classifier.device
    if not holds_room(classifier) and not any(each.is_floating_point() for each in classifier.model.parameters()):
        raise Unsupported(f"{asked}: {name} has no weights in torch here; leave precision out")
    if classifier.anchor.dtype != torch.float32:
        kind = str(classifier.anchor.dtype).removeprefix("torch.")
        raise Unsupported(f"{asked}: {name} computes in {kind} by itself; leave precision out")
    if precision == "tf32" and device.type != "cuda":
        others = " or ".join(each for each in PRECISIONS if each != precision)
        raise Unsupported(f"{asked} is of NVIDIA GPUs, and {name} computes on {device}; choose {others}")
    if device.type == "cuda" and precision != "float32" and torch.cuda.get_device_capability(device)[0] < _AMPERE:
        raise Unsupported(
            f"{asked} needs an NVIDIA GPU from Ampere on, got {torch.cuda.get_device_name(device)}; choose float32"
        )

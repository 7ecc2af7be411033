"""torchattack: the one call that runs any of its rows."""

import inspect
from typing import Any

from torch import Tensor, nn

from ...threat_model import ThreatModel

_THREE_CHANNELS = ("TIFGSM", "GeoDA")
_SQUARE = ("DIFGSM", "DeCoWA", "L2T", "MuMoDIG", "GeoDA")
_LARGEST_RESIZED = 244  # it enlarges to less than 245 pixels, and pads to that
_STRUCTURES = ("SGM", "BPA", "TGR", "PNAPatchOut", "VDC", "ATT")
_FEATURES = ("FIA", "NAA", "DANAA", "DR", "ILPD", "BFA", "FDA")


def run(
    attack_class: Any,
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    targets: Tensor | None = None,
    **kwargs: Any,
) -> Tensor:
    """Run an attack class of torchattack.

    Args:
        attack_class: a subclass of `torchattack.Attack`.
        model: maps images to logits.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: ground truth, shape (n,).
        threat_model: its radius goes to the classes that take one.
        targets: target classes, shape (n,), if targeted.
        **kwargs: in torchattack's words.

    Returns:
        The images that torchattack returns, shape (n, C, H, W).

    Raises:
        ValueError: if the class cannot take a word, or images of this shape.
    """
    name, taken = attack_class.__name__, inspect.signature(attack_class.__init__).parameters
    _check_shape(name, inputs, kwargs)
    usual = {"eps": threat_model.radius, "targeted": targets is not None, "device": inputs.device}
    usual |= {"p": threat_model.norm, "input_shape": tuple(inputs.shape[1:])}
    words = {word: value for word, value in usual.items() if word in taken} | kwargs
    layer = words.pop("feature_layer_cfg", "") if name in _FEATURES else None
    if unknown := sorted(set(words) - set(taken)):
        raise ValueError(f"expected parameters of {name}, got {', '.join(unknown)}")
    if threat_model.reach is not None and "alpha" in taken:  # radii as it would divide them may have another shape
        words.setdefault("alpha", threat_model.reach / words.get("steps", taken["steps"].default))
    goal = labels if targets is None else targets
    if name in _STRUCTURES:
        from .structures import run_on_structure

        return run_on_structure(attack_class, model, words, inputs, goal)
    if layer is None:
        return attack_class(model, **words)(inputs, goal)
    from .features import run_on_layer

    return run_on_layer(attack_class, model, layer, words, inputs, goal)


def _check_shape(name: str, inputs: Tensor, words: dict[str, Any]) -> None:
    """Raise a ValueError that says which images a class cannot take."""
    channels, *sides = inputs.shape[1:]
    if name in _THREE_CHANNELS and channels != 3:
        raise ValueError(f"expected images with 3 channels for torchattack's {name}, got {channels}")
    if name in _SQUARE and sides[0] != sides[1]:
        raise ValueError(f"expected square images for torchattack's {name}, got {sides[0]} x {sides[1]}")
    if name == "MuMoDIG" and sides[0] > _LARGEST_RESIZED:
        raise ValueError(f"expected at most {_LARGEST_RESIZED} pixels for torchattack's MuMoDIG, got {sides[0]}")
    if name == "BSR" and 2 * words.get("num_block", 3) > min(sides):
        raise ValueError(f"expected at most {min(sides) // 2} blocks for images of {sides[0]} x {sides[1]}, got more")

"""Driver that calls the attack classes of torchattack."""

import inspect
from typing import Any

from torch import Tensor, nn

from ...attack import Implementation, RunSetting
from ...threat_model import ThreatModel

_THREE_CHANNELS = ("ti-fgsm", "geoda")
_LEAST_ENLARGED = 10  # pixels: L2T enlarges by a tenth, which has to be a pixel
_SQUARE = ("di-fgsm", "decowa", "l2t", "mumodig", "geoda")
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
        labels: true classes, shape (n,).
        threat_model: the radius is passed if the class accepts a radius.
        targets: target classes, shape (n,), if targeted.
        **kwargs: arguments by torchattack's names.

    Returns:
        The images that torchattack returns, shape (n, C, H, W).

    Raises:
        ValueError: if the class does not accept an argument.
    """
    name, taken = attack_class.__name__, inspect.signature(attack_class.__init__).parameters
    usual = {"eps": threat_model.radius, "targeted": targets is not None, "device": inputs.device}
    usual |= {"p": threat_model.norm, "input_shape": tuple(inputs.shape[1:])}
    words = {word: value for word, value in usual.items() if word in taken} | kwargs
    layer = words.pop("feature_layer_cfg", "") if name in _FEATURES else None
    if unknown := sorted(set(words) - set(taken)):
        raise ValueError(f"{name} does not have these parameters: {', '.join(unknown)}")
    if (
        threat_model.per_image_step_radius is not None and "alpha" in taken
    ):  # its division of the radii could give them a different shape
        words.setdefault("alpha", threat_model.per_image_step_radius / words.get("steps", taken["steps"].default))
    goal = labels if targets is None else targets
    if name in _STRUCTURES:
        from .structures import run_on_structure

        return run_on_structure(attack_class, model, words, inputs, goal)
    if layer is None:
        return attack_class(model, **words)(inputs, goal)
    from .features import run_on_layer

    return run_on_layer(attack_class, model, layer, words, inputs, goal)


def refuses(row: Implementation, setting: RunSetting) -> str:
    """Return the reason why a class cannot run in a setting, see `Library.refuses`. "" if it can run."""
    channels, *sides = setting.shape
    shape = f"{sides[0]} x {sides[1]}"
    blocks = 2 * setting.parameters.get("blocks", 3)
    reasons = (
        (_THREE_CHANNELS, channels != 3, f"needs images with 3 channels, got {channels}"),
        (_SQUARE, sides[0] != sides[1], f"needs square images, got {shape}"),
        (
            ("mumodig",),
            sides[0] > _LARGEST_RESIZED,
            f"needs images of at most {_LARGEST_RESIZED} pixels, got {sides[0]}",
        ),
        (("l2t",), sides[0] < _LEAST_ENLARGED, f"needs images of at least {_LEAST_ENLARGED} pixels, got {sides[0]}"),
        (
            ("bsr",),
            blocks > min(sides),
            f"needs at most {min(sides) // 2} blocks on images of {shape}; reduce the number of blocks",
        ),
    )
    why = next((why for attacks, is_so, why in reasons if row.attack in attacks and is_so), "")
    return why or (_refuses_model(row, setting) if row.reads_layers else "")


def _refuses_model(row: Implementation, setting: RunSetting) -> str:
    """Return the reason why a class that reads layers cannot attack a model. "" if it can."""
    kind, layer = row.classes["linf"].rpartition(":")[2], setting.parameters.get("layer")
    if kind in _STRUCTURES:
        from .structures import why_not_on

        return why_not_on(setting.model, kind)
    layers = dict(setting.model.named_modules())
    if not layer or layer in layers:
        return ""
    return f"needs a layer of the model ({', '.join([*layers][1:6])}, ...), got {layer!r}"

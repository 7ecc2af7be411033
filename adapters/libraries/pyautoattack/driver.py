"""Driver that calls AutoAttack and its attacks in pyautoattack."""

import inspect
import math
from typing import Any

from torch import Tensor, nn

from ...attack import Implementation, RunSetting
from ...threat_model import ThreatModel

_NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1"}
_FEWEST_STEPS = 3  # APGD in l1 parts them into three phases
_TARGET_CLASSES = "n_target_classes"


def run(
    attack_class: Any,
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    targets: Tensor | None = None,
    **kwargs: Any,
) -> Tensor:
    """Run AutoAttack or one of its attacks.

    Args:
        attack_class: class of pyautoattack with a method `perturb`.
        model: maps images to logits and has the attribute `num_classes`.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: true classes, shape (n,).
        threat_model: norm and radius. Without a radius, the largest possible distance between two images in [0, 1] is
            used.
        targets: target classes, shape (n,), if targeted.
        **kwargs: arguments by pyautoattack's names. `candidates` is the number of target classes plus one.

    Returns:
        The images that pyautoattack returns, shape (n, C, H, W).

    Raises:
        ValueError: if the class does not accept an argument.
    """
    taken = inspect.signature(attack_class.__init__).parameters
    classes = int(getattr(model, "num_classes"))  # noqa: B009 - the type checker knows only nn.Module
    words: dict[str, Any] = {
        "norm": _NORMS[threat_model.norm],
        "eps": _radius(threat_model, inputs),
        "device": inputs.device,
        **({"targeted": True} if targets is not None else {}),
        **kwargs,
    }
    if _TARGET_CLASSES in taken:
        words[_TARGET_CLASSES] = min(words.pop("candidates", taken[_TARGET_CLASSES].default + 1), classes) - 1
    if unknown := sorted(set(words) - set(taken)):
        raise ValueError(f"{attack_class.__name__} does not have these parameters: {', '.join(unknown)}")
    return attack_class(model, **words).perturb(inputs, labels if targets is None else targets)


def refuses(row: Implementation, setting: RunSetting) -> str:
    """Return the reason why a class cannot run in a setting, see `Library.refuses`. "" if it can run."""
    norm, steps = setting.threat_model.norm, setting.parameters.get("steps", _FEWEST_STEPS)
    if row.attack == "square" and norm != "linf" and setting.shape[1] < 5:
        return f"needs images of at least 5 rows in {norm}, got {setting.shape[1]}"
    if row.attack == "margin-ensemble" and norm == "l1" and steps < _FEWEST_STEPS:
        return f"needs {_FEWEST_STEPS} steps or more in l1, got {steps}"
    return ""


def _radius(threat_model: ThreatModel, inputs: Tensor) -> float:
    components = inputs[0].numel()
    whole_box = {"linf": 1.0, "l2": math.sqrt(components), "l1": float(components)}
    return whole_box[threat_model.norm] if threat_model.epsilon is None else threat_model.epsilon

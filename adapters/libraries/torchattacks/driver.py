"""Driver that calls the attack classes of torchattacks."""

import inspect
import math
from typing import Any

from torch import Tensor, nn

from ...attack import Implementation, RunSetting
from ...threat_model import ThreatModel

_NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1"}
_TARGETS_AS_LABELS = ("SPSA", "PIFGSMPP")  # they ignore the function that maps labels to targets
_THREE_CHANNELS = ("ti-fgsm", "pi-fgsm", "pi-fgsm++")
_LARGEST_PAIRWISE = 20_000  # components, with which JSMA's matrices take some 16 GB


def run(
    attack_class: Any,
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    targets: Tensor | None = None,
    **kwargs: Any,
) -> Tensor:
    """Run a torchattacks attack class.

    Args:
        attack_class: a subclass of `torchattacks.Attack`, or a function of the model whose attribute `settable` lists
            its further arguments.
        model: maps images to logits and has the attribute `num_classes`.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: true classes, shape (n,).
        threat_model: the norm and the radius are passed if the class accepts them, by its names and in its units.
        targets: target classes, shape (n,), if targeted.
        **kwargs: arguments by torchattacks' names. The value "epsilon" stands for the radius. `steps` also applies to
            the inner attacks of AutoAttack.

    Returns:
        The images that torchattacks returns, shape (n, C, H, W).

    Raises:
        ValueError: if the class does not accept an argument.
    """
    taken = getattr(attack_class, "settable", None) or inspect.signature(attack_class.__init__).parameters
    words = _words_of_budget(attack_class.__name__, inputs, threat_model) | kwargs
    reach = words.get("eps") if threat_model.per_image_step_radius is None else threat_model.per_image_step_radius
    words: dict[str, Any] = {
        word: reach if isinstance(value, str) and value == "epsilon" else value for word, value in words.items()
    }
    if "n_classes" in taken:
        known = int(getattr(model, "num_classes"))  # noqa: B009 - the type checker knows only nn.Module
        words["n_classes"] = min(words.get("n_classes", taken["n_classes"].default), known)
    if "abort_early" in taken and words.get("max_iterations", 10) < 10:
        words["abort_early"] = False
    attack = attack_class(model, **{word: value for word, value in words.items() if word in taken})
    stepping = [inner for inner in _inner_attacks(attack) if hasattr(inner, "steps")]
    unknown = sorted(word for word in kwargs if word not in taken and not (word == "steps" and stepping))
    if unknown:
        raise ValueError(f"{attack_class.__name__} does not have these parameters: {', '.join(unknown)}")
    for inner in stepping:
        inner.steps = kwargs.get("steps", inner.steps)
    if targets is None:
        return attack(inputs, labels)
    if attack_class.__name__ in _TARGETS_AS_LABELS:
        attack.set_mode_targeted_by_label(quiet=True)
        return attack(inputs, targets)
    attack.set_mode_targeted_by_function(lambda *_: targets, quiet=True)
    return attack(inputs, labels)


def _words_of_budget(name: str, inputs: Tensor, threat_model: ThreatModel) -> dict[str, Any]:
    """Return the norm and the radius as keywords, by all names that torchattacks' classes use for them."""
    channels, components = inputs.shape[1], inputs[0].numel()
    epsilon = threat_model.radius
    if threat_model.norm == "l0":
        return _words_of_count(name, channels, components, epsilon)
    if epsilon is None:  # no radius: use that of a ball that contains [0, 1]
        epsilon = {"linf": 1.0, "l2": math.sqrt(components)}.get(threat_model.norm, float(components))
    return {"norm": _NORMS.get(threat_model.norm), "eps": epsilon, "max_epsilon": epsilon}


def _words_of_count(name: str, channels: int, components: int, epsilon: float | None) -> dict[str, Any]:
    if name == "OnePixel" and epsilon is not None:
        return {"pixels": int(epsilon // channels)}
    if name == "JSMA" and epsilon is not None:
        # It changes two components a round and rounds up: the quarter makes that round down to whole pairs.
        return {"gamma": (2 * (epsilon // 2) - 0.5) / components}
    return {}


def refuses(row: Implementation, setting: RunSetting) -> str:
    """Return the reason why a class cannot run in a setting, see `Library.refuses`. "" if it can run."""
    channels, epsilon = setting.shape[0], setting.threat_model.epsilon
    if row.attack in _THREE_CHANNELS and channels != 3:
        return f"needs images with 3 channels, got {channels}"
    if row.attack == "one-pixel" and epsilon is not None and epsilon < channels:
        return f"needs epsilon >= {channels}, because it changes all channels of a pixel, got {epsilon:g}"
    if row.attack == "jsma" and epsilon is not None and epsilon < 2:
        return f"needs epsilon >= 2, because it changes components in pairs, got {epsilon:g}"
    if row.attack == "jsma" and math.prod(setting.shape) > _LARGEST_PAIRWISE:
        return f"needs images of at most {_LARGEST_PAIRWISE} components, got {math.prod(setting.shape)}"
    return ""


def _inner_attacks(attack: Any) -> list[Any]:
    return attack._autoattack.attacks if hasattr(attack, "_autoattack") else []

"""Driver that calls the attack functions of adversarial-library."""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from ...attack import Implementation, RunSetting
from ...threat_model import ThreatModel

_NORMS = {"linf": math.inf, "l2": 2, "l1": 1, "l0": 0}
_RADIUS = {"pgd_linf": "ε", "apgd": "eps", "apgd_targeted": "eps"}
_OTHERS = {"apgd_targeted": "num_targets", "fab": "restarts"}  # number of target classes


def run(
    attack_function: Any,
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    targets: Tensor | None = None,
    **kwargs: Any,
) -> Tensor:
    """Run an attack function of adversarial-library.

    Args:
        attack_function: function of `adv_lib.attacks`, or a patched version.
        model: maps images to logits and has the attribute `num_classes`.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: true classes, shape (n,).
        threat_model: the norm is passed to functions that accept a norm, and the radius to fixed-budget attacks.
        targets: target classes, shape (n,), if targeted.
        **kwargs: arguments by adv-lib's names. `candidates` is the number of target classes plus one.

    Returns:
        The images that adv-lib returns, shape (n, C, H, W).

    Raises:
        ValueError: if the function does not accept an argument.
    """
    name, taken = attack_function.__name__, inspect.signature(attack_function).parameters
    classes = int(getattr(model, "num_classes"))  # noqa: B009 - the type checker knows only nn.Module
    usual = _words_of_rules(name, threat_model, inputs) | {"targeted": targets is not None}
    words = {word: value for word, value in usual.items() if word in taken} | kwargs
    if "candidates" in words:
        words[_OTHERS[name]] = min(words.pop("candidates"), classes) - 1
    if name in _UNITS:
        words = _UNITS[name](words)
    if unknown := sorted(set(words) - set(taken)):
        raise ValueError(f"{name} does not have these parameters: {', '.join(unknown)}")
    return attack_function(model, inputs, labels if targets is None else targets, **words)


def _words_of_rules(name: str, threat_model: ThreatModel, inputs: Tensor) -> dict[str, Any]:
    """Return the norm and the radius as keywords, by all names that adv-lib's functions use for them."""
    components = inputs[0].numel()
    words: dict[str, Any] = {"norm": _NORMS.get(threat_model.norm), "p": _NORMS.get(threat_model.norm)}
    if threat_model.norm in ("l2", "l1"):
        words["distance"] = threat_model.norm
    if name in _RADIUS:
        radius = threat_model.radius
        words[_RADIUS[name]] = radius.flatten() if isinstance(radius, Tensor) else radius
    if name == "minimal_apgd":  # it searches up to twice this: the ball that contains [0, 1]
        words["max_eps"] = {"linf": 1.0, "l2": math.sqrt(components)}.get(threat_model.norm, float(components)) / 2
    return words


def refuses(row: Implementation, setting: RunSetting) -> str:
    """Return the reason why a function cannot run in a setting, see `Library.refuses`. "" if it can run."""
    distance, targeted_ratio = row.fixed.get("distance"), row.attack.startswith(("alma", "apgd-dlr"))
    if (row.attack == "perc-al" or distance == "ciede2000") and setting.shape[0] != 3:
        return f"needs images with 3 channels, because it measures colour differences, got {setting.shape[0]}"
    if distance == "ssim" and min(setting.shape[1:]) < 11:
        return f"needs images of at least 11 x 11 pixels to compute SSIM, got {setting.shape[1]} x {setting.shape[2]}"
    if row.attack in ("pdgd", "pdpgd") and setting.parameters.get("steps", 2) < 2:
        return "needs at least 2 steps, because it divides by steps - 1, got 1"
    if targeted_ratio and setting.threat_model.targeted and setting.classes < 4:
        return f"needs at least 4 classes to be targeted, got {setting.classes}"
    if row.attack == "cw" and setting.threat_model.norm == "linf" and setting.parameters.get("confidence"):
        return f"does not support a confidence in linf; expected 0, got {setting.parameters['confidence']}"
    return ""


def _step_of_each(words: dict[str, Any]) -> dict[str, Any]:
    """Convert step sizes per image to one step size relative to the radius, because adv-lib accepts only one number."""
    step = words.get("absolute_step_size")
    if not isinstance(step, Tensor):
        return words
    rest = {word: value for word, value in words.items() if word != "absolute_step_size"}
    return rest | {"relative_step_size": step.flatten() / words["ε"]}


def _patience(words: dict[str, Any]) -> dict[str, Any]:
    """Disable early stopping of C&W below 10 steps, because it divides by `steps // 10`."""
    return words | ({"abort_early": False} if words.get("max_iterations", 10) < 10 else {})


def _rounds(words: dict[str, Any]) -> dict[str, Any]:
    """Convert the number of rounds to the largest trade-off constant, which C&W in linf doubles in each round."""
    rest = {word: value for word, value in words.items() if word not in ("confidence", "binary_search_steps")}
    if "binary_search_steps" not in words:
        return rest
    return rest | {"largest_const": words.get("initial_const", 1e-5) * 2.0 ** words["binary_search_steps"]}


def _at_the_start(words: dict[str, Any]) -> dict[str, Any]:
    """Make FMN start exactly at the starting points, instead of at points between them and the clean images."""
    return {"binary_search_steps": 0, **words} if "starting_points" in words else words


_UNITS: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "pgd_linf": _step_of_each,
    "carlini_wagner_l2": _patience,
    "carlini_wagner_linf": _rounds,
    "fmn": _at_the_start,
}

"""Driver that calls the attack functions of CleverHans."""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from ...attack import Implementation, RunSetting
from ...threat_model import ThreatModel
from .attacks import REQUIRED

_NORMS = {"linf": math.inf, "l2": 2, "l1": 1}
_FINEST = 2.0**-22  # of a distance: float32 cannot separate two points of a binary search below half of it


def run(
    attack_function: Any,
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    targets: Tensor | None = None,
    **kwargs: Any,
) -> Tensor:
    """Run an attack function of CleverHans.

    Args:
        attack_function: function of `cleverhans.torch.attacks`.
        model: maps images to logits.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: true classes, shape (n,).
        threat_model: the norm and the radius are passed if the function accepts them.
        targets: target classes, shape (n,), if targeted.
        **kwargs: arguments by CleverHans' names, in the units of the canonical parameters.

    Returns:
        The images that CleverHans returns, shape (n, C, H, W).

    Raises:
        ValueError: if the function does not accept an argument.
    """
    name, taken = attack_function.__name__, inspect.signature(attack_function).parameters
    norm = _NORMS.get(threat_model.norm)
    usual = {
        **dict.fromkeys(("norm", "order", "constraint"), norm),
        "eps": threat_model.epsilon,
        "clip_min": 0.0,
        "clip_max": 1.0,
        "y": labels if targets is None else targets,
        "y_target": targets,
        "targeted": targets is not None,
        "sanity_checks": False,  # they compare tensors of a GPU with NumPy's, and l2 sizes to 1e-6
        "verbose": False,
    }
    words = {word: value for word, value in usual.items() if word in taken and value is not None} | kwargs
    words = _required(words, taken) | words
    if name in _UNITS:
        words = _UNITS[name](words, inputs)
    if unknown := sorted(set(words) - set(taken)):
        raise ValueError(f"{name} does not have these parameters: {', '.join(unknown)}")
    return attack_function(*((model, inputs) if "model_fn" in taken else (inputs,)), **words)


def _required(words: Mapping[str, Any], taken: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of steps and the step size for a function that requires both.

    If the step size is not given, it is 2.5 * epsilon / steps, but at most epsilon.
    """
    steps = words.get("nb_iter", REQUIRED["steps"])
    values = {"nb_iter": steps, "eps_iter": min(2.5 / steps, 1.0) * words.get("eps", 0.0)}
    return {
        word: value
        for word, value in values.items()
        if word in taken and taken[word].default is inspect.Parameter.empty
    }


def refuses(row: Implementation, setting: RunSetting) -> str:
    """Return the reason why a function cannot run in a setting, see `Library.refuses`. "" if it can run."""
    step, epsilon = setting.parameters.get("step_size"), setting.threat_model.epsilon
    if row.attack in ("pgd", "bim") and step is not None and epsilon is not None and step > epsilon:
        return f"needs step_size <= epsilon, got {step:.4g} > {epsilon:.4g}"
    quantile, components = setting.parameters.get("quantile", 0.99), math.prod(setting.shape)
    if row.attack == "sparse-l1-descent" and int(quantile * components) < 1:
        return f"needs quantile >= {1 / components:.2g} for {components} components, got {quantile}"
    return ""


def _searchable(words: dict[str, Any], inputs: Tensor) -> dict[str, Any]:
    """Complete the arguments of HopSkipJump: its threshold, and the shape of the starting points.

    HopSkipJump computes the threshold of its binary search from `gamma`. `gamma` is chosen such that the threshold is
    not too small for float32. It is a tensor, because HopSkipJump computes the minimum of a tensor and the threshold.
    """
    components = inputs[0].numel()
    power = 1.5 if words["constraint"] == 2 else 2.0
    gamma = inputs.new_tensor(max(1.0, _FINEST * components**power))
    starts = {"image_target": words["image_target"].unsqueeze(1)} if "image_target" in words else {}
    return words | starts | {"gamma": gamma}


_UNITS: Mapping[str, Callable[[dict[str, Any], Tensor], dict[str, Any]]] = {
    "hop_skip_jump_attack": _searchable,
}

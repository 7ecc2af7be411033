"""Step sizes relative to the radius, as strings: "2.5 epsilon / steps", "2 epsilon"."""

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ...errors import InvalidInput
from ..parameters import check_parameter

_RELATIVE = re.compile(r"(\d+(?:\.\d+)?) epsilon( / steps)?")


def is_relative(value: object) -> bool:
    """Whether a `step_size` is a string relative to the radius."""
    return isinstance(value, str) and bool(_RELATIVE.fullmatch(value))


def resolve_step_size(parameters: Mapping[str, Any], epsilon: float | Tensor | None) -> dict[str, Any]:
    """Return the parameters with a relative `step_size` replaced by its value for a radius.

    "K epsilon / steps" is limited to epsilon, because a longer step leaves the ball and CleverHans rejects it.

    Args:
        parameters: canonical parameters.
        epsilon: the radius, or one radius per image. If None (minimum-norm attacks), `step_size` is removed.

    Raises:
        InvalidInput: if the string is not a relative step size, or if it needs `steps` and these are missing or
            invalid.
    """
    step = parameters.get("step_size")
    if not isinstance(step, str):
        return dict(parameters)
    match = _RELATIVE.fullmatch(step)
    if match is None:
        raise InvalidInput(f"expected step_size as a number, 'K epsilon' or 'K epsilon / steps', got {step!r}")
    if match[2] and "steps" not in parameters:
        raise InvalidInput(f"step_size {step!r} needs steps")
    rest = {name: value for name, value in parameters.items() if name != "step_size"}
    if epsilon is None:
        return rest
    steps = check_parameter("steps", parameters["steps"]) if match[2] else 1
    shorter = not match[2] or float(match[1]) <= steps
    return {**rest, "step_size": float(match[1]) * epsilon / steps if shorter else epsilon}

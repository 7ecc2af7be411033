"""Step sizes that are relative to the radius, given as text: "2.5 epsilon / steps", "2 epsilon"."""

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ...errors import InvalidInput
from ..parameters import check_parameter

_RELATIVE = re.compile(r"(\d+(?:\.\d+)?) epsilon( / steps)?")


def is_relative(value: object) -> bool:
    """Whether a `step_size` is a text that is relative to the radius."""
    return isinstance(value, str) and bool(_RELATIVE.fullmatch(value))


def resolve_step_size(parameters: Mapping[str, Any], epsilon: float | Tensor | None) -> dict[str, Any]:
    """Replace a relative `step_size` by its value for a radius.

    "K epsilon / steps" gives at most epsilon. A longer step would leave the ball, and CleverHans rejects it.

    Args:
        parameters: canonical parameters.
        epsilon: the radius, or one radius per image. None for a minimum-norm attack, for which `step_size` is removed.

    Returns:
        The parameters.

    Raises:
        InvalidInput: if the text is not a relative step size. Also if it needs `steps`, and `steps` is missing or
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

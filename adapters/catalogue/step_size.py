"""Step sizes that are given relative to the radius, as strings such as "2.5 epsilon / steps" or "2 epsilon"."""

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ...errors import InvalidInput
from ..parameters import check_parameter

_RELATIVE = re.compile(r"(\d+(?:\.\d+)?) epsilon( / steps)?")


def is_relative(value: object) -> bool:
    """Whether a `step_size` is given relative to the radius, as a string."""
    return isinstance(value, str) and bool(_RELATIVE.fullmatch(value))


def resolve_step_size(parameters: Mapping[str, Any], epsilon: float | Tensor | None) -> dict[str, Any]:
    """Return the parameters with a number as `step_size`, if `step_size` is given relative to the radius.

    If "K epsilon / steps" exceeds epsilon, it is replaced by epsilon, because CleverHans rejects longer steps.

    Args:
        parameters: canonical parameters.
        epsilon: the radius, or one radius per image. If None, as for a minimum-norm attack, `step_size` is removed.

    Raises:
        InvalidInput: if the string is not a relative step size, or if it contains `steps` and this parameter is missing
            or invalid.
    """
    step = parameters.get("step_size")
    if not isinstance(step, str):
        return dict(parameters)
    match = _RELATIVE.fullmatch(step)
    if match is None:
        raise InvalidInput(f"expected step_size as a number, 'K epsilon' or 'K epsilon / steps', got {step!r}")
    if match[2] and "steps" not in parameters:
        raise InvalidInput(f"step_size {step!r} needs steps; give their number, too, such as steps=10")
    rest = {name: value for name, value in parameters.items() if name != "step_size"}
    if epsilon is None:
        return rest
    steps = check_parameter("steps", parameters["steps"]) if match[2] else 1
    shorter = not match[2] or float(match[1]) <= steps
    return {**rest, "step_size": float(match[1]) * epsilon / steps if shorter else epsilon}

"""Conventions that several packages share. This module imports nothing of davylamp."""

from collections.abc import Collection, Mapping
from typing import Any

RADIUS_TOLERANCE, ABSOLUTE_TOLERANCE = 1e-4, 1e-6  # relative: float32 sums over 150 000 components
# The kinds of attacks for each choice of `knowledge`.
KNOWLEDGE: Mapping[str, tuple[str, ...]] = {
    "white-box": ("white-box",),
    "black-box": ("score-based", "decision-based", "transfer", "black-box"),
    "score": ("score-based",),
    "decision": ("decision-based",),
    "transfer": ("transfer",),
}


def largest_distance(radius: Any, norm: str) -> Any:
    """Return the largest distance that counts as within a radius: the radius plus a tolerance for float32 rounding.

    Args:
        radius: the radius, a number or a tensor.
        norm: name of the norm. In l0, which counts components, there is no tolerance.

    Returns:
        The distance, with the type of `radius`.
    """
    if norm == "l0":
        return radius
    return radius * (1 + (0.0 if norm == "linf" else RADIUS_TOLERANCE)) + ABSOLUTE_TOLERANCE


def original_of(model: str, models: Collection[str]) -> str | None:
    """Return the name of the undefended model for a name such as `MODEL+DEFENCE` or `MODEL+DEFENCE+DEFENCE`.

    Args:
        model: name of a model.
        models: names of all models.

    Returns:
        The shortest beginning of `model`, up to a "+", that is the name of a model. None if no beginning is one.
    """
    places = (place for place, letter in enumerate(model) if letter == "+")
    return next((model[:place] for place in places if model[:place] in models), None)

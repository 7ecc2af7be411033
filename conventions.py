"""Rules that several parts must apply alike, each stated once; it imports nothing of ours."""

from collections.abc import Collection, Mapping
from typing import Any

RADIUS_TOLERANCE, ABSOLUTE_TOLERANCE = 1e-4, 1e-6  # relative: float32 sums over 150 000 components
# The kinds of attacks that each choice of `knowledge` stands for.
KNOWLEDGE: Mapping[str, tuple[str, ...]] = {
    "white-box": ("white-box",),
    "black-box": ("score-based", "decision-based", "transfer", "black-box"),
    "score": ("score-based",),
    "decision": ("decision-based",),
    "transfer": ("transfer",),
}


def largest_distance(radius: Any, norm: str) -> Any:
    """Largest distance that counts as inside a ball, as float32 moves an example on the sphere beyond it.

    Args:
        radius: of the ball, a number or a tensor.
        norm: "linf", "l2", ...; l0 counts components and needs no tolerance.

    Returns:
        The same type as the radius.
    """
    if norm == "l0":
        return radius
    return radius * (1 + (0.0 if norm == "linf" else RADIUS_TOLERANCE)) + ABSOLUTE_TOLERANCE


def original_of(model: str, models: Collection[str]) -> str | None:
    """Name of the undefended model of `MODEL+DEFENCE`, which may have several defences.

    Args:
        model: a model's name.
        models: names of all models.

    Returns:
        The shortest beginning before a "+" that is itself a model; None if there is none.
    """
    places = (place for place, letter in enumerate(model) if letter == "+")
    return next((model[:place] for place in places if model[:place] in models), None)

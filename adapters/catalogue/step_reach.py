"""Warns about steps that are too short to reach the radius, and about outputs of random models averaged twice."""

from collections.abc import Mapping
from typing import Any

from ...errors import InvalidInput, MissingLibrary
from ..attack import Implementation
from ..threat_model import ThreatModel
from .lookup import accepts_parameter, canonical_attack, library_defaults
from .step_size import is_relative, resolve_step_size

REACHING = "2.5 epsilon / steps"
# Parameter with the length of a step, if not `step_size`: Adam moves a component by about its learning rate.
_LENGTH = {"spsa": "learning_rate"}
_ANSWERS = "eot_iter"  # libraries' name for the number of samples at one point whose gradients they average


def max_step_distance(row: Implementation, threat_model: ThreatModel, parameters: Mapping[str, Any]) -> float | None:
    """Return how far the steps of an attack can lead, in units of the radius: steps x step size / epsilon.

    Args:
        row: implementation of a fixed-budget attack.
        threat_model: norm and radius. Without a radius, as in a radius search, only a step size that is relative to the
            radius can be evaluated.
        parameters: canonical parameters. A parameter that is not given has the library's default.

    Returns:
        The distance. None if the step size or the number of steps is unknown, the norm is not supported, or the library
        is not installed.
    """
    length = _LENGTH.get(row.attack, "step_size")
    if canonical_attack(row).kind != "fixed-budget" or not (
        accepts_parameter(row, "steps") and accepts_parameter(row, length)
    ):
        return None
    if threat_model.norm not in row.classes:
        return None
    try:
        used = {**library_defaults(row, threat_model.norm), **parameters}
    except (MissingLibrary, KeyError):
        return None
    steps, step, epsilon = used.get("steps"), used.get(length), threat_model.epsilon
    if is_relative(step):
        epsilon, step = 1.0, _resolve(used)
    numbers = (int, float)
    if not isinstance(steps, numbers) or not isinstance(step, numbers) or epsilon is None:
        return None
    return steps * step / epsilon


def short_steps_warning(row: Implementation, threat_model: ThreatModel, parameters: Mapping[str, Any]) -> str | None:
    """Return a warning if the steps of an attack are too short to reach the radius. Otherwise None.

    Args:
        row: implementation of any attack.
        threat_model: norm and radius.
        parameters: parameters of the attack. A parameter that is not given has the library's default.
    """
    reach = max_step_distance(row, threat_model, parameters)
    if reach is None or reach >= 1 - 1e-6:
        return None
    length = _LENGTH.get(row.attack, "step_size")
    better = f"give step_size='{REACHING}'" if "steps" in parameters else f"give step_size='{REACHING}' and steps=N"
    better = better if length == "step_size" else f"give {length}"
    return (
        f"{row.name}: its steps together reach {reach:.2g} of the radius, so robustness may be overestimated; {better}"
    )


def note_library_step(row: Implementation, threat_model: ThreatModel, parameters: Mapping[str, Any]) -> str | None:
    """Return a note with the library's default step size, if the user gave `steps` but no `step_size`. Otherwise None.

    Args:
        row: implementation of any attack.
        threat_model: norm and radius.
        parameters: parameters that the user gave.
    """
    matched = canonical_attack(row).matched.get("step_size")
    if (
        matched is None
        or "steps" not in parameters
        or "step_size" in parameters
        or not accepts_parameter(row, "step_size")
    ):
        return None
    if row.given is not None or threat_model.norm not in row.classes:
        return None
    step = library_defaults(row, threat_model.norm).get("step_size")
    said = f"{step:.4g}" if isinstance(step, float) else step
    return None if step is None else f"step_size {said}, {row.library}'s default (compare and evaluate use {matched})"


def with_reaching_step_size(
    row: Implementation, threat_model: ThreatModel, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the parameters for a search over radii, with a step size that is long enough for every radius.

    If the user gave a step size, or the library's step size is long enough, the parameters are unchanged.

    Args:
        row: implementation of a fixed-budget attack.
        threat_model: norm, and the largest radius of the search.
        parameters: canonical parameters that the user gave.
    """
    if "step_size" in parameters or not accepts_parameter(row, "step_size"):
        return dict(parameters)
    reach = max_step_distance(row, threat_model, parameters)
    if reach is None or reach >= 1:
        return dict(parameters)
    steps = {**library_defaults(row, threat_model.norm), **parameters}["steps"]
    return {**parameters, "steps": steps, "step_size": REACHING}


def warn_repeated_draws(row: Implementation, norm: str, parameters: Mapping[str, Any], eot: int) -> str | None:
    """Return a warning if outputs of a random model are averaged by the attack as well as by `eot`. Otherwise None.

    Args:
        row: implementation of any attack.
        norm: norm of the threat model.
        parameters: parameters of the attack. A parameter that is not given has the library's default.
        eot: number of outputs of the random model that are averaged for each query of the attack.
    """
    if eot < 2 or row.params.get("samples") != _ANSWERS or norm not in row.classes:
        return None
    try:
        samples = {**library_defaults(row, norm), **parameters}.get("samples")
    except (MissingLibrary, KeyError):
        return None
    if not isinstance(samples, int) or samples < 2:
        return None
    return (
        f"{row.name} averages {samples} samples by itself: with `eot={eot}`, each of its gradients costs "
        f"{samples * eot} samples. The parameter samples=1 reduces this to {eot}, and `eot=1` to {samples}"
    )


def _resolve(used: Mapping[str, Any]) -> float | None:
    try:
        return resolve_step_size(used, 1.0).get("step_size")
    except InvalidInput:  # not a step size: the run reports it
        return None

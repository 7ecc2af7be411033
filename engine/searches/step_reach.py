"""Settings that look like more than they are: steps that cannot reach the edge of the ball, draws averaged twice."""

from collections.abc import Mapping
from typing import Any

from ...adapters import Implementation, ThreatModel, canonical_attack
from ...adapters.catalogue.lookup import accepts_parameter, library_defaults
from ...adapters.catalogue.step_size import is_relative, resolve_step_size
from ...errors import InvalidInput, MissingLibrary

REACHING = "2.5 epsilon / steps"
# The length of a step, where another parameter has it: Adam moves a component by about its learning rate.
_LENGTH = {"spsa": "learning_rate"}
_ANSWERS = "eot_iter"  # what libraries call the answers at one point whose gradients they average


def max_step_distance(row: Implementation, threat_model: ThreatModel, parameters: Mapping[str, Any]) -> float | None:
    """How far a row can move from where it starts, in units of the radius: steps x step size / epsilon.

    What is not given is the library's default. A search has no radius: an absolute step is not compared with one.

    Args:
        row: of a fixed-budget attack.
        threat_model: norm and radius.
        parameters: canonical ones.

    Returns:
        None where the row has no steps of a known length or not the norm, its library is not installed, or nothing can
        be compared.
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
    """A line for a row whose steps, end to end, are shorter than the radius; None for any other.

    Args:
        row: of any attack.
        threat_model: norm and radius.
        parameters: that it gets; what is not given is the library's default.
    """
    reach = max_step_distance(row, threat_model, parameters)
    if reach is None or reach >= 1 - 1e-6:
        return None
    length = _LENGTH.get(row.attack, "step_size")
    better = f"give {length}" if length != "step_size" else f"step_size='{REACHING}' reaches it"
    return f"{row.name}: its steps reach {reach:.2g} of the radius: what looks robust may be out of reach; {better}"


def note_library_step(row: Implementation, threat_model: ThreatModel, parameters: Mapping[str, Any]) -> str | None:
    """A line for a run that is given steps and no step size: the library's then holds, not that of a comparison.

    Args:
        row: of any attack.
        threat_model: norm and radius.
        parameters: that are given.
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
    return None if step is None else f"step_size {said}, {row.library}'s own (compare and evaluate: {matched})"


def with_reaching_step_size(
    row: Implementation, threat_model: ThreatModel, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """The parameters of a search, with a step size that reaches every ball where the library's default does not.

    A step size that is given stays.

    Args:
        row: of a fixed-budget attack.
        threat_model: with the largest radius of the search.
        parameters: canonical ones.
    """
    if "step_size" in parameters or not accepts_parameter(row, "step_size"):
        return dict(parameters)
    reach = max_step_distance(row, threat_model, parameters)
    if reach is None or reach >= 1:
        return dict(parameters)
    steps = {**library_defaults(row, threat_model.norm), **parameters}["steps"]
    return {**parameters, "steps": steps, "step_size": REACHING}


def warn_repeated_draws(row: Implementation, norm: str, parameters: Mapping[str, Any], eot: int) -> str | None:
    """A line for a row that averages answers at one point by itself, if each of them is already a mean; else None.

    Args:
        row: of any attack.
        norm: of the threat model.
        parameters: that it gets; what is not given is the library's default.
        eot: answers of the random model whose mean it is shown.
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
        f"{row.name} averages {samples} answers by itself (samples): with `eot={eot}` each of its gradients costs "
        f"{samples * eot} draws; the parameter samples=1 leaves {eot}, `eot=1` leaves {samples}"
    )


def _resolve(used: Mapping[str, Any]) -> float | None:
    try:
        return resolve_step_size(used, 1.0).get("step_size")
    except InvalidInput:  # a text that is no step size: the run says so
        return None

"""The canonical attack parameters, which have one name and one meaning in all libraries."""

import math
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidInput, UnknownName
from .attack import Parameter

_INFINITY = math.inf
_MOST = 2**31 - 1  # of a whole number
_LARGEST = 1e30  # of any other: finite in float32

PARAMETERS: Mapping[str, Parameter] = {
    "steps": Parameter(int, 1, _INFINITY, "iterations of the attack's main loop"),
    "step_size": Parameter(float, 0, _INFINITY, "length of one step in the threat model's norm, pixels in [0, 1]", 0),
    "random_start": Parameter(bool, 0, 1, "start at a random point of the ball instead of the image"),
    "epochs": Parameter(int, 1, _INFINITY, "passes over the images on which an attack is fitted"),
    "restarts": Parameter(
        int, 1, _INFINITY, "independent runs with different seeds; a fooled image is not attacked again"
    ),
    "max_queries": Parameter(int, 1, _INFINITY, "largest number of forward plus backward passes for one image"),
    "batch_size": Parameter(int, 1, _INFINITY, "number of images that a library gets in one call"),
    "precision": Parameter(
        str, 0, 0, "precision of the attack's passes: 'float32', 'tf32' or 'bfloat16'; the judge uses float32"
    ),
    "confidence": Parameter(float, 0, _INFINITY, "logit margin that an adversarial image must have"),
    "decay": Parameter(float, 0, _INFINITY, "momentum: weight of the accumulated gradient"),
    "binary_search_steps": Parameter(int, 1, _INFINITY, "rounds of the search for the trade-off constant or radius"),
    "initial_const": Parameter(
        float, 0, _INFINITY, "first trade-off constant between distance and misclassification", 0
    ),
    "learning_rate": Parameter(float, 0, _INFINITY, "learning rate of the optimiser", 0),
    "regularization": Parameter(float, 0, _INFINITY, "weight of the l1 term of the elastic net"),
    "overshoot": Parameter(float, 0, _INFINITY, "how far past the boundary to go, relative to the perturbation"),
    "candidates": Parameter(int, 2, _INFINITY, "number of most likely classes that the attack considers"),
    "samples": Parameter(int, 1, _INFINITY, "number of random points per step whose gradients are averaged"),
    "scales": Parameter(int, 1, _INFINITY, "number of scaled copies of the image per step"),
    "neighbourhood": Parameter(float, 0, _INFINITY, "radius of the sampled neighbourhood, in units of epsilon"),
    "diversity_probability": Parameter(
        float, 0, 1, "probability that the input is resized and padded before a gradient"
    ),
    "resize_rate": Parameter(float, 0, _INFINITY, "size of the resized input relative to the image", 0),
    "portion": Parameter(float, 0, _INFINITY, "weight of the other image that is mixed into the input"),
    "spread": Parameter(float, 0, 1, "largest deviation from 1 of the random factors of the frequencies"),
    "blocks": Parameter(int, 1, _INFINITY, "number of strips along each side into which the input is cut and shuffled"),
    "layer": Parameter(str, 0, 0, "name of the module in the model whose outputs are attacked"),
    "kernel_size": Parameter(int, 1, _INFINITY, "side of the kernel that smooths the gradient, in pixels"),
    "low_frequency": Parameter(float, 0, _INFINITY, "weight of the change of low frequencies"),
    "quantile": Parameter(float, 0, 1, "proportion of the components that a sparse step does not change", 1),
    "gamma": Parameter(float, 0, _INFINITY, "rate at which the attack's radius or proportion of features adapts", 0),
    "initial_epsilon": Parameter(float, 0, _INFINITY, "initial radius, for an attack that adapts its radius", 0),
    "theta": Parameter(float, -1, 1, "change of a feature in one step", 0),
    "population": Parameter(int, 2, _INFINITY, "number of members of the evolved population"),
    "initial_probability": Parameter(float, 0, 1, "proportion of the image that the first square covers", 0),
    "finite_difference": Parameter(float, 0, _INFINITY, "step of the numerical derivative", 0),
    "initial_evaluations": Parameter(int, 1, _INFINITY, "number of queries for the first gradient estimate"),
    "max_evaluations": Parameter(int, 1, _INFINITY, "largest number of queries for one gradient estimate"),
    "orthogonal_step": Parameter(float, 0, _INFINITY, "step along the sphere, relative to the distance", 0),
    "source_step": Parameter(float, 0, _INFINITY, "step towards the image, relative to the distance", 0),
    "trials": Parameter(int, 1, _INFINITY, "largest number of random attempts in one step"),
    "subspace": Parameter(
        int,
        1,
        _INFINITY,
        "side of the block of low frequencies, or of the small image, from which directions are drawn",
    ),
    "basis": Parameter(str, 0, 0, "'dct' (low frequencies), 'px' (pixels) or 'resize' (a small image, enlarged)"),
    "max_translation": Parameter(float, 0, _INFINITY, "largest shift, pixels"),
    "translations": Parameter(int, 1, _INFINITY, "number of shifts tried along each axis"),
    "max_rotation": Parameter(float, 0, 180, "largest rotation, degrees"),
    "rotations": Parameter(int, 1, _INFINITY, "angles tried"),
    "std": Parameter(float, 0, _INFINITY, "standard deviation of the noise, for pixels in [0, 1]"),
    "directions": Parameter(int, 1, _INFINITY, "random directions tried"),
    "target_value": Parameter(float, 0, 1, "grey value towards which the image fades"),
    "max_sigma": Parameter(float, 0, _INFINITY, "largest standard deviation of the blur, pixels"),
    "quantise": Parameter(bool, 0, 1, "round every image that the model is queried with to 8 bits"),
    "quantise_after": Parameter(bool, 0, 1, "round the result to 8 bits such that it stays adversarial"),
    "tolerance": Parameter(float, 0, _INFINITY, "l2 distance at which a binary search for the boundary ends", 0),
    "noise_samples": Parameter(
        int, 1, _INFINITY, "number of noise images tried; the first that fools the model is used"
    ),
}

PRECISIONS = ("float32", "tf32", "bfloat16")  # of an attack's passes; if not given, torch's settings
_CHOICES: Mapping[str, tuple[str, ...]] = {"basis": ("dct", "px", "resize"), "precision": PRECISIONS}

# What the same is called elsewhere: for "did you mean", and to read the signature of a user's attack.
FOREIGN: Mapping[str, str] = {
    **dict.fromkeys(("eps", "epsilons", "max_epsilon", "radius", "eps_max"), "epsilon"),
    **dict.fromkeys(("n_iter", "nb_iter", "num_iter", "niter", "n_iters", "iterations", "num_iterations"), "steps"),
    **dict.fromkeys(("max_iter", "max_iterations", "n_steps", "nb_steps", "num_steps", "iters"), "steps"),
    **dict.fromkeys(("alpha", "eps_iter", "eps_step", "abs_stepsize", "stepsize", "eps_step_size"), "step_size"),
    **dict.fromkeys(("rand_init", "random_init", "rand_start", "rand_minmax"), "random_start"),
    **dict.fromkeys(("n_restarts", "nb_restarts", "num_restarts", "num_random_init"), "restarts"),
    **dict.fromkeys(
        ("n_queries", "num_queries", "nb_queries", "max_query", "query_limit", "query_budget"), "max_queries"
    ),
    **dict.fromkeys(("kappa", "conf"), "confidence"),
    **dict.fromkeys(("bs", "batchsize", "n_batch"), "batch_size"),
    **dict.fromkeys(("momentum", "mu", "decay_factor"), "decay"),
    **dict.fromkeys(("lr", "optimizer_lr"), "learning_rate"),
    **dict.fromkeys(("initial_c", "init_const"), "initial_const"),
    **dict.fromkeys(("n_samples", "num_samples", "nb_samples"), "samples"),
    **dict.fromkeys(("y_target", "target_labels", "target_classes"), "targets"),
    **dict.fromkeys(("random_state", "random_seed"), "seed"),
}

# Supplied by run_attack to the implementations that name them.
SUPPLIED = ("seed", "num_classes", "starting_points")


def find_parameter(name: str, more: Mapping[str, Parameter] | None = None) -> Parameter:
    """Return the `Parameter` with a name, from the canonical parameters or from `more`.

    Raises:
        UnknownName: if there is no such parameter. If a library has a parameter with this name, the message suggests
            the canonical name.
    """
    if more and name in more:
        return more[name]
    if name not in PARAMETERS:
        meant = FOREIGN.get(name.strip().lower(), "")
        if name == "device":
            raise UnknownName("parameter", name, (), hint="an attack runs on its model's device: use model.to(device)")
        raise UnknownName("parameter", name, {*PARAMETERS, *(more or {})}, meant=meant)
    return PARAMETERS[name]


def check_parameter(name: str, value: Any, more: Mapping[str, Parameter] | None = None) -> Any:
    """Convert a value to the type of a parameter, and check the parameter's range.

    Args:
        name: name of a canonical parameter, or of a parameter in `more`.
        value: the value to convert.
        more: parameters of a single implementation, in addition to the canonical parameters.

    Raises:
        UnknownName: if there is no such parameter.
        InvalidInput: if the value has a wrong type or is outside the parameter's range.
    """
    wanted = find_parameter(name, more)
    allowed = (int, float) if wanted.type is float else (wanted.type,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and wanted.type is not bool):
        raise InvalidInput(f"expected {name} as {wanted.type.__name__} ({wanted.meaning}), got {value!r}")
    if wanted.type in (int, float):
        _check_range(name, wanted, value)
    if wanted.type is str and value not in _CHOICES.get(name, (value,)):
        raise InvalidInput(f"expected {name} as {' or '.join(_CHOICES[name])}, got {value!r}")
    return wanted.type(value)


def _check_range(name: str, wanted: Parameter, value: float) -> None:
    limit = _MOST if wanted.type is int else _LARGEST
    if value == wanted.useless:
        raise InvalidInput(f"with {name}={value!r} the attack changes nothing; give a different value")
    if not wanted.low <= value <= min(wanted.high, limit):
        low = f"> {wanted.low:g}" if wanted.useless == wanted.low else f">= {wanted.low:g}"
        bounds = low if wanted.high == _INFINITY else f"from {wanted.low:g} to {wanted.high:g}"
        limits = bounds if not value > limit else f"{bounds} and at most {limit:g}"
        raise InvalidInput(f"expected {name} {limits}, got {value!r}")


def parse_parameter(name: str, text: str, more: Mapping[str, Parameter] | None = None) -> Any:
    """Convert the text of a parameter's value, such as `40`, `0.5`, `8/255`, `true` or `no`, to the parameter's type.

    Raises:
        UnknownName: if there is no such parameter.
        InvalidInput: if the text is not a value of the parameter's type.
    """
    kind = find_parameter(name, more).type
    if kind is str:
        return check_parameter(name, text, more)
    if kind is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if text.lower() not in words:
            raise InvalidInput(f"expected {name} as true or false, got {text!r}")
        return words[text.lower()]
    value = parse_number(text, name)
    return check_parameter(name, int(value) if kind is int and value == int(value) else value, more)


def parse_number(text: str, name: str = "a number") -> float:
    """Convert a text such as `0.03`, `1e-3` or `8/255` to a float. Raises InvalidInput for other texts."""
    numerator, slash, denominator = text.partition("/")
    try:
        value = float(numerator) / (float(denominator) if slash else 1.0)
    except (ValueError, ZeroDivisionError):
        raise InvalidInput(f"expected {name} as a number or a fraction such as 8/255, got {text!r}") from None
    if not math.isfinite(value):
        raise InvalidInput(f"expected {name} as a finite number, got {text!r}")
    return value

"""Implementations from CleverHans: functions, canonical parameters and known issues.

SLIDE's random start is not a parameter here, because CleverHans discards it if bounds are given. C&W's constants,
and the starting points and threshold of HopSkipJump, are set in `driver.py`.
"""

from collections.abc import Mapping
from typing import Any

from ...attack import Implementation

# The step size is at most epsilon.
REQUIRED: Mapping[str, Any] = {"steps": 10, "step_size": "2.5 epsilon / steps"}
_BOTH: Mapping[str, Any] = {"targeted": "yes", "random": ("torch",)}
_ITERATED = {"steps": "nb_iter", "step_size": "eps_iter"}
_STARTED = {**_ITERATED, "random_start": "rand_init"}
_SPSA = {"steps": "nb_iter", "samples": "spsa_samples", "finite_difference": "delta", "learning_rate": "learning_rate"}
_CARLINI = {
    "steps": "max_iterations",
    "binary_search_steps": "binary_search_steps",
    "initial_const": "initial_const",
    "learning_rate": "lr",
    "confidence": "confidence",
    "num_classes": "n_classes",
}
_HOPSKIPJUMP = {
    "steps": "num_iterations",
    "initial_evaluations": "initial_num_evals",
    "max_evaluations": "max_num_evals",
    "starting_points": "image_target",
}


def _row(attack: str, function: str, norms: tuple[str, ...], params: Mapping[str, str], **rest: Any) -> Implementation:
    return Implementation(attack, "cleverhans", dict.fromkeys(norms, f".functions:{function}"), params, **rest)


def _repaired(within: str) -> Mapping[str, Any]:
    return {"variant": "fixed", "within": f".patches:{within}"}


ROWS: tuple[Implementation, ...] = (
    _row("fgsm", "fast_gradient_method", ("linf",), {}, targeted="yes"),
    _row(
        "fgm",
        "fast_gradient_method",
        ("l2", "l1"),
        {},
        targeted="yes",
        findings=("floor-on-mean-gradient", "crashes-on-flat", "l1-one-pixel"),
    ),
    _row(
        "fgm",
        "fast_gradient_method",
        ("l2", "l1"),
        {},
        targeted="yes",
        findings=("l1-one-pixel",),
        **_repaired("full_length_steps"),
    ),
    _row("bim", "projected_gradient_descent", ("linf",), _ITERATED, fixed={"rand_init": False}, targeted="yes"),
    _row(
        "pgd",
        "projected_gradient_descent",
        ("linf", "l2"),
        _STARTED,
        **_BOTH,
        findings=("floor-on-mean-gradient",),
    ),
    _row("pgd", "projected_gradient_descent", ("l2",), _STARTED, **_BOTH, **_repaired("full_length_steps")),
    _row(
        "sparse-l1-descent",
        "sparse_l1_descent",
        ("l1",),
        {**_ITERATED, "quantile": "grad_sparsity"},
        targeted="yes",
        findings=("start-thrown-away", "shrinks-to-the-ball"),
    ),
    _row(
        "cw",
        "carlini_wagner_l2",
        ("l2",),
        _CARLINI,
        targeted="yes",
        alone=True,
        failure="input",
        repairs=(
            "gets one image per call, because it weights every image with the sum of the constants of the whole batch",
        ),
        findings=("rounds-continue",),
    ),
    _row("spsa", "spsa", ("linf", "l2"), _SPSA, **_BOTH, alone=True, findings=("twice-the-image",)),
    _row("spsa", "spsa", ("linf", "l2"), _SPSA, **_BOTH, alone=True, **_repaired("spsa_around_current_image")),
    _row(
        "hopskipjump",
        "hop_skip_jump_attack",
        ("l2", "linf"),
        _HOPSKIPJUMP,
        **_BOTH,
        alone=True,
        failure="input",
        repairs=(
            "gets a starting point for each image, because by default it searches for one with noise only",
            "gets its threshold as a tensor, because in linf it crashes for a number",
            "gets a threshold that float32 can resolve; with the default, its binary search never ends on large images",
        ),
    ),
    _row("uniform-noise", "noise", ("linf",), {}, random=("torch",)),
    _row(
        "inversion",
        "semantic",
        ("unrestricted",),
        {},
        within=".patches:semantic_attack_self_argument",
        repairs=("gets the variable `self`, which the function uses but does not define",),
    ),
)

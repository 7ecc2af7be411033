"""Implementations from Foolbox: classes, canonical parameters and known issues."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from ...attack import Implementation

_START = {"random_start": "random_start"}
_ITERATED = {"steps": "steps", "step_size": "abs_stepsize", **_START}
_MOMENTUM = {**_ITERATED, "decay": "momentum"}
_SPARSE = {**_ITERATED, "quantile": "quantile"}
_TRADE_OFF = {name: name for name in ("steps", "binary_search_steps", "initial_const", "confidence")}
_CARLINI = {**_TRADE_OFF, "learning_rate": "stepsize"}
_ELASTIC = {**_TRADE_OFF, "learning_rate": "initial_stepsize", "regularization": "regularization"}
_FMN = {"steps": "steps", "gamma": "gamma", "learning_rate": "max_stepsize"}
_BETHGE = {"steps": "steps", "learning_rate": "lr", "decay": "momentum", "starting_points": "starting_points"}
_BOUNDARY = {
    "steps": "steps",
    "orthogonal_step": "spherical_step",
    "source_step": "source_step",
    "starting_points": "starting_points",
}
_HOPSKIPJUMP = {
    "steps": "steps",
    "initial_evaluations": "initial_gradient_eval_steps",
    "max_evaluations": "max_gradient_eval_steps",
    "starting_points": "starting_points",
}
_SPATIAL = {
    "max_translation": "max_translation",
    "translations": "num_translations",
    "max_rotation": "max_rotation",
    "rotations": "num_rotations",
}

_ABORTS = "gets one image per call, because it stops when the summed loss of the batch stalls"
_WAITS = "gets one image per call, because it runs until every image of the batch is done"
_GIVEN = "gets a starting point, because its own random search may fail with an error"
_SEEDED: dict[str, Any] = {"targeted": "yes", "random": ("torch",)}


def _row(attack: str, classes: Mapping[str, str], params: Mapping[str, str], **more: Any) -> Implementation:
    """Build an implementation from classes of `foolbox.attacks`. With a leading dot, a class is in `patches`."""
    paths = {
        norm: f".patches:{name[1:]}" if name.startswith(".") else f"foolbox.attacks:{name}"
        for norm, name in classes.items()
    }
    return Implementation(attack, "foolbox", paths, params, **more)


def _in_every_norm(name: str) -> dict[str, str]:
    """Return the same class for every norm, for an attack that searches along a line.

    The nearest adversarial image on a line is the same in every norm.
    """
    return dict.fromkeys(("l2", "linf", "l1"), name)


def _in_three(kind: str) -> dict[str, str]:
    return {norm: f"{norm.capitalize()}{kind}" for norm in ("linf", "l2", "l1")}


# Classes that accept a tensor of radii, one per image.
_with_radii = partial(_row, per_image_radii=True)

_GRADIENT = (
    _with_radii("fgsm", {"linf": "LinfFastGradientAttack"}, _START, random=("torch",)),
    _with_radii("fgm", {"l2": "L2FastGradientAttack", "l1": "L1FastGradientAttack"}, _START, random=("torch",)),
    _with_radii("bim", _in_three("BasicIterativeAttack"), _ITERATED, **_SEEDED),
    _with_radii(
        "least-likely",
        {"linf": "LinfBasicIterativeAttack"},
        _ITERATED,
        targeted="only",
        aims_at="least-likely",
        random=("torch",),
    ),
    _with_radii("pgd", _in_three("ProjectedGradientDescentAttack"), _ITERATED, **_SEEDED),
    _with_radii(
        "adam-pgd",
        _in_three("AdamProjectedGradientDescentAttack"),
        _ITERATED,
        findings=("step-per-component",),
        **_SEEDED,
    ),
    _with_radii("adam-bim", _in_three("AdamBasicIterativeAttack"), _ITERATED, **_SEEDED, findings=("adam-unused",)),
    _with_radii(
        "adam-bim", {"l2": ".L2AdamIterative", "l1": ".L1AdamIterative"}, _ITERATED, variant="fixed", **_SEEDED
    ),
    _row("sparse-l1-descent", {"l1": "SparseL1DescentAttack"}, _SPARSE, **_SEEDED, findings=("targeted-mask",)),
    _row("sparse-l1-descent", {"l1": ".SparseL1Descent"}, _SPARSE, variant="fixed", **_SEEDED),
    _with_radii(
        "mi-fgsm",
        _in_three("MomentumIterativeFastGradientMethod"),
        _MOMENTUM,
        **_SEEDED,
        findings=("sign-accumulated",),
    ),
    _with_radii("mi-fgsm", {"linf": ".LinfMomentumIterative"}, _MOMENTUM, variant="fixed", **_SEEDED),
    _row(
        "virtual-adversarial",
        {"l2": "VirtualAdversarialAttack"},
        {"steps": "steps", "finite_difference": "xi"},
        random=("torch",),
        repairs=("runs 10 steps by default, because the class has no default",),
        findings=("small-difference",),
    ),
)

_MINIMUM = (
    _row(
        "deepfool",
        {"l2": "L2DeepFoolAttack", "linf": "LinfDeepFoolAttack"},
        {"steps": "steps", "overshoot": "overshoot", "candidates": "candidates"},
    ),
    _row(
        "cw",
        {"l2": "L2CarliniWagnerAttack"},
        _CARLINI,
        targeted="yes",
        alone=True,
        repairs=(_ABORTS,),
        findings=("black-on-failure",),
    ),
    _row(
        "cw",
        {"l2": ".CarliniWagner"},
        _CARLINI,
        variant="fixed",
        targeted="yes",
        alone=True,
        failure="input",
        repairs=(_ABORTS,),
    ),
    *(
        row
        for rule in ("EN", "L1")
        for row in (
            _row(
                f"ead-{rule.lower()}",
                {"l1": "EADAttack"},
                _ELASTIC,
                fixed={"decision_rule": rule},
                targeted="yes",
                alone=True,
                repairs=(_ABORTS,),
                findings=("black-on-failure",),
            ),
            _row(
                f"ead-{rule.lower()}",
                {"l1": ".ElasticNet"},
                _ELASTIC,
                fixed={"decision_rule": rule},
                variant="fixed",
                targeted="yes",
                alone=True,
                failure="input",
                repairs=(_ABORTS,),
            ),
        )
    ),
    _row(
        "newtonfool",
        {"l2": "NewtonFoolAttack"},
        {"steps": "steps", "learning_rate": "stepsize"},
        findings=("nan-power",),
    ),
    _row(
        "ddn",
        {"l2": "DDNAttack"},
        {"steps": "steps", "gamma": "gamma", "initial_epsilon": "init_epsilon"},
        **_SEEDED,
        failure="input",
    ),
    _row(
        "fmn",
        {"linf": "LInfFMNAttack", "l2": "L2FMNAttack", "l1": "L1FMNAttack", "l0": ".L0FMNInRange"},
        _FMN,
        targeted="yes",
        failure="input",
        repairs=("l0: its radius is kept below the number of components, because it crashes otherwise",),
        findings=("projection-void", "one-too-many", "short-of-the-boundary"),
    ),
    _row(
        "fmn",
        {"l2": ".L2FMN", "l1": ".L1FMN", "l0": ".L0FMN"},
        _FMN,
        variant="fixed",
        targeted="yes",
        failure="input",
    ),
    _row(
        "brendel-bethge",
        {
            "linf": "LinfinityBrendelBethgeAttack",
            "l2": "L2BrendelBethgeAttack",
            "l1": "L1BrendelBethgeAttack",
            "l0": "L0BrendelBethgeAttack",
        },
        _BETHGE,
        targeted="yes",
        alone=True,
        repairs=("gets one image per call, because its trust region grows with the batch", _GIVEN),
        findings=("on-the-boundary",),
    ),
)

_BLACK_BOX = (
    _row(
        "genattack",
        {"linf": "GenAttack"},
        {"steps": "steps", "population": "population"},
        targeted="only",
        random=("numpy", "torch"),
        alone=True,
        repairs=(_WAITS,),
        findings=("fitness-logit",),
    ),
    _row(
        "boundary",
        {"l2": "BoundaryAttack"},
        _BOUNDARY,
        **_SEEDED,
        alone=True,
        repairs=("gets one image per call, because the images of a batch share their random directions", _GIVEN),
    ),
    _row(
        "hopskipjump",
        {"l2": "HopSkipJumpAttack", "linf": "HopSkipJumpAttack"},
        _HOPSKIPJUMP,
        **_SEEDED,
        alone=True,
        repairs=("gets one image per call, because it normalises the gradient over the batch", _GIVEN),
    ),
    _row(
        "pointwise",
        {"l0": ".Pointwise", "l2": ".Pointwise"},
        {},
        targeted="yes",
        random=("numpy", "torch"),
        alone=True,
        failure="input",
        repairs=(
            _WAITS,
            "returns the clean image if its salt-and-pepper start fails, instead of raising an AssertionError",
        ),
    ),
    _row("spatial", {"unrestricted": "SpatialAttack"}, _SPATIAL, targeted="yes", failure="input"),
)

_NOISE = (
    _row("salt-and-pepper", {"l2": "SaltAndPepperNoiseAttack"}, {"steps": "steps"}, **_SEEDED, failure="input"),
    _row("gaussian-noise", {"l2": "L2AdditiveGaussianNoiseAttack"}, {}, random=("torch",)),
    _row(
        "uniform-noise",
        {"linf": "LinfAdditiveUniformNoiseAttack", "l2": "L2AdditiveUniformNoiseAttack"},
        {},
        random=("torch",),
        findings=("signed-maximum",),
    ),
    _row(
        "repeated-gaussian-noise",
        {"l2": "L2RepeatedAdditiveGaussianNoiseAttack"},
        {"noise_samples": "repeats"},
        **_SEEDED,
        failure="input",
    ),
    _row(
        "repeated-uniform-noise",
        {"linf": "LinfRepeatedAdditiveUniformNoiseAttack", "l2": "L2RepeatedAdditiveUniformNoiseAttack"},
        {"noise_samples": "repeats"},
        **_SEEDED,
        failure="input",
        findings=("signed-maximum",),
    ),
    *(
        _row(
            f"{often}full-{kind.lower()}-noise",
            {"l2": f"L2ClippingAware{often.capitalize().rstrip('-')}Additive{kind}NoiseAttack"},
            {"noise_samples": "repeats"} if often else {},
            **(_SEEDED | {"failure": "input"} if often else {"random": ("torch",)}),
        )
        for often in ("", "repeated-")
        for kind in ("Gaussian", "Uniform")
    ),
    _row(
        "blended-noise",
        _in_every_norm("LinearSearchBlendedUniformNoiseAttack"),
        {"directions": "directions", "steps": "steps"},
        **_SEEDED,
    ),
    _row(
        "blur",
        {"unrestricted": "GaussianBlurAttack"},
        {"steps": "steps", "max_sigma": "max_sigma"},
        targeted="yes",
        failure="input",
    ),
    _row(
        "contrast",
        _in_every_norm("BinarySearchContrastReductionAttack"),
        {"steps": "binary_search_steps", "target_value": "target"},
        targeted="yes",
    ),
    _row(
        "linear-contrast",
        _in_every_norm("LinearSearchContrastReductionAttack"),
        {"steps": "steps", "target_value": "target"},
        targeted="yes",
    ),
    _row("fixed-contrast", {"l2": "L2ContrastReductionAttack"}, {"target_value": "target"}),
    _row("inversion", {"unrestricted": "InversionAttack"}, {}),
)

ROWS: tuple[Implementation, ...] = (*_GRADIENT, *_MINIMUM, *_BLACK_BOX, *_NOISE)

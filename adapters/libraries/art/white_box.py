"""ART's gradient attacks. This module does not import ART."""

from ...attack import Implementation

EVASION = "art.attacks.evasion:"
_BRENDEL_BETHGE = "art.attacks.evasion.brendel_bethge:BrendelBethgeAttack"
REPAIRED = ".patches:"

_ITERATED = {"steps": "max_iter", "step_size": "eps_step"}
_APGD = {**_ITERATED, "restarts": "nb_random_init"}
CARLINI = {
    "steps": "max_iter",
    "binary_search_steps": "binary_search_steps",
    "initial_const": "initial_const",
    "learning_rate": "learning_rate",
    "confidence": "confidence",
}
_ELASTIC = {**CARLINI, "regularization": "beta"}
_DEEPFOOL = {"steps": "max_iter", "overshoot": "epsilon", "candidates": "nb_grads"}

GIVEN_START = "gets a starting point, because its own random start cannot be seeded"
CAST = "the model's input is converted to the model's dtype"
PROBABILITIES = "gets probabilities instead of logits"
SERIAL = "gets one image at a time"


def classes(name: str, *norms: str, within: str = EVASION) -> dict[str, str]:
    """Return the same class for several norms, as a mapping for `Implementation.classes`."""
    return dict.fromkeys(norms, within + name)


GRADIENT: tuple[Implementation, ...] = (
    Implementation(
        "fgsm",
        "art",
        classes("FastGradientMethod", "linf"),
        {"random_start": "num_random_init"},
        targeted="yes",
        random=("numpy",),
        per_image_radii=True,
    ),
    Implementation(
        "fgm",
        "art",
        classes("FastGradientMethod", "l2", "l1"),
        {"random_start": "num_random_init"},
        targeted="yes",
        random=("numpy",),
        findings=("l1-one-pixel",),
        per_image_radii=True,
    ),
    Implementation(
        "bim", "art", classes("BasicIterativeMethod", "linf"), _ITERATED, targeted="yes", per_image_radii=True
    ),
    Implementation(
        "least-likely",
        "art",
        classes("BasicIterativeMethod", "linf"),
        _ITERATED,
        targeted="only",
        aims_at="least-likely",
        per_image_radii=True,
    ),
    Implementation(
        "pgd",
        "art",
        classes("ProjectedGradientDescent", "linf", "l2", "l1"),
        {**_ITERATED, "random_start": "num_random_init"},
        targeted="yes",
        random=("numpy",),
        findings=("l1-one-pixel", "clip-before-project"),
        per_image_radii=True,
    ),
    Implementation(
        "mi-fgsm",
        "art",
        classes("MomentumIterativeMethod", "linf", "l2", "l1"),
        {**_ITERATED, "decay": "decay"},
        targeted="yes",
        findings=("l1-one-pixel", "clip-before-project"),
        per_image_radii=True,
    ),
    Implementation(
        "apgd-ce",
        "art",
        classes("AutoProjectedGradientDescent", "linf", "l2", "l1"),
        _APGD,
        fixed={"loss_type": "cross_entropy"},
        targeted="yes",
        random=("numpy",),
        order="content",
        findings=("epsilon-on-mean-gradient", "final-iterate"),
    ),
    Implementation(
        "apgd-dlr",
        "art",
        classes("AutoProjectedGradientDescent", "linf", "l2", "l1"),
        _APGD,
        fixed={"loss_type": "difference_logits_ratio"},
        targeted="yes",
        random=("numpy",),
        order="content",
        min_classes=3,
        findings=("epsilon-on-mean-gradient", "final-iterate", "untargeted-ratio"),
    ),
    *(
        Implementation(
            attack,
            "art",
            classes(name, "linf", "l2", "l1"),
            _APGD,
            fixed={"loss_type": "cross_entropy"},
            targeted="yes",
            random=("numpy",),
            order="content",
            findings=("sign-unused", "stops-at-zero-loss", "epsilon-on-mean-gradient", "final-iterate"),
        )
        for attack, name in (("acg", "AutoConjugateGradient"), ("reacg", "RescalingAutoConjugateGradient"))
    ),
    *(
        Implementation(
            attack,
            "art",
            classes(name, "linf", within=REPAIRED),
            _APGD,
            fixed={"loss_type": "cross_entropy"},
            variant="fixed",
            targeted="yes",
            random=("numpy",),
            order="content",
            findings=("final-iterate",),
        )
        for attack, name in (("acg", "AutoConjugateGradient"), ("reacg", "RescalingAutoConjugateGradient"))
    ),
    Implementation(
        "autoattack",
        "art",
        classes("AutoAttack", "linf", "l2", "l1"),
        _ITERATED,
        random=("python", "numpy"),
        alone=True,
        min_classes=3,
        failure="input",
        within=REPAIRED + "multiprocess_alias",
        repairs=(
            "multiprocess, which it imports needlessly, is replaced by Python's own module if it is missing",
            SERIAL,
        ),
        findings=(
            "epsilon-on-mean-gradient",
            "wrong-class-lookup",
            "l2-divides",
            "final-iterate",
            "deepfool-for-fab",
            "no-square-in-l1",
        ),
    ),
    Implementation(
        "uap",
        "art",
        classes("UniversalPerturbation", "linf", "l2"),
        {"steps": "max_iter"},
        random=("python",),
        order="content",
        universal=True,
        fit=".driver:fit_universal",
        failure="input",
        findings=("wrong-class-lookup",),
    ),
    Implementation(
        "uap",
        "art",
        classes("UniversalPerturbation", "linf", "l2", within=REPAIRED),
        {"steps": "max_iter"},
        variant="fixed",
        random=("python",),
        order="content",
        universal=True,
        fit=".driver:fit_universal",
        failure="input",
    ),
    Implementation(
        "targeted-uap",
        "art",
        classes("TargetedUniversalPerturbation", "linf", "l2"),
        {"steps": "max_iter", "step_size": "eps_step"},
        targeted="only",
        random=("python",),
        order="content",
        universal=True,
        fit=".driver:fit_universal",
        failure="input",
        repairs=("its inner FGSM is set to targeted, with the norm, because by default it moves away from the target",),
        findings=("step-alone",),
    ),
    Implementation(
        "virtual-adversarial",
        "art",
        classes("VirtualAdversarialMethod", "l2"),
        {"steps": "max_iter", "finite_difference": "finite_diff"},
        random=("numpy",),
        alone=True,
        probabilities=True,
        repairs=(PROBABILITIES,),
        findings=("small-difference",),
    ),
)

MINIMUM_NORM: tuple[Implementation, ...] = (
    Implementation(
        "deepfool",
        "art",
        classes("DeepFool", "l2"),
        _DEEPFOOL,
        alone=True,
        findings=("wrong-class-lookup", "overshoot-at-the-end"),
    ),
    Implementation(
        "deepfool",
        "art",
        classes("DeepFool", "l2", within=REPAIRED),
        _DEEPFOOL,
        variant="fixed",
        alone=True,
        findings=("overshoot-at-the-end",),
    ),
    Implementation(
        "cw",
        "art",
        {
            "l2": EVASION + "CarliniL2Method",
            "linf": EVASION + "CarliniLInfMethod",
            "l0": EVASION + "CarliniL0Method",
        },
        CARLINI,
        targeted="yes",
        alone=True,
        failure="input",
        findings=("doubling-constant", "four-rounds", "any-class-is-target", "confidence-in-the-loss"),
    ),
    Implementation(
        "cw",
        "art",
        classes("CarliniLInfMethod", "linf", within=REPAIRED),
        CARLINI,
        variant="fixed",
        targeted="yes",
        alone=True,
        failure="input",
    ),
    Implementation(
        "ead-en",
        "art",
        classes("ElasticNet", "l1"),
        _ELASTIC,
        fixed={"decision_rule": "EN"},
        targeted="yes",
        alone=True,
        failure="input",
        findings=("confidence-ignored",),
    ),
    Implementation(
        "ead-l1",
        "art",
        classes("ElasticNet", "l1"),
        _ELASTIC,
        fixed={"decision_rule": "L1"},
        targeted="yes",
        alone=True,
        failure="input",
        findings=("confidence-ignored",),
    ),
    Implementation(
        "newtonfool",
        "art",
        classes("NewtonFool", "l2"),
        {"steps": "max_iter", "learning_rate": "eta"},
        alone=True,
        probabilities=True,
        repairs=(PROBABILITIES,),
    ),
    Implementation(
        "brendel-bethge",
        "art",
        dict.fromkeys(("linf", "l2", "l1", "l0"), _BRENDEL_BETHGE),
        {"steps": "steps", "learning_rate": "lr", "starting_points": "starting_points"},
        targeted="yes",
        alone=True,
        within=REPAIRED + "no_progress_bar",
        repairs=(GIVEN_START, CAST, SERIAL + ", because it masks every label of the batch in every image"),
        findings=("on-the-boundary",),
    ),
    Implementation(
        "shadow",
        "art",
        classes("ShadowAttack", "unrestricted"),
        {"steps": "nb_steps", "learning_rate": "learning_rate", "samples": "batch_size", "std": "sigma"},
        targeted="only",
        random=("numpy",),
        alone=True,
        repairs=(SERIAL + ", as the library requires",),
    ),
    Implementation(
        "jsma",
        "art",
        classes("SaliencyMapMethod", "l0"),
        {"theta": "theta"},
        targeted="only",
        alone=True,
        findings=("largest-gradients",),
    ),
    Implementation(
        "wasserstein",
        "art",
        classes("Wasserstein", "unrestricted"),
        {"steps": "max_iter", "initial_epsilon": "eps"},
        targeted="yes",
        alone=True,
        failure="input",
        findings=("not-fixed-budget", "batch-mean", "gradient-overflow"),
    ),
)

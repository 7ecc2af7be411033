"""Implementations from torchattacks: classes, canonical parameters and known issues."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from ...attack import Implementation

_REPAIRS = ".patches:"


def _row(
    attack: str, classes: Mapping[str, str], params: Mapping[str, str] | None = None, **rest: Any
) -> Implementation:
    """Build an implementation from classes of the library. A name without a module is in torchattacks itself."""
    paths = {norm: path if ":" in path else f"torchattacks:{path}" for norm, path in classes.items()}
    return Implementation(attack, "torchattacks", paths, params or {}, **rest)


_TARGETED: Mapping[str, Any] = {"targeted": "yes"}
_DRAWN: Mapping[str, Any] = {"random": ("torch",)}
_BOTH = {**_TARGETED, **_DRAWN}
_NAN = ("nan-momentum",)

_ITERATED = {"steps": "steps", "step_size": "alpha"}
_STARTED = {**_ITERATED, "random_start": "random_start"}
_MOMENTUM = {**_ITERATED, "decay": "decay"}
_VARIANCE = {**_MOMENTUM, "samples": "N", "neighbourhood": "beta"}
_DIVERSE = {
    **_MOMENTUM,
    "diversity_probability": "diversity_prob",
    "resize_rate": "resize_rate",
    "random_start": "random_start",
}
_AUTO = {"steps": "steps", "seed": "seed"}
_ELASTIC = {
    "steps": "max_iterations",
    "binary_search_steps": "binary_search_steps",
    "initial_const": "initial_const",
    "learning_rate": "lr",
    "regularization": "beta",
    "confidence": "kappa",
}
_CARLINI = {"steps": "steps", "initial_const": "c", "learning_rate": "lr", "confidence": "kappa"}
_ONE_STEP = {"steps": 1, "random_start": False, "alpha": "epsilon"}

_GENERATOR = "torch's random generator is restored after each call, because the library resets the global seed"
_EAD_REPAIRS = (
    "gets one image per call, because it stops when the loss of the whole batch stops falling",
    "runs without early stopping below 10 steps, because early stopping divides by steps // 10",
)
_L2_STEPS = "gets one image at a time for APGDT in l2, because it uses the step size of the first image for all"

# Classes that accept a tensor of radii, one per image.
_with_radii = partial(_row, per_image_radii=True)

_GRADIENT = (
    _with_radii("fgsm", {"linf": "FGSM"}, **_TARGETED),
    _with_radii("fgm", {"l2": "PGDL2"}, fixed=_ONE_STEP, **_TARGETED, findings=("epsilon-on-mean-gradient",)),
    _with_radii("fgm", {"l2": "PGDL2"}, fixed={**_ONE_STEP, "eps_for_division": 1e-20}, variant="fixed", **_TARGETED),
    _with_radii("r-fgsm", {"linf": "RFGSM"}, _ITERATED, **_BOTH),
    _row("f-fgsm", {"linf": "FFGSM"}, {"step_size": "alpha"}, **_BOTH),
    _with_radii("bim", {"linf": "BIM"}, _ITERATED, **_TARGETED),
    _with_radii("least-likely", {"linf": "BIM"}, _ITERATED, targeted="only", aims_at="least-likely"),
    _with_radii(
        "pgd",
        {"linf": "PGD", "l2": "PGDL2"},
        _STARTED,
        **_BOTH,
        findings=("epsilon-on-mean-gradient", "radius-uniform"),
    ),
    _with_radii(
        "pgd",
        {"l2": "PGDL2"},
        _STARTED,
        fixed={"eps_for_division": 1e-20},
        variant="fixed",
        **_BOTH,
        findings=("radius-uniform",),
    ),
    _with_radii("eot-pgd", {"linf": "EOTPGD"}, {**_STARTED, "samples": "eot_iter"}, **_BOTH),
    _with_radii("trades-pgd", {"linf": "TPGD"}, _ITERATED, **_DRAWN),
    _with_radii("jitter", {"linf": "Jitter"}, _STARTED, **_BOTH),
    _with_radii(
        "upgd", {"linf": "UPGD"}, {**_STARTED, "decay": "decay", "samples": "eot_iter"}, **_BOTH, findings=_NAN
    ),
    _row(
        "smoothed-pgd",
        {"linf": "PGDRS", "l2": "PGDRSL2"},
        {**_ITERATED, "samples": "noise_batch_size", "std": "noise_sd"},
        **_BOTH,
        alone=True,
        findings=("epsilon-on-mean-gradient", "clamped-in-graph"),
    ),
)

_TRANSFER = (
    _with_radii("mi-fgsm", {"linf": "MIFGSM"}, _MOMENTUM, **_TARGETED, findings=_NAN),
    _with_radii("ni-fgsm", {"linf": "NIFGSM"}, _MOMENTUM, **_TARGETED, findings=_NAN),
    _with_radii("si-ni-fgsm", {"linf": "SINIFGSM"}, {**_MOMENTUM, "scales": "m"}, **_TARGETED, findings=_NAN),
    _row("vmi-fgsm", {"linf": "VMIFGSM"}, _VARIANCE, **_BOTH, findings=_NAN),
    _row("vni-fgsm", {"linf": "VNIFGSM"}, _VARIANCE, **_BOTH, findings=_NAN),
    _with_radii("di-fgsm", {"linf": "DIFGSM"}, _DIVERSE, **_BOTH, findings=("decay-off", "nan-momentum")),
    _with_radii(
        "ti-fgsm",
        {"linf": "TIFGSM"},
        {**_DIVERSE, "kernel_size": "len_kernel"},
        **_BOTH,
        findings=("decay-off", "includes-di", "nan-momentum"),
    ),
    _row("pi-fgsm", {"linf": "PIFGSM"}, {"steps": "num_iter_set"}, findings=("decay-ignored",)),
    _row(
        "pi-fgsm++",
        {"linf": "PIFGSMPP"},
        {"steps": "num_iter_set"},
        **_TARGETED,
        findings=("targets-ignored", "decay-ignored"),
    ),
)

_ENSEMBLE = (
    *(
        _row(
            f"apgd-{loss}",
            dict.fromkeys(("linf", "l2"), "APGD"),
            _AUTO,
            fixed={"loss": loss},
            **_DRAWN,
            min_classes=classes,
            failure="input",
            repairs=(_GENERATOR,),
        )
        for loss, classes in (("ce", 2), ("dlr", 3))
    ),
    _row(
        "apgd-t",
        dict.fromkeys(("linf", "l2"), "APGDT"),
        {**_AUTO, "candidates": "n_classes"},
        **_DRAWN,
        order="content",
        min_classes=4,
        failure="input",
        within=_REPAIRS + "per_image_l2_steps",
        repairs=(_GENERATOR, _L2_STEPS),
        findings=("first-step-size",),
    ),
    _row(
        "autoattack",
        dict.fromkeys(("linf", "l2"), "AutoAttack"),
        {**_AUTO, "candidates": "n_classes"},
        **_DRAWN,
        order="content",
        min_classes=4,
        failure="input",
        within=_REPAIRS + "per_image_l2_steps",
        repairs=("gets a seed, because by default it uses the clock", _GENERATOR, _L2_STEPS),
        findings=("short-steps", "first-step-size"),
    ),
    _row(
        "autoattack",
        dict.fromkeys(("linf", "l2"), "AutoAttack"),
        {"candidates": "n_classes", "seed": "seed"},
        fixed={"steps": 100},
        variant="fixed",
        **_DRAWN,
        order="content",
        min_classes=4,
        failure="input",
        within=_REPAIRS + "per_image_l2_steps",
        repairs=("gets a seed, because by default it uses the clock", _GENERATOR, _L2_STEPS),
        findings=("first-step-size",),
    ),
)

_MINIMUM = (
    _row(
        "fab",
        {"linf": "FAB", "l2": "FAB", "l1": _REPAIRS + "FABL1"},
        {"steps": "steps", "seed": "seed"},  # it draws nothing, but still seeds torch
        **_TARGETED,
        failure="input",
        repairs=(_GENERATOR, "l1: the inner attack is called directly, because the loop around it crashes"),
        findings=("l1-crashes", "target-compared", "distance-discarded", "targeted-any-class", "every-class"),
    ),
    _row(
        "deepfool",
        {"l2": "DeepFool"},
        {"steps": "steps", "overshoot": "overshoot"},
        alone=True,
        findings=("on-the-boundary", "every-class"),
    ),
    _row(
        "deepfool",
        {"l2": _REPAIRS + "DeepFool"},
        {"steps": "steps", "overshoot": "overshoot", "candidates": "candidates"},
        variant="fixed",
        alone=True,
    ),
    _row(
        "cw",
        {"l2": "CW"},
        _CARLINI,
        **_TARGETED,
        alone=True,
        failure="input",
        repairs=("gets one image per call, because it stops when the loss of the whole batch rises",),
        findings=("margin-against-zero", "saturated-pixels", "confidence-ignored"),
    ),
    _row(
        "cw",
        {"l2": _REPAIRS + "CW"},
        _CARLINI,
        variant="fixed",
        **_TARGETED,
        alone=True,
        failure="input",
        repairs=("gets one image per call, because it stops when the loss of the whole batch rises",),
        findings=("saturated-pixels",),
    ),
    *(
        _row(
            f"ead-{rule.lower()}",
            {"l1": path + f"EAD{rule}"},
            _ELASTIC,
            variant=variant,
            **_TARGETED,
            alone=True,
            failure="input",
            repairs=_EAD_REPAIRS,
            findings=findings,
        )
        for rule in ("EN", "L1")
        for path, variant, findings in (
            ("", "", ("margin-against-zero", "reference-overwritten", "rounds-continue")),
            (_REPAIRS, "fixed", ("rounds-continue",)),
        )
    ),
)

_SPARSE = (
    _row(
        "jsma",
        {"l0": "JSMA"},
        {"theta": "theta"},
        **_TARGETED,
        alone=True,
        findings=("target-modulo-10", "pairwise-memory"),
    ),
    _row(
        "jsma",
        {"l0": "JSMA"},
        {"theta": "theta"},
        variant="fixed",
        targeted="only",
        alone=True,
        findings=("pairwise-memory",),
    ),
    _row(
        "sparsefool",
        {"l0": "SparseFool"},
        {"steps": "steps", "overshoot": "overshoot"},
        alone=True,
        findings=("every-class",),
    ),
    _row(
        "one-pixel",
        {"l0": "OnePixel"},
        {"steps": "steps", "population": "popsize"},
        **_TARGETED,
        random=("numpy",),
        alone=True,
    ),
    *(
        _row(
            "pixle",
            {"l0": path + "Pixle"},
            {"steps": "restarts", "trials": "max_iterations"},
            variant=variant,
            **_TARGETED,
            random=("numpy",),
            alone=True,
            within=_REPAIRS + "deterministic_pixel_writes",
            repairs=("if several pixels move to one position, the same pixel is kept on every device",),
            findings=findings,
        )
        for path, variant, findings in (("", "", ("swapped-axes",)), (_REPAIRS, "fixed", ()))
    ),
)

_SCORES = (
    _row(
        "square",
        dict.fromkeys(("linf", "l2"), "Square"),
        {"steps": "n_queries", "initial_probability": "p_init", "seed": "seed"},
        **_BOTH,
        order="content",
        failure="input",
        repairs=(_GENERATOR,),
        findings=("last-row-and-column",),
    ),
    _row(
        "spsa",
        {"linf": "SPSA"},
        {"steps": "nb_iter", "samples": "nb_sample", "finite_difference": "delta", "learning_rate": "lr"},
        **_BOTH,
        findings=("targets-ignored", "one-short-step"),
    ),
    _row("gaussian-noise", {"unrestricted": "GN"}, {"std": "std"}, **_DRAWN),
)

ROWS: tuple[Implementation, ...] = (*_GRADIENT, *_TRANSFER, *_ENSEMBLE, *_MINIMUM, *_SPARSE, *_SCORES)

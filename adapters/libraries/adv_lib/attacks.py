"""Implementations from adversarial-library: functions, canonical parameters and known issues.

The library's attacks on segmentation (ASMA, ALMA prox, DAG and the segmentation PDGD) do not apply to classifiers
and are omitted. ALMA with LPIPS is omitted because it downloads AlexNet.
"""

from collections.abc import Mapping
from typing import Any

from ...attack import Implementation

_BALLS = ("linf", "l2", "l1")
_DRAWN: Mapping[str, Any] = {"random": ("torch",)}
_TARGETED: Mapping[str, Any] = {"targeted": "yes"}
_ALMA = {"steps": "num_steps", "learning_rate": "lr_init", "confidence": "logit_tolerance"}
_DUAL = {"steps": "num_steps", "learning_rate": "primal_lr"}
_CARLINI = {
    "steps": "max_iterations",
    "binary_search_steps": "binary_search_steps",
    "initial_const": "initial_const",
    "learning_rate": "learning_rate",
    "confidence": "confidence",
}
_FMN = {"steps": "steps", "learning_rate": "α_init", "gamma": "γ_init"}
_DDN = {"steps": "steps", "gamma": "γ", "initial_epsilon": "init_norm"}
_PGD = {"steps": "steps", "step_size": "absolute_step_size", "random_start": "random_init"}
_FOLDED = {"steps": "max_iter", "trials": "n_samples"}
_TRUST = {"steps": "iter", "step_size": "eps"}

_ONE_BY_ONE = "gets one image per call, because it stops when the loss of the whole batch stops falling"
_FEW_STEPS = "runs without early stopping below 10 steps, because early stopping divides by steps // 10"
_SURE_RETRAIN = "starts its last stage from the clean image if no example was found, instead of crashing"


def _row(attack: str, functions: Mapping[str, str], params: Mapping[str, str], **more: Any) -> Implementation:
    """Build an implementation from functions of the library. A name with a leading dot is in the module `patches`."""
    paths = {
        norm: f".patches:{name[1:]}" if name.startswith(".") else f".functions:{name}"
        for norm, name in functions.items()
    }
    return Implementation(attack, "adv-lib", paths, params, **{"failure": "input", **more})


_FIXED_BUDGET = (
    _row(
        "pgd", {"linf": "pgd_linf"}, _PGD, **_DRAWN, **_TARGETED, per_image_radii=True, findings=("last-step-unseen",)
    ),
    _row("pgd", {"linf": ".pgd_linf"}, _PGD, variant="fixed", **_DRAWN, **_TARGETED, per_image_radii=True),
    *(
        _row(
            f"apgd-{loss}",
            dict.fromkeys(_BALLS, "apgd"),
            {"steps": "n_iter"},
            fixed={"loss_function": loss},
            **_DRAWN,
            **_TARGETED,
            min_classes=classes,
            per_image_radii=True,
            findings=findings,
        )
        for loss, classes, findings in (
            ("ce", 2, ("halved-anyway",)),
            ("dlr", 3, ("halved-anyway", "target-against-best")),
        )
    ),
    _row(
        "apgd-t",
        dict.fromkeys(_BALLS, "apgd_targeted"),
        {"steps": "n_iter", "candidates": "candidates"},
        **_DRAWN,
        order="content",
        min_classes=4,
        per_image_radii=True,
        findings=("halved-anyway", "target-against-best"),
    ),
)

_MINIMUM_NORM = (
    _row(
        "minimal-apgd",
        dict.fromkeys(_BALLS, "minimal_apgd"),
        {"steps": "n_iter", "binary_search_steps": "binary_search_steps"},
        **_DRAWN,
        min_classes=3,
        findings=("halved-anyway",),
    ),
    _row("fab", dict.fromkeys(_BALLS, "fab"), {"steps": "n_iter"}, findings=("every-class",)),
    _row(
        "fab-t",
        dict.fromkeys(_BALLS, "fab"),
        {"steps": "n_iter", "candidates": "candidates"},
        fixed={"targeted_restarts": True},
    ),
    _row(
        "deepfool",
        {"l2": "df", "linf": "df"},
        {"steps": "steps", "overshoot": "overshoot"},
        order="content",
        findings=("every-class",),
    ),
    _row(
        "superdeepfool",
        {"l2": "sdf"},
        {"steps": "steps", "overshoot": "overshoot"},
        order="content",
        findings=("every-class",),
    ),
    _row(
        "cw",
        {"l2": "carlini_wagner_l2", "linf": "carlini_wagner_linf"},
        _CARLINI,
        **_TARGETED,
        alone=True,
        repairs=(_ONE_BY_ONE, _FEW_STEPS),
    ),
    _row("ddn", {"l2": "ddn"}, _DDN, **_DRAWN, **_TARGETED, findings=("rounds-to-8-bit",)),
    _row("ddn", {"l2": "ddn"}, _DDN, fixed={"levels": None}, variant="fixed", **_DRAWN, **_TARGETED),
    _row(
        "fmn",
        dict.fromkeys(("linf", "l2", "l1", "l0"), "fmn"),
        _FMN,
        **_TARGETED,
        begins_at="starting_points",
        findings=("projection-stretches", "short-of-the-boundary", "last-component"),
    ),
    _row(
        "fmn",
        dict.fromkeys(("linf", "l2", "l1", "l0"), "fmn"),
        _FMN,
        variant="fixed",
        within=".patches:crossing_projections",
        **_TARGETED,
        begins_at="starting_points",
    ),
    _row(
        "alma",
        {"l2": "alma", "l1": "alma"},
        _ALMA,
        **_TARGETED,
        min_classes=3,
        findings=("tolerance-turned",),
    ),
    _row("alma", {"l2": ".alma", "l1": ".alma"}, _ALMA, variant="fixed", **_TARGETED, min_classes=3),
    *(
        _row(
            f"alma-{distance}",
            {"unrestricted": "alma"},
            _ALMA,
            fixed={"distance": distance},
            **_TARGETED,
            min_classes=3,
            findings=("tolerance-turned",),
        )
        for distance in ("ssim", "ciede2000")
    ),
    *(
        _row(
            f"alma-{distance}",
            {"unrestricted": ".alma"},
            _ALMA,
            fixed={"distance": distance},
            variant="fixed",
            **_TARGETED,
            min_classes=3,
        )
        for distance in ("ssim", "ciede2000")
    ),
    _row("pdgd", {"l2": "pdgd"}, _DUAL, **_TARGETED),
    _row(
        "pdpgd",
        dict.fromkeys(("linf", "l2", "l1", "l0"), "pdpgd"),
        _DUAL,
        **_TARGETED,
        findings=("whole-pixels",),
    ),
    _row("pdpgd", {"l0": "pdpgd"}, _DUAL, fixed={"proximal_operator": 23}, variant="fixed", **_TARGETED),
    _row("sigma-zero", {"l0": "sigma_zero"}, {"steps": "num_steps", "learning_rate": "η_0"}),
    _row("fga", {"l0": "fga"}, _FOLDED, **_DRAWN, **_TARGETED, order="content"),
    _row("vfga", {"l0": "vfga"}, _FOLDED, **_DRAWN, **_TARGETED, order="content"),
    _row(
        "trust-region",
        {"l2": "tr", "linf": "tr"},
        _TRUST,
        order="content",
        failure="last",
        findings=("short-reach",),
    ),
    _row(
        "trust-region-adaptive",
        {"l2": "tr", "linf": "tr"},
        _TRUST,
        fixed={"adaptive": True},
        order="content",
        failure="last",
    ),
    _row(
        "strattack",
        {"l2": "str_attack"},
        {name: word for name, word in _CARLINI.items() if name != "learning_rate"},
        **_TARGETED,
        alone=True,
        within=".patches:percentile_of_empty_array",
        repairs=("gets one image per call, because its last stage uses one threshold for the batch", _SURE_RETRAIN),
        findings=("long-last-stage",),
    ),
    _row(
        "perc-al",
        {"unrestricted": "perc_al"},
        {"steps": "max_iterations", "num_classes": "num_classes"},
        **_TARGETED,
        findings=("nan-on-flat",),
    ),
)

ROWS: tuple[Implementation, ...] = _FIXED_BUDGET + _MINIMUM_NORM

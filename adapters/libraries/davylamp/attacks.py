"""davylamp's implementations: one function each, in the module of its name."""

from collections.abc import Mapping
from typing import Any

from ...attack import Implementation


def _row(attack: str, classes: Mapping[str, str], params: Mapping[str, str], **rest: Any) -> Implementation:
    words: dict[str, Any] = {"targeted": "yes"} | rest
    return Implementation(attack, "davylamp", classes, params, **words)


_MINIMUM: dict[str, Any] = {"failure": "input"}

_DRAWN: dict[str, Any] = {"random": ("torch",)}

ROWS: tuple[Implementation, ...] = (
    _row(
        "si-fgsm",
        classes={"linf": ".si_fgsm:si_fgsm"},
        params={"steps": "steps", "step_size": "step_size", "decay": "decay", "scales": "scales"},
        per_image_radii=True,
    ),
    _row(
        "bp",
        classes={"l2": ".bp:bp"},
        params={each: each for each in ("steps", "step_size", "gamma", "quantise", "quantise_after")},
        **_MINIMUM,
    ),
    _row(
        "lbfgs",
        classes={"l2": ".lbfgs:lbfgs"},
        params={
            "steps": "steps",
            "binary_search_steps": "binary_search_steps",
            "initial_const": "initial_const",
        },
        **_MINIMUM,
    ),
    _row(
        "ssah",
        classes={"unrestricted": ".ssah:ssah"},
        params={"steps": "steps", "learning_rate": "learning_rate", "low_frequency": "low_frequency"},
        targeted="no",
        reads_layers=True,
        findings=("negatives-of-the-batch",),
    ),
    _row(
        "qeba",
        classes={"l2": ".qeba:qeba"},
        params={
            "max_queries": "max_queries",
            "basis": "basis",
            "subspace": "subspace",
            "starting_points": "starting_points",
        },
        **_DRAWN,
        **_MINIMUM,
    ),
    _row(
        "surfree",
        classes={"l2": ".surfree:surfree"},
        params={
            "max_queries": "max_queries",
            "trials": "trials",
            "quantise": "quantise",
            "starting_points": "starting_points",
        },
        **_DRAWN,
        **_MINIMUM,
    ),
    _row(
        "nattack",
        classes={"linf": ".nattack:nattack"},
        params={"steps": "steps", "samples": "samples", "learning_rate": "learning_rate"},
        per_image_radii=True,
        **_DRAWN,
    ),
    Implementation(
        "gd-uap",
        "davylamp",
        {"linf": ".gd_uap:gd_uap"},
        {"steps": "steps", "learning_rate": "learning_rate"},
        universal=True,
        fit=".gd_uap:fit_gd_uap",
        reads_layers=True,
        data_free=True,
        order="content",
        **_DRAWN,
    ),
    Implementation(
        "advgan",
        "davylamp",
        {"linf": ".advgan:advgan"},
        {"epochs": "epochs", "confidence": "confidence"},
        universal=True,
        fit=".advgan:fit_advgan",
        apply=".advgan:apply_advgan",
        searches=("restarts", "max_queries", "batch_size"),
        order="content",
        **_DRAWN,
    ),
    Implementation(
        "tremba",
        "davylamp",
        {"linf": ".tremba:tremba"},
        {"steps": "steps", "samples": "samples", "learning_rate": "learning_rate", "epochs": "epochs"},
        fit=".tremba:fit_tremba",
        apply=".tremba:apply_tremba",
        learned="learned",
        searches=("steps", "samples", "learning_rate", "restarts", "max_queries", "batch_size"),
        findings=("untrained-alone",),
        **_DRAWN,
    ),
    _row("lsa", classes={"l0": ".lsa:lsa"}, params={"steps": "steps"}, **_DRAWN, **_MINIMUM),
    # It makes the change small in linf; RoBIC measures it in l2.
    _row(
        "rays",
        classes=dict.fromkeys(("linf", "l2"), ".rays:rays"),
        params={"max_queries": "max_queries", "tolerance": "tolerance"},
        **_MINIMUM,
    ),
)

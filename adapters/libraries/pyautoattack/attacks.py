"""Implementations from pyautoattack: classes, canonical parameters and known issues.

APGD, FAB and Square are the authors' code (fra31/auto-attack, last changed in 2023), unchanged except for imports.
They are the reference for other libraries' versions. Only AutoAttack's standard version is listed, because its other
versions are different lists of the same attacks.
"""

from collections.abc import Mapping
from typing import Any

from ...attack import Implementation

_BALLS = ("linf", "l2", "l1")
_GENERATOR = "torch's random generator is restored after each call, because the library resets the global seed"
_TARGETS = "the number of target classes is limited to those of the model, because it crashes otherwise"
_TRACE = "the trace function of a debugger or coverage tool is restored, because the library removes it"
_DRAWN: Mapping[str, Any] = {"random": ("torch",), "failure": "input"}
_AUTO = {"steps": "n_iter", "seed": "seed"}
_AIMED = {**_AUTO, "candidates": "candidates"}  # a name of the driver: the library's count excludes the label


def _row(attack: str, path: str, params: Mapping[str, str], **rest: Any) -> Implementation:
    return Implementation(attack, "pyautoattack", dict.fromkeys(_BALLS, path), params, **rest)


ROWS: tuple[Implementation, ...] = (
    *(
        _row(
            f"apgd-{loss}",
            "pyautoattack.autopgd_base:APGDAttack",
            _AUTO,
            fixed={"loss": loss},
            **_DRAWN,
            min_classes=classes,
            repairs=(_GENERATOR,),
        )
        for loss, classes in (("ce", 2), ("dlr", 3))
    ),
    _row(
        "apgd-margin",
        ".patches:APGDOnMargin",
        _AUTO,
        fixed={"loss": "dlr"},  # which is the margin there
        **_DRAWN,
        repairs=(_GENERATOR, "accepts a loss as a parameter, although the library does not let the user choose it"),
    ),
    _row(
        "apgd-t",
        "pyautoattack.autopgd_base:APGDAttack_targeted",
        _AIMED,
        **_DRAWN,
        order="content",
        min_classes=4,
        repairs=(_GENERATOR, _TARGETS),
    ),
    # FAB draws nothing without restarts, but still seeds torch.
    _row(
        "fab",
        "pyautoattack.fab_pt:FABAttack_PT",
        _AUTO,
        failure="input",
        repairs=(_GENERATOR,),
        findings=("distance-discarded", "every-class"),
    ),
    _row(
        "fab-t",
        "pyautoattack.fab_pt:FABAttack_PT",
        _AIMED,
        fixed={"targeted": True},
        order="content",
        failure="input",
        repairs=(_GENERATOR, _TARGETS),
        findings=("distance-discarded", "first-class-taken"),
    ),
    _row(
        "fab-t",
        ".patches:NearestClassFAB",
        _AIMED,
        variant="fixed",
        failure="input",
        repairs=(_TARGETS,),
    ),
    _row(
        "square",
        "pyautoattack.square:SquareAttack",
        {"steps": "n_queries", "initial_probability": "p_init", "seed": "seed"},
        targeted="yes",
        **_DRAWN,
        order="content",
        repairs=(_GENERATOR,),
        findings=("last-row-and-column",),
    ),
    _row(
        "autoattack",
        ".patches:Standard",
        _AIMED,
        **_DRAWN,
        order="content",
        min_classes=4,
        repairs=(
            "gets a seed, because by default it uses the clock",
            _GENERATOR,
            _TARGETS,
            _TRACE,
        ),
    ),
    _row(
        "margin-ensemble",
        ".patches:OnMargin",
        _AUTO,
        **_DRAWN,
        order="content",
        repairs=("gets a seed, because by default it uses the clock", _GENERATOR, _TRACE),
    ),
)

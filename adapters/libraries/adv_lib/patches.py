"""Patches of adversarial-library: functions and context managers that each fix one issue.

This module is imported only when a patched attack runs, so that listing the catalogue loads no library.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np
from torch import Tensor

from . import functions

_FMN: Any = inspect.getmodule(functions.fmn)
_STRUCTURED: Any = inspect.getmodule(functions.str_attack)
_BEYOND = 1.001  # times the radius


@wraps(functions.pgd_linf)
def pgd_linf(*args: Any, steps: int = 40, **words: Any) -> Tensor:
    """Return PGD with one additional query, which evaluates the last iterate (known issue last-step-unseen)."""
    return functions.pgd_linf(*args, steps=steps + 1, **words)


@wraps(functions.alma)
def alma(*args: Any, targeted: bool = False, logit_tolerance: float = 1e-4, **words: Any) -> Tensor:
    """Run ALMA with the correct sign of the tolerance for targeted attacks (known issue tolerance-turned)."""
    tolerance = -logit_tolerance if targeted else logit_tolerance
    return functions.alma(*args, targeted=targeted, logit_tolerance=tolerance, **words)


@contextmanager
def crossing_projections() -> Iterator[None]:
    """Context manager that replaces FMN's projections, which fixes three known issues.

    The radius is enlarged by 0.1 %, so that FMN can cross the decision boundary (known issue short-of-the-boundary). In
    l2, perturbations within the radius stay unchanged (known issue projection-stretches). In l0, at least one component
    may change (known issue last-component).
    """
    shipped = {name: getattr(_FMN, name) for name in (f"l{norm}_projection_" for norm in ("inf", 2, 1, 0))}

    def l0_projection_(δ: Tensor, ε: Tensor) -> Tensor:  # noqa: PLC2401
        return shipped["l0_projection_"](δ=δ, ε=ε.clamp(min=1))

    def l1_projection_(δ: Tensor, ε: Tensor) -> Tensor:  # noqa: PLC2401
        return shipped["l1_projection_"](δ=δ, ε=_BEYOND * ε)

    def l2_projection_(δ: Tensor, ε: Tensor) -> Tensor:  # noqa: PLC2401
        flat = δ.flatten(1)
        length = flat.norm(dim=1, keepdim=True).clamp(min=1e-12)
        return flat.mul_((_BEYOND * ε.unsqueeze(1) / length).clamp(max=1))

    def linf_projection_(δ: Tensor, ε: Tensor) -> Tensor:  # noqa: PLC2401
        return shipped["linf_projection_"](δ=δ, ε=_BEYOND * ε)

    for repaired in (l0_projection_, l1_projection_, l2_projection_, linf_projection_):
        setattr(_FMN, repaired.__name__, repaired)
    try:
        yield
    finally:
        for name, function in shipped.items():
            setattr(_FMN, name, function)


@contextmanager
def percentile_of_empty_array() -> Iterator[None]:
    """Context manager that lets StrAttack use the threshold 0 if no component changed, instead of crashing."""

    class Numbers:
        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

        def percentile(self, values: Any, share: float) -> Any:
            return np.percentile(values, share) if values.size else 0.0

    _STRUCTURED.np = Numbers()
    try:
        yield
    finally:
        _STRUCTURED.np = np

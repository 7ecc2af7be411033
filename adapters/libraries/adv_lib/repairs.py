"""Repairs of adversarial-library: functions and context managers that mend what a few lines can mend.

Imported only when a row that names one of them runs, so listing the catalogue loads no library.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np
from torch import Tensor

from . import functions

_FMN: Any = inspect.getmodule(functions.fmn)
_STRUCTURED: Any = inspect.getmodule(functions.str_attack)


@wraps(functions.pgd_linf)
def pgd_linf(*args: Any, steps: int = 40, **words: Any) -> Tensor:
    """PGD with one query more than steps, which looks at the last iterate (last-step-unseen)."""
    return functions.pgd_linf(*args, steps=steps + 1, **words)


@wraps(functions.alma)
def alma(*args: Any, targeted: bool = False, logit_tolerance: float = 1e-4, **words: Any) -> Tensor:
    """ALMA that turns its tolerance round where it aims at a class (tolerance-turned)."""
    tolerance = -logit_tolerance if targeted else logit_tolerance
    return functions.alma(*args, targeted=targeted, logit_tolerance=tolerance, **words)


@contextmanager
def projections_of_the_paper() -> Iterator[None]:
    """FMN whose l2 projection leaves what is inside the ball, and whose l0 one keeps at least a component."""
    onto_sparse: Callable[..., Tensor] = _FMN.l0_projection_
    before = {name: getattr(_FMN, name) for name in ("l0_projection_", "l2_projection_")}

    def l0_projection_(δ: Tensor, ε: Tensor) -> Tensor:  # noqa: PLC2401
        return onto_sparse(δ=δ, ε=ε.clamp(min=1))

    def l2_projection_(δ: Tensor, ε: Tensor) -> Tensor:  # noqa: PLC2401
        flat = δ.flatten(1)
        return flat.mul_((ε.unsqueeze(1) / flat.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1))

    _FMN.l0_projection_, _FMN.l2_projection_ = l0_projection_, l2_projection_
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(_FMN, name, function)


@contextmanager
def percentile_of_something() -> Iterator[None]:
    """StrAttack whose threshold of no change at all is zero, where NumPy knows no percentile of nothing."""

    class Numbers:
        """NumPy, with a percentile of an empty array."""

        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

        def percentile(self, values: Any, share: float) -> Any:
            return np.percentile(values, share) if values.size else 0.0

    _STRUCTURED.np = Numbers()
    try:
        yield
    finally:
        _STRUCTURED.np = np

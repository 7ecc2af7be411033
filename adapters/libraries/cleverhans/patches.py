"""Patches of CleverHans: context managers that each fix one issue.

This module is imported only when a patched attack runs, so that listing the catalogue loads no library.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from . import functions

_GRADIENT: Any = inspect.getmodule(functions.fast_gradient_method)
_SEMANTIC: Any = inspect.getmodule(functions.semantic)
_SPSA: Any = inspect.getmodule(functions.spsa)


@contextmanager
def _replaced(module: Any, **others: Any) -> Iterator[None]:
    shipped = {name: getattr(module, name) for name in others}
    for name, other in others.items():
        setattr(module, name, other)
    try:
        yield
    finally:
        for name, function in shipped.items():
            setattr(module, name, function)


@contextmanager
def semantic_attack_self_argument() -> Iterator[None]:
    """Context manager that defines the variable `self`, which CleverHans' semantic attack uses without defining it."""
    _SEMANTIC.self = SimpleNamespace(center=False, max_val=1.0)
    try:
        yield
    finally:
        del _SEMANTIC.self


@contextmanager
def full_length_steps() -> Iterator[None]:
    """Context manager that gives every step its full length, even if the gradient is small.

    An image with a zero gradient is not changed.
    """
    shipped = _GRADIENT.optimize_linear

    def optimize_linear(grad: Tensor, eps: float, norm: float) -> Tensor:
        largest = grad.abs().flatten(1).amax(1).view(-1, *[1] * (grad.ndim - 1))
        scaled = grad / largest.where(largest > 0, 1)
        scaled.flatten(1)[:, 0] += (largest == 0).flatten().to(grad)  # any direction: it is thrown away below
        return shipped(scaled, eps, norm) * (largest > 0)

    with _replaced(_GRADIENT, optimize_linear=optimize_linear):
        yield


@contextmanager
def spsa_around_current_image() -> Iterator[None]:
    """Context manager that lets SPSA compute finite differences around the perturbed image.

    CleverHans computes them around twice the clean image.
    """
    project, estimate = _SPSA._project_perturbation, _SPSA._compute_spsa_gradient
    perturbations: list[Tensor] = []

    def project_perturbation(perturbation: Tensor, *rules: Any) -> None:
        project(perturbation, *rules)
        perturbations[:] = [perturbation]

    def compute_spsa_gradient(loss_fn: Callable[[Tensor], Tensor], x: Tensor, **words: Any) -> Tensor:  # noqa: ARG001
        return estimate(loss_fn, perturbations[0], **words)

    with _replaced(_SPSA, _project_perturbation=project_perturbation, _compute_spsa_gradient=compute_spsa_gradient):
        yield

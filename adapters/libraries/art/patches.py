"""Patches of ART: context managers that let attacks run, and classes of the fixed variants (`@fixed`)."""

import functools
import importlib
import inspect
import multiprocessing
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
from art.attacks.evasion import (
    auto_conjugate_gradient,
    carlini,
    deepfool,
    hop_skip_jump,
    rescaling_auto_conjugate_gradient,
    spatial_transformation,
    square_attack,
)
from art.attacks.evasion import universal_perturbation as universal

from ...attack import NoStart

_GEODA = "art.attacks.evasion.geometric_decision_based_attack"
DRAWS = 1000  # random images that GeoDA may try before the call is given up

# File name -> GeoDA's cosine basis, a function of the two numbers in the name; replaces the file that it would write.
_bases: dict[str, np.ndarray] = {}


@contextmanager
def multiprocess_alias() -> Iterator[None]:
    """Context manager that lets `multiprocessing` stand for AutoAttack's dependency `multiprocess`, if missing."""
    if "multiprocess" in sys.modules or find_spec("multiprocess"):
        yield
        return
    sys.modules["multiprocess"] = multiprocessing
    try:
        yield
    finally:
        del sys.modules["multiprocess"]


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """Context manager that disables the progress bar of Brendel-Bethge (`tqdm.auto.trange`)."""
    bars = importlib.import_module("tqdm.auto")
    shown, bars.trange = bars.trange, range  # type: ignore[attr-defined]
    try:
        yield
    finally:
        bars.trange = shown  # type: ignore[attr-defined]


class _NumpyWithMat:
    """Stands for the module NumPy in GeoDA. It has `mat`, which NumPy 2 removed, and keeps files in memory."""

    mat = staticmethod(np.asmatrix)
    save = staticmethod(_bases.__setitem__)
    load = staticmethod(_bases.__getitem__)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


@contextmanager
def geoda_on_numpy_2() -> Iterator[None]:
    """Context manager that lets GeoDA run on NumPy 2 without writing files, and limits its search for a start."""
    module = importlib.import_module(_GEODA)
    is_adversarial = module.GeoDA._is_adversarial
    misses = [0]

    def limited(self: Any, *args: Any, **kwargs: Any) -> bool:
        hit = is_adversarial(self, *args, **kwargs)
        misses[0] = 0 if hit else misses[0] + 1
        if misses[0] > DRAWS:
            raise NoStart(f"none of {DRAWS} random images fools the model")
        return hit

    kept = {name: getattr(module, name) for name in ("np", "os")}
    module.np = _NumpyWithMat()  # type: ignore[attr-defined]
    module.os = SimpleNamespace(path=SimpleNamespace(exists=_bases.__contains__))  # type: ignore[attr-defined]
    module.GeoDA._is_adversarial = limited
    try:
        yield
    finally:
        module.GeoDA._is_adversarial = is_adversarial
        for name, value in kept.items():
            setattr(module, name, value)


def _rewritten(method: Callable[..., Any], *changes: tuple[str, str]) -> Any:
    """Return a method of ART in whose source some expressions are replaced.

    Each expression must occur exactly once in the source. Otherwise an error is raised.
    """

    @functools.cache
    def rewrite() -> Callable[..., Any]:
        source = textwrap.dedent(inspect.getsource(method))
        for old, new in changes:
            if source.count(old) != 1:
                raise RuntimeError(
                    f"expected {method.__qualname__} to contain {old!r} once; is it a different version of ART?"
                )
            source = source.replace(old, new)
        # Annotations stay strings: they may name what is imported for type checkers only.
        code = compile("from __future__ import annotations\n" + source, f"<repaired {method.__qualname__}>", "exec")
        scope = dict(vars(sys.modules[method.__module__]))
        exec(code, scope)
        return scope[method.__name__]

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        return rewrite()(*args, **kwargs)

    return call


class DeepFool(deepfool.DeepFool):
    """DeepFool that uses the logits of the classes whose gradients it has computed (fixes wrong-class-lookup)."""

    generate = _rewritten(
        deepfool.DeepFool.generate,
        (
            "f_batch[np.arange(len(f_batch)), labels_indices]",
            "f_batch[np.arange(len(f_batch)), labels_set[labels_indices]]",
        ),
    )


class UniversalPerturbation(universal.UniversalPerturbation):
    """Universal perturbation that uses the fixed `DeepFool` (fixes wrong-class-lookup)."""

    attacks_dict = universal.UniversalPerturbation.attacks_dict | {"deepfool": f"{__name__}.DeepFool"}


class SquareAttack(square_attack.SquareAttack):
    """Square attack whose l2 update is scaled up to the remaining radius, as in its paper (fixes l2-divides)."""

    generate = _rewritten(
        square_attack.SquareAttack.generate,
        (
            "delta_new /= np.sqrt(np.sum(delta_new**2, axis=(2, 3), keepdims=True)) * np.sqrt(",
            "delta_new *= 1 / np.sqrt(np.sum(delta_new**2, axis=(2, 3), keepdims=True)) * np.sqrt(",
        ),
    )


_CONJUGATE = (
    ("grad = np.sign(cgradk)", "pass"),
    ("if (f_k_p_1 == 0.0).all():", "if self.targeted and (f_k_p_1 == 0.0).all():"),
    ("perturbation = cgradk\n", 'perturbation = np.sign(cgradk) if self.norm in [np.inf, "inf"] else cgradk\n'),
)


class AutoConjugateGradient(auto_conjugate_gradient.AutoConjugateGradient):
    """ACG with fixes of two known issues.

    The attack steps along the sign of its direction (sign-unused), and continues if the loss is zero
    (stops-at-zero-loss).
    """

    generate = _rewritten(auto_conjugate_gradient.AutoConjugateGradient.generate, *_CONJUGATE)


class RescalingAutoConjugateGradient(rescaling_auto_conjugate_gradient.RescalingAutoConjugateGradient):
    """Rescaled ACG with the fixes of `AutoConjugateGradient`."""

    generate = _rewritten(rescaling_auto_conjugate_gradient.RescalingAutoConjugateGradient.generate, *_CONJUGATE)


class SpatialTransformation(spatial_transformation.SpatialTransformation):
    """Spatial attack that shifts images of shape (C, H, W) along rows and columns (fixes a part of one-transform)."""

    generate = _rewritten(
        spatial_transformation.SpatialTransformation.generate,
        ("x.shape[2] * self.max_translation", "x.shape[3] * self.max_translation"),
        ("x.shape[1] * self.max_translation", "x.shape[2] * self.max_translation"),
    )


class HopSkipJump(hop_skip_jump.HopSkipJump):
    """HopSkipJump that also projects its last iterate onto the decision boundary, which ART omits."""

    def _attack(self, initial_sample, original_sample, target, mask, clip_min, clip_max):  # type: ignore[override]
        boundary = super()._attack(initial_sample, original_sample, target, mask, clip_min, clip_max)
        return self._binary_search(boundary, original_sample, target, self.norm, clip_min, clip_max)


class CarliniLInfMethod(carlini.CarliniLInfMethod):
    """C&W in linf that weights the gradient of the margin with the constant, and checks whether a target is reached."""

    generate = _rewritten(
        carlini.CarliniLInfMethod.generate,
        (
            "np.argmax(self.estimator.predict(x_adv_batch), axis=1) != np.argmax(y_batch, axis=1)\n",
            "(np.argmax(self.estimator.predict(x_adv_batch), axis=1) != np.argmax(y_batch, axis=1)) != self.targeted\n",
        ),
    )
    _loss_gradient = _rewritten(
        carlini.CarliniLInfMethod._loss_gradient,
        (
            "loss_gradient = loss_gradient + loss_gradient_2",
            "loss_gradient = self.const * loss_gradient + loss_gradient_2",
        ),
    )

    def _generate_single(self, x_batch, y_batch, clip_min, clip_max, const, tau):
        self.const = const
        return super()._generate_single(x_batch, y_batch, clip_min, clip_max, const, tau)

"""The attacks of CleverHans on PyTorch models, each imported from its own module.

This module is imported only when an attack runs, so that listing the catalogue loads no library.
"""

import inspect
from functools import wraps
from typing import Any

from cleverhans.torch.attacks.carlini_wagner_l2 import carlini_wagner_l2
from cleverhans.torch.attacks.fast_gradient_method import fast_gradient_method
from cleverhans.torch.attacks.hop_skip_jump_attack import hop_skip_jump_attack
from cleverhans.torch.attacks.noise import noise
from cleverhans.torch.attacks.projected_gradient_descent import projected_gradient_descent
from cleverhans.torch.attacks.semantic import semantic
from cleverhans.torch.attacks.sparse_l1_descent import sparse_l1_descent as _slide
from cleverhans.torch.attacks.spsa import spsa
from torch import Tensor

__all__ = [
    "carlini_wagner_l2",
    "fast_gradient_method",
    "hop_skip_jump_attack",
    "noise",
    "projected_gradient_descent",
    "semantic",
    "sparse_l1_descent",
    "spsa",
]


_slide_in_percent: Any = _slide


@wraps(_slide)
def sparse_l1_descent(*args: Any, grad_sparsity: float = 0.99, **words: Any) -> Tensor:
    """Run SLIDE with its sparsity given as a proportion. CleverHans expects a percentage."""
    return _slide_in_percent(*args, grad_sparsity=100.0 * grad_sparsity, **words)


_TAKEN = inspect.signature(_slide_in_percent)
_SHARE = _TAKEN.parameters["grad_sparsity"].replace(default=0.99)
setattr(  # noqa: B010 - the type checker knows no signature of a function
    sparse_l1_descent,
    "__signature__",
    _TAKEN.replace(parameters=list({**_TAKEN.parameters, "grad_sparsity": _SHARE}.values())),
)

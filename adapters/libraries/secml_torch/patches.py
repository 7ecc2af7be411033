"""Patches of SecML-Torch: subclasses that each fix one issue.

This module is imported only when a patched attack runs, so that listing the catalogue loads no library.
"""

from functools import wraps
from typing import Any

import torch
from secmlt.data.distributions import GeneralizedNormal
from secmlt.optimization.initializer import Initializer
from torch import Tensor

from .native_attacks import DDNNative, PGDNative

_ORDERS = {"l2": 2, "l1": 1}


class PerImagePGD(PGDNative):
    """PGD that changes the steepest component of each image in l1. The library changes one of the whole batch."""

    @wraps(PGDNative.__init__)
    def __init__(self, **words: Any):
        super().__init__(**words)
        shipped = self.gradient_processing
        self.gradient_processing = lambda gradient: torch.cat([shipped(one) for one in gradient.split(1)])


class PGD(PerImagePGD):
    """PGD that also evaluates its last iterate, and whose random start is uniform in the ball around the image."""

    @wraps(PGDNative.__init__)
    def __init__(self, **words: Any):
        super().__init__(**{**words, "num_steps": words["num_steps"] + 1})
        if words["random_start"]:
            self.initializer = _Noise(words["perturbation_model"], words["epsilon"])


class _Noise(Initializer):
    """Random start: uniform noise in the ball of a norm (Barthe et al. 2005), to which the library adds the image."""

    def __init__(self, norm: str, epsilon: float):
        self.norm, self.epsilon = norm, epsilon

    def __call__(self, x: Tensor) -> Tensor:
        if self.norm == "linf":
            return self.epsilon * (2 * torch.rand_like(x) - 1)
        order = _ORDERS[self.norm]
        noise = GeneralizedNormal().sample(x.shape, order)
        beyond = -torch.rand(len(x), 1, 1, 1).clamp(min=1e-12).log()  # exponentially distributed
        size = (noise.abs() ** order).sum((1, 2, 3), keepdim=True) + beyond
        return self.epsilon * noise / size ** (1 / order)


class DDN(DDNNative):
    """DDN that uses its argument gamma, which the library ignores."""

    @wraps(DDNNative.__init__)
    def __init__(self, gamma: float = 0.05, **words: Any):
        super().__init__(**words)
        self.gamma = gamma

"""Patches of pyautoattack: subclasses that each fix one issue.

This module is imported only when a patched attack runs, so that listing the catalogue loads no library.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from pyautoattack import AutoAttack
from pyautoattack.autopgd_base import APGDAttack
from pyautoattack.fab_pt import FABAttack_PT
from torch import Tensor

_ORDERS = {"Linf": torch.inf, "L2": 2, "L1": 1}
_OF_STEPS = ("n_iter", "n_iter_orig", "n_iter_2", "n_iter_min", "size_decr")  # what APGD works out from its steps


class NearestClassFAB(FABAttack_PT):
    """FAB-T that tries all target classes for every image, and returns the nearest result (fixes first-class-taken)."""

    def perturb(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the nearest adversarial image for each image, at any distance. The image itself if there is none."""
        nearest, least = x.clone(), torch.full((len(x),), torch.inf, device=x.device)
        for place in range(2, self.n_target_classes + 2):
            self.target_class = place
            with torch.no_grad():
                returned = self.attack_single_run(x, y, is_targeted=True)
            sizes = (returned - x).flatten(1).norm(p=_ORDERS[self.norm], dim=1)
            better = (sizes > 0) & (sizes < least)
            nearest[better], least[better] = returned[better], sizes[better]
        return nearest


class APGDOnMargin(APGDAttack):
    """APGD with the logit margin as its loss. In contrast to the DLR loss, the margin is defined for two classes."""

    def dlr_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the largest logit of the other classes minus the logit of the label, shape (n,)."""
        of_label = x.gather(1, y[:, None])[:, 0]
        return x.scatter(1, y[:, None], -torch.inf).amax(1) - of_label


class Standard(AutoAttack):
    """AutoAttack's standard version, with a chosen number of steps and no more target classes than the model has."""

    def __init__(
        self,
        model: torch.nn.Module,
        norm: Any = "Linf",
        eps: float = 0.3,
        seed: int | None = None,
        device: Any = "cpu",
        n_iter: int = 100,
        n_target_classes: int = 9,
    ):
        super().__init__(model, norm=norm, eps=eps, seed=seed, device=device)
        stepping = APGDAttack(model, n_iter=n_iter, norm=norm, eps=eps)
        for inner in (self.apgd, self.apgd_targeted):
            for name in _OF_STEPS:
                setattr(inner, name, getattr(stepping, name))
        self.fab.n_iter = n_iter
        for inner in (self.apgd_targeted, self.fab):
            inner.n_target_classes = min(inner.n_target_classes, n_target_classes)

    def perturb(self, x: Tensor, y: Tensor) -> Tensor:
        """Run the attacks on one batch, without log output, and return the images."""
        with _undisturbed(self.logger):
            return self.run_standard_evaluation(x, y, batch_size=len(x))[0]


class OnMargin(Standard):
    """AutoAttack for any number of classes: APGD-CE, APGD on the logit margin, FAB-T and Square."""

    def perturb(self, x: Tensor, y: Tensor) -> Tensor:
        """Run the attacks on one batch, with the logit margin in place of the DLR loss, and return the images."""
        self.apgd.__class__ = APGDOnMargin
        self.attacks_to_run = ["apgd-ce", "apgd-dlr", "fab", "square"]
        return super().perturb(x, y)


@contextmanager
def _undisturbed(logger: logging.Logger) -> Iterator[None]:
    """Context manager that disables a logger, and restores Python's trace function, which AutoAttack removes."""
    trace, disabled = sys.gettrace(), logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        sys.settrace(trace)
        logger.disabled = disabled

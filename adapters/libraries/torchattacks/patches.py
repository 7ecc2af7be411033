"""Patches of torchattacks: subclasses and context managers that each fix one issue.

This module is imported only when a patched attack runs, so that listing the catalogue loads no library.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torchattacks
from torch import Tensor
from torchattacks.attacks.apgdt import APGDT

_EAD = torchattacks.EADEN if TYPE_CHECKING else object


@contextmanager
def per_image_l2_steps() -> Iterator[None]:
    """Context manager that gives APGDT one image at a time in l2 (known issue first-step-size)."""
    attack_class: Any = APGDT
    whole_batch = attack_class.attack_single_run

    def one_by_one(self: Any, x_in: Tensor, y_in: Tensor) -> tuple[Tensor, ...]:
        if self.norm != "L2":
            return whole_batch(self, x_in, y_in)
        runs = [whole_batch(self, x_in[i : i + 1], y_in[i : i + 1]) for i in range(len(x_in))]
        return tuple(torch.cat(parts) for parts in zip(*runs, strict=True))

    attack_class.attack_single_run = one_by_one
    try:
        yield
    finally:
        attack_class.attack_single_run = whole_batch


@contextmanager
def deterministic_pixel_writes() -> Iterator[None]:
    """Context manager that makes Pixle deterministic on a GPU, even if it moves several pixels to one position."""
    attack_class: Any = torchattacks.Pixle
    perturb = attack_class._perturb

    def in_order(self: Any, *args: Any, **kwargs: Any) -> Tensor:
        before = torch.get_deterministic_debug_mode()
        torch.set_deterministic_debug_mode("warn")
        try:
            return perturb(self, *args, **kwargs)
        finally:
            torch.set_deterministic_debug_mode(before)

    attack_class._perturb = in_order
    try:
        yield
    finally:
        attack_class._perturb = perturb


class FABL1(torchattacks.FAB):
    """FAB in l1 without the loop over restarts, which crashes in this norm (known issue l1-crashes)."""

    def perturb(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the result of a single run."""
        if not self.targeted:
            return self.attack_single_run(x, y)
        self.target_class = self.get_target_label(x, y)
        return self.attack_single_run_targeted(x, y)


class DeepFool(torchattacks.DeepFool):
    """DeepFool for one image and its most likely classes. 1e-4 is added to every step, as in the authors' code.

    Without this constant, the last steps are so short that rounding places the result on the decision boundary.
    """

    def __init__(self, model: torch.nn.Module, steps: int = 50, overshoot: float = 0.02, candidates: int = 10):
        super().__init__(model, steps, overshoot)
        self.candidates = candidates
        self.classes: Tensor | None = None

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Attack a batch that contains one image."""
        self.classes = None
        with torch.no_grad():
            classes = self.get_logits(images)[0].argsort(descending=True)[: self.candidates]
        if classes[0] != labels[0]:
            return images
        self.classes = classes
        return super().forward(images, torch.zeros_like(labels))

    def get_logits(self, inputs: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the logits of the candidate classes, most likely first. In the first call, return all logits."""
        logits = super().get_logits(inputs, *args, **kwargs)
        return logits if self.classes is None else logits[:, self.classes]

    def _forward_indiv(self, image: Tensor, label: Tensor) -> tuple[bool, Tensor, Tensor]:
        stop, predicted, moved = super()._forward_indiv(image, label)
        if not stop:
            step = moved - image.detach()
            moved = (moved + (1 + self.overshoot) * 1e-4 * step / step.norm().clamp(min=1e-12)).clamp(0, 1)
        return stop, predicted, moved


class CW(torchattacks.CW):
    """C&W with fixes of three known issues.

    The result does not change if a constant is added to all logits. The parameter confidence is used. Pixels that are
    exactly 0 or 1 can move.
    """

    def __init__(self, model: torch.nn.Module, c: float = 1, kappa: float = 0, steps: int = 50, lr: float = 0.01):
        super().__init__(model, steps=steps, lr=lr)
        self.c = c
        self.confidence = kappa
        self.wanted: Tensor | None = None

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Store the labels or the targets for `get_logits`, and run the attack."""
        self.wanted = self.get_target_label(images, labels) if self.targeted else labels
        return super().forward(images, labels)

    def get_logits(self, inputs: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the logits. The confidence is added to the label's logit, or subtracted from the target's logit."""
        logits = super().get_logits(inputs, *args, **kwargs)
        handicap = torch.zeros_like(logits)
        handicap[torch.arange(len(logits)), self.wanted] = -self.confidence if self.targeted else self.confidence
        return logits + handicap

    def f(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the logit margin. The logits are shifted to be positive, as the library's code assumes."""
        return super().f(_positive(outputs), labels)

    def inverse_tanh_space(self, x: Tensor) -> Tensor:
        """Return the optimiser's variable, which is finite even for pixels that are 0 or 1."""
        return super().inverse_tanh_space(x.clamp(1e-6, 1 - 1e-6))


class _FixedReference(_EAD):
    """EAD that measures distances from a copy of the clean image, and computes the margin from positive logits."""

    reference: Tensor

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        self.reference = images.clone().detach().to(self.device)
        return super().forward(images, labels)

    def FISTA(self, images: Tensor, x_k: Tensor, y_k: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002, N802
        """Make the shrinkage step of EAD, with distances from the copy of the clean images instead of from `images`."""
        return super().FISTA(self.reference, x_k, y_k)

    def L1_loss(self, x1: Tensor, x2: Tensor) -> Tensor:  # noqa: ARG002, N802
        return super().L1_loss(x1, self.reference)

    def L2_loss(self, x1: Tensor, x2: Tensor) -> Tensor:  # noqa: ARG002, N802
        return super().L2_loss(x1, self.reference)

    def EAD_loss(self, output: Tensor, *rest: Any) -> Tensor:  # noqa: N802
        """Return the loss. The logits are shifted to be positive, as the library's code assumes."""
        return super().EAD_loss(_positive(output), *rest)


class EADEN(_FixedReference, torchattacks.EADEN):
    """EAD with the elastic-net rule and the fixes of `_FixedReference`."""


class EADL1(_FixedReference, torchattacks.EADL1):
    """EAD with the l1 rule and the fixes of `_FixedReference`."""


class Pixle(torchattacks.Pixle):
    """Pixle that writes pixels at (row, column) instead of (column, row), so that images need not be square."""

    def _perturb(self, source: Tensor, solution: list[Any], destination: Tensor | None = None) -> Tensor:
        turned = [[y, x] for x, y in solution[4:]]
        return super()._perturb(source, [*solution[:4], *turned], destination)


def _positive(logits: Tensor) -> Tensor:
    """Shift the logits so that the smallest is 1. Their differences do not change."""
    return logits - logits.amin(1, keepdim=True).detach() + 1

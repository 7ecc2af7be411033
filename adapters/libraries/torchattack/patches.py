"""Patches of torchattack: subclasses and a context manager that each fix one issue.

This module is imported only when a patched attack runs, so that listing the catalogue loads no library.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torchattack
from scipy import stats
from torch import Tensor, nn
from torchvision.transforms import functional as transforms

_LIBRARY: Any = torchattack  # its registering decorator hides the classes' types from a type checker
_L2T: Any = inspect.getmodule(torchattack.L2T)
_Attack: Any = torchattack.Attack if TYPE_CHECKING else object


class _Accumulating(_Attack):
    """Base class of attacks with the update of MI-FGSM. A subclass defines the gradient of a step.

    Past gradients are accumulated, which the library omits (known issue momentum-dropped). Zero gradients stay zero.
    """

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        delta, momentum = torch.zeros_like(x), torch.zeros_like(x)
        step = self.eps / self.steps if self.alpha is None else self.alpha
        for _ in range(self.steps):
            gradient = self.gradient(x, delta, momentum * step * self.decay, y)
            size = gradient.abs().mean(dim=(1, 2, 3), keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
            momentum = self.decay * momentum + gradient / size
            delta = (delta + step * momentum.sign()).clamp(-self.eps, self.eps)
            delta = (x + delta).clamp(self.clip_min, self.clip_max) - x
        return x + delta

    def gradient(self, x: Tensor, delta: Tensor, ahead: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of a step. `ahead` is the change that the momentum alone would make."""
        raise NotImplementedError

    def slope(self, points: Tensor, y: Tensor, leaf: Tensor) -> Tensor:
        """Return the gradient of the loss at `points` with respect to `leaf`, from which the points are computed."""
        loss = self.lossfn(self.model(self.normalize(points)), y)
        return torch.autograd.grad(-loss if self.targeted else loss, leaf)[0]


class NIFGSM(_Accumulating, _LIBRARY.NIFGSM):
    """NI-FGSM that accumulates past gradients, see `_Accumulating`."""

    def gradient(self, x: Tensor, delta: Tensor, ahead: Tensor, y: Tensor) -> Tensor:
        """Return the gradient at the point to which the momentum alone would lead."""
        point = (x + delta + ahead).requires_grad_()
        return self.slope(point, y, point)


class SINIFGSM(_Accumulating, _LIBRARY.SINIFGSM):
    """SI-NI-FGSM that accumulates past gradients, and counts each copy once (fixes copies-counted-again)."""

    def gradient(self, x: Tensor, delta: Tensor, ahead: Tensor, y: Tensor) -> Tensor:
        """Return the mean gradient over scaled copies of the point to which the momentum alone would lead."""
        point = (x + delta + ahead).requires_grad_()
        return torch.stack([self.slope(point / 2**i, y, point) for i in range(self.m)]).mean(0)


class TIFGSM(_Accumulating, _LIBRARY.TIFGSM):
    """TI-FGSM that accumulates past gradients, and smooths with the kernel of Dong et al. 2019.

    The library does not accumulate gradients, and its kernel is wider.
    """

    def gradient(self, x: Tensor, delta: Tensor, ahead: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002
        """Return the gradient, smoothed with the kernel."""
        point = (x + delta).requires_grad_()
        kernel = self.get_kernel()
        return nn.functional.conv2d(self.slope(point, y, point), kernel, padding="same", groups=len(kernel))

    @staticmethod
    def gkern(kern_len: int = 15, n_sig: int = 3) -> np.ndarray:
        """Return a Gaussian kernel that extends `n_sig` standard deviations to each side, as in the authors' code."""
        line = stats.norm.pdf(np.linspace(-n_sig, n_sig, kern_len))
        return np.outer(line, line) / line.sum() ** 2


class SizedSSA(_LIBRARY.SSA):
    """SSA whose noise has the shape of the images. The library's noise always has 3 x 224 x 224 components."""

    def transform(self, x: Tensor) -> Tensor:
        """Add noise to images, and scale all frequencies randomly. At 224 pixels, the result is that of the library."""
        noise = torch.randn(x.shape, dtype=x.dtype, device=x.device) * self.eps
        spectrum = self._dct_2d(x + noise)
        return self._idct_2d(spectrum * (torch.rand_like(x) * 2 * self.rho + 1 - self.rho))


class SSA(_Accumulating, SizedSSA):
    """SSA that accumulates past gradients, see `_Accumulating`."""

    def gradient(self, x: Tensor, delta: Tensor, ahead: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002
        """Return the mean gradient over the images with changed spectra."""
        point = (x + delta).requires_grad_()
        slopes = [self.slope(self.transform(point), y, point) for _ in range(self.num_spectrum)]
        return torch.stack(slopes).mean(0)


class DeCoWA(_Accumulating, _LIBRARY.DeCoWA):
    """DeCoWA that accumulates past gradients, and does not count gradients that tune a warp (fixes tuning-counted)."""

    def gradient(self, x: Tensor, delta: Tensor, ahead: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002
        """Return the mean gradient over the warps."""
        point = (x + delta).requires_grad_()
        return torch.stack([self._slope_of_a_warp(point, y) for _ in range(self.num_warping)]).mean(0)

    def _slope_of_a_warp(self, point: Tensor, y: Tensor) -> Tensor:
        """Return the gradient through a random warp, after one step that tunes the warp such that it lowers the loss.

        The tuned warp is clipped to the range of random warps. Otherwise a step along a very large gradient would
        destroy the image.
        """
        noise = (torch.rand([self.mesh_height - 2, self.mesh_width - 2, 2]) - 0.5) * self.noise_scale
        noise.requires_grad_()
        tuned = noise.detach() - self.rho * self.slope(self._vwt(point.detach(), noise), y, noise)
        largest = self.noise_scale / 2
        return self.slope(self._vwt(point, tuned.clamp(-largest, largest)), y, point)


class GRA(_LIBRARY.GRA):
    """GRA with fixes of two known issues.

    The attack compares the signs of gradients (every-step-shrinks). In a targeted attack, the gradients at neighbouring
    points lead towards the target (neighbours-flee).
    """

    def _get_decay_indicator(self, m: Tensor, delta: Tensor, cur_noise: Tensor, prev_noise: Tensor) -> Tensor:
        return super()._get_decay_indicator(m, delta, cur_noise.sign(), prev_noise.sign())

    def _get_avg_grad(self, x: Tensor, y: Tensor, delta: Tensor) -> Tensor:
        average = super()._get_avg_grad(x, y, delta)
        return -average if self.targeted else average


class MIG(_LIBRARY.MIG):
    """MIG that lowers the probability of the label, or raises that of a target (fixes climbs-the-label)."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Run the attack of the library with the opposite goal."""
        self.targeted = not self.targeted
        try:
            return super().forward(x, y)
        finally:
            self.targeted = not self.targeted


@contextmanager
def transforms_of_any_size() -> Iterator[None]:
    """Context manager that lets the transforms of L2T work on images of any size and device.

    Spectra and crops get the size and device of the images, and strips have at least one pixel.
    """
    spectrum, crop, cut = _L2T.SSM.__call__, _L2T.Crop.crop, _L2T.BlockShuffle.get_length

    def change_spectrum(self: Any, x: Tensor) -> Tensor:
        changed = []
        for _ in range(self.num_spectrum):
            noise = torch.randn(x.shape, dtype=x.dtype, device=x.device) * self.epsilon
            factors = torch.rand_like(x) * 2 * self.rho + 1 - self.rho
            changed.append(self.idct_2d(self.dct_2d(x + noise) * factors))
        return torch.cat(changed)

    def crop_centre(self: Any, x: Tensor, ratio: float) -> Tensor:  # noqa: ARG001
        height, width = (int(side * ratio) for side in x.shape[2:])
        top, left = (x.shape[2] - height) // 2, (x.shape[3] - width) // 2
        return transforms.resized_crop(x, top, left, height, width, list(x.shape[2:]))

    def cut_again(self: Any, length: int) -> tuple[int, ...]:
        while min(lengths := cut(self, length)) < 0:  # the longest makes up for what rounding added to all the others
            pass
        return lengths

    _L2T.SSM.__call__, _L2T.Crop.crop, _L2T.BlockShuffle.get_length = change_spectrum, crop_centre, cut_again
    try:
        yield
    finally:
        _L2T.SSM.__call__, _L2T.Crop.crop, _L2T.BlockShuffle.get_length = spectrum, crop, cut

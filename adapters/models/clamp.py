"""Clamping of images to [0, 1] with a gradient of 1 at the bounds.

Since torch 2.15, the gradient of `torch.clamp` is 0 at its bounds (https://github.com/pytorch/pytorch/issues/184574).
An attack would therefore get no gradient for a black or white pixel, although the attack can still change this pixel
towards grey.
"""

from typing import Any

import torch
from torch import Tensor

_ROUNDING = 1e-4


def describe_out_of_range(images: Tensor) -> str:
    """Describe the range of the values of images as text, such as "from -0.5 to 2".

    Returns:
        The text. "" if all values are in [0, 1], apart from rounding.
    """
    if not images.numel():
        return ""
    low, high = (float(end) for end in images.detach().aminmax())
    return "" if low >= -_ROUNDING and high <= 1 + _ROUNDING else f"from {low:.3g} to {high:.3g}"


def clamp_with_edge_gradient(images: Tensor) -> Tensor:
    """Clamp images to [0, 1]. The gradient is 1 for values in [0, 1], including 0 and 1, and 0 for other values."""
    return _Cut.apply(images)


class _Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        ctx.save_for_backward((images >= 0) & (images <= 1))
        return images.clamp(0, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (inside,) = ctx.saved_tensors
        return gradients[0] * inside

"""PGD as Madry et al. (2018, equation 2) write it, from the image itself: what attacks are checked against."""

import torch
from torch import nn


def ascend(model, inputs, labels, steps, radius):
    """The last points of the ascent of the cross-entropy in linf, with steps of 2.5 radius / steps."""
    moved = inputs.clone()
    for _ in range(steps):
        moved.requires_grad_()
        (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(model(moved), labels), moved)
        moved = moved.detach() + 2.5 * radius / steps * gradient.sign()
        moved = torch.minimum(torch.maximum(moved, inputs - radius), inputs + radius).clamp(0, 1)
    return moved

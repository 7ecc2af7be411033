"""Functions of logits and images that several of davylamp's attacks share."""

import math

import torch
from torch import Tensor


def logit_margin(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
    """Return the logit margin of each image, which an attack reduces, shape (n,). At most 0 for adversarial images."""
    wanted = labels if targets is None else targets
    chosen = logits.gather(1, wanted[:, None])[:, 0]
    rest = logits.scatter(1, wanted[:, None], -torch.inf).amax(1)
    return chosen - rest if targets is None else rest - chosen


def round_to_grid(points: Tensor) -> Tensor:
    """Round images to 8 bits."""
    return (points * 255).round() / 255


def by_image(values: Tensor) -> Tensor:
    """Reshape one number per image from (n,) to (n, 1, 1, 1), so that images can be multiplied by these numbers."""
    return values[:, None, None, None]


def normalise(points: Tensor) -> Tensor:
    """Divide the tensor of each image by its l2 norm. If the norm is zero or not finite, the tensor becomes zero."""
    finite = points.nan_to_num(0, 0, 0)
    return finite / by_image(finite.flatten(1).norm(dim=1).clamp(min=1e-12))


def cosines(size: int) -> Tensor:
    """Return the matrix of the cosine transform (type II), in double precision.

    Row k is cos(pi k (2 j + 1) / (2 size)) for j = 0, ..., size - 1.
    """
    places = torch.arange(size, dtype=torch.float64)
    return (math.pi / (2 * size) * places[:, None] * (2 * places + 1)).cos()

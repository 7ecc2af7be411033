"""Functions of logits and points that several of davylamp's attacks use."""

import math

import torch
from torch import Tensor


def logit_margin(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
    """Return the logit margin that an attack reduces, shape (n,); not positive if the image is adversarial."""
    wanted = labels if targets is None else targets
    chosen = logits.gather(1, wanted[:, None])[:, 0]
    rest = logits.scatter(1, wanted[:, None], -torch.inf).amax(1)
    return chosen - rest if targets is None else rest - chosen


def round_to_grid(points: Tensor) -> Tensor:
    """Round to the nearest 8-bit images."""
    return (points * 255).round() / 255


def by_image(values: Tensor) -> Tensor:
    """Reshape one number per image, shape (n,), to (n, 1, 1, 1), to multiply images."""
    return values[:, None, None, None]


def normalise(points: Tensor) -> Tensor:
    """Divide each image's tensor by its l2 norm; zero and non-finite values become zero."""
    finite = points.nan_to_num(0, 0, 0)
    return finite / by_image(finite.flatten(1).norm(dim=1).clamp(min=1e-12))


def cosines(size: int) -> Tensor:
    """Return the cosine transform (type II): row k is cos(pi k (2 j + 1) / (2 size)), in double precision."""
    places = torch.arange(size, dtype=torch.float64)
    return (math.pi / (2 * size) * places[:, None] * (2 * places + 1)).cos()

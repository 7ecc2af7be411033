"""What several of these attacks compute from logits and points."""

import math

import torch
from torch import Tensor


def logit_margin(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
    """Logit margin that keeps each image from being adversarial, shape (n,): not positive where it is."""
    wanted = labels if targets is None else targets
    chosen = logits.gather(1, wanted[:, None])[:, 0]
    rest = logits.scatter(1, wanted[:, None], -torch.inf).amax(1)
    return chosen - rest if targets is None else rest - chosen


def round_to_grid(points: Tensor) -> Tensor:
    """The nearest images of 8 bits."""
    return (points * 255).round() / 255


def by_image(values: Tensor) -> Tensor:
    """A number for each image, shape (n,), as a factor of images: (n, 1, 1, 1)."""
    return values[:, None, None, None]


def normalise(points: Tensor) -> Tensor:
    """Each image's tensor divided by its l2 norm; zero, and what is not finite, becomes zero."""
    finite = points.nan_to_num(0, 0, 0)
    return finite / by_image(finite.flatten(1).norm(dim=1).clamp(min=1e-12))


def cosines(size: int) -> Tensor:
    """The matrix of the cosine transform (type II): row k is cos(pi k (2 j + 1) / (2 size)), in double precision."""
    places = torch.arange(size, dtype=torch.float64)
    return (math.pi / (2 * size) * places[:, None] * (2 * places + 1)).cos()

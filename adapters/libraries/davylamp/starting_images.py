"""Finds adversarial starting images for decision-based attacks if the user gives none."""

from collections.abc import Callable

import torch
from torch import Tensor

_DRAWS = 100  # noise images tried
_DEVIATION = 0.5  # of the noise


def noisy_starts(
    query: Callable[[Tensor, Tensor], Tensor], inputs: Tensor, most: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Add Gaussian noise to images until they are adversarial.

    Args:
        query: function that is called with points (m, C, H, W) and the indices (m,) of their images. It returns whether
            the points are adversarial, shape (m,), bool.
        inputs: clean images, shape (n, C, H, W).
        most: largest number of queries for each image. At most 100 queries are used.
        generator: random generator for the noise. None for torch's default generator.

    Returns:
        The noisy images, shape (n, C, H, W), and the indices of images for which no adversarial image was found.
    """
    points, missing = inputs.clone(), torch.arange(len(inputs), device=inputs.device)
    for _ in range(min(_DRAWS, most)):
        noise = torch.randn(inputs[missing].shape, generator=generator, device=inputs.device)
        points[missing] = (inputs[missing] + _DEVIATION * noise).clamp(0, 1)
        missing = missing[~query(points[missing], missing)]
        if not len(missing):
            break
    return points, missing

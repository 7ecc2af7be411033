"""torchattack's GeoDA, patched to support any image size and query budget, and to write no files.

This module is imported only when the attack runs, so that listing the catalogue loads no library.
"""

from typing import Any

import numpy as np
import torch
import torchattack
from torch import Tensor

from ...attack import NoStart

_GeoDA: Any = torchattack.GeoDA
DRAWS = 1000  # random images that may be tried before the call is given up


class GeoDA(_GeoDA):
    """GeoDA that computes its cosine basis in memory. The original computes it pixel by pixel and writes a file."""

    def __init__(
        self,
        model: torch.nn.Module,
        device: torch.device | None = None,
        input_shape: tuple[int, ...] = (3, 224, 224),
        p: str = "l2",
        max_queries: int = 4000,
        sub_dim: int = 75,
    ):
        words = {"input_shape": input_shape, "p": p, "max_queries": max_queries, "sub_dim": sub_dim}
        super().__init__(model, device=device, **words)
        while not self._has_plan():
            self.max_queries += 1
        self.sub_basis = cosines(min(sub_dim, self.x_size), self.x_size).to(self.device)
        self.misses = 0

    def is_adv(self, x_adv: Tensor, y: Tensor) -> Tensor:
        """Whether the image fools the model.

        Raises:
            NoStart: after `DRAWS` images in succession that do not fool the model. Without this error, the search for a
                first adversarial image might not end.
        """
        hit = super().is_adv(x_adv, y)
        self.misses = 0 if hit.all() else self.misses + 1
        if self.misses > DRAWS:
            raise NoStart(f"none of {DRAWS} random images fools the model")
        return hit

    def _has_plan(self) -> bool:
        """Whether the library's code can distribute the number of queries over its iterations."""
        start = planned = round(self.max_queries / 500)
        try:
            for _ in range(2):
                _, planned = self.opt_query_iteration(int(self.max_queries - planned * 25), start, self.mu)
        except (IndexError, RecursionError):  # below 251, and for a few numbers above
            return False
        return True


def cosines(frequencies: int, side: int) -> Tensor:
    """Return the lowest frequencies of the two-dimensional cosine transform, shape (side ** 2, frequencies ** 2)."""
    place, frequency = np.arange(side), np.arange(frequencies)
    line = np.sqrt(np.where(frequency == 0, 1, 2) / side)[:, None]
    waves = line * np.cos((2 * place + 1)[None] * (frequency * np.pi)[:, None] / (2 * side))  # (frequencies, side)
    both = np.einsum("ux,vy->yxuv", waves, waves)
    return torch.from_numpy(both.reshape(side * side, frequencies**2).astype(np.float32))

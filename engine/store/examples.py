"""Adversarial images as they are stored and handed on: 8 bits where nothing is lost by it; one way there and back."""

import numpy as np
import torch
from torch import Tensor

from ..cell import Cell
from .store import ResultsStore


def compact_images(images: Tensor) -> np.ndarray:
    """The images without loss: uint8 where every value lies on the 8-bit grid, else as they are."""
    pixels = images.detach().cpu()
    grid = (pixels * 255).round()
    if torch.equal(grid / 255, pixels):
        return grid.to(torch.uint8).numpy()
    return pixels.numpy()


def restore_images(stored: np.ndarray) -> Tensor:
    """What `compact_images` was given: float32, in [0, 1]."""
    images = torch.from_numpy(stored)
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def read_examples(store: ResultsStore, cell: Cell) -> Tensor:
    """The examples of a finished cell whose images were kept: shape (N, C, H, W), float32, in [0, 1].

    Raises:
        Unavailable: if a shard cannot be read.
    """
    return torch.cat([restore_images(store.read_images(f"{cell.key}-{shard}")) for shard in range(cell.shards)])

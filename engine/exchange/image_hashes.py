"""Hashes images as AttackBench does."""

import hashlib
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from ...errors import InvalidInput


def hash_images(inputs: Tensor) -> list[str]:
    """Return the SHA-512 hash of the float32 values of each image, (N, C, H, W), as AttackBench computes the hash."""
    return [hashlib.sha512(np.ascontiguousarray(each.numpy()).tobytes()).hexdigest() for each in inputs.float().cpu()]


def places_of(hashes: Sequence[str], known: Sequence[str]) -> np.ndarray:
    """Return the position of each hash of `hashes` in `known`, shape (len(hashes),); -1 if `known` lacks the hash.

    Each position is used at most once: duplicates in `hashes` match different duplicates in `known`.

    Raises:
        InvalidInput: If no hash is in `known`.
    """
    free: dict[str, list[int]] = {}
    for place in range(len(known) - 1, -1, -1):
        free.setdefault(known[place], []).append(place)
    places = np.array([free[text].pop() if free.get(text) else -1 for text in hashes])
    if (places < 0).all():
        raise InvalidInput(
            f"none of the {len(hashes)} images is in the results folder (compared by SHA-512 of float32 pixels in "
            "[0, 1], channels first)"
        )
    return places

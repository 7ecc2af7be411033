"""Warnings about a data set: duplicate images, and fewer images than requested."""

from hashlib import blake2b

import torch
from torch import Tensor


def first_occurrence(inputs: Tensor) -> list[int]:
    """Return, for each image, the index of the first image with the same pixels, which may be the image itself.

    Args:
        inputs: images, shape (N, ...).
    """
    places: dict[bytes, int] = {}
    images = inputs.detach().cpu().contiguous().flatten(1).view(torch.uint8).numpy()
    return [places.setdefault(blake2b(image, digest_size=16).digest(), place) for place, image in enumerate(images)]


def duplicate_warning(inputs: Tensor, labels: Tensor) -> list[str]:
    """Return a warning if some images are duplicates, with the number of duplicates whose labels differ.

    Args:
        inputs: shape (N, C, H, W).
        labels: shape (N,).
    """
    first, classes = first_occurrence(inputs), labels.tolist()
    repeated = [place for place, other in enumerate(first) if place != other]
    if not repeated:
        return []
    differing = sum(classes[place] != classes[first[place]] for place in repeated)
    line = (
        f"{len(repeated)} of {len(first)} images duplicate an earlier image; intervals treat duplicates as independent"
    )
    return [line + (f"; {differing} with a different label than the earlier image" if differing else "")]


def note_fewer(name: str, images: int, limit: int | None) -> list[str]:
    """Return a warning if a data set has fewer images than requested.

    Args:
        name: name of the data.
        images: number of images.
        limit: requested number, or None for all.
    """
    return [f"{name} has {images} images, fewer than the requested {limit}"] if images < (limit or 0) else []

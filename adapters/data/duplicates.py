"""Warns about duplicate images in a data set, and about fewer images than requested."""

from hashlib import blake2b

import torch
from torch import Tensor


def first_occurrence(inputs: Tensor) -> list[int]:
    """Return, for each image, the index of the first image with the same pixels.

    If no earlier image has the same pixels, this is the index of the image itself.

    Args:
        inputs: images, shape (N, ...).
    """
    places: dict[bytes, int] = {}
    images = inputs.detach().cpu().contiguous().flatten(1).view(torch.uint8).numpy()
    return [places.setdefault(blake2b(image, digest_size=16).digest(), place) for place, image in enumerate(images)]


def duplicate_warning(inputs: Tensor, labels: Tensor) -> list[str]:
    """Return a warning if some images are duplicates of others. Otherwise None.

    The warning also gives the number of duplicates whose label differs from the label of the earlier image.

    Args:
        inputs: images, shape (N, C, H, W).
        labels: labels, shape (N,).
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
    """Return a list with a warning if a data set has fewer images than requested. Otherwise an empty list.

    Args:
        name: name of the data.
        images: number of images.
        limit: requested number of images. None if all images were requested.
    """
    return [f"{name} has {images} images, fewer than the requested {limit}"] if images < (limit or 0) else []

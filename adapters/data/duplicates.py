"""What a reader should know of a data set: images that occur more than once, and fewer than were asked for."""

from hashlib import blake2b

import torch
from torch import Tensor


def first_occurrence(inputs: Tensor) -> list[int]:
    """For each image the place of the first one that is equal to it, which is its own where none is before it.

    Args:
        inputs: shape (N, ...).
    """
    places: dict[bytes, int] = {}
    images = inputs.detach().cpu().contiguous().flatten(1).view(torch.uint8).numpy()
    return [places.setdefault(blake2b(image, digest_size=16).digest(), place) for place, image in enumerate(images)]


def duplicate_warning(inputs: Tensor, labels: Tensor) -> list[str]:
    """A line where images repeat, and how many of them with another label.

    Args:
        inputs: shape (N, C, H, W).
        labels: shape (N,).
    """
    first, classes = first_occurrence(inputs), labels.tolist()
    repeated = [place for place, other in enumerate(first) if place != other]
    if not repeated:
        return []
    differing = sum(classes[place] != classes[first[place]] for place in repeated)
    line = f"{len(repeated)} of {len(first)} images are the same as an earlier one, and intervals count them as others"
    return [line + (f"; {differing} of them have another label" if differing else "")]


def note_fewer(name: str, images: int, limit: int | None) -> list[str]:
    """A line where data have fewer images than were asked for.

    Args:
        name: of the data.
        images: that there are.
        limit: that were asked for; None: all.
    """
    return [f"{name} has {images} images, fewer than the {limit} that were asked for"] if images < (limit or 0) else []

"""Held-out images: random splits, and a check that no image is in both sets."""

import hashlib

import torch
from torch import Tensor

from ...adapters.data.datasets import Data
from ...adapters.models.identity.encoding import feed
from ...errors import InvalidInput


def split_data(data: Data, share: float, seed: int) -> tuple[Data, Data]:
    """Split off a random proportion of the images.

    Images with equal pixels are put into the same set.

    Args:
        data: at least 2 images.
        share: proportion in (0, 1); each set gets at least one image.
        seed: random seed of the split.

    Raises:
        InvalidInput: If the proportion is invalid or the data cannot be split.
    """
    if not 0 < share < 1:
        raise InvalidInput(f"expected a proportion of held-out images in (0, 1), got {share}")
    digests = [digest_image(image) for image in data.inputs]
    different = list(dict.fromkeys(digests))
    if len(different) < 2:
        raise InvalidInput(f"expected at least 2 different images to hold some out, got {len(different)}")
    count = min(max(1, round(share * len(different))), len(different) - 1)
    order = torch.randperm(len(different), generator=torch.Generator().manual_seed(seed))
    held = {different[place] for place in order[:count].tolist()}
    places = [[place for place, digest in enumerate(digests) if (digest in held) == side] for side in (False, True)]
    first, second = (select(data, side) for side in places)
    return first, second


def select(data: Data, places: list[int]) -> Data:
    """Return the images at these positions."""
    return Data(data.inputs[places], data.labels[places], [data.names[place] for place in places])


def check_disjoint(training: Data, held_out: Data) -> None:
    """Raise InvalidInput if an image is in both the training and the held-out images."""
    known = {digest_image(image) for image in training.inputs}
    common = [name for image, name in zip(held_out.inputs, held_out.names, strict=True) if digest_image(image) in known]
    if common:
        got = f"{len(common)} of {len(held_out.names)} in the training data, the first is {common[0]}"
        raise InvalidInput(f"expected held-out images that are not in the training data, got {got}")


def digest_image(image: Tensor) -> str:
    """Return 16 hexadecimal digits of a hash of one image's pixels, (C, H, W)."""
    digest = hashlib.sha256(str(tuple(image.shape)).encode())
    feed(digest, image)
    return digest.hexdigest()[:16]

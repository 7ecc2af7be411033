"""Splits images at random into training and held-out images, and checks that no image is in both sets."""

import hashlib

import torch
from torch import Tensor

from ...adapters.data.datasets import Data
from ...adapters.models.identity.encoding import feed
from ...errors import InvalidInput


def split_data(data: Data, share: float, seed: int) -> tuple[Data, Data]:
    """Split images at random into two sets. Images with equal pixels are put into the same set.

    Args:
        data: images and labels, with at least 2 different images.
        share: size of the second set, as a proportion of the different images, in (0, 1). Each set has at least one
            image.
        seed: random seed of the split.

    Returns:
        The remaining images, and the images that were split off.

    Raises:
        InvalidInput: If `share` is not in (0, 1), or if there are fewer than 2 different images.
    """
    if not 0 < share < 1:
        raise InvalidInput(f"expected a proportion of held-out images in (0, 1), got {share}")
    digests = [digest_image(image) for image in data.inputs]
    different = list(dict.fromkeys(digests))
    if len(different) < 2:
        raise InvalidInput(
            f"expected at least 2 different images, to use one for training and hold out one, got {len(different)}"
        )
    count = min(max(1, round(share * len(different))), len(different) - 1)
    order = torch.randperm(len(different), generator=torch.Generator().manual_seed(seed))
    held = {different[place] for place in order[:count].tolist()}
    places = [[place for place, digest in enumerate(digests) if (digest in held) == side] for side in (False, True)]
    first, second = (select(data, side) for side in places)
    return first, second


def select(data: Data, places: list[int]) -> Data:
    """Return the images at the positions `places`, with labels and names."""
    return Data(data.inputs[places], data.labels[places], [data.names[place] for place in places])


def check_disjoint(training: Data, held_out: Data) -> None:
    """Check that no held-out image has the same pixels as a training image. Raises InvalidInput otherwise."""
    known = {digest_image(image) for image in training.inputs}
    common = [name for image, name in zip(held_out.inputs, held_out.names, strict=True) if digest_image(image) in known]
    if common:
        got = f"{len(common)} of {len(held_out.names)} in the training data, the first is {common[0]}"
        raise InvalidInput(f"expected held-out images that are not in the training data, got {got}")


def digest_image(image: Tensor) -> str:
    """Return a hash of the pixels of an image, (C, H, W), as 16 hexadecimal digits."""
    digest = hashlib.sha256(str(tuple(image.shape)).encode())
    feed(digest, image)
    return digest.hexdigest()[:16]

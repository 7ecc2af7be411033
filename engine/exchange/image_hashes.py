"""Reloads the images of a results folder, and hashes them as AttackBench does."""

import hashlib
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from ...adapters.data.datasets import Data
from ...adapters.models.identity.digest import digest_data
from ...errors import DavylampError, InvalidInput, Unavailable
from ..attack_run import ModelOnData
from ..sources import DataSource, LoadedCache, ModelSource


def hash_images(inputs: Tensor) -> list[str]:
    """Return the SHA-512 of the float32 values of each image, shape (N, C, H, W), as AttackBench computes it."""
    return [hashlib.sha512(np.ascontiguousarray(each.numpy()).tobytes()).hexdigest() for each in inputs.float().cpu()]


def load_subject_images(subject: ModelOnData, data: Data | str | None, bench: LoadedCache) -> Data:
    """Load the images of a model on data, and verify that they are the evaluated ones.

    Args:
        subject: model on data of a results folder.
        data: images, or a different name for them. None for the folder's name. If the image size depends on the model,
            the model is loaded as well.
        bench: cache of loaded objects.

    Raises:
        Unavailable: If they cannot be loaded, or differ from the evaluated ones.
    """
    reasons: list[str] = []
    source = DataSource.of_subject(subject, data)
    loaders = [lambda: source.load(None)]
    if source.data is None:
        loaders.append(lambda: bench.data(source, bench.model(ModelSource(subject.model, None), "cpu")))
    for load in loaders:
        try:
            images = load()
        except DavylampError as error:
            reasons.append(str(error))
            continue
        if digest_data(images.inputs, images.labels) == subject.data_digest:
            return images
        reasons.append("the images differ from the evaluated ones")
    what = f"could not load the images of {subject.model} ({subject.data}) again"
    raise Unavailable(f"{what}: {reasons[-1]}; name them with `data=NAME`")


def places_of(hashes: Sequence[str], known: Sequence[str]) -> np.ndarray:
    """Return positions of `hashes` in `known`, shape (len(hashes),), -1 if missing; equal hashes match one to one.

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

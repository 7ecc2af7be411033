"""The images that a folder's results are about, loaded again, and the hash by which AttackBench knows each."""

import hashlib
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from ...adapters.data.datasets import Data, load_data, select_by_name
from ...adapters.models.identity.digest import digest_data
from ...errors import DavylampError, InvalidInput, Unavailable
from ..attack_run import ModelOnData
from ..sources import DataSource, LoadedCache, ModelSource


def hash_images(inputs: Tensor) -> list[str]:
    """SHA-512 of the float32 numbers of each image, shape (N, C, H, W), as AttackBench computes it."""
    return [hashlib.sha512(np.ascontiguousarray(each.numpy()).tobytes()).hexdigest() for each in inputs.float().cpu()]


def load_subject_images(subject: ModelOnData, data: Data | str | None, bench: LoadedCache) -> Data:
    """The images of a subject, none other.

    Args:
        subject: of a results folder.
        data: the images, or another name of them; None: by the name in the folder, if need be in the size that the
            model takes, which is loaded for that.
        bench: keeps what was loaded.

    Raises:
        Unavailable: if they cannot be loaded, or are not those that were evaluated.
    """
    reasons: list[str] = []
    limit = None if subject.chosen else subject.images
    name = subject.data if data is None else data
    loaders = [lambda: _without_model(name, limit, subject.chosen)]
    if isinstance(name, str):
        source = DataSource(name, limit, None, subject.chosen)
        loaders.append(lambda: bench.data(source, bench.model(ModelSource(subject.model, None), "cpu")))
    for load in loaders:
        try:
            images = load()
        except DavylampError as error:
            reasons.append(str(error))
            continue
        if digest_data(images.inputs, images.labels) == subject.data_digest:
            return images
        reasons.append("expected the images that were evaluated, got other ones")
    what = f"could not load the images of {subject.model} ({subject.data}) again"
    raise Unavailable(f"{what}: {reasons[-1]}; `data=NAME` says where they are")


def places_of(hashes: Sequence[str], known: Sequence[str]) -> np.ndarray:
    """Where each of `hashes` stands in `known`, shape (len(hashes),); -1: nowhere. Of equal images each takes a place.

    Raises:
        InvalidInput: if none of them is there.
    """
    free: dict[str, list[int]] = {}
    for place in range(len(known) - 1, -1, -1):
        free.setdefault(known[place], []).append(place)
    places = np.array([free[text].pop() if free.get(text) else -1 for text in hashes])
    if (places < 0).all():
        raise InvalidInput(
            f"expected images of the results folder, got {len(hashes)} others (by SHA-512 of float32 pixels in [0, 1], "
            "channels first)"
        )
    return places


def _without_model(data: Data | str, limit: int | None, chosen: Sequence[str]) -> Data:
    images = load_data(data, limit=limit) if isinstance(data, str) else data
    images = Data(images.inputs[:limit], images.labels[:limit], images.names[:limit])
    return select_by_name(images, chosen)

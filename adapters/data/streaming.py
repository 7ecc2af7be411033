"""Iterates over images in blocks, and computes a hash of image files without decoding them."""

from collections.abc import Iterator
from hashlib import sha256

from ..models.classifier import Classifier
from .datasets import Data, list_files, load_data_for, open_prepared, preparation_for_data


def iter_batches(classifier: Classifier, name: str, limit: int | None, size: int) -> Iterator[Data]:
    """Iterate over the images of `load_data_for` in blocks, which are decoded one by one.

    Raises:
        DavylampError: as for `load_data`.
    """
    images = open_prepared(name, limit, preparation_for_data(classifier, name))
    for start in range(0, len(images.labels), size):
        yield images.take(range(start, min(start + size, len(images.labels))))


def split_data(data: Data, size: int) -> Iterator[Data]:
    """Split images in memory into blocks of `size`."""
    for start in range(0, len(data.labels), size):
        part = slice(start, start + size)
        yield Data(data.inputs[part], data.labels[part], data.names[part])


def describe_files(classifier: Classifier, name: str, limit: int | None) -> tuple[str, int]:
    """Return a hash that identifies the images, and the number of images.

    For image files, the hash covers their names, sizes and labels, so that no file is opened. For other data, it covers
    the pixels and labels.

    Raises:
        DavylampError: as for `load_data`.
    """
    listed = list_files(name, limit, preparation_for_data(classifier, name))
    if listed is None:
        data = load_data_for(classifier, name, limit)
        pixels = data.inputs.numpy().tobytes() + data.labels.numpy().tobytes()
        return sha256(pixels).hexdigest()[:20], len(data.labels)
    lines = [f"{item.name} {item.path.stat().st_size} {item.label}" for item in listed[0]]
    return sha256("\n".join(lines).encode()).hexdigest()[:20], len(lines)

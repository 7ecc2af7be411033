"""Iterates over images in blocks, and computes a hash of image files without decoding them."""

from collections.abc import Iterator
from hashlib import sha256

from ..models.classifier import Classifier
from .datasets import Data, list_files, load_data_for, load_prepared, preparation_for_data, read_images


def iter_batches(classifier: Classifier, name: str, limit: int | None, size: int) -> Iterator[Data]:
    """Load data as `load_data_for` does, and yield blocks of `size` images. Image files are read block by block.

    Raises:
        DavylampError: see `load_data`.
    """
    wanted = preparation_for_data(classifier, name)
    listed = list_files(name, limit, wanted)
    if listed is None:
        yield from split_data(load_prepared(name, limit, wanted), size)
    else:
        files, fitting = listed
        for start in range(0, len(files), size):
            yield read_images(files[start : start + size], fitting)


def split_data(data: Data, size: int) -> Iterator[Data]:
    """Split images in memory into blocks of `size`."""
    for start in range(0, len(data.labels), size):
        part = slice(start, start + size)
        yield Data(data.inputs[part], data.labels[part], data.names[part])


def describe_files(classifier: Classifier, name: str, limit: int | None) -> tuple[str, int]:
    """Return a hash that identifies the images of named data, and the number of images.

    For image files, the hash covers names, file sizes and labels. The files are not opened. For other data, the hash
    covers pixels and labels.

    Raises:
        DavylampError: see `load_data`.
    """
    listed = list_files(name, limit, preparation_for_data(classifier, name))
    if listed is None:
        data = load_data_for(classifier, name, limit)
        pixels = data.inputs.numpy().tobytes() + data.labels.numpy().tobytes()
        return sha256(pixels).hexdigest()[:20], len(data.labels)
    lines = [f"{item.name} {item.path.stat().st_size} {item.label}" for item in listed[0]]
    return sha256("\n".join(lines).encode()).hexdigest()[:20], len(lines)

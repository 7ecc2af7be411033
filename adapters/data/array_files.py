"""Opens images and labels in an npz file. The headers of the arrays are checked before any data are read."""

import math
import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import InvalidInput, Unavailable
from ..display_text import format_bytes
from ..models.images import advise_on_labels, check_images
from ..models.multi_label import LABEL_KEYS
from ..user_code_guard import one_line
from .image_folders import alternate_classes
from .lazy_data import LazyData

_INPUT_KEYS = ("inputs", "x", "images")
_MOST_CLASSES = 2**31


def open_npz(path: Path, limit: int | None, *, several: bool = False) -> LazyData:
    """Open the images and labels in an npz file. The names of the images are their indices.

    For `several`, see `open_arrays`.

    Raises:
        Unavailable: if the file does not exist or cannot be read.
        InvalidInput: if the file is not an npz file or has invalid contents. The message names the invalid array.
    """
    if not path.is_file():
        what = "something that is not a file" if path.exists() else "none"
        raise Unavailable(f"expected an npz file, found {what} at {path}")
    try:
        with path.open("rb") as stream:
            if not zipfile.is_zipfile(stream):
                raise InvalidInput(
                    f"expected an npz file, got a different format in {path}; save arrays with numpy.savez"
                )
            stream.seek(0)
            with zipfile.ZipFile(stream) as archive:
                images, labels = (_read_member(archive, keys, path) for keys in (_INPUT_KEYS, LABEL_KEYS))
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, MemoryError, NotImplementedError) as error:
        raise Unavailable(f"could not read {path}: {one_line(error) or type(error).__name__}") from error
    return open_arrays(images, labels, path, limit, several=several)


def open_arrays(
    images: np.ndarray,
    labels: np.ndarray,
    path: Path | str,
    limit: int | None,
    names: Sequence[str] | None = None,
    *,
    several: bool = False,
) -> LazyData:
    """Combine arrays of images and labels to `LazyData`. Shapes are checked now, and pixels when images are taken.

    Args:
        images: images, shape (N, C, H, W) or (N, H, W, C), uint8 or floats in [0, 1].
        labels: labels, integers, shape (N,).
        path: path of the data, for error messages.
        limit: only the first `limit` images are used. If the labels are sorted, one image of each class is used, then a
            second of each class, and so on. None for all images.
        names: names of the images. None for their indices.
        several: whether an image may have several labels. `labels` may then also have the shape (N, L), with 0 or 1 for
            each of L labels.

    Raises:
        InvalidInput: if the arrays are not images and labels.
    """
    if several and labels.ndim == 2 and labels.shape[:1] == images.shape[:1]:
        if labels.dtype.kind not in "biuf" or not np.isin(labels, (0, 1)).all():
            raise InvalidInput(f"expected the labels of each image as 0 or 1 in {path}, got other values")
    else:
        _check_labels(images, labels, path)
    is_last = _has_channels_last(images, path)
    named = [str(place) for place in range(len(images))] if names is None else [*names]
    if len(named) < len(images[:limit]) or (limit is None and len(named) > len(images)):
        raise InvalidInput(f"expected a name for each of the {len(images)} images in {path}, got {len(named)} names")
    if limit is not None and limit < len(images) == len(named) and _is_sorted(labels):
        chosen = alternate_classes(labels)[:limit]
        images, labels, named = images[chosen], labels[chosen], [named[place] for place in chosen]
    images, labels = images[:limit], labels[:limit]

    def read(places: Sequence[int] | None) -> Tensor:
        return _to_inputs(images if places is None else images[list(places)], path, is_last=is_last)

    return LazyData(torch.from_numpy(labels.astype(np.int64)), named[:limit], read)


def _is_sorted(labels: np.ndarray) -> bool:
    """Whether the images are grouped by class, so that the first ones do not represent all classes."""
    return labels.ndim == 1 and bool((np.diff(labels.astype(np.int64)) >= 0).all())


def _check_labels(images: np.ndarray, labels: np.ndarray, path: Path | str) -> None:
    """Raise InvalidInput unless the labels are class numbers, one for each image."""
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        wanted = f"integer labels of shape ({len(images)},)" if images.ndim else "an array of images"
        advice = f"; {advise_on_labels(labels)}" if labels.ndim == 2 else ""
        raise InvalidInput(f"expected {wanted} in {path}, got {labels.dtype} of shape {labels.shape}{advice}")
    if len(labels) and labels.min() < 0:
        raise InvalidInput(f"expected labels >= 0 in {path}, got {labels.min()}")
    if len(labels) and labels.max() >= _MOST_CLASSES:
        raise InvalidInput(f"expected labels as class numbers below {_MOST_CLASSES} in {path}, got {labels.max()}")


def _read_member(archive: zipfile.ZipFile, keys: Sequence[str], path: Path) -> np.ndarray:
    members = {name.removesuffix(".npy"): archive.getinfo(name) for name in archive.namelist()}
    key = next((key for key in keys if key in members), None)
    if key is None:
        got = ", ".join(map(one_line, members)) or "none"
        raise InvalidInput(f"expected an array named {' or '.join(keys)} in {path}, got {got}")
    member = members[key]
    if member.flag_bits & 1:
        raise InvalidInput(f"the array {key} in {path} is encrypted; save the npz file without a password")
    with archive.open(member) as stream:
        _check_header(stream, member.file_size, key, path)
    with archive.open(member) as stream:
        try:
            return np.lib.format.read_array(stream, allow_pickle=False)
        except ValueError as error:
            raise InvalidInput(
                f"expected an array as {key} in {path}, got unreadable data ({one_line(error)})"
            ) from error


def _check_header(stream: Any, size: int, key: str, path: Path) -> None:
    """Check the header of an array in an npz file, before the array is read.

    Raises:
        InvalidInput: if the size in the header differs from the size of the data, or does not fit into memory.
    """
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
    except (ValueError, TypeError, SyntaxError, OverflowError, UnicodeDecodeError) as error:
        raise InvalidInput(f"expected an array (npy) as {key} in {path}, got a broken header") from error
    if dtype.hasobject:
        raise InvalidInput(f"expected an array of numbers as {key} in {path}, got Python objects")
    claimed, held = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if claimed != held or any(side < 0 for side in shape):
        got = f"{dtype} of shape {shape} takes {format_bytes(claimed)}, but there are {format_bytes(held)} of data"
        raise InvalidInput(f"the array {key} in {path} does not match its header: {got}; save the file again")
    memory = _memory()
    if claimed > memory:
        got = f"{format_bytes(claimed)} ({dtype}, {shape})"
        most = f"{format_bytes(memory)} of memory"
        raise InvalidInput(f"expected the array {key} in {path} to fit into {most}, got {got}")


def _memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 48


def _has_channels_last(images: np.ndarray, path: Path | str) -> bool:
    """Whether the shape of images is (N, H, W, C): the last axis has length 1 or 3, and the second axis does not.

    Raises:
        InvalidInput: if neither axis can be the channels.
    """
    if images.ndim != 4 or (images.shape[1] not in (1, 3) and images.shape[3] not in (1, 3)):
        advice = "; add an axis for the channels" if images.ndim == 3 else ""
        wanted = f"1 or 3 channels in images of shape (N, C, H, W) or (N, H, W, C) in {path}"
        raise InvalidInput(f"expected {wanted}, got {images.shape}{advice}")
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        advice = "; save 8-bit images as numpy.uint8" if images.dtype.kind in "iu" else ""
        raise InvalidInput(f"expected images as uint8 or floats in [0, 1] in {path}, got {images.dtype}{advice}")
    return images.shape[1] not in (1, 3)


def _to_inputs(images: np.ndarray, path: Path | str, *, is_last: bool) -> Tensor:
    """Convert images to float32 in [0, 1], shape (N, C, H, W). If `is_last`, the channels are the last axis before."""
    images = images.transpose(0, 3, 1, 2) if is_last else images
    with np.errstate(over="ignore"):  # infinity is refused below
        inputs = torch.from_numpy(np.array(images, dtype=np.float32, order="C"))
    inputs = inputs.div_(255) if images.dtype == np.uint8 else inputs  # in place: thousands of images are gigabytes
    try:
        check_images(inputs)
    except InvalidInput as error:
        raise InvalidInput(f"{error} (in {path})") from error
    return inputs

"""Loads images and labels from a function in a user's Python file."""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from ...errors import InvalidInput
from ..paths import split_file_name
from ..user_code_guard import guard_user_code, one_line
from ..user_file import load_user_object
from .array_files import open_arrays
from .lazy_data import LazyData

_WANTED = "images and labels (N of each), optionally with names, or a dataset of (image, label) pairs"


def open_data_file(name: str, limit: int | None, *, several: bool = False) -> LazyData:
    """Call the user's function "path/to/file.py:load", and return the images, labels and names that it returns.

    If the function has a parameter `limit`, the limit is passed to it, unless there is none and the parameter has a
    default. Otherwise the function is called without arguments. It may return images and labels as tensors or arrays.
    Images are uint8, or floats in [0, 1], with the channels as second or as last axis. The function may also return a
    dataset of (image, label) pairs, from which only the
    needed images are read. For `several`, see `open_arrays`.

    Raises:
        Unavailable: if the file does not exist.
        UnknownName: if the file has no such function.
        ModelFailed: if the file or the function raises an error.
        InvalidInput: if the function does not return images and labels.
    """
    path, function = split_file_name(name)
    with load_user_object(path, function, "a data function") as (load, _):
        if not callable(load):
            raise InvalidInput(f"expected a function as {name}, got {one_line(repr(load))[:80]}")
        with guard_user_code(name, descriptors=True):
            parameter = inspect.signature(load).parameters.get("limit")
            is_given = parameter is not None and (limit is not None or parameter.default is parameter.empty)
            returned = load(limit=limit) if is_given else load()
            images, labels, names = _parts(returned, name, limit)
    named = None if names is None else [str(each) for each in names]
    return open_arrays(images, labels, name, limit, named, several=several)


def _parts(returned: Any, name: str, limit: int | None) -> tuple[np.ndarray, np.ndarray, Any]:
    is_list = isinstance(returned, (tuple, list))
    if is_list and len(returned) in (2, 3) and not all(map(_is_pair, returned)):
        images, labels, *rest = returned
        return _array(images, name), _array(labels, name), rest[0] if rest else None
    if hasattr(returned, "__getitem__") and hasattr(returned, "__len__") and not isinstance(returned, Mapping):
        count = min(len(returned), limit or len(returned))
        pairs = [returned[place] for place in range(count)]
        if pairs and all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
            images, labels = ([np.asarray(pair[place]) for pair in pairs] for place in (0, 1))
            return _stack(images, name), _stack(labels, name), None
    hint = ": return its dataset" if hasattr(returned, "dataset") else ""
    raise InvalidInput(f"expected {name} to return {_WANTED}, got {type(returned).__name__}{hint}")


def _is_pair(value: Any) -> bool:
    """Whether a value is an (image, label) pair."""
    is_two = isinstance(value, (tuple, list)) and len(value) == 2
    return is_two and np.ndim(value[0]) > 1 and not np.ndim(value[1])


def _stack(arrays: list[np.ndarray], name: str) -> np.ndarray:
    """Return arrays of one shape as one array. Raises InvalidInput if the shapes differ."""
    shapes = list(dict.fromkeys(array.shape for array in arrays))
    if len(shapes) > 1:
        raise InvalidInput(
            f"expected images of one size and labels of one shape from {name}, got {shapes[0]} and {shapes[1]}"
        )
    return np.stack(arrays)


def _array(values: Any, name: str) -> np.ndarray:
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.dtype == object:
        raise InvalidInput(
            f"expected {name} to return {_WANTED}, got {type(values).__name__} with elements of several shapes"
        )
    return array

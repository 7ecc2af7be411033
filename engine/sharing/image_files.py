"""Lists, validates and compares the image files of results folders, without unpickling."""

import os
import zipfile
import zlib
from pathlib import Path

import numpy as np

from ..store.atomic_files import read_regular_file


def list_images(folder: Path) -> dict[str, Path]:
    """Return the paths of the image files in a results folder, by file name without ".npz": `KEY-SHARD`."""
    place = folder / "images"
    try:
        names = sorted(os.listdir(place))  # noqa: PTH208 - names alone, of thousands of files
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return {name.removesuffix(".npz"): place / name for name in names if name.endswith(".npz") and name[0] != "."}


def why_unreadable(path: Path) -> str:
    """Return the reason why an image file of a results folder cannot be read; "" if the file is valid."""
    try:
        if not path.is_file():
            return "it is not a regular file"
        return "" if "inputs" in _read(path) else "it contains no images"
    except (OSError, ValueError, KeyError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        return f"{type(error).__name__}: {str(error)[:100]}"


def same_images(one: Path, other: Path) -> bool:
    """Return whether two valid image files contain the same arrays."""
    if one.stat().st_size == other.stat().st_size and read_regular_file(one) == read_regular_file(other):
        return True
    mine, theirs = _read(one), _read(other)
    return mine.keys() == theirs.keys() and all(
        mine[name].dtype == theirs[name].dtype and np.array_equal(mine[name], theirs[name]) for name in mine
    )


def _read(path: Path) -> dict[str, np.ndarray]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}

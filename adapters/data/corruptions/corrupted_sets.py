"""Reads corrupted data sets from disk, and parses names of corrupted data such as "DATA+fog:3"."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ....errors import InvalidInput, Unavailable, UnknownName
from ...paths import expand_path
from ...user_code_guard import one_line
from .published import CORRUPTIONS, SEVERITIES, check_severity, find_corruption

FOLDERS, ARRAYS = ON_DISK = ("imagenet-c", "cifar-10-c")
_NAME = re.compile(r"(?P<base>[^+]*:.*)\+(?P<corruption>[A-Za-z][\w-]*)(?::(?P<severity>[^:/\\+]*))?")


class CorruptionSpec(NamedTuple):
    """A parsed name of corrupted data. If `on_disk` is True, corrupted images are read from disk, not generated."""

    base: str
    corruption: str
    severity: int
    on_disk: bool


def split_corruption(name: str) -> CorruptionSpec | None:
    """Parse "DATA+CORRUPTION:severity". Returns None if the name has no corruption, or is an existing path.

    Raises:
        UnknownName: if there is no such corruption.
        InvalidInput: if the severity is missing or invalid, or a set on disk is named without a corruption.
    """
    source, _, path = name.partition(":")
    match = _NAME.fullmatch(name)
    if match is None or expand_path(path).exists():
        if source in ON_DISK and path:
            raise InvalidInput(f"expected a corruption and its severity, as in {name}+fog:3, got {name}")
        return None
    base, corruption, severity = match["base"], match["corruption"], match["severity"]
    on_disk = source in ON_DISK
    if severity is None and not on_disk and corruption.replace("-", "_") not in CORRUPTIONS:
        return None  # a path that has a plus and is not there
    known = corruption if on_disk else find_corruption(corruption).name
    return CorruptionSpec(base, known, check_severity(severity or "", known), on_disk)


def corruption_folder(root: Path, corruption: str, severity: int) -> Path:
    """Return the folder with the images of a corruption, ROOT/[GROUP/]CORRUPTION/SEVERITY as in ImageNet-C.

    Raises:
        Unavailable: if `root` does not exist, or has no folder for the severity.
        UnknownName: if `root` has no folder for the corruption.
    """
    if not root.is_dir():
        raise Unavailable(f"no such folder: {root} (expected corruptions as ROOT/CORRUPTION/SEVERITY/CLASS)")
    chosen = _choose(corruption, list_corruption_folders(root))
    folder = chosen / str(severity)
    if not folder.is_dir():
        there = ", ".join(str(level) for level in SEVERITIES if (chosen / str(level)).is_dir())
        raise Unavailable(f"no folder for severity {severity} in {chosen} (severities found: {there or 'none'})")
    return folder


def list_corruption_folders(root: Path) -> dict[str, Path]:
    """Return the corruption folders in `root`, by the name of the corruption.

    A corruption folder contains a folder for at least one severity. It is in `root`, or in a group folder of `root`
    such as "noise".
    """
    levels = [str(severity) for severity in SEVERITIES]
    folders = [path for pattern in ("*", "*/*") for path in sorted(root.glob(pattern)) if path.is_dir()]
    return {path.name: path for path in folders if any((path / level).is_dir() for level in levels)}


def list_sets(data: str) -> tuple[str, ...]:
    """List the names of the corruptions in a corrupted data set on disk. Empty for other data.

    Args:
        data: name of the data, "imagenet-c:PATH" or "cifar-10-c:PATH".

    Raises:
        Unavailable: if the folder does not exist, or contains no corruption.
    """
    source, _, path = data.partition(":")
    if source not in ON_DISK:
        return ()
    root = expand_path(path)
    names = list_corruption_folders(root) if source == FOLDERS else _list_arrays(root)
    if not names:
        layout = "CORRUPTION/SEVERITY/CLASS" if source == FOLDERS else "CORRUPTION.npy"
        raise Unavailable(f"no {layout} in {root}")
    return tuple(names)


def check_set(data: str, corruptions: Iterable[str], severities: Iterable[int]) -> None:
    """Check that a corrupted data set on disk has all corruptions and severities. Other data are not checked.

    Raises:
        UnknownName: if the data set does not have a corruption.
        Unavailable: if the data set does not exist or does not have a severity.
    """
    source, _, path = data.partition(":")
    root, levels = expand_path(path), tuple(severities)
    for corruption in corruptions:
        if source == ARRAYS:
            _choose(corruption, _list_arrays(root))
        for severity in levels if source == FOLDERS else ():
            corruption_folder(root, corruption, severity)


def _list_arrays(root: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted(root.glob("*.npy")) if path.stem != "labels"}


def read_corruption_arrays(
    root: Path, corruption: str, severity: int, limit: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Load the images of one corruption and severity from files as in CIFAR-10-C.

    The file of a corruption contains the images of all five severities, one severity after the other.

    Returns:
        The images, uint8, shape (N, 32, 32, 3), and the labels, shape (N,).

    Raises:
        Unavailable: if a file does not exist or cannot be read.
        UnknownName: if there is no array for this corruption.
        InvalidInput: if the arrays have invalid contents.
    """
    if not root.is_dir():
        raise Unavailable(f"no such folder: {root} (expected CORRUPTION.npy and labels.npy in it)")
    images = _read_array(_choose(corruption, _list_arrays(root)))
    labels = _read_array(root / "labels.npy")
    if images.ndim != 4 or labels.ndim != 1 or len(images) % len(SEVERITIES) or not len(images):
        got = f"{images.shape} and {labels.shape}"
        raise InvalidInput(
            f"expected images of shape (5 N, H, W, C), for five severities, and one-dimensional labels in {root}, "
            f"got shapes {got}"
        )
    each = len(images) // len(SEVERITIES)
    if len(labels) not in (each, len(images)):
        raise InvalidInput(f"expected {each} or {len(images)} labels in {root}, got {len(labels)}")
    first = (severity - 1) * each
    rows = slice(first, first + (each if limit is None else min(limit, each)))
    kept = labels[rows] if len(labels) == len(images) else labels[: rows.stop - rows.start]
    return np.array(images[rows]), np.array(kept)


def _read_array(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise Unavailable(f"could not read {path}: {one_line(error) or type(error).__name__}") from error


def _choose(corruption: str, there: dict[str, Path]) -> Path:
    name = corruption if corruption in there else corruption.replace("-", "_")
    if name not in there:
        raise UnknownName("corruption", corruption, there)
    return there[name]

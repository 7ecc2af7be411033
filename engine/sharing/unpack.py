"""Unpacks bundles that may come from anybody. Names, sizes and checksums of all files are verified first."""

import hashlib
import json
import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InvalidInput, Unavailable
from ..store.atomic_files import expand_path
from ..store.store import KINDS
from .bundle import CHECKSUMS
from .gather import gather
from .image_files import list_images
from .merge import MergeSummary, check_mergeable, check_target, count_records

LARGEST = 64 << 30  # bytes that a bundle may unpack to
_MOST = 1_000_000  # files
_TEXT = 64 << 20  # bytes of the list of checksums and of the manifest
_RATIO = 200  # largest compression ratio of a file
_SMALL = 1 << 20  # bytes below which the ratio is not checked
_CHUNK = 1 << 20
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,150}"
_ALLOWED = re.compile(
    rf"davylamp\.json|sequence\.json|bundle\.json|croissant\.json|README\.md|LICENSE\.txt|{CHECKSUMS}|data/[a-z_]{{1,40}}\.parquet"
    rf"|(?:{'|'.join(KINDS)})/{_NAME}\.parquet|images/{_NAME}\.npz"
)
_NEEDED = ("davylamp.json", "bundle.json", CHECKSUMS)
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, KeyError)


def unpack_bundle(path: str | Path, folder: str | Path) -> MergeSummary:
    """Unpack a bundle into a results folder. If an error occurs, the folder is not created.

    Args:
        path: bundle written by `davylamp export`.
        folder: the results folder to create. If the folder exists, it must be empty.

    Raises:
        InvalidInput: If the file is not a bundle, contains unexpected files, or unpacks to more than 64 GiB. Also if a
            checksum is wrong.
        Unavailable: If the bundle cannot be read, or the folder cannot be written.
    """
    source, target = expand_path(path), check_target(folder)
    draft = target.with_name(f".{target.name}.importing")
    try:
        shutil.rmtree(draft, ignore_errors=True)  # left by an interrupted import
        draft.mkdir()
        gathered = _unpack(source, draft)
        if target.is_dir():
            target.rmdir()
        draft.rename(target)
    except OSError as error:
        if isinstance(error, Unavailable):
            raise
        raise Unavailable(
            f"could not unpack {path} ({error.strerror or error}); free disk space and run the command again"
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return gathered._replace(folder=target)


def _unpack(source: Path, draft: Path) -> MergeSummary:
    if not source.is_file():
        raise Unavailable(f"expected a bundle (made by `davylamp export`), got {source}")
    try:
        with zipfile.ZipFile(source) as bundle:
            entries = _check_entries(bundle, source)
            sums = _read_checksums(bundle, entries, source)
            needed = sum(entry.file_size for entry in entries.values())
            if shutil.disk_usage(draft).free < needed:
                raise Unavailable(
                    f"could not unpack {source}: it needs {needed} bytes; free disk space and run the command again"
                )
            for name, entry in entries.items():
                _extract(bundle, entry, draft / name, sums.get(name), source)
    except _BROKEN as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"expected a bundle, got {source}: {type(error).__name__} ({str(error)[:100]})") from error
    _check_manifest(draft, source)
    left = LARGEST - needed
    for name, image in list_images(draft).items():
        left -= _check_arrays(image, f"images/{name}.npz of {source}", left)
    gathered = check_mergeable(gather([draft]))
    return MergeSummary(draft, count_records(gathered), gathered.notes)


def _check_entries(bundle: zipfile.ZipFile, source: Path) -> dict[str, zipfile.ZipInfo]:
    """Check that a bundle contains only allowed files, and return the ZIP entries of the files by name."""
    entries: dict[str, zipfile.ZipInfo] = {}
    listed = bundle.infolist()
    if len(listed) > _MOST:
        raise InvalidInput(f"expected at most {_MOST} files in {source}, got {len(listed)}")
    for entry in listed:
        if why := _why_refused(entry, entries):
            raise InvalidInput(f"refused: {source} contains {entry.filename[:100]!r}: {why}")
        entries[entry.filename] = entry
    if missing := [name for name in _NEEDED if name not in entries]:
        raise InvalidInput(f"expected a bundle (made by `davylamp export`), got {source} without {missing[0]}")
    size, packed = (sum(getattr(each, name) for each in listed) for name in ("file_size", "compress_size"))
    if size > LARGEST:
        raise InvalidInput(f"refused: {source} unpacks to {size} bytes, more than the limit of {LARGEST}")
    if packed > source.stat().st_size:
        raise InvalidInput(f"refused: the bytes of one file in {source} belong to several files")
    return entries


def _why_refused(entry: zipfile.ZipInfo, entries: Mapping[str, zipfile.ZipInfo]) -> str:
    """Return the reason why a bundle must not contain a file; "" if the file is allowed."""
    named = bool(_ALLOWED.fullmatch(entry.orig_filename)) and entry.orig_filename == entry.filename
    reasons = {
        "its name or location is not allowed": not named,
        "it is a link or a special file": stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG),
        "it is duplicated": entry.filename in entries,
        "it is encrypted": bool(entry.flag_bits & 1),
        "its compression method is neither stored nor deflate": entry.compress_type not in _METHODS,
        f"it unpacks from {entry.compress_size} to {entry.file_size} bytes, a suspicious ratio": entry.file_size
        > max(_SMALL, _RATIO * entry.compress_size),
    }
    return next((why for why, holds in reasons.items() if holds), "")


def _read_checksums(bundle: zipfile.ZipFile, entries: Mapping[str, zipfile.ZipInfo], source: Path) -> dict[str, str]:
    """Read the SHA-256 checksums of a bundle, and return them by file name."""
    if entries[CHECKSUMS].file_size > _TEXT:
        raise InvalidInput(f"refused: {CHECKSUMS} of {source} is larger than {_TEXT} bytes")
    lines = bundle.read(CHECKSUMS).decode("utf-8").splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    if differing := sorted(sums.keys() ^ (entries.keys() - {CHECKSUMS})):
        raise InvalidInput(
            f"expected one checksum for each file in {source}: {differing[0][:100]!r} has no checksum, or is not in "
            "the bundle"
        )
    return sums


def _extract(bundle: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path, digest: str | None, source: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    hashed = hashlib.sha256()
    with bundle.open(entry) as packed, path.open("xb") as file:
        while chunk := packed.read(_CHUNK):
            hashed.update(chunk)
            file.write(chunk)
    if digest is not None and hashed.hexdigest() != digest:
        raise InvalidInput(
            f"refused: {entry.filename} of {source} does not match its checksum, so the bundle is damaged or "
            "was changed; get it again from its author"
        )


def _check_manifest(draft: Path, source: Path) -> None:
    path = draft / "bundle.json"
    try:
        stated = json.loads(path.read_bytes()) if path.stat().st_size <= _TEXT else None
    except (ValueError, RecursionError):
        stated = None
    if not isinstance(stated, dict) or stated.get("bundle") != 1:
        raise InvalidInput(f"expected a bundle of format 1, got a different format in {source}; update davylamp")


def _check_arrays(path: Path, title: str, left: int) -> int:
    """Check that an image file contains only plain arrays of the declared sizes, and return its unpacked size."""
    total = 0
    try:
        with zipfile.ZipFile(path) as arrays:
            for entry in arrays.infolist():
                total += entry.file_size
                if total > left:
                    raise InvalidInput(f"refused: with {title}, the images unpack to more than {LARGEST} bytes")
                if entry.compress_type not in _METHODS:
                    raise InvalidInput(f"refused: the compression method of {title} is neither stored nor deflate")
                with arrays.open(entry) as file:
                    check_array_header(file, entry, title)
    except _BROKEN as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"refused: the arrays in {title} cannot be read ({type(error).__name__})") from error
    return total


def check_array_header(file: Any, entry: zipfile.ZipInfo, title: str) -> None:
    """Check the header of an array file before its array is read.

    Raises:
        InvalidInput: If the file contains pickled objects, or if the array in its header is larger than the file.
    """
    major, _ = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise InvalidInput(f"refused: {title} contains pickled objects")
    if int(np.prod([int(side) for side in shape], dtype=object)) * dtype.itemsize > entry.file_size:
        raise InvalidInput(f"refused: the header of {title} describes a larger array than the file contains")

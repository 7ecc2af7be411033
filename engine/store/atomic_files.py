"""Writes files atomically. Reads regular files only, never a device or a pipe."""

import errno
import os
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ...adapters.paths import check_output_path, expand_path
from ...errors import Unavailable

__all__ = [
    "LARGEST",
    "check_output_path",
    "expand_path",
    "open_regular",
    "read_regular_file",
    "replace_file",
    "write_atomic",
]

LARGEST = 1 << 32  # bytes of a file that is read into memory


def write_atomic(path: str | Path, data: bytes | str, *, advice: str = "choose a different file for `out`") -> Path:
    """Write a file atomically: write a draft in the same folder, sync the draft to disk, and rename it.

    Text is encoded as UTF-8. If the path exists and is not a regular file, such as /dev/stdout, it is written directly.

    Args:
        path: path of the file. Its folder must exist.
        data: the whole content.
        advice: advice for the user in the error message if writing fails.

    Raises:
        Unavailable: if the file cannot be written. An existing file is then unchanged.
    """
    path = check_output_path(path, advice=advice)
    content = data.encode("utf-8") if isinstance(data, str) else data
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            replace_file(path.resolve(), lambda draft: draft.write_bytes(content))
    except OSError as error:
        raise Unavailable(f"could not write {path} ({error.strerror or error}); {advice}") from error
    return path


def replace_file(path: Path, save: Callable[[Path], object]) -> None:
    """Replace a file atomically by a new version.

    Args:
        path: path of the file.
        save: function that writes the new version to the path that it gets. This path is a draft in the same folder,
            which is then renamed.

    Raises:
        OSError: if this fails. The draft is then deleted.
    """
    draft = path.with_name(f".{uuid.uuid4().hex}.{path.name[-60:]}")
    try:
        save(draft)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read_regular_file(path: Path, largest: int = LARGEST) -> bytes:
    """Read a file into memory. Devices and pipes are refused.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is not a regular file, or larger than `largest`.
    """
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > largest:
            raise ValueError(f"the file is larger than {largest} bytes")
        return file.read()


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading.

    Raises:
        OSError: if it cannot be opened.
        ValueError: if it is not a regular file.
    """
    # Non-blocking, because opening a pipe without a writer would block forever.
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # links in a circle; a socket
            raise ValueError(f"not a regular file: {error.strerror}") from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("not a regular file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(handle)

"""Files that are written whole or not at all, and read only if they are what they seem: never a device or a pipe."""

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

LARGEST = 1 << 32  # bytes of a file that is read at once


def write_atomic(path: str | Path, data: bytes | str, *, advice: str = "choose another file for `out`") -> Path:
    """Write a file beside its place and move it there when every byte is on the disk; a text as UTF-8.

    What is no regular file, such as /dev/stdout, is written as it is.

    Args:
        path: where; its folder has to be there.
        data: all of it.
        advice: what to do if that fails.

    Raises:
        Unavailable: if it cannot be written; a file that was there stays as it was.
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
    """Let `save` write a draft beside a file, then put it in the file's place.

    Raises:
        OSError: if that fails; no draft is left behind.
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
    """The bytes of a regular file.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is something else, or larger than `largest`.
    """
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > largest:
            raise ValueError(f"it is larger than {largest} bytes")
        return file.read()


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """A regular file, open to be read.

    Raises:
        OSError: if it cannot be opened.
        ValueError: if it is something else.
    """
    # Without waiting: to open a pipe that nobody writes to would never end.
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # links in a circle; a socket
            raise ValueError(f"it is no regular file: {error.strerror}") from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("it is no regular file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(handle)

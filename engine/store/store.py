"""A folder of results: one checked Parquet file for each cell, renamed into place when it is whole.

Where folders were put together by copying, a key may have several files; `select_record` says which one counts.
"""

import contextlib
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout

from ...errors import DavylampError, StoreMismatch, Unavailable
from ..thread_map import thread_map
from .atomic_files import expand_path, open_regular, read_regular_file, replace_file
from .checksummed import (
    FORMAT,
    ConflictingRecordsError,
    DamagedRecordError,
    Record,
    content_of,
    differing_columns,
    open_parquet,
    pack_record,
    read_columns,
    read_first_rows,
    read_header,
    unpack_record,
)

Kind = Literal[
    "clean",
    "cells",
    "parts",
    "transfer",
    "fits",
    "checks",
    "plans",
    "corruptions",
    "references",
    "detections",
    "published",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
_MARK_BYTES = 1 << 16
WRONG_ONE = "delete the wrong one"


class ResultsStore:
    """A results folder. Files are written whole or not at all; folders of several machines merge by copying.

    `clean/` has the predictions on clean images by subject, `cells/` the records by cell, `parts/` the finished pieces
    of cells under way, `fits/` what attacks that learn once have learned, `transfer/` the same examples on other
    models, `checks/` what running a cell again on a few images gave, `corruptions/` predictions on corrupted images,
    `detections/` what trained detectors score the examples, `images/` adversarial images, `plans/` what is still to be
    run, `references/` what another program reports of the same images, `published/` rows of leaderboards as their
    makers publish them, `locks/` who is at work on what.

    A record is `KIND/KEY.CONTENT.parquet`, where CONTENT is a hash over what was found, without the times (davylamp
    0.1.0: `KEY.parquet`). So a copy never replaces a record by one that says something else: both are there then, and
    reading them is a `ConflictingRecordsError` unless they differ in rounding alone, one replaces the other, or one has failed.

    Args:
        folder: made when the first file is written, if it is not there.
        create: False: it has to be there.

    Raises:
        StoreMismatch: if the folder was written in another format.
        Unavailable: if it cannot be made or read.
    """

    def __init__(self, folder: str | Path, *, create: bool = True):
        self.folder = expand_path(folder)
        mark = self.folder / "davylamp.json"
        try:
            there = mark.is_file()
            if not there and create:
                self._check_place()
        except (OSError, ValueError) as error:  # ValueError: a null byte in the path
            raise Unavailable(f"expected a results folder that can be read, got {self.folder} ({error})") from error
        if there:
            self._check_mark(mark)
        elif not create:
            raise Unavailable(f"expected a results folder (made by `davylamp evaluate`), got {self.folder}")

    def prepare(self) -> None:
        """Make the folder and its mark.

        Raises:
            OSError: if that fails.
        """
        mark = self.folder / "davylamp.json"
        if not mark.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"format": FORMAT}) + "\n"
            replace_file(mark, lambda path: path.write_text(text, encoding="utf-8"))

    def path(self, kind: Kind, key: str) -> Path:
        """Path of the file of a key; if there is none, the path that davylamp 0.1.0 would have used."""
        return next(iter(self.files(kind, key)), self.folder / kind / f"{key}.parquet")

    def keys(self, kind: Kind) -> list[str]:
        """Keys of all files of a kind, sorted."""
        return sorted(self._by_key(kind))

    def write(self, kind: Kind, key: str, table: pa.Table, meta: Mapping[str, Any]) -> None:
        """Write a record, replacing what there is of that key.

        Raises:
            Unavailable: if the disk is full or not writable; nothing is left behind.
        """
        before = self.files(kind, key)
        sealed = pack_record(table, meta, f"{kind}/{key}", [content_in(path) for path in before])
        target = self.folder / kind / f"{key}.{content_of(table, meta)}.parquet"
        self._write(target, lambda path: path.write_bytes(sealed))
        for path in before:
            if path != target:
                _remove(path)

    def read(self, kind: Kind, key: str, columns: Collection[str] | None = None, *, headers: bool = False) -> Record:
        """Read and check a record.

        Args:
            kind: of the record.
            key: of the record.
            columns: of its table only these, as far as it has them; None: all.
            headers: see `read_all`.

        Raises:
            Damaged: if it is cut short, altered in any byte, not the file of that key, or no regular file; `ConflictingRecordsError`
                if there are two that say different things.
            StoreMismatch: if it was written in another format.
            FileNotFoundError: if there is none.
            Unavailable: if it may not or cannot be read.
        """
        try:
            return _choose(self.files(kind, key), kind, key, columns, headers=headers)
        except FileNotFoundError:  # another process has just replaced it
            return _choose(self.files(kind, key), kind, key, columns, headers=headers)

    def read_all(
        self,
        kind: Kind,
        columns: Collection[str] | None = None,
        *,
        headers: bool = False,
        keys: Collection[str] | None = None,
    ) -> Iterator[tuple[str, Record | DamagedRecordError]]:
        """Every record of a kind by key; one that cannot be used is given as the error that says so.

        Args:
            kind: of the records.
            columns: of their tables only these, as far as they have them (`Record.more` reads others); None: all.
            headers: without a column, and what a file says of itself is believed: bytes that were altered in its
                columns go unnoticed. Two files of one key are read whole all the same.
            keys: only the records of these; None: all.
        """

        def read(item: tuple[str, list[Path]]) -> tuple[str, Record | DamagedRecordError] | None:
            key, files = item
            try:
                return key, _choose(files, kind, key, columns, headers=headers)
            except DamagedRecordError as damage:
                return key, damage
            except DavylampError as error:  # one file that cannot be read costs itself
                return key, DamagedRecordError(str(error))
            except FileNotFoundError:  # another process has just put the parts together
                return None

        listed = sorted(item for item in self._by_key(kind).items() if keys is None or item[0] in keys)
        yield from filter(None, map(read, listed) if headers else thread_map(read, listed))

    def remove(self, kind: Kind, key: str) -> None:
        """Delete what there is of a key."""
        for path in self.files(kind, key):
            _remove(path)

    def write_images(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Save adversarial images losslessly: `images/NAME.npz`, which `--data npz:FILE` reads."""
        self._write(self.images_path(name), lambda path: _save_npz(path, arrays))

    def read_images(self, name: str) -> np.ndarray:
        """The adversarial images of a shard.

        Raises:
            Unavailable: if they cannot be read. A damaged file is removed, so that the next run makes it again.
        """
        path = self.images_path(name)
        try:
            if not path.is_file():
                raise FileNotFoundError("no such file")
            with path.open("rb") as file, np.load(file) as arrays:
                return arrays["inputs"]
        except OSError as error:
            raise Unavailable(f"could not read {path} ({error})") from error
        except (ValueError, KeyError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
            _remove(path)
            raise Unavailable(f"{path} was damaged ({error}) and is removed; run it again to make it again") from error

    def images_path(self, name: str) -> Path:
        """Path of the images of a shard, `KEY-SHARD`."""
        return self.folder / "images" / f"{name}.npz"

    def claim(self, name: str) -> FileLock | None:
        """Take a piece of work for this process; None while another one has it. It is free again if that one dies."""
        lock = FileLock(self.folder / "locks" / f"{name}.lock", thread_local=False)
        try:
            self.prepare()
            (self.folder / "locks").mkdir(exist_ok=True)
            return lock.acquire(timeout=0).lock  # type: ignore[return-value]
        except Timeout:
            return None
        except OSError as error:
            raise Unavailable(f"could not write {lock.lock_file} ({error}); free space and run it again") from error

    def release(self, name: str, lock: FileLock) -> None:
        """Give a claimed piece of work back."""
        with contextlib.suppress(OSError):  # a disk that became read-only: the lock itself ends with this process
            (self.folder / "locks" / f"{name}.lock").unlink(missing_ok=True)
        lock.release()

    def claimed(self) -> set[str]:
        """Names of the pieces of work that some process has now; what one that died has left is not among them."""
        return {path.stem for path in (self.folder / "locks").glob("*.lock") if _is_held(path)}

    def _check_place(self) -> None:
        """Raise Unavailable unless the folder is there or can be made."""
        place = next(path for path in (self.folder, *self.folder.absolute().parents) if path.exists())
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            raise Unavailable(f"expected a results folder that can be made, got {self.folder} (see {place})")

    def _check_mark(self, mark: Path) -> None:
        try:
            stated = json.loads(read_regular_file(mark, _MARK_BYTES))
        except (OSError, ValueError, RecursionError) as error:
            raise Unavailable(f"expected a results folder that can be read, got {self.folder} ({error})") from error
        if not isinstance(stated, dict) or stated.get("format") != FORMAT:
            got = str(stated.get("format") if isinstance(stated, dict) else stated)[:40]
            raise StoreMismatch(f"expected results of format {FORMAT} in {self.folder}, got {got} in {mark.name}")

    def _write(self, path: Path, save: Callable[[Path], object]) -> None:
        try:
            self.prepare()
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, save)
        except OSError as error:
            raise Unavailable(f"could not write {path} ({error}); free space and run it again: it resumes") from error

    def _by_key(self, kind: Kind) -> dict[str, list[Path]]:
        files: dict[str, list[Path]] = {}
        try:
            names = sorted(os.listdir(self.folder / kind))  # noqa: PTH208 - names alone, of thousands of files
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise Unavailable(f"could not read {self.folder / kind} ({error})") from error
        for name in names:
            if name.endswith(".parquet") and name[0] != ".":
                files.setdefault(name.partition(".")[0], []).append(self.folder / kind / name)
        return files

    def files(self, kind: Kind, key: str) -> list[Path]:
        """Every file of a key: several where folders were put together by copying."""
        return self._by_key(kind).get(key, [])


def read_files(
    files: Iterable[Path], name: str, columns: Collection[str] | None = None, *, headers: bool = False
) -> tuple[dict[Path, Record], dict[Path, DamagedRecordError]]:
    """Read the files of one key, and why some cannot be used; files that are gone by now are left out.

    Args:
        files: of one key.
        name: what they should hold: "cells/KEY".
        columns: of the table only these, as far as the file has them; None: all. Several files are read whole, to be
            held against one another.
        headers: what a single file says of itself is believed, and nothing else of it is read.

    Raises:
        StoreMismatch: if one was written in another format.
        Unavailable: if one may not or cannot be read.
    """
    files = [*files]
    if len(files) > 1:
        columns, headers = None, False
    records: dict[Path, Record] = {}
    damaged: dict[Path, DamagedRecordError] = {}
    for path in files:
        try:
            records[path] = _read_file(path, name, columns, headers=headers)
        except DamagedRecordError as error:
            damaged[path] = error
        except FileNotFoundError:
            continue
    return records, damaged


def select_record(records: Mapping[Path, Record]) -> Path:
    """The file that counts: not one that another replaces, nor a failure beside a result; of equal ones the first.

    Raises:
        Conflict: if they say different things.
    """
    replaced = {each for path, record in records.items() for each in set(record.replaces) - {content_in(path)}}
    left = {path: record for path, record in records.items() if content_in(path) not in replaced} or records
    left = {path: record for path, record in left.items() if not record.failed} or dict([*left.items()][:1])
    (first, record), *others = left.items()
    for path, other in others:
        if columns := differing_columns(record.table, other.table):
            difference = f"they differ in {', '.join(columns[:3])}{' and more' if len(columns) > 3 else ''}"
            shown = path.name if path.parent == first.parent else path
            raise ConflictingRecordsError(f"{first} and {shown} are two results of one key: {difference}; {WRONG_ONE}")
    return first


def content_in(path: Path) -> str:
    """The hash of the content in a file's name; "" in names of davylamp 0.1.0."""
    return path.name.removesuffix(".parquet").partition(".")[2]


class _RecordFile(NamedTuple):
    """A file that was read, to be read further as long as it stays the same: device, inode, size and time."""

    path: Path
    stamp: tuple[int, ...]

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The file, open to be read.

        Raises:
            Unavailable: if it cannot be read any more, or has changed.
        """
        try:
            with open_regular(self.path) as file:
                if _stamp(os.fstat(file.fileno())) != self.stamp:
                    raise Unavailable(f"{self.path} was changed while it was read; run it again")
                yield file
        except (Unavailable, pa.ArrowException):
            raise
        except (OSError, ValueError) as error:
            raise Unavailable(f"could not read {self.path} ({error})") from error

    def more(self, names: Collection[str], rows: int | None = None) -> pa.Table:
        """Further columns, of all rows or of the first ones.

        Raises:
            Unavailable: if it cannot be read any more, or has changed.
        """
        with self.open() as file:
            try:
                parquet = open_parquet(file)
                return read_columns(parquet, names) if rows is None else read_first_rows(parquet, names, rows)
            except pa.ArrowException as error:
                raise Unavailable(f"could not read {self.path} ({error})") from error


def _stamp(about: os.stat_result) -> tuple[int, ...]:
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns


def _read_file(path: Path, name: str, columns: Collection[str] | None, *, headers: bool) -> Record:
    """The record in a file; errors name the file."""
    try:
        if columns is None and not headers:
            return unpack_record(read_regular_file(path), name)
        file = _RecordFile(path, _stamp(path.stat()))
        if headers:
            record = read_header(partial(open_regular, path), name)
        else:
            record = unpack_record(read_regular_file(path), name, columns, file.open)
        return replace(record, more=file.more)
    except FileNotFoundError as error:
        if path.is_symlink():
            raise DamagedRecordError(f"{path} is damaged (it is a link to nothing)") from error
        raise
    except OSError as error:
        raise Unavailable(f"could not read {path} ({error})") from error
    except (DamagedRecordError, ValueError) as error:
        if isinstance(error, StoreMismatch):
            raise StoreMismatch(f"{error} in {path}") from error
        raise DamagedRecordError(f"{path} is damaged ({error})") from error


def _choose(
    files: list[Path], kind: Kind, key: str, columns: Collection[str] | None = None, *, headers: bool = False
) -> Record:
    """The record of a key that counts, see `select_record`.

    Raises:
        Damaged: if all are; `ConflictingRecordsError` if they say different things.
        FileNotFoundError: if there is none (any more).
    """
    records, damaged = read_files(files, f"{kind}/{key}", columns, headers=headers)
    if not records:
        raise next(iter(damaged.values()), FileNotFoundError(f"{kind}/{key}"))
    return records[select_record(records)]


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # a full folder of that name, or no right to: the record beside it counts
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        path.unlink(missing_ok=True)


def _is_held(path: Path) -> bool:
    """Whether a process has a lock; looked at without writing, as the folder may be read-only."""
    try:
        import fcntl
    except ImportError:  # Windows
        return _cannot_lock(path)
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _cannot_lock(path: Path) -> bool:
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except OSError:  # another process has it
        return path.exists()
    lock.release()
    return False


def _save_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

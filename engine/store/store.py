"""Results folders on disk: one checksummed Parquet file for each run, renamed into place when it is complete.

If folders were merged by copying, a key may have several files; `select_record` chooses one.
"""

import contextlib
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout

from ...adapters.coercion import read_path
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


@dataclass(frozen=True)
class EvaluatedFolder(os.PathLike[str]):
    """Path of a results folder of which only some models are read: those of one evaluation.

    Args:
        folder: the results folder.
        evaluated: keys of the models on their images (`ModelOnData.key`).
    """

    folder: Path
    evaluated: frozenset[str]

    def __fspath__(self) -> str:
        return str(self.folder)

    __str__ = __fspath__


def is_selected(folder: str | os.PathLike[str], subject: str) -> bool:
    """Whether results of a model on its images, by key, are read from a folder.

    If the folder has an attribute `evaluated` (`EvaluatedFolder`, `Evaluation`), only results of these keys are read.
    """
    evaluated = getattr(folder, "evaluated", None)
    return not evaluated or subject in evaluated


class ResultsStore:
    """A results folder. Files are written atomically, and folders of several machines can be merged by copying.

    - `clean/`: predictions on clean images.
    - `cells/`: records of runs.
    - `parts/`: finished shards of unfinished runs.
    - `fits/`: fitted attacks.
    - `transfer/`: predictions on other models' examples.
    - `checks/`: results of probes.
    - `corruptions/`: predictions on corrupted images.
    - `detections/`: scores of trained detectors.
    - `images/`: adversarial images.
    - `plans/`: planned runs.
    - `references/`: results of other programs on the same images.
    - `published/`: rows of leaderboards.
    - `locks/`: locks of running tasks.

    A record is `KIND/KEY.CONTENT.parquet`. CONTENT is a hash of the results, without times (davylamp 0.1.0:
    `KEY.parquet`). Copying therefore never replaces a record by one with different results. Both files then exist, and
    reading them raises `ConflictingRecordsError` unless they differ in rounding only, one replaces the other, or one
    has failed.

    Args:
        folder: path; created when the first file is written.
        create: whether the folder may be new; if False, it must exist.

    Raises:
        StoreMismatch: if the folder was written in a different format.
        Unavailable: if it cannot be created or read.
    """

    def __init__(self, folder: str | os.PathLike[str], *, create: bool = True):
        self.folder = expand_path(read_path(folder, "a results folder"))
        mark = self.folder / "davylamp.json"
        try:
            there = mark.is_file()
            if not there and create:
                self._check_place()
        except (OSError, ValueError) as error:  # ValueError: a null byte in the path
            raise Unavailable(f"could not read the results folder {self.folder} ({error})") from error
        if there:
            self._check_mark(mark)
        elif not create:
            is_file = "the file " if self.folder.is_file() else ""
            raise Unavailable(f"expected a results folder (made by `davylamp evaluate`), got {is_file}{self.folder}")

    def prepare(self) -> None:
        """Create the folder and its format file.

        Raises:
            OSError: if that fails.
        """
        mark = self.folder / "davylamp.json"
        if not mark.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"format": FORMAT}) + "\n"
            replace_file(mark, lambda path: path.write_text(text, encoding="utf-8"))

    def path(self, kind: Kind, key: str) -> Path:
        """Return the path of a key's file. For a new key, the path has no content hash, as in davylamp 0.1.0."""
        return next(iter(self.files(kind, key)), self.folder / kind / f"{key}.parquet")

    def keys(self, kind: Kind) -> list[str]:
        """Return the keys of all files of a kind, sorted."""
        return sorted({name.partition(".")[0] for name in self._names(kind)})

    def write(self, kind: Kind, key: str, table: pa.Table, meta: Mapping[str, Any]) -> None:
        """Write a record. Earlier files of the key are replaced.

        Raises:
            Unavailable: if the disk is full or not writable. No partial file remains.
        """
        before = self.files(kind, key)
        sealed = pack_record(table, meta, f"{kind}/{key}", [content_in(path) for path in before])
        target = self.folder / kind / f"{key}.{content_of(table, meta)}.parquet"
        self._write(target, lambda path: path.write_bytes(sealed))
        for path in before:
            if path != target:
                _remove(path)

    def read(self, kind: Kind, key: str, columns: Collection[str] | None = None, *, headers: bool = False) -> Record:
        """Read and validate a record.

        Args:
            kind: kind of the record.
            key: key of the record.
            columns: names of columns to read, if the file has them. None for all.
            headers: see `read_all`.

        Raises:
            DamagedRecordError: if the file is incomplete or altered, has a different key, or is not a regular file.
            ConflictingRecordsError: if there are two files with different results.
            StoreMismatch: if the file was written in a different format.
            FileNotFoundError: if there is no such record.
            Unavailable: if the file cannot be read.
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
        """Yield every key of a kind with its record. If the record is unusable, yield the error instead.

        Args:
            kind: kind of the records.
            columns: names of columns to read, if the files have them. `Record.more` reads other columns later. None for
                all.
            headers: whether to read only the headers of files. Checksums are then not verified, so altered bytes in
                columns are not detected. If a key has several files, they are always read completely.
            keys: keys of the records to read. None for all.
        """

        def read(item: tuple[str, list[Path]]) -> tuple[str, Record | DamagedRecordError] | None:
            key, files = item
            try:
                return key, _choose(files, kind, key, columns, headers=headers)
            except DamagedRecordError as damage:
                return key, damage
            except DavylampError as error:  # an unreadable file affects only itself
                return key, DamagedRecordError(str(error))
            except FileNotFoundError:  # another process has just joined the shards
                return None

        listed = sorted(item for item in self._by_key(kind).items() if keys is None or item[0] in keys)
        yield from filter(None, map(read, listed) if headers else thread_map(read, listed))

    def remove(self, kind: Kind, key: str) -> None:
        """Delete all files of a key."""
        for path in self.files(kind, key):
            _remove(path)

    def write_images(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Store adversarial images losslessly as `images/NAME.npz`. `--data npz:FILE` can read this file."""
        self._write(self.images_path(name), lambda path: _save_npz(path, arrays))

    def read_images(self, name: str) -> np.ndarray:
        """Read the adversarial images of a shard.

        Raises:
            Unavailable: if the images cannot be read. A damaged file is removed, so that the next evaluation computes
                it again.
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
            raise Unavailable(f"removed the damaged file {path} ({error}); run the command again") from error

    def images_path(self, name: str) -> Path:
        """Return the path of the images of a shard. The name of a shard is KEY-NUMBER."""
        return self.folder / "images" / f"{name}.npz"

    def claim(self, name: str) -> FileLock | None:
        """Lock a task for this process. The lock ends with the process.

        Returns:
            The lock. None if a different process has locked the task.
        """
        lock = FileLock(self.folder / "locks" / f"{name}.lock", thread_local=False)
        try:
            self.prepare()
            (self.folder / "locks").mkdir(exist_ok=True)
            return lock.acquire(timeout=0).lock  # type: ignore[return-value]
        except Timeout:
            return None
        except OSError as error:
            raise Unavailable(
                f"could not write {lock.lock_file} ({error}); free disk space or change the permissions, and try again"
            ) from error

    def release(self, name: str, lock: FileLock) -> None:
        """Release the lock of a task."""
        with contextlib.suppress(OSError):  # read-only disk: the lock ends with this process
            (self.folder / "locks" / f"{name}.lock").unlink(missing_ok=True)
        lock.release()

    def claimed(self) -> set[str]:
        """Return the names of the tasks that running processes have locked.

        Locks of processes that died do not count.
        """
        return {path.stem for path in (self.folder / "locks").glob("*.lock") if _is_held(path)}

    def _check_place(self) -> None:
        """Raise Unavailable unless the results folder exists or can be created."""
        place = next(path for path in (self.folder, *self.folder.absolute().parents) if path.exists())
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            raise Unavailable(
                f"cannot create the results folder {self.folder}, because {place} is not a writable folder"
            )

    def _check_mark(self, mark: Path) -> None:
        try:
            stated = json.loads(read_regular_file(mark, _MARK_BYTES))
        except (OSError, ValueError, RecursionError) as error:
            raise Unavailable(f"could not read the results folder {self.folder} ({error})") from error
        if not isinstance(stated, dict) or stated.get("format") != FORMAT:
            got = str(stated.get("format") if isinstance(stated, dict) else stated)[:40]
            raise StoreMismatch(f"expected results of format {FORMAT} in {self.folder}, got {got} in {mark.name}")

    def _write(self, path: Path, save: Callable[[Path], object]) -> None:
        try:
            self.prepare()
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, save)
        except OSError as error:
            raise Unavailable(
                f"could not write {path} ({error}); free disk space or change the permissions, and run the command "
                "again to resume"
            ) from error

    def _names(self, kind: Kind) -> list[str]:
        try:
            names = sorted(os.listdir(self.folder / kind))  # noqa: PTH208 - names alone, of thousands of files
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise Unavailable(f"could not read {self.folder / kind} ({error})") from error
        return [name for name in names if name.endswith(".parquet") and name[0] != "."]

    def _by_key(self, kind: Kind) -> dict[str, list[Path]]:
        files: dict[str, list[Path]] = {}
        for name in self._names(kind):
            files.setdefault(name.partition(".")[0], []).append(self.folder / kind / name)
        return files

    def files(self, kind: Kind, key: str) -> list[Path]:
        """Return every file of a key. There are several files if folders were merged by copying."""
        return [self.folder / kind / name for name in self._names(kind) if name.partition(".")[0] == key]


def read_files(
    files: Iterable[Path], name: str, columns: Collection[str] | None = None, *, headers: bool = False
) -> tuple[dict[Path, Record], dict[Path, DamagedRecordError]]:
    """Read all files of one key. Missing files are skipped.

    Args:
        files: files of the key.
        name: expected name of the record: "cells/KEY".
        columns: names of columns to read, if the file has them. None for all. If there are several files, all columns
            are read, because the files are compared.
        headers: whether to read only the header of a single file, without verifying its checksum.

    Returns:
        The usable records, and the errors of unusable files.

    Raises:
        StoreMismatch: if a file was written in a different format.
        Unavailable: if a file cannot be read.
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
    """Select the valid file among several files of one key.

    A file that replaced another file takes precedence over it. A result takes precedence over a failed run.

    Args:
        records: the record of each file.

    Raises:
        ConflictingRecordsError: if the remaining files have different results.
    """
    replaced = {each for path, record in records.items() for each in set(record.replaces) - {content_in(path)}}
    left = {path: record for path, record in records.items() if content_in(path) not in replaced} or records
    left = {path: record for path, record in left.items() if not record.failed} or dict([*left.items()][:1])
    (first, record), *others = left.items()
    for path, other in others:
        if columns := differing_columns(record.table, other.table):
            difference = f"they differ in {', '.join(columns[:3])}{' and more' if len(columns) > 3 else ''}"
            shown = path.name if path.parent == first.parent else path
            raise ConflictingRecordsError(f"conflicting results: {first} and {shown} ({difference}); {WRONG_ONE}")
    return first


def content_in(path: Path) -> str:
    """Return the content hash in the name of a file. "" for names of davylamp 0.1.0, which have no hash."""
    return path.name.removesuffix(".parquet").partition(".")[2]


class _RecordFile(NamedTuple):
    """A file that can be read again later. Its device, inode, size and time must then be unchanged."""

    path: Path
    stamp: tuple[int, ...]

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the file for reading.

        Raises:
            Unavailable: if the file can no longer be read, or has changed.
        """
        try:
            with open_regular(self.path) as file:
                if _stamp(os.fstat(file.fileno())) != self.stamp:
                    raise Unavailable(f"{self.path} was changed while it was read; run the command again")
                yield file
        except (Unavailable, pa.ArrowException):
            raise
        except (OSError, ValueError) as error:
            raise Unavailable(f"could not read {self.path} ({error})") from error

    def more(self, names: Collection[str], rows: int | None = None) -> pa.Table:
        """Read further columns of the file.

        Args:
            names: names of the columns.
            rows: number of rows to read, from the first row on. None for all rows.
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
    """Read the record in a file. The message of an error contains the name of the file."""
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
            raise DamagedRecordError(f"{path} is damaged (it is a broken link)") from error
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
    """Return the record of a key. If the key has several files, `select_record` selects one.

    Raises:
        DamagedRecordError: if all files are damaged.
        ConflictingRecordsError: if the files have different results.
        FileNotFoundError: if there is no such file.
    """
    records, damaged = read_files(files, f"{kind}/{key}", columns, headers=headers)
    if not records:
        raise next(iter(damaged.values()), FileNotFoundError(f"{kind}/{key}"))
    return records[select_record(records)]


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # a non-empty folder, or no permission: the other record counts
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        path.unlink(missing_ok=True)


def _is_held(path: Path) -> bool:
    """Whether a process holds a lock. The test does not write, because the folder may be read-only."""
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

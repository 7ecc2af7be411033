"""A folder of results: one checked Parquet file for each cell, renamed into place when it is whole."""

import hashlib
import json
import os
import uuid
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from ..adapters.paths import expand_path
from ..errors import StoreMismatch, Unavailable

FORMAT = 1
Kind = Literal["clean", "cells", "parts", "transfer", "checks", "plans"]
_MARK = b"davylamp"
_SEAL = b"sha256:"
_UNSEALED = _SEAL + b"0" * 64


@dataclass(frozen=True)
class Record:
    """What a file holds: a table with a row for each image, and what it is about (`spec`, `status`, `versions`...)."""

    table: pa.Table
    meta: Mapping[str, Any]

    @property
    def failed(self) -> bool:
        """Whether the cell ended without a result; `meta["reason"]` says why."""
        return self.meta["status"] == "failed"


class Damaged(Exception):
    """A results file that cannot be read or does not hold what its name says."""


class ResultsStore:
    """A results folder. Files are written whole or not at all; folders of several machines merge by copying.

    `clean/` has the predictions on clean images by subject, `cells/` the records by cell, `parts/` the finished pieces
    of cells under way, `transfer/` the same examples on other models, `checks/` what running a cell again on a few
    images told, `images/` adversarial images, `plans/` what is still to be run, `locks/` who is at work on what.

    Args:
        folder: made if it is not there.

    Raises:
        StoreMismatch: if the folder was written in another format.
        Unavailable: if it cannot be made or read.
    """

    def __init__(self, folder: str | Path, *, create: bool = True):
        self.folder = expand_path(folder)
        mark = self.folder / "davylamp.json"
        if not create and not mark.is_file():
            raise Unavailable(f"expected a results folder (made by `davylamp evaluate`), got {self.folder}")
        try:
            if create:
                self.folder.mkdir(parents=True, exist_ok=True)
            if not mark.is_file():
                _write(mark, lambda path: path.write_text(json.dumps({"format": FORMAT}) + "\n", encoding="utf-8"))
            found = json.loads(mark.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise Unavailable(f"expected a results folder that can be read, got {self.folder} ({error})") from error
        if found.get("format") != FORMAT:
            raise StoreMismatch(f"expected results of format {FORMAT} in {self.folder}, got {found.get('format')}")

    def path(self, kind: Kind, key: str) -> Path:
        """Where the file of a key is, whether it is there or not."""
        return self.folder / kind / f"{key}.parquet"

    def keys(self, kind: Kind) -> list[str]:
        """Keys of all files of a kind, sorted."""
        return sorted(path.stem for path in (self.folder / kind).glob("*.parquet") if path.name[0] != ".")

    def write(self, kind: Kind, key: str, table: pa.Table, meta: Mapping[str, Any]) -> None:
        """Write a file, replacing one that is there.

        Raises:
            Unavailable: if the disk is full or not writable; nothing is left behind.
        """
        own = {"format": FORMAT, **meta, "file": f"{kind}/{key}"}
        sealed = _seal(table.replace_schema_metadata({_MARK: json.dumps(own).encode()}))
        _write(self.path(kind, key), lambda path: path.write_bytes(sealed))

    def read(self, kind: Kind, key: str) -> Record:
        """Read and check a file.

        Raises:
            Damaged: if it is cut short, altered in any byte, or not the file of that key.
            StoreMismatch: if it was written in another format.
            FileNotFoundError: if there is none.
            Unavailable: if it may not or cannot be read.
        """
        path = self.path(kind, key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise Unavailable(f"could not read {path} ({error})") from error
        if not _is_sealed(data):
            raise Damaged(f"{path} is damaged (its checksum is wrong)")
        table = pq.read_table(pa.BufferReader(data))
        meta = json.loads((table.schema.metadata or {})[_MARK])
        if meta["format"] != FORMAT:
            raise StoreMismatch(f"expected results of format {FORMAT}, got {meta['format']} in {path}")
        if meta.pop("file") != f"{kind}/{key}":
            raise Damaged(f"{path} is damaged (it does not hold what its name says)")
        return Record(table.replace_schema_metadata(None), meta)

    def read_all(self, kind: Kind) -> Iterator[tuple[str, Record | Damaged]]:
        """Every file of a kind by key; a damaged one is given as the error that says so."""
        for key in self.keys(kind):
            try:
                yield key, self.read(kind, key)
            except Damaged as damage:
                yield key, damage
            except FileNotFoundError:  # another process has just put the parts together
                continue

    def remove(self, kind: Kind, key: str) -> None:
        """Delete a file if it is there."""
        self.path(kind, key).unlink(missing_ok=True)

    def write_images(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Save adversarial images losslessly: `images/NAME.npz`, which `--data npz:FILE` reads."""
        _write(self.images_path(name), lambda path: _save_npz(path, arrays))

    def read_images(self, name: str) -> np.ndarray:
        """The adversarial images of a shard.

        Raises:
            Unavailable: if they cannot be read. A damaged file is removed, so that the next run makes it again.
        """
        path = self.images_path(name)
        try:
            with path.open("rb") as file, np.load(file) as arrays:
                return arrays["inputs"]
        except OSError as error:
            raise Unavailable(f"could not read {path} ({error})") from error
        except (ValueError, KeyError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
            path.unlink(missing_ok=True)
            raise Unavailable(f"{path} was damaged ({error}) and is removed; run it again to make it again") from error

    def images_path(self, name: str) -> Path:
        """Where the images of a shard are, `KEY-SHARD`."""
        return self.folder / "images" / f"{name}.npz"

    def claim(self, name: str) -> FileLock | None:
        """Take a piece of work for this process; None while another one has it. It is free again if that one dies."""
        lock = FileLock(self.folder / "locks" / f"{name}.lock", thread_local=False)
        try:
            (self.folder / "locks").mkdir(exist_ok=True)
            return lock.acquire(timeout=0).lock  # type: ignore[return-value]
        except Timeout:
            return None
        except OSError as error:
            raise Unavailable(f"could not write {lock.lock_file} ({error}); free space and run it again") from error

    def release(self, name: str, lock: FileLock) -> None:
        """Give a claimed piece of work back."""
        (self.folder / "locks" / f"{name}.lock").unlink(missing_ok=True)
        lock.release()

    def claimed(self) -> set[str]:
        """Names of the pieces of work that some process has now; what one that died has left is not among them."""
        return {path.stem for path in (self.folder / "locks").glob("*.lock") if _is_held(path)}


def _is_held(path: Path) -> bool:
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except OSError:  # another process has it, or it is not ours to look at
        return path.exists()
    lock.release()
    return False


def _seal(table: pa.Table) -> bytes:
    """A Parquet file that any reader takes, with a checksum of itself: Parquet's own leave its headers unprotected."""
    schema, sink = table.schema, pa.BufferOutputStream()
    lists = [f"{field.name}.list.element" for field in schema if pa.types.is_fixed_size_list(field.type)]
    columns = lists + [field.name for field in schema if pa.types.is_float32(field.type)]
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=False,
        use_byte_stream_split=columns or False,  # type: ignore[arg-type]
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"davylamp-seal": _UNSEALED.decode()})
    data = sink.getvalue().to_pybytes()
    start = data.rfind(_UNSEALED)
    return data[:start] + _SEAL + hashlib.sha256(data).hexdigest().encode() + data[start + len(_UNSEALED) :]


def _is_sealed(data: bytes) -> bool:
    """Whether a file is, byte for byte, what was written."""
    start = data.rfind(_SEAL)
    end = start + len(_UNSEALED)
    told = hashlib.sha256(data[:start] + _UNSEALED + data[end:]).hexdigest().encode()
    return start >= 0 and data[start:end] == _SEAL + told


def _save_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def _write(path: Path, save: Any) -> None:
    """Save to a file beside and rename it: a reader sees the old file, the new one or none, never a half."""
    draft = path.with_name(f".{uuid.uuid4().hex}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save(draft)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise Unavailable(f"could not write {path} ({error}); free space and run it again: it resumes") from error
    finally:
        draft.unlink(missing_ok=True)

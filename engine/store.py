"""A folder of results: one checked Parquet file for each cell, renamed into place when it is whole."""

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from ..errors import StoreMismatch, Unavailable
from .cell import digest_of

FORMAT = 1
Kind = Literal["clean", "cells", "parts", "transfer"]
_MARK = b"davylamp"


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
    of cells under way, `transfer/` the same examples on other models, `images/` adversarial images, `locks/` who is at
    work on what.

    Args:
        folder: made if it is not there.

    Raises:
        StoreMismatch: if the folder was written in another format.
        Unavailable: if it cannot be made or read.
    """

    def __init__(self, folder: str | Path, *, create: bool = True):
        self.folder = Path(folder).expanduser()
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
        own = {"format": FORMAT, **meta}
        own["digest"] = digest_of(own)
        marked = table.replace_schema_metadata({_MARK: json.dumps(own).encode()})
        floats = [f.name for f in table.schema if pa.types.is_float32(f.type) or pa.types.is_fixed_size_list(f.type)]
        columns = [f"{name}.list.element" if _is_list(table, name) else name for name in floats]

        def save(path: Path) -> None:
            pq.write_table(
                marked,
                path,
                compression="zstd",
                use_dictionary=False,
                use_byte_stream_split=columns or False,  # type: ignore[arg-type]
                write_page_checksum=True,
            )

        _write(self.path(kind, key), save)

    def read(self, kind: Kind, key: str) -> Record:
        """Read and check a file.

        Raises:
            Damaged: if it is cut short, altered, or not the file of that key.
            StoreMismatch: if it was written in another format.
            FileNotFoundError: if there is none.
        """
        path = self.path(kind, key)
        try:
            table = pq.ParquetFile(path, page_checksum_verification=True).read()
            meta = json.loads((table.schema.metadata or {})[_MARK])
            told = meta.pop("digest")
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException, KeyError, ValueError) as error:
            raise Damaged(f"{path} is damaged ({' '.join(str(error).split())[:120]})") from error
        if meta["format"] != FORMAT:
            raise StoreMismatch(f"expected results of format {FORMAT}, got {meta['format']} in {path}")
        if told != digest_of(meta) or key.partition("-")[0] != meta["key"]:
            raise Damaged(f"{path} is damaged (it does not describe the cell that its name says)")
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

    def images_path(self, name: str) -> Path:
        """Where the images of a shard are, `KEY-SHARD`."""
        return self.folder / "images" / f"{name}.npz"

    def claim(self, name: str) -> FileLock | None:
        """Take a piece of work for this process; None while another one has it. It is free again if that one dies."""
        (self.folder / "locks").mkdir(exist_ok=True)
        lock = FileLock(self.folder / "locks" / f"{name}.lock", thread_local=False)
        try:
            return lock.acquire(timeout=0).lock  # type: ignore[return-value]
        except Timeout:
            return None

    def release(self, name: str, lock: FileLock) -> None:
        """Give a claimed piece of work back."""
        (self.folder / "locks" / f"{name}.lock").unlink(missing_ok=True)
        lock.release()


def _is_list(table: pa.Table, name: str) -> bool:
    return pa.types.is_fixed_size_list(table.schema.field(name).type)


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

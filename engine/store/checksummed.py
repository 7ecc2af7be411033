"""Tables as sealed Parquet files: any reader takes them, and any altered byte is noticed.

Also the shape of a table (`TableShape`) and some columns of a file, read from its footer without the rest.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import StoreMismatch

FORMAT = 1
Source = Callable[[], AbstractContextManager[Any]]  # opens a file, as often as it is called
_MARK = b"davylamp"
_SEALED = b"davylamp-seal"
_SEAL = b"sha256:"
_UNSEALED = _SEAL + b"0" * 64
# What may differ between two runs of one cell that found the same.
_OF_THE_RUN = {
    *("seconds", "attack_seconds", "fit_seconds", "written", "python", "platform", "versions"),
    *("device", "gpu", "traffic", "preset", "identity", "about", "chosen"),
}
_CLOSE = 1e-3  # of the largest number of a column: what sums in another order come to


@dataclass(frozen=True)
class TableShape:
    """A table without its values.

    Args:
        schema: names and types of its columns, without metadata.
        rows: how many.
        gaps: of the column at a place of the schema, how many rows have none; what is nested counts as one value.
    """

    schema: pa.Schema
    rows: int
    gaps: Callable[[int], int]


@dataclass(frozen=True)
class Record:
    """A file's content: a table with a row for each image, and metadata (`spec`, `status`, `versions`...).

    Where some columns were asked for, `table` has these, `of_file` is the shape of all that the file has, and `more`
    reads further columns of it: by their names, and of the first rows only if a number is given. `replaces` are the
    contents of the files that it was written in place of.
    """

    table: pa.Table
    meta: Mapping[str, Any]
    of_file: TableShape | None = None
    more: Callable[..., pa.Table] | None = None
    replaces: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the cell ended without a result; `meta["reason"]` says why."""
        return self.meta["status"] == "failed"

    @property
    def shape(self) -> TableShape:
        """Names, types, gaps and rows of all that the file has."""
        return shape_of_table(self.table) if self.of_file is None else self.of_file


class DamagedRecordError(Exception):
    """A results file that cannot be read or does not hold what its name says."""


class ConflictingRecordsError(DamagedRecordError):
    """Two results of one key that say different things."""


def pack_record(table: pa.Table, meta: Mapping[str, Any], name: str, replaces: list[str]) -> bytes:
    """A file that holds a table and what it is about, with a checksum of itself."""
    about = {"format": FORMAT, **meta, "file": name, "replaces": replaces}
    return seal_table(table.replace_schema_metadata({_MARK: json.dumps(about).encode()}))


def unpack_record(
    data: bytes, name: str, columns: Collection[str] | None = None, reopen: Source | None = None
) -> Record:
    """The record in a file.

    Args:
        data: the bytes of the file.
        name: what it should hold: "cells/KEY".
        columns: of its table only these, as far as it has them; None: all.
        reopen: opens the file for what its shape is asked later, so that the bytes need not be held; None: they are.

    Raises:
        Damaged: if it is altered in any byte, or holds something else.
        StoreMismatch: if it was written in another format.
    """
    if not _is_sealed(data):
        raise DamagedRecordError("its checksum is wrong")
    return _record_of(lambda: nullcontext(pa.BufferReader(data)), name, columns, reopen)


def read_header(opened: Source, name: str) -> Record:
    """Read a file's metadata without its columns and without a check of its bytes: a few kilobytes.

    Args:
        opened: opens the file.
        name: what it should hold: "cells/KEY".

    Raises:
        Damaged: if it is no file of ours, or holds something else; not if bytes of its columns are altered.
        StoreMismatch: if it was written in another format.
    """
    return _record_of(opened, name, ())


def _record_of(opened: Source, name: str, columns: Collection[str] | None, reopen: Source | None = None) -> Record:
    try:
        with opened() as source:
            file = open_parquet(source)
            words = file.metadata.metadata or {}
            if not words.get(_SEALED, b"").startswith(_SEAL):
                raise DamagedRecordError("its checksum is wrong")
            shape = None if columns is None else shape_of_file(file, reopen or opened)
            meta = json.loads(words[_MARK])
            stated, held = meta["format"], meta.pop("file", None)
            replaces = tuple(str(each) for each in meta.pop("replaces", []))
            table = read_columns(file, columns)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError, MemoryError) as error:
        raise DamagedRecordError(f"it holds no record ({type(error).__name__})") from error
    if stated != FORMAT:
        raise StoreMismatch(f"expected results of format {FORMAT}, got {stated}")
    if held != name:
        raise DamagedRecordError("it does not hold what its name says")
    if meta.get("status") not in ("done", "failed") or not isinstance(meta.get("reason"), str):
        raise DamagedRecordError("it does not say how it went")
    return Record(table.replace_schema_metadata(None), meta, shape, replaces=replaces)


def content_of(table: pa.Table, meta: Mapping[str, Any]) -> str:
    """12 hexadecimal digits of a hash over what was found: every number but the times."""
    content = {name: value for name, value in meta.items() if name not in _OF_THE_RUN}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode())
    for name in sorted(set(table.column_names) - {"seconds"}):
        digest.update(f"{name} {table.schema.field(name).type}".encode())
        values = _numbers(table[name])
        digest.update(repr(table[name].to_pylist()).encode() if values is None else values.tobytes())
    return digest.hexdigest()[:12]


def differing_columns(one: pa.Table, other: pa.Table) -> list[str]:
    """Columns whose values are not the same in both tables; numbers that differ by rounding are."""
    if one.schema.names != other.schema.names or len(one) != len(other):
        return sorted(set(one.schema.names) ^ set(other.schema.names)) or ["number of images"]
    return [name for name in one.schema.names if name != "seconds" and not _agree(one[name], other[name])]


def _agree(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if one.type != other.type:
        return False
    numbers = [values for values in (_numbers(one), _numbers(other)) if values is not None]
    if len(numbers) < 2:  # pictures and maps follow from the numbers
        return pa.types.is_nested(one.type) or pa.types.is_binary(one.type) or one.to_pylist() == other.to_pylist()
    mine, theirs = numbers
    if mine.dtype.kind != "f" or mine.shape != theirs.shape:
        return bool(np.array_equal(mine, theirs))
    largest = max(float(np.abs(each[np.isfinite(each)]).max(initial=0)) for each in numbers)
    return bool(np.allclose(mine, theirs, rtol=_CLOSE, atol=_CLOSE * largest, equal_nan=True))


def _numbers(column: pa.ChunkedArray) -> np.ndarray | None:
    """A column of numbers or of vectors of numbers, without gaps, flat; None for any other."""
    column = column.combine_chunks()
    if column.null_count:
        return None
    if pa.types.is_fixed_size_list(column.type):
        column = column.flatten()
    kinds = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean)
    plain = any(is_kind(column.type) for is_kind in kinds) and not column.null_count
    return column.to_numpy(zero_copy_only=False) if plain else None


def seal_table(table: pa.Table) -> bytes:
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
        writer.add_key_value_metadata({_SEALED.decode(): _UNSEALED.decode()})
    data = sink.getvalue().to_pybytes()
    start = data.rfind(_UNSEALED)
    return data[:start] + _SEAL + hashlib.sha256(data).hexdigest().encode() + data[start + len(_UNSEALED) :]


def _is_sealed(data: bytes) -> bool:
    """Whether a file is, byte for byte, what was written."""
    start = data.rfind(_SEAL)
    end = start + len(_UNSEALED)
    if start < 0:
        return False
    digest = hashlib.sha256(memoryview(data)[:start])
    digest.update(_UNSEALED)
    digest.update(memoryview(data)[end:])
    return data[start:end] == _SEAL + digest.hexdigest().encode()


def open_parquet(source: Any) -> pq.ParquetFile:
    """A Parquet file, of which every byte is read by the thread that asks.

    Arrow's own threads, which read ahead if they may, hand buffers of a file of Python's back when it suits them: a
    process that ended meanwhile was aborted.
    """
    return pq.ParquetFile(source, pre_buffer=False)


def shape_of_table(table: pa.Table) -> TableShape:
    """The shape of a table in memory."""
    return TableShape(table.schema, len(table), lambda place: table.column(place).null_count)


def shape_of_file(file: pq.ParquetFile, reopen: Callable[[], AbstractContextManager[Any]]) -> TableShape:
    """The shape of a file by its footer; a column is read where the footer does not say whether it has gaps.

    A footer counts the missing values at the bottom of what is nested: none there are none at all, some may be a gap
    in an entry, which is no gap of the column.

    Args:
        file: open.
        reopen: what opens it again, for the columns that are read.
    """
    schema, metadata = file.schema_arrow.remove_metadata(), file.metadata
    first, begins = 0, []
    for field in schema:
        begins.append(first)
        first += _leaves(field.type)
    known = first == metadata.num_columns

    def gaps(place: int) -> int:
        type_of = schema.field(place).type
        if known:
            leaves = range(begins[place], begins[place] + _leaves(type_of))
            stated = _stated_gaps(metadata, leaves)
            if stated is not None and (stated == 0 or not pa.types.is_nested(type_of)):
                return stated
        try:
            with reopen() as source:
                return _column_at(open_parquet(source), place).null_count
        except pa.ArrowInvalid:  # before 26 Arrow cannot read vectors of which one is missing
            return metadata.num_rows

    return TableShape(schema, metadata.num_rows, gaps)


def read_columns(file: pq.ParquetFile, names: Collection[str] | None) -> pa.Table:
    """Some columns of a file as far as it has them, in its order; None: all.

    Parquet's readers take a name for the beginning of a path, too ("a" for "a.b"): what was not asked for is dropped.
    A table without columns has no rows, whatever the file has: `TableShape.rows` says how many there are.
    """
    # Without threads, see `open_parquet`.
    if names is None:
        return file.read(use_threads=False)
    kept = [name for name in file.schema_arrow.names if name in names]
    if not kept:
        return pa.table({})
    return file.read(columns=kept, use_threads=False).select(kept)


def read_first_rows(file: pq.ParquetFile, names: Collection[str], rows: int) -> pa.Table:
    """Some columns of the first rows of a file, as `read_columns` gives them; what is behind them is not decoded."""
    kept = [name for name in file.schema_arrow.names if name in names]
    batches = file.iter_batches(batch_size=rows, columns=kept, use_threads=False) if kept and rows else iter(())
    first = [batch for batch, _ in zip(batches, range(1), strict=False)]
    return pa.Table.from_batches(first).select(kept) if first else file.schema_arrow.empty_table().select(kept)


def _column_at(file: pq.ParquetFile, place: int) -> pa.ChunkedArray:
    name = file.schema_arrow.names[place]
    if file.schema_arrow.names.count(name) == 1:
        return read_columns(file, [name]).column(0)
    return file.read(use_threads=False).column(place)


def _stated_gaps(metadata: pq.FileMetaData, leaves: range) -> int | None:
    """Missing values by the statistics of all row groups; None where one of them has none."""
    total = 0
    for group in range(metadata.num_row_groups):
        columns = metadata.row_group(group)
        for leaf in leaves:
            statistics = columns.column(leaf).statistics
            if statistics is None or not statistics.has_null_count:
                return None
            total += statistics.null_count
    return total


def _leaves(kind: pa.DataType) -> int:
    """Columns of Parquet that a column of this type is stored as."""
    if isinstance(kind, pa.BaseExtensionType):
        return _leaves(kind.storage_type)
    if pa.types.is_nested(kind):
        return sum(_leaves(kind.field(place).type) for place in range(kind.num_fields)) if kind.num_fields else 1
    return 1

"""Tables in Parquet files with a checksum. Any Parquet reader can read the files, and any altered byte is detected.

The module can also read single columns, and the shape of a table (`TableShape`) from the footer of its file.
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
Source = Callable[[], AbstractContextManager[Any]]  # opens a file; may be called repeatedly
_MARK = b"davylamp"
_SEALED = b"davylamp-seal"
_SEAL = b"sha256:"
_UNSEALED = _SEAL + b"0" * 64
# Metadata that may differ between two equal results of one run.
_OF_THE_RUN = {
    *("seconds", "attack_seconds", "fit_seconds", "written", "python", "platform", "versions"),
    *("device", "gpu", "traffic", "preset", "identity", "about", "chosen", "added_on"),
}
_CLOSE = 1e-3  # relative to the largest number of a column: effect of the summation order


@dataclass(frozen=True)
class TableShape:
    """Shape of a table.

    Args:
        schema: names and types of the columns, without metadata.
        rows: number of rows.
        gaps: function that gets the index of a column and returns the number of its missing values. A nested value
            counts as one value.
    """

    schema: pa.Schema
    rows: int
    gaps: Callable[[int], int]


@dataclass(frozen=True)
class Record:
    """Content of a results file: a table with a row for each image, and metadata (`spec`, `status`, `versions`...).

    `table` has only the requested columns. `of_file` is then the shape of the whole table in the file. `more(names,
    rows)` reads further columns, of the first `rows` rows or of all rows. `replaces` has the content hashes of the
    files that this file replaced.
    """

    table: pa.Table
    meta: Mapping[str, Any]
    of_file: TableShape | None = None
    more: Callable[..., pa.Table] | None = None
    replaces: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the run ended without a result. `meta["reason"]` then has the reason."""
        return self.meta["status"] == "failed"

    @property
    def shape(self) -> TableShape:
        """Column names, types, numbers of missing values and number of rows of the whole file."""
        return shape_of_table(self.table) if self.of_file is None else self.of_file


class DamagedRecordError(Exception):
    """Raised if a results file cannot be read, or if its content does not match its name."""


class ConflictingRecordsError(DamagedRecordError):
    """Raised if two records have the same key and different contents."""


def pack_record(table: pa.Table, meta: Mapping[str, Any], name: str, replaces: list[str]) -> bytes:
    """Convert a table and its metadata to the bytes of a results file. The file has a checksum of all its bytes."""
    about = {"format": FORMAT, **meta, "file": name, "replaces": replaces}
    return seal_table(table.replace_schema_metadata({_MARK: json.dumps(about).encode()}))


def unpack_record(
    data: bytes, name: str, columns: Collection[str] | None = None, reopen: Source | None = None
) -> Record:
    """Read the record in a results file.

    Args:
        data: the bytes of the file.
        name: expected name of the record: "cells/KEY".
        columns: names of columns to read, if the file has them. None for all.
        reopen: function that opens the file again when its shape is needed. The bytes then need not stay in memory.
            None to keep the bytes in memory.

    Raises:
        DamagedRecordError: if any byte is altered, or the record has a different name.
        StoreMismatch: if the file was written in a different format.
    """
    if not _is_sealed(data):
        raise DamagedRecordError("the checksum of the record is wrong")
    return _record_of(lambda: nullcontext(pa.BufferReader(data)), name, columns, reopen)


def read_header(opened: Source, name: str) -> Record:
    """Read the metadata of a results file, a few kilobytes. The columns are not read, and the checksum is not verified.

    Args:
        opened: function that opens the file.
        name: expected name of the record: "cells/KEY".

    Raises:
        DamagedRecordError: if the file is not a record of davylamp, or has a different name. Altered bytes in columns
            are not detected.
        StoreMismatch: if the file was written in a different format.
    """
    return _record_of(opened, name, ())


def _record_of(opened: Source, name: str, columns: Collection[str] | None, reopen: Source | None = None) -> Record:
    try:
        with opened() as source:
            file = open_parquet(source)
            words = file.metadata.metadata or {}
            if not words.get(_SEALED, b"").startswith(_SEAL):
                raise DamagedRecordError("the checksum of the record is wrong")
            shape = None if columns is None else shape_of_file(file, reopen or opened)
            meta = json.loads(words[_MARK])
            stated, held = meta["format"], meta.pop("file", None)
            replaces = tuple(str(each) for each in meta.pop("replaces", []))
            table = read_columns(file, columns)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError, MemoryError) as error:
        raise DamagedRecordError(f"the file does not contain a record ({type(error).__name__})") from error
    if stated != FORMAT:
        raise StoreMismatch(f"expected results of format {FORMAT}, got {stated}")
    if held != name:
        raise DamagedRecordError("the content of the record does not match its file name")
    if meta.get("status") not in ("done", "failed") or not isinstance(meta.get("reason"), str):
        raise DamagedRecordError("the metadata of the record have no valid `status` and `reason`")
    return Record(table.replace_schema_metadata(None), meta, shape, replaces=replaces)


def content_of(table: pa.Table, meta: Mapping[str, Any]) -> str:
    """Return a hash of the results in a table, 12 hexadecimal digits. It covers every number except times."""
    content = {name: value for name, value in meta.items() if name not in _OF_THE_RUN}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode())
    for name in sorted(set(table.column_names) - {"seconds"}):
        digest.update(f"{name} {table.schema.field(name).type}".encode())
        values = _numbers(table[name])
        digest.update(repr(table[name].to_pylist()).encode() if values is None else values.tobytes())
    return digest.hexdigest()[:12]


def differing_columns(one: pa.Table, other: pa.Table) -> list[str]:
    """Return the names of the columns whose values differ by more than rounding between two tables."""
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
    """Return the values of a column of numbers, or of vectors of numbers, as a flat array without missing values.

    None for any other column.
    """
    column = column.combine_chunks()
    if column.null_count:
        return None
    if pa.types.is_fixed_size_list(column.type):
        column = column.flatten()
    kinds = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean)
    plain = any(is_kind(column.type) for is_kind in kinds) and not column.null_count
    return column.to_numpy(zero_copy_only=False) if plain else None


def seal_table(table: pa.Table) -> bytes:
    """Convert a table to the bytes of a Parquet file with a checksum of the whole file.

    Parquet's own checksums do not cover the headers of the file.
    """
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
    """Whether the file has the checksum that is stored in it."""
    start = data.rfind(_SEAL)
    end = start + len(_UNSEALED)
    if start < 0:
        return False
    digest = hashlib.sha256(memoryview(data)[:start])
    digest.update(_UNSEALED)
    digest.update(memoryview(data)[end:])
    return data[start:end] == _SEAL + digest.hexdigest().encode()


def open_parquet(source: Any) -> pq.ParquetFile:
    """Open a Parquet file for reading in the calling thread only.

    Otherwise, other threads of Arrow may release buffers of a Python file object late. This aborts a process that is
    ending.
    """
    return pq.ParquetFile(source, pre_buffer=False)


def shape_of_table(table: pa.Table) -> TableShape:
    """Return the shape of a table in memory."""
    return TableShape(table.schema, len(table), lambda place: table.column(place).null_count)


def shape_of_file(file: pq.ParquetFile, reopen: Callable[[], AbstractContextManager[Any]]) -> TableShape:
    """Return the shape of the table in a file, from the footer of the file.

    The footer counts missing entries of nested columns together with missing values inside entries. If this count is
    not 0, the column itself is read.

    Args:
        file: the open file.
        reopen: function that opens the file again, to read columns.
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
        except pa.ArrowInvalid:  # Arrow before 26 cannot read vectors with a missing one
            return metadata.num_rows

    return TableShape(schema, metadata.num_rows, gaps)


def read_columns(file: pq.ParquetFile, names: Collection[str] | None) -> pa.Table:
    """Read columns of a file, in the order of the file.

    For the name "a", Parquet readers also return the nested column "a.b", which is dropped here. If no column is read,
    the table has 0 rows. `TableShape.rows` has the number of rows of the file.

    Args:
        file: the open file.
        names: names of columns. Names that the file does not have are ignored. None for all columns.
    """
    # Without threads, see `open_parquet`.
    if names is None:
        return file.read(use_threads=False)
    kept = [name for name in file.schema_arrow.names if name in names]
    if not kept:
        return pa.table({})
    return file.read(columns=kept, use_threads=False).select(kept)


def read_first_rows(file: pq.ParquetFile, names: Collection[str], rows: int) -> pa.Table:
    """Read columns of the first rows of a file, like `read_columns`. Later rows are not decoded."""
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
    """Return the number of missing values of a column from the statistics in the file.

    None if a part of the file has no statistics.
    """
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
    """Return the number of Parquet columns that store a column of this type."""
    if isinstance(kind, pa.BaseExtensionType):
        return _leaves(kind.storage_type)
    if pa.types.is_nested(kind):
        return sum(_leaves(kind.field(place).type) for place in range(kind.num_fields)) if kind.num_fields else 1
    return 1

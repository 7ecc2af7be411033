"""What a table is apart from its values, and some columns of a file: read from a Parquet footer or of a whole table."""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


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

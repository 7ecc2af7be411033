"""The columns of a record as arrays. Common columns are in memory. Other columns are read from the file on access."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from .checksummed import Record

HEAVY = ("logits", "adv_logits", "cam", "adv_cam", "picture", "adv_picture")
_REPEATED = ("index", "label", "image", "violations")  # the same in many records of a folder
_KNOWN = 16  # arrays of a name that are compared with a new one
_ROOM = 2**27  # bytes of further columns of a folder that stay in memory after reading; beyond that they are read again


class RepeatedArrays:
    """Arrays for the columns of many records. Columns with equal values share one array in memory."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[pa.ChunkedArray, np.ndarray]]] = {}
        self._room = _ROOM

    def takes(self, arrays: Mapping[str, np.ndarray]) -> bool:
        """Reserve memory for further arrays. Return whether there is enough memory."""
        needed = sum(array.nbytes for array in arrays.values())
        if needed > self._room:
            return False
        self._room -= needed
        return True

    def array_of(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        """Convert a column to an array, (n,), read-only."""
        if name not in _REPEATED:
            return column.to_numpy()
        seen = self._seen.setdefault(name, [])
        for known, values in seen:
            if known.equals(column):
                return values
        values = column.to_numpy()
        seen.insert(0, (column, values))
        del seen[_KNOWN:]
        return values


class StoredColumns(Mapping[str, np.ndarray]):
    """Arrays of shape (n,) by column name. The columns of the record come first, in their order, then added columns.

    Args:
        record: record whose columns are in memory. Pictures, maps and logits are omitted.
        repeated: shares arrays that are equal in other records.
    """

    def __init__(self, record: Record, repeated: RepeatedArrays):
        held = [name for name in record.table.column_names if name not in HEAVY]
        self._held = {name: repeated.array_of(name, record.table[name]) for name in held}
        self._names = dict.fromkeys(name for name in record.shape.schema.names if name not in HEAVY)
        self._more, self._repeated = record.more, repeated

    def __getitem__(self, name: str) -> np.ndarray:
        if name in self._held:
            return self._held[name]
        if name not in self._names:
            raise KeyError(name)
        return self._read([name])[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def joined(self, further: Mapping[str, np.ndarray]) -> "StoredColumns":
        """Return a copy with further columns. They replace columns of the same name."""
        other = object.__new__(StoredColumns)
        other._more, other._repeated = self._more, self._repeated
        other._held, other._names = {**self._held, **further}, {**self._names, **dict.fromkeys(further)}
        return other

    def holding(self, names: Collection[str]) -> "StoredColumns":
        """Return a copy in which the named columns are in memory, if they exist. The file is read once."""
        lacking = [name for name in names if name in self._names and name not in self._held]
        return self.joined(self._read(lacking)) if lacking else self

    def _read(self, names: list[str]) -> dict[str, np.ndarray]:
        if self._more is None:
            raise KeyError(names[0])
        table = self._more(names)
        read = {name: table[name].to_numpy() for name in names}
        if self._repeated.takes(read):
            self._held.update(read)
        return read


def join_columns(columns: Mapping[str, np.ndarray], further: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Add columns to others. An added column replaces a column of the same name. No column is read from a file.

    Args:
        columns: arrays by name.
        further: arrays to add, by name.
    """
    return columns.joined(further) if isinstance(columns, StoredColumns) else {**columns, **further}


def hold_columns(columns: Mapping[str, Any], names: Collection[str]) -> Mapping[str, np.ndarray]:
    """Return columns, of which the named ones are read into memory."""
    return columns.holding(names) if isinstance(columns, StoredColumns) else columns

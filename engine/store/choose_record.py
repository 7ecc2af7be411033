"""Which file of a record counts, where folders were put together and have several."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from ...errors import StoreMismatch, Unavailable
from .files import open_regular, read_whole
from .sealed import Conflict, Damaged, Record, differing_columns, read_header, unseal
from .table_shape import open_parquet, read_columns, read_first_rows

WRONG_ONE = "delete the wrong one"


class Sealed(NamedTuple):
    """A record and the contents that it replaces."""

    record: Record
    replaces: list[str]


def read_files(
    files: Iterable[Path], name: str, columns: Collection[str] | None = None, *, headers: bool = False
) -> tuple[dict[Path, Sealed], dict[Path, Damaged]]:
    """What the files of one key hold, and why some cannot be used; those that are gone by now are left out.

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
    read: Callable[[Path, str], Sealed] = partial(_read, columns=columns)
    if len(files) > 1:
        read = _read
    elif headers:
        read = _read_header
    records: dict[Path, Sealed] = {}
    damaged: dict[Path, Damaged] = {}
    for path in files:
        try:
            records[path] = _naming(read, path, name)
        except Damaged as error:
            damaged[path] = error
        except FileNotFoundError:
            continue
    return records, damaged


def choose_among(records: Mapping[Path, Sealed]) -> Path:
    """The file that counts: not one that another replaces, nor a failure beside a result; of equal ones the first.

    Raises:
        Conflict: if they say different things.
    """
    replaced = {each for path, (_, before) in records.items() for each in set(before) - {content_in(path)}}
    left = {path: each.record for path, each in records.items() if content_in(path) not in replaced}
    left = left or {path: each.record for path, each in records.items()}
    left = {path: record for path, record in left.items() if not record.failed} or dict([*left.items()][:1])
    (first, record), *others = left.items()
    for path, other in others:
        if columns := differing_columns(record.table, other.table):
            difference = f"they differ in {', '.join(columns[:3])}{' and more' if len(columns) > 3 else ''}"
            shown = path.name if path.parent == first.parent else path
            raise Conflict(f"{first} and {shown} are two results of one key: {difference}; {WRONG_ONE}")
    return first


def content_in(path: Path) -> str:
    """The hash of the content in a file's name; "" in names of davylamp 0.1.0."""
    return path.name.removesuffix(".parquet").partition(".")[2]


def _read(path: Path, name: str, columns: Collection[str] | None = None) -> Sealed:
    if columns is None:
        return Sealed(*unseal(read_whole(path), name))
    stamp = _stamp(path.stat())
    record, replaces = unseal(read_whole(path), name, columns, partial(_reopen, path, stamp))
    return Sealed(replace(record, more=partial(_read_more, path, stamp)), replaces)


def _read_header(path: Path, name: str) -> Sealed:
    return Sealed(*read_header(partial(open_regular, path), name))


def _read_more(path: Path, stamp: tuple[int, ...], names: Collection[str], rows: int | None = None) -> pa.Table:
    """Further columns of a file whose bytes were checked; of all its rows, or of the first ones.

    Raises:
        Unavailable: if it cannot be read any more, or is another one by now.
    """
    with _reopen(path, stamp) as file:
        try:
            parquet = open_parquet(file)
            return read_columns(parquet, names) if rows is None else read_first_rows(parquet, names, rows)
        except pa.ArrowException as error:
            raise Unavailable(f"could not read {path} ({error})") from error


@contextmanager
def _reopen(path: Path, stamp: tuple[int, ...]) -> Iterator[BinaryIO]:
    """A file whose bytes were checked, open to be read.

    Raises:
        Unavailable: if it cannot be read any more, or is another one by now.
    """
    try:
        with open_regular(path) as file:
            if _stamp(os.fstat(file.fileno())) != stamp:
                raise Unavailable(f"{path} was changed while it was read; run it again")
            yield file
    except (Unavailable, pa.ArrowException):
        raise
    except (OSError, ValueError) as error:
        raise Unavailable(f"could not read {path} ({error})") from error


def _stamp(about: os.stat_result) -> tuple[int, ...]:
    """What a file that is replaced or written to has otherwise."""
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns


def _naming(read: Callable[[Path, str], Sealed], path: Path, name: str) -> Sealed:
    """What is in a file; errors name it."""
    try:
        return read(path, name)
    except FileNotFoundError as error:
        if path.is_symlink():
            raise Damaged(f"{path} is damaged (it is a link to nothing)") from error
        raise
    except OSError as error:
        raise Unavailable(f"could not read {path} ({error})") from error
    except (Damaged, ValueError) as error:
        if isinstance(error, StoreMismatch):
            raise StoreMismatch(f"{error} in {path}") from error
        raise Damaged(f"{path} is damaged ({error})") from error

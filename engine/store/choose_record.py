"""Which file of a record counts, where folders were put together and have several."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ...errors import StoreMismatch, Unavailable
from .files import read_whole
from .sealed import Conflict, Damaged, Record, differing_columns, unseal

WRONG_ONE = "delete the wrong one"


class Sealed(NamedTuple):
    """A record and the contents that it replaces."""

    record: Record
    replaces: list[str]


def read_files(files: Iterable[Path], name: str) -> tuple[dict[Path, Sealed], dict[Path, Damaged]]:
    """What the files of one key hold, and why some cannot be used; those that are gone by now are left out.

    Args:
        files: of one key.
        name: what they should hold: "cells/KEY".

    Raises:
        StoreMismatch: if one was written in another format.
        Unavailable: if one may not or cannot be read.
    """
    records: dict[Path, Sealed] = {}
    damaged: dict[Path, Damaged] = {}
    for path in files:
        try:
            records[path] = _read(path, name)
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


def _read(path: Path, name: str) -> Sealed:
    try:
        return Sealed(*unseal(read_whole(path), name))
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

"""What a results folder was asked for: a file with the cells of each evaluation, until all of them are finished."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa

from ...errors import DavylampError
from ..cell import Cell, digest_of
from .store import Damaged, Record, ResultsStore

_FAILED = "failed"


def note_plan(store: ResultsStore, cells: Sequence[Cell]) -> None:
    """Write down what an evaluation is to run, so that others see how much of it is there.

    Raises:
        Unavailable: if the disk is full or not writable.
    """
    key = _plan_key(cells)
    if not store.path("plans", key).is_file():
        specs = [json.dumps(cell.spec, sort_keys=True) for cell in cells]
        about = [json.dumps(cell.about, sort_keys=True) for cell in cells]
        table = pa.table({"cell": [cell.key for cell in cells], "spec": specs, "about": about})
        store.write("plans", key, table, {"key": key, "kind": "plan", "status": "done", "reason": ""})


def forget_plan(store: ResultsStore, cells: Sequence[Cell]) -> None:
    """Remove the note: nothing of it is left to run."""
    store.remove("plans", _plan_key(cells))


def note_failed(store: ResultsStore, failed: Mapping[str, str], others: Iterable[str]) -> None:
    """Write down which models and implementations could not take part; of `others`, that they can by now.

    Raises:
        Unavailable: if the disk is full or not writable.
    """
    before, able = find_failed(store), set(others)
    after = {name: reason for name, reason in before.items() if name not in able} | dict(failed)
    if after == before:
        return
    if after:
        table = pa.table({"cell": pa.array([], pa.string()), "spec": pa.array([], pa.string())})
        meta = {"key": _FAILED, "kind": "plan", "status": "failed", "reason": "", "failed": after}
        store.write("plans", _FAILED, table, meta)
    else:
        store.remove("plans", _FAILED)


def find_failed(store: ResultsStore) -> dict[str, str]:
    """Models and implementations that could not take part in an evaluation so far, each with the reason."""
    try:
        failed = dict(store.read("plans", _FAILED).meta["failed"])
    except (FileNotFoundError, Damaged, DavylampError, KeyError, TypeError, ValueError):
        return {}
    return {str(name): str(reason) for name, reason in failed.items()}


def find_missing(store: ResultsStore) -> dict[str, Cell]:
    """Cells by key that an evaluation was asked for and that have no file, in its order."""
    there = set(store.keys("cells"))
    missing: dict[str, Cell] = {}
    for _, record in store.read_all("plans"):
        if not isinstance(record, Damaged):
            missing.update({key: cell for key, cell in _read_plan(record) if key not in there})
    return missing


def _read_plan(record: Record) -> Iterator[tuple[str, Cell]]:
    """The cells of a plan by key; a foreign file has none."""
    with suppress(KeyError, TypeError, ValueError, AttributeError):
        keys, specs = (record.table[name].to_pylist() for name in ("cell", "spec"))
        # davylamp 0.1.0 wrote no `about`
        about = record.table["about"].to_pylist() if "about" in record.table.column_names else ["{}"] * len(keys)
        for key, spec, text in zip(keys, specs, about, strict=True):
            yield key, Cell.from_record({"spec": json.loads(spec), "about": json.loads(text)})


def _plan_key(cells: Sequence[Cell]) -> str:
    return digest_of({"plan": sorted(cell.key for cell in cells)})

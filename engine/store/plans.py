"""What a results folder was asked for: a file with the cells of each evaluation, until all of them are finished."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa

from ...errors import DavylampError
from ..cell import Cell, describe_attack, digest_of
from .store import Damaged, Record, ResultsStore

_FAILED = "failed"
_NAMED = 8  # parts that a line names


class PartState(NamedTuple):
    """How one part of an evaluation stands: of its pieces those that are not there, and those that are at work."""

    number: int
    of: int
    pieces: int
    missing: int
    running: int


def note_plan(
    store: ResultsStore, cells: Sequence[Cell], parts: Mapping[str, Sequence[int]] | None = None, of: int = 0
) -> None:
    """Write down what an evaluation is to run, so that others see how much of it is there.

    Args:
        store: the folder.
        cells: of the whole evaluation.
        parts: by key of a cell the part of each of its shards, for an evaluation in parts.
        of: how many parts there are.

    Raises:
        Unavailable: if the disk is full or not writable.
    """
    key = _plan_key(cells, of)
    if not store.path("plans", key).is_file():
        specs = [json.dumps(cell.spec, sort_keys=True) for cell in cells]
        about = [json.dumps(describe_attack(cell), sort_keys=True) for cell in cells]
        columns = {"cell": [cell.key for cell in cells], "spec": specs, "about": about}
        if parts:
            columns["parts"] = pa.array([list(parts[cell.key]) for cell in cells], pa.list_(pa.int32()))
        meta = {"key": key, "kind": "plan", "status": "done", "reason": "", **({"of": of} if parts else {})}
        store.write("plans", key, pa.table(columns), meta)


def forget_plan(store: ResultsStore, cells: Sequence[Cell]) -> None:
    """Remove the note of an evaluation that ended, and every other of which nothing is left to run."""
    store.remove("plans", _plan_key(cells))
    forget_finished(store)


def forget_finished(store: ResultsStore) -> None:
    """Remove the notes of evaluations all of whose cells are there: the last of several parts does."""
    there = set(store.keys("cells"))
    for key, record in store.read_all("plans"):
        if key != _FAILED and not isinstance(record, Damaged):
            with suppress(KeyError):  # a foreign file
                if there.issuperset(record.table["cell"].to_pylist()):
                    store.remove("plans", key)


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


def list_parts(store: ResultsStore) -> list[PartState]:
    """Every part that has pieces of an evaluation in parts which is not finished, in their order."""
    cells, pieces, running = set(store.keys("cells")), set(store.keys("parts")), store.claimed()
    states: list[PartState] = []
    for _, record in store.read_all("plans"):
        if isinstance(record, Damaged) or "parts" not in record.table.column_names:
            continue
        with suppress(KeyError, TypeError, ValueError, AttributeError):  # a foreign file has none
            of, shares = int(record.meta["of"]), _shares(record)
            for number, names in sorted(shares.items()):
                missing = {name for name in names if name not in pieces and name.partition("-")[0] not in cells}
                states.append(PartState(number, of, len(names), len(missing), len(missing & running)))
    return states


def _shares(record: Record) -> dict[int, list[str]]:
    """The pieces of each part, as a plan has them."""
    shares: dict[int, list[str]] = {}
    for key, owners in zip(*(record.table[name].to_pylist() for name in ("cell", "parts")), strict=True):
        for shard, number in enumerate(owners):
            shares.setdefault(number, []).append(f"{key}-{shard}")
    return shares


def missing_line(states: Sequence[PartState]) -> str:
    """Which parts of an evaluation have not made all of their pieces, in a line; "" if none lacks any."""
    lacking = [state for state in states if state.missing]
    if not lacking:
        return ""
    names = [f"{state.number}/{state.of} ({state.missing} of {state.pieces})" for state in lacking[:_NAMED]]
    more = f" and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
    return f"pieces missing of parts {', '.join(names)}{more}: the command of such a part resumes it"


def _read_plan(record: Record) -> Iterator[tuple[str, Cell]]:
    """The cells of a plan by key; a foreign file has none."""
    with suppress(KeyError, TypeError, ValueError, AttributeError):
        keys, specs = (record.table[name].to_pylist() for name in ("cell", "spec"))
        # davylamp 0.1.0 wrote no `about`
        about = record.table["about"].to_pylist() if "about" in record.table.column_names else ["{}"] * len(keys)
        for key, spec, text in zip(keys, specs, about, strict=True):
            yield key, Cell.from_record({"spec": json.loads(spec), "about": json.loads(text)})


def _plan_key(cells: Sequence[Cell], of: int = 0) -> str:
    return digest_of({"plan": sorted(cell.key for cell in cells), **({"parts": of} if of else {})})

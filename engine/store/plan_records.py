"""States of a folder's evaluations: their plans, the shards of unfinished runs, and the status of each run.

A plan is a file that lists the runs of an evaluation. It is removed when all its runs are finished.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from typing import Any, NamedTuple

import pyarrow as pa

from ...adapters.models.remote.server_usage import ServerUsage, read_traffic
from ...errors import DavylampError
from ..attack_run import AttackRun, call_as, describe_attack, json_digest, tell_apart
from .checksummed import Record
from .record_validation import order_of, read_records, unknown_attack, usable_record
from .store import KINDS, Kind, ResultsStore

ReadPiece = Callable[[str], "Record | None"]
_FAILED = "failed"
_NAMED = 8  # parts named in a message


class CellState(NamedTuple):
    """A run in a folder and its status. If the run has a record, `meta` has its versions, times and device."""

    key: str
    cell: AttackRun
    status: str
    reason: str
    meta: dict[str, Any]

    @classmethod
    def of(cls, key: str, record: Record) -> "CellState":
        """Return the state of a run that has a record.

        If this version of davylamp does not have the attack of the run, the state has this as a reason.
        """
        meta, cell = dict(record.meta), AttackRun.from_record(record.meta)
        return cls(key, cell, meta["status"], meta["reason"] or unknown_attack(cell), meta)


class FolderStatus(NamedTuple):
    """Contents of a folder: the state of every run, and a message for every damaged file."""

    states: list[CellState]
    damaged: list[str]


def list_cells(folder: str | PathLike[str]) -> list[CellState]:
    """Return the state of every run of a folder: "done", "failed", "running" (a process works on it) or "waiting"."""
    return survey_folder(folder, ("parts", "cells"), headers=False).states


def survey_folder(
    folder: str | PathLike[str], kinds: Collection[Kind] = KINDS, *, headers: bool = True
) -> FolderStatus:
    """Return the state of every run, and a message for every damaged file. Each file is read once.

    Args:
        folder: a results folder.
        kinds: kinds of records to read.
        headers: whether to read only the header of each file, a few kilobytes. Altered bytes elsewhere are then not
            detected. If False, every byte is checked.

    Raises:
        Unavailable: if there is no such folder.
        StoreMismatch: if the folder was written in a different format.
    """
    store = ResultsStore(folder, create=False)
    running = {name.partition("-")[0] for name in store.claimed()}
    unfinished = {key: CellState(key, cell, "waiting", "", {}) for key, cell in find_missing(store).items()}
    damaged: list[str] = []
    finished: dict[str, CellState] = {}
    for kind in kinds:
        for key, record in read_records(store, kind, (), headers=headers, damaged=damaged):
            if kind == "parts":
                cell_key, meta = key.partition("-")[0], dict(record.meta)
                unfinished[cell_key] = CellState(cell_key, AttackRun.from_record(meta), "waiting", "", meta)
            elif kind == "cells":
                finished[key] = CellState.of(key, record)
    unfinished = {key: each._replace(status="running") if key in running else each for key, each in unfinished.items()}
    states = sorted({**unfinished, **finished}.values(), key=lambda state: order_of(state.cell))
    names = tell_apart(state.cell.subject for state in states)
    return FolderStatus([state._replace(cell=call_as(state.cell, names)) for state in states], damaged)


class PartStatus(NamedTuple):
    """Status of one part of an evaluation: its number, and the numbers of all, of missing and of running shards."""

    number: int
    of: int
    pieces: int
    missing: int
    running: int


def write_plan(
    store: ResultsStore, cells: Sequence[AttackRun], parts: Mapping[str, Sequence[int]] | None = None, of: int = 0
) -> None:
    """Store the list of an evaluation's runs, so that other processes can see its progress.

    Args:
        store: the folder.
        cells: runs of the whole evaluation.
        parts: for an evaluation in parts, the part of each shard of a run, by key of the run.
        of: number of parts.

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


def remove_plan(store: ResultsStore, cells: Sequence[AttackRun]) -> None:
    """Remove the plan of an evaluation that has ended. Also remove other plans whose runs are all finished."""
    store.remove("plans", _plan_key(cells))
    forget_finished(store)


def forget_finished(store: ResultsStore) -> None:
    """Remove plans whose runs are all finished. For an evaluation in parts, the part that ends last does this."""
    there = set(store.keys("cells"))
    for key, record in read_records(store, "plans"):
        with suppress(KeyError):  # a foreign file
            if key != _FAILED and there.issuperset(record.table["cell"].to_pylist()):
                store.remove("plans", key)


def note_failed(store: ResultsStore, failed: Mapping[str, str], others: Iterable[str]) -> None:
    """Update the stored list of models and implementations that could not be used.

    Args:
        store: the folder.
        failed: models and implementations to add, each with the reason.
        others: models and implementations that could be used. They are removed from the list.
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
    """Return the models and implementations that an evaluation could not use, each with the reason."""
    with suppress(DavylampError, KeyError, TypeError, ValueError):
        record = usable_record(store, "plans", _FAILED)
        return {} if record is None else {str(name): str(why) for name, why in dict(record.meta["failed"]).items()}
    return {}


def find_missing(store: ResultsStore) -> dict[str, AttackRun]:
    """Return the planned runs that have no record, by key, in the order of the plan."""
    there = set(store.keys("cells"))
    missing: dict[str, AttackRun] = {}
    for _, record in read_records(store, "plans"):
        missing.update({key: cell for key, cell in _read_plan(record) if key not in there})
    return missing


def list_parts(store: ResultsStore) -> list[PartStatus]:
    """Return the status of every part of unfinished evaluations, in order."""
    cells, pieces, running = set(store.keys("cells")), set(store.keys("parts")), store.claimed()
    states: list[PartStatus] = []
    for _, record in read_records(store, "plans"):
        if "parts" not in record.table.column_names:
            continue
        with suppress(KeyError, TypeError, ValueError, AttributeError):  # a foreign file has no parts
            of, shares = int(record.meta["of"]), _shares(record)
            for number, names in sorted(shares.items()):
                missing = {name for name in names if name not in pieces and name.partition("-")[0] not in cells}
                states.append(PartStatus(number, of, len(names), len(missing), len(missing & running)))
    return states


def _shares(record: Record) -> dict[int, list[str]]:
    shares: dict[int, list[str]] = {}
    for key, owners in zip(*(record.table[name].to_pylist() for name in ("cell", "parts")), strict=True):
        for shard, number in enumerate(owners):
            shares.setdefault(number, []).append(f"{key}-{shard}")
    return shares


def missing_line(states: Sequence[PartStatus]) -> str:
    """Return a message on the parts of an evaluation that lack shards. "" if no part lacks shards."""
    lacking = [state for state in states if state.missing]
    if not lacking:
        return ""
    names = [f"{state.number}/{state.of} ({state.missing} of {state.pieces})" for state in lacking[:_NAMED]]
    more = f" and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
    return f"shards missing from parts {', '.join(names)}{more}; run a part's command again to resume it"


def _read_plan(record: Record) -> Iterator[tuple[str, AttackRun]]:
    """Yield the runs of a plan by key. If the file is not a plan, nothing is yielded."""
    with suppress(KeyError, TypeError, ValueError, AttributeError):
        keys, specs = (record.table[name].to_pylist() for name in ("cell", "spec"))
        # davylamp 0.1.0 wrote no `about`
        about = record.table["about"].to_pylist() if "about" in record.table.column_names else ["{}"] * len(keys)
        for key, spec, text in zip(keys, specs, about, strict=True):
            yield key, AttackRun.from_record({"spec": json.loads(spec), "about": json.loads(text)})


def _plan_key(cells: Sequence[AttackRun], of: int = 0) -> str:
    return json_digest({"plan": sorted(cell.key for cell in cells), **({"parts": of} if of else {})})


def join_shards(store: ResultsStore, cell: AttackRun, read: ReadPiece) -> bool:
    """Join the shards of a run to a record if all shards are finished. The shards are then deleted.

    Args:
        store: the folder.
        cell: the run.
        read: function that returns a shard by its key. None if the shard is missing or unusable.

    Returns:
        Whether the record was written.

    Raises:
        Unavailable: if the folder cannot be written.
    """
    keys = [f"{cell.key}-{shard}" for shard in range(cell.shards)]
    if not {*keys} <= {*store.keys("parts")}:  # called after every shard, so the earlier ones are not read each time
        return False
    pieces = [read(key) for key in keys]
    present = [piece for piece in pieces if piece is not None]
    if len(present) < cell.shards:
        return False
    store.write("cells", cell.key, *_joined(present))
    remove_pieces(store, cell)
    return True


def remove_pieces(store: ResultsStore, cell: AttackRun) -> None:
    """Delete the shards of a run."""
    for shard in range(cell.shards):
        store.remove("parts", f"{cell.key}-{shard}")


def join_all(store: ResultsStore) -> list[str]:
    """Join the shards of every run whose shards are all present. This is needed after several folders were merged.

    Shards of code that cannot be identified completely are joined only if the same evaluation made all of them.

    Returns:
        The keys of the runs whose records were written.

    Raises:
        Unavailable: if the folder cannot be written.
    """
    pieces = {key: record for key in store.keys("parts") if (record := usable_record(store, "parts", key)) is not None}
    cells = {key.partition("-")[0]: AttackRun.from_record(record.meta) for key, record in pieces.items()}
    plans: dict[str, list[Any]] = {}
    for key, record in pieces.items():
        plans.setdefault(key.partition("-")[0], []).append(record.meta.get("identity", {}).get("plan"))
    # A foreign shard may claim billions of shards, so they are not read one by one.
    whole = [cell for key, cell in cells.items() if len(set(plans[key])) == 1 and len(plans[key]) >= cell.shards]
    return [cell.key for cell in whole if join_shards(store, cell, pieces.get)]


def _joined(pieces: list[Record]) -> tuple[pa.Table, Mapping[str, Any]]:
    """Join the tables of all shards of a run.

    Returns:
        The table and its metadata. If the shards do not fit together, they are those of a failed run.
    """
    meta = dict(pieces[0].meta)
    try:
        for name in ("seconds", "attack_seconds"):
            meta[name] = sum(piece.meta[name] for piece in pieces)
        if traffic := sum((read_traffic(piece.meta.get("traffic")) for piece in pieces), ServerUsage()):
            meta["traffic"] = traffic.spec
        meta["unmeasured"] = {symbol: why for piece in pieces for symbol, why in piece.meta["unmeasured"].items()}
        table = pa.concat_tables([piece.table for piece in pieces], promote_options="default")
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        reason = f"its shards cannot be joined ({type(error).__name__}: {' '.join(str(error).split())})"[:500]
        return pa.table({}), {**meta, "status": "failed", "reason": reason}
    return table, meta

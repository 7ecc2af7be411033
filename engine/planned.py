"""What a results folder was asked for: a file with the cells of each evaluation, until all of them are finished."""

import json
from collections.abc import Sequence

import pyarrow as pa

from .cell import Cell, digest_of
from .store import Damaged, ResultsStore


def note_plan(store: ResultsStore, cells: Sequence[Cell]) -> None:
    """Write down what an evaluation is to run, so that others see how much of it is there.

    Raises:
        Unavailable: if the disk is full or not writable.
    """
    key = _plan_key(cells)
    if not store.path("plans", key).is_file():
        specs = [json.dumps(cell.spec, sort_keys=True) for cell in cells]
        table = pa.table({"cell": [cell.key for cell in cells], "spec": specs})
        store.write("plans", key, table, {"key": key, "kind": "plan", "status": "done", "reason": ""})


def forget_plan(store: ResultsStore, cells: Sequence[Cell]) -> None:
    """Remove the note: nothing of it is left to run."""
    store.remove("plans", _plan_key(cells))


def find_missing(store: ResultsStore) -> dict[str, Cell]:
    """Cells by key that an evaluation was asked for and that have no file, in its order."""
    there, found = set(store.keys("cells")), {}
    for _, record in store.read_all("plans"):
        if not isinstance(record, Damaged):
            keys, specs = (record.table[name].to_pylist() for name in ("cell", "spec"))
            found.update({key: spec for key, spec in zip(keys, specs, strict=True) if key not in there})
    return {key: Cell.from_spec(json.loads(spec)) for key, spec in found.items()}


def _plan_key(cells: Sequence[Cell]) -> str:
    return digest_of({"plan": sorted(cell.key for cell in cells)})

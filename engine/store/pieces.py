"""Cells that were made piece by piece: put together when every piece is there."""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from ...adapters.models.remote.traffic import Traffic, read_traffic
from ..cell import Cell
from .contents import find_fault
from .sealed import Damaged, Record
from .store import ResultsStore

ReadPiece = Callable[[str], "Record | None"]


def join_pieces(store: ResultsStore, cell: Cell, read: ReadPiece) -> bool:
    """Put the pieces of a cell together if all are there, and remove them.

    Args:
        store: where they are.
        cell: whose.
        read: a piece by its key; None: it is not there, or cannot be used.

    Returns:
        Whether the cell was written.

    Raises:
        Unavailable: if the store cannot be written.
    """
    pieces = [read(f"{cell.key}-{shard}") for shard in range(cell.shards)]
    present = [piece for piece in pieces if piece is not None]
    if len(present) < cell.shards:
        return False
    store.write("cells", cell.key, *_joined(present))
    remove_pieces(store, cell)
    return True


def remove_pieces(store: ResultsStore, cell: Cell) -> None:
    """Remove what there is of the pieces of a cell."""
    for shard in range(cell.shards):
        store.remove("parts", f"{cell.key}-{shard}")


def join_all(store: ResultsStore) -> list[str]:
    """Put together every cell all of whose pieces are there, in a folder into which several were merged.

    Pieces of what cannot be known in full are joined only if one evaluation made them all.

    Returns:
        The keys of the cells that were written.

    Raises:
        Unavailable: if the store cannot be written.
    """
    pieces = {key: record for key in store.keys("parts") if (record := _sound_piece(store, key)) is not None}
    cells = {key.partition("-")[0]: Cell.from_record(record.meta) for key, record in pieces.items()}
    plans: dict[str, list[Any]] = {}
    for key, record in pieces.items():
        plans.setdefault(key.partition("-")[0], []).append(record.meta.get("identity", {}).get("plan"))
    # A foreign piece may say that there are billions: they are not looked for one by one.
    whole = [cell for key, cell in cells.items() if len(set(plans[key])) == 1 and len(plans[key]) >= cell.shards]
    return [cell.key for cell in whole if join_pieces(store, cell, pieces.get)]


def _sound_piece(store: ResultsStore, key: str) -> Record | None:
    try:
        record = store.read("parts", key)
    except (FileNotFoundError, Damaged):
        return None
    return None if find_fault("parts", key, record) else record


def _joined(pieces: list[Record]) -> tuple[pa.Table, Mapping[str, Any]]:
    """The table of all pieces and what it is about; of pieces that do not fit together why that is."""
    meta = dict(pieces[0].meta)
    try:
        for name in ("seconds", "attack_seconds"):
            meta[name] = sum(piece.meta[name] for piece in pieces)
        if traffic := sum((read_traffic(piece.meta.get("traffic")) for piece in pieces), Traffic()):
            meta["traffic"] = traffic.spec
        meta["unmeasured"] = {symbol: why for piece in pieces for symbol, why in piece.meta["unmeasured"].items()}
        table = pa.concat_tables([piece.table for piece in pieces], promote_options="default")
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        reason = f"its pieces do not fit together ({type(error).__name__}: {' '.join(str(error).split())})"[:500]
        return pa.table({}), {**meta, "status": "failed", "reason": reason}
    return table, meta

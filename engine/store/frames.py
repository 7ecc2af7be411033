"""Results as pandas tables: one row for each cell and image, with what the cell is about beside it."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ...errors import Unavailable
from ..cell import Cell, call_as, tell_apart
from .contents import order_of, read_records, unknown_attack
from .coverage_bits import COLUMNS as COVERAGE_BITS
from .fits import fit_costs
from .image_results import FAULTS, invalid_by
from .plans import PartState, find_failed, find_missing, list_parts
from .store import KINDS, Damaged, Kind, Record, ResultsStore
from .stored_columns import HEAVY

if TYPE_CHECKING:
    import pandas as pd

Kept = TypeVar("Kept")


class CellState(NamedTuple):
    """A cell of a folder and how it stands; `meta` has versions, times, device, once some of it is there."""

    key: str
    cell: Cell
    status: str
    reason: str
    meta: dict[str, Any]


class Survey(NamedTuple):
    """What is in a folder: every cell with its state, and a line for every file that cannot be trusted."""

    states: list[CellState]
    damaged: list[str]


def load(folder: str | Path, *, heavy: bool = False, columns: Collection[str] | None = None) -> "pd.DataFrame":
    """The per-image records of all finished cells of a results folder.

    Columns: `cell`, `model` (with a piece of its digest where one name has several weights), `implementation` and
    `attack` (with the surrogate, if there is one), `knowledge`, `minimum_norm`,
    `library`, `norm`, `epsilon` (NaN: none; of an attack at saturation the limit that was given, and
    `radius` is what was found), `targeted`, `parameters` (JSON), `seed`, `data`, `pixels`,
    `model_digest`, `data_digest`, `version` (of the library, or of a user's code), then those of the records: `image`,
    `index`, `label`, `attacked`, `success`, `violated`, `robust`, `distance` (inf: not fooled, 0: wrong when clean),
    `forwards`, ..., and one for each metric, by symbol; `invalid_by_model` and `invalid_by_library` say whose fault
    what is `violated` is.

    Args:
        folder: where `davylamp evaluate` put them.
        heavy: also logits, activation maps and pictures.
        columns: of the records only these, and `index`; None: all.

    Returns:
        The table; `attrs["damaged"]` lists files that were left out because they could not be trusted,
        `attrs["failed"]` the failed cells by key, with their reason, `attrs["unknown"]` the cells left out because this
        version does not have their attack, in the same way.

    Raises:
        Unavailable: if there is no such folder, or no cell in it.
        StoreMismatch: if it was written in another format.
    """
    import pandas as pd

    asked = None if columns is None else {"index", *columns} - (set() if heavy else {*HEAVY})
    done, left_out = _read_done(folder, asked, lambda record: _rows(record, heavy=heavy, columns=columns))
    table = pd.concat([_frame(cell, meta, rows) for cell, meta, rows in done], ignore_index=True)
    table = table.sort_values(["model", "attack", "implementation", "cell", "index"], ignore_index=True)
    table.attrs.update(left_out)
    return table


def _read_done(
    folder: str | Path, columns: Collection[str] | None, kept: Callable[[Record], Kept]
) -> tuple[list[tuple[Cell, Mapping[str, Any], Kept]], dict[str, Any]]:
    """Each finished cell of a folder, its meta and what is kept of it, in the order of keys; and what is left out.

    Models are called as `tell_apart` says.
    """
    store = ResultsStore(folder, create=False)
    done: list[tuple[Cell, Mapping[str, Any], Kept]] = []
    damaged, failed, unknown = [], {}, {}
    for key, record in read_records(store, "cells", columns):
        if isinstance(record, Damaged):
            damaged.append(str(record))
        elif record.failed:
            failed[key] = record.meta["reason"]
        elif why := unknown_attack(Cell.from_record(record.meta)):
            unknown[key] = why
        else:
            done.append((Cell.from_record(record.meta), record.meta, kept(record)))
    if not done:
        raise none_finished(folder, len(failed), len(damaged), len(unknown))
    names = tell_apart(cell.subject for cell, _, _ in done)
    done = [(call_as(cell, names), meta, part) for cell, meta, part in done]
    return done, {"damaged": damaged, "failed": failed, "unknown": unknown}


def none_finished(folder: str | Path, failed: int, damaged: int, unknown: int) -> Unavailable:
    """The refusal of a folder without a finished cell, which says what it has instead, by number."""
    known = f"{failed} failed, {damaged} damaged, {unknown} of unknown attacks"
    known = known if failed or damaged or unknown else "it is empty"
    return Unavailable(f"expected finished cells in {folder}, found none ({known})")


def load_clean(folder: str | Path, *, heavy: bool = False) -> "pd.DataFrame":
    """The models on the clean images: `model`, `data`, `image`, `index`, `label`, `predicted`, `CA`, `CC`.

    Args:
        folder: a results folder.
        heavy: also logits, activation maps and pictures.
    """
    import pandas as pd

    frames = []
    for record in _records(ResultsStore(folder, create=False), "clean"):
        subject = record.meta["subject"]
        frame = _columns(record, heavy=heavy).to_pandas()
        frames.append(frame.assign(subject=record.meta["key"], model=subject["model"], data=subject["data"]))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def load_transfer(folder: str | Path) -> "pd.DataFrame":
    """Examples on other models: `cell`, `made_on`, `tested_on`, `implementation`, `index`, `label`, `adv_predicted`."""
    import pandas as pd

    frames = []
    for record in _records(ResultsStore(folder, create=False), "transfer"):
        cell = Cell.from_record(record.meta)
        frame = record.table.to_pandas()
        tested = record.meta["subject"]["model"]
        frames.append(
            frame.assign(cell=cell.key, made_on=cell.subject.model, tested_on=tested, implementation=cell.attack)
        )
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def list_cells(folder: str | Path) -> list[CellState]:
    """Every cell of a folder with its state: "done", "failed", "running" (a process has it) or "waiting" (none has)."""
    return _survey(ResultsStore(folder, create=False), ("parts", "cells"), headers=False).states


def list_damaged(folder: str | Path) -> list[str]:
    """A line for every file of a folder that cannot be trusted."""
    return _survey(ResultsStore(folder, create=False), KINDS, headers=False).damaged


def survey_folder(folder: str | Path, *, headers: bool = True) -> Survey:
    """`list_cells` and `list_damaged` by one look at each file.

    Args:
        folder: a results folder.
        headers: only what each file says of itself is read, a few kilobytes; bytes that were altered elsewhere in it go
            unnoticed here, and are found by all that reads its numbers. False: every byte is checked.

    Raises:
        Unavailable: if there is no such folder.
        StoreMismatch: if it was written in another format.
    """
    return _survey(ResultsStore(folder, create=False), KINDS, headers=headers)


def _survey(store: ResultsStore, kinds: Sequence[Kind], *, headers: bool) -> Survey:
    running = {name.partition("-")[0] for name in store.claimed()}
    states = {key: CellState(key, cell, "waiting", "", {}) for key, cell in find_missing(store).items()}
    damaged: dict[Kind, list[str]] = {}
    finished: dict[str, CellState] = {}
    for kind in kinds:
        for key, record in read_records(store, kind, (), headers=headers):
            if isinstance(record, Damaged):
                damaged.setdefault(kind, []).append(str(record))
            elif kind == "parts":
                cell_key, meta = key.partition("-")[0], dict(record.meta)
                states[cell_key] = CellState(cell_key, Cell.from_record(meta), "waiting", "", meta)
            elif kind == "cells":
                meta, cell = dict(record.meta), Cell.from_record(record.meta)
                finished[key] = CellState(key, cell, meta["status"], meta["reason"] or unknown_attack(cell), meta)
    states = {key: state._replace(status="running") if key in running else state for key, state in states.items()}
    ordered = sorted({**states, **finished}.values(), key=lambda state: order_of(state.cell))
    names = tell_apart(state.cell.subject for state in ordered)
    ordered = [state._replace(cell=call_as(state.cell, names)) for state in ordered]
    return Survey(ordered, [line for kind in KINDS for line in damaged.get(kind, ())])


def list_left_out(folder: str | Path) -> dict[str, str]:
    """Models and implementations that could not take part in an evaluation, each with the reason."""
    return find_failed(ResultsStore(folder, create=False))


def list_part_states(folder: str | Path) -> list[PartState]:
    """How each part stands of an evaluation in parts that is not finished; empty where none is."""
    return list_parts(ResultsStore(folder, create=False))


def about_cell(cell: Cell) -> dict[str, Any]:
    """What stands beside the records of a cell in the table of `load`, by column."""
    row, threat_model = cell.row, cell.threat_model
    return {
        "cell": cell.key,
        "subject": cell.subject.key,
        "model": cell.subject.name,
        "implementation": cell.title,
        "attack": cell.attack_title,
        "knowledge": cell.knowledge,
        "minimum_norm": cell.search.attack_kind(cell.row) == "minimum-norm",
        "library": row.library,
        "norm": threat_model.norm,
        "epsilon": float("nan") if cell.planned.threat_model.epsilon is None else cell.planned.threat_model.epsilon,
        "targeted": threat_model.targeted,
        "parameters": json.dumps(dict(cell.parameters), sort_keys=True),
        "seed": cell.seed,
        "data": cell.subject.data,
        "pixels": cell.pixels,
        "model_digest": cell.subject.model_digest,
        "data_digest": cell.subject.data_digest,
        "version": cell.version,
    }


def _rows(record: Record, *, heavy: bool, columns: Collection[str] | None) -> "pd.DataFrame":
    table = _columns(record, heavy=heavy)
    if columns is not None:
        table = table.select([name for name in table.column_names if name in {"index", *columns}])
    return table.to_pandas()


def _frame(cell: Cell, meta: Mapping[str, Any], rows: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    about = {**about_cell(cell), **fit_costs(meta)}
    if cell.search.kind == "at-saturation":
        about["radius"] = cell.threat_model.epsilon
    if {"violated", "violations"} <= set(rows):
        broken = {name: rows[name].to_numpy() for name in ("violated", "violations")}
        rows = rows.assign(**{name: invalid_by(broken, who) for name, who in FAULTS.items()})
    return pd.concat([pd.DataFrame(about, index=rows.index), rows], axis=1)


def _columns(record: Record, *, heavy: bool) -> Any:
    dropped = (*COVERAGE_BITS, *(() if heavy else HEAVY))
    return record.table.drop_columns([name for name in dropped if name in record.table.column_names])


def _records(store: ResultsStore, kind: Kind) -> Iterator[Record]:
    for _, record in read_records(store, kind):
        if not isinstance(record, Damaged) and not record.failed:
            yield record

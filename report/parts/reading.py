"""A results folder as the report needs it: read once, with the first images as pictures."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...adapters.words import threat_text
from ...engine.cell import Cell
from ...engine.store.contents import read_records
from ...engine.store.frames import CellState
from ...engine.store.outcomes import Outcome, Outcomes, details, logits_of, read_outcomes
from ...engine.store.store import Damaged, Record, ResultsStore
from ...engine.tables.groups import differing, model_names

RATE = "FR@5"  # the fooling rate at K that a page shows


@dataclass(frozen=True)
class Example:
    """One of the first images, under attack or clean: PNG bytes, activation map (h, w), confidence in `predicted`."""

    place: int
    image: str
    label: int
    predicted: int
    picture: bytes | None
    cam: np.ndarray | None
    confidence: float


@dataclass(frozen=True)
class Folder:
    """What a report is about.

    Args:
        path: the results folder.
        outcomes: finished cells as arrays.
        states: every cell by key, with its state and what is known of its run.
        titles: a name for each cell that no other cell of its model has.
        models: name of each model by key of its subject.
        clean: the first images by key of the subject.
        attacked: the same under attack, by key of the cell.
    """

    path: Path
    outcomes: Outcomes
    states: Mapping[str, CellState]
    titles: Mapping[str, str]
    models: Mapping[str, str]
    clean: Mapping[str, tuple[Example, ...]]
    attacked: Mapping[str, tuple[Example, ...]]

    def model(self, own: Outcome) -> str:
        """Name of the model that a cell attacks."""
        return self.models[own.cell.subject.key]

    def title(self, own: Outcome) -> str:
        """Name of a cell beside the others on its model."""
        return self.titles[own.cell.key]


def read_folder(path: str | Path) -> Folder:
    """Read everything that a report shows.

    Raises:
        Unavailable: if there is no such folder, or no cell in it.
        StoreMismatch: if it was written in another format.
    """
    outcomes = read_outcomes(path, ["OTR", RATE])
    states: dict[str, CellState] = {}
    clean = _examples(outcomes.store, "clean", "", {})
    attacked = _examples(outcomes.store, "cells", "adv_", states)
    running = {cell.key: CellState(cell.key, cell, "running", "", {}) for cell in outcomes.running}
    ordered = sorted((running | states).values(), key=lambda own: (own.cell.subject.model, own.cell.attack, own.key))
    names = name_cells(outcomes), model_names(outcomes)
    return Folder(Path(path), outcomes, {own.key: own for own in ordered}, *names, clean, attacked)


def name_cells(outcomes: Outcomes) -> dict[str, str]:
    """A name for every finished cell: implementation and threat model, and what else tells it from like ones."""
    alike: dict[tuple[str, str], list[Outcome]] = {}
    for own in outcomes.done:
        alike.setdefault((own.cell.subject.key, f"{own.cell.attack} {threat_text(own.cell.threat_model)}"), []).append(
            own
        )
    names = {}
    for (_, name), cells in alike.items():
        options = [details(own.cell) | {"seed": str(own.cell.seed)} for own in cells]
        for own, text in zip(cells, differing(options), strict=True):
            names[own.cell.key] = f"{name}, {text}" if text else name
    return names


def _examples(
    store: ResultsStore, kind: Any, prefix: str, states: dict[str, CellState]
) -> dict[str, tuple[Example, ...]]:
    """The first images by key; the states of the cells are noted on the way, so that every file is read once."""
    found = {}
    for key, record in read_records(store, kind):
        if isinstance(record, Damaged):
            continue
        if "spec" in record.meta:
            meta = dict(record.meta)
            states[key] = CellState(key, Cell.from_record(meta), meta["status"], meta["reason"], meta)
        if not record.failed:
            found[key] = tuple(_read_examples(record, prefix))
    return found


def _read_examples(record: Record, prefix: str) -> list[Example]:
    if not {f"{prefix}picture", f"{prefix}cam"} <= set(record.table.column_names):
        return []
    known = record.table[f"{prefix}picture"].is_valid().to_numpy()
    part = record.table.filter(known)
    if not len(part):
        return []
    logits = logits_of(Record(part, record.meta), f"{prefix}logits").softmax(1)
    columns = {name: part[name].to_pylist() for name in ("index", "image", "label")}
    columns |= {name: part[prefix + name].to_pylist() for name in ("predicted", "picture", "cam")}
    return [
        Example(
            place=columns["index"][row],
            image=columns["image"][row],
            label=columns["label"][row],
            predicted=columns["predicted"][row],
            picture=columns["picture"][row],
            cam=None if columns["cam"][row] is None else np.asarray(columns["cam"][row], np.float32),
            confidence=float(logits[row, columns["predicted"][row]]),
        )
        for row in range(len(part))
    ]

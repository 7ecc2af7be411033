"""A results folder as plain tables that any program reads: rows for images and cells, for cells, for clean images."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ..store.data_frames import load, load_clean, run_columns
from ..store.plan_records import CellState, list_cells
from ..store.record_validation import unknown_attack
from ..store.store import ResultsStore

MEANINGS = {
    "responses": "one row for each image under each finished cell: an attack of a library on a model, with its seed",
    "cells": "one row for each cell: what was run, how it ended, by which versions",
    "clean": "one row for each image and model, not attacked",
}
COLUMNS = {
    "cell": "key of the cell: a hash over everything that can change its result",
    "subject": "key of the model on its images",
    "model": "name of the model",
    "implementation": "library:attack",
    "attack": "name of the attack, the same for every library",
    "knowledge": "what the attack knows: white-box, score, decision, transfer",
    "minimum_norm": "whether the attack looks for the least distance",
    "library": "attack library",
    "norm": "norm of the threat model",
    "epsilon": "radius of the threat model; empty: none",
    "targeted": "whether the attack aims at a class",
    "parameters": "parameters of the attack, JSON",
    "seed": "seed of everything random",
    "data": "name of the data",
    "pixels": "whether examples are rounded to 8 bits",
    "model_digest": "hash of weights, code and settings of the model",
    "data_digest": "hash of pixels and labels",
    "version": "version of the attack library",
    "index": "place of the image in the data",
    "image": "name of the image",
    "label": "right class",
    "attacked": "the model was right on the clean image, so it was attacked",
    "success": "a wrong answer within the rules; no failed attack and no violation counts",
    "success_8bit": "still wrong after rounding to 8 bits",
    "violated": "what came back broke a rule",
    "violations": "which rules",
    "invalid_by_model": "violated, and the model's fault: it counts as not robust",
    "invalid_by_library": "violated, and the library's fault: it counts as not fooled",
    "robust": "attacked, and neither fooled nor violated",
    "distance": "of the nearest example that fooled; inf: none, 0: wrong when clean",
    "target": "class that the attack aims at; empty: none",
    "usable": "the image proves something: attacked, no violation, and a success or within the radius",
    "predicted": "class of the clean image",
    "adv_predicted": "class of the example",
    "projection": "of the example on a fixed random direction: where it differs, the examples do",
    "forwards": "images sent through the model",
    "backwards": "images that gradients were taken of",
    "seconds": "time of the attack",
    "status": "done, failed, running, waiting",
    "reason": "why it failed",
    "images": "how many images",
    "spec": "everything that the key is a hash of, JSON: the configuration of the cell",
    "versions": "versions of the programs, JSON",
    "written": "when it was written, UTC",
}


def flat_tables(folder: str | Path) -> dict[str, pa.Table]:
    """The tables of a results folder by name: `responses`, `cells`, `clean`; those that would be empty are left out.

    Raises:
        Unavailable: if there is no such folder.
        StoreMismatch: if it was written in another format.
    """
    states = list_cells(folder)
    rows = [_cell_row(state) for state in sorted(states, key=lambda state: state.key)]
    tables = {"cells": _table(pd.DataFrame(rows))} if rows else {}
    if any(state.status == "done" and not unknown_attack(state.cell) for state in states):
        tables["responses"] = _table(load(folder))
    if ResultsStore(folder, create=False).keys("clean") and len(clean := load_clean(folder)):
        tables["clean"] = _table(clean.sort_values(["model", "subject", "index"], ignore_index=True))
    return {name: tables[name] for name in MEANINGS if name in tables}


def parquet_bytes(table: pa.Table) -> bytes:
    """A Parquet file, the same bytes for the same table and version of Arrow."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _table(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)


def _cell_row(state: CellState) -> dict[str, Any]:
    """What a reader asks of a cell; an attack that this version does not have is described by its spec alone."""
    cell = state.cell
    about = {"cell": state.key, "model": cell.subject.model, "implementation": cell.attack, "data": cell.subject.data}
    if not unknown_attack(cell):
        about = run_columns(cell)
    return {
        **about,
        "images": cell.subject.images,
        "status": state.status,
        "reason": state.reason,
        "spec": json.dumps(cell.spec, sort_keys=True),
        "versions": json.dumps(state.meta.get("versions", {}), sort_keys=True),
        "written": str(state.meta.get("written", "")),
    }

"""Converts a results folder to three plain tables: one row per image and run, per run, or per clean image and model."""

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
    "responses": "one row for each image in each finished run; a run is a library's attack on a model, with a seed",
    "cells": "one row for each run: settings, status and versions",
    "clean": "one row for each image and model, without an attack",
}
COLUMNS = {
    "cell": "key of the run: a hash of everything that can change its result",
    "subject": "key of the model on data",
    "model": "name of the model",
    "implementation": "library:attack",
    "attack": "name of the attack, the same for every library",
    "knowledge": "attacker knowledge: white-box, score, decision, transfer",
    "minimum_norm": "whether it is a minimum-norm attack",
    "library": "attack library",
    "norm": "norm of the threat model",
    "epsilon": "radius of the threat model; empty if there is none",
    "targeted": "whether the attack has a target class",
    "parameters": "parameters of the attack, JSON",
    "seed": "random seed",
    "data": "name of the data",
    "pixels": "whether examples are rounded to 8 bits",
    "model_digest": "hash of weights, code and settings of the model",
    "data_digest": "hash of pixels and labels",
    "version": "version of the attack library",
    "index": "position of the image in the data",
    "image": "name of the image",
    "label": "right class",
    "attacked": "the clean image was classified correctly and attacked",
    "success": "fooled by a valid example",
    "success_8bit": "still fooled after rounding to 8 bits",
    "violated": "the result is invalid",
    "violations": "which rules",
    "invalid_by_model": "invalid, caused by the model: counted as not robust",
    "invalid_by_library": "invalid, caused by the library: counted as not fooled",
    "robust": "attacked, and neither fooled nor invalid",
    "distance": "distance of the nearest successful example; inf if there is none, 0 if misclassified when clean",
    "target": "target class; empty if there is none",
    "usable": "attacked, not invalid, and fooled or within the radius",
    "predicted": "class of the clean image",
    "adv_predicted": "class of the example",
    "projection": "projection of the example on a fixed random direction; examples with different projections are "
    "different",
    "forwards": "forward passes",
    "backwards": "backward passes",
    "seconds": "time of the attack",
    "status": "done, failed, running, waiting",
    "reason": "reason for a failure",
    "images": "number of images",
    "spec": "configuration of the run, JSON; the key is its hash",
    "versions": "versions of the programs, JSON",
    "written": "time of writing, UTC",
}


def flat_tables(folder: str | Path) -> dict[str, pa.Table]:
    """Return the tables of a results folder by name: `responses`, `cells`, `clean`. Empty tables are omitted.

    `MEANINGS` describes the rows of each table, and `COLUMNS` describes the columns.

    Raises:
        Unavailable: If the folder does not exist.
        StoreMismatch: If the folder was written in a different format.
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
    """Return the content of a Parquet file with this table. Equal tables and PyArrow versions give equal bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _table(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)


def _cell_row(state: CellState) -> dict[str, Any]:
    """Return the row of a run in the table "cells".

    If this version of davylamp does not know the attack, columns that depend on the attack are missing.
    """
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

"""Records the results of a task in the database, and copies existing runs into the folder of a task."""

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from ...adapters.models.remote.answer_cache import FILE as ANSWERS
from ...engine.attack_run import AttackRun
from ...engine.store.atomic_files import replace_file
from ...engine.store.image_results import results_of
from ...engine.store.store import DamagedRecordError, Record, ResultsStore
from ...errors import DavylampError
from ..components.validation import FOREIGN
from ..database.permissions import Viewer, cells_for
from ..database.records import CellRow, ComponentRow, TaskComponentRow, TaskRow
from ..folder import ServerFolder
from .preparing import PreparedTask

# Fields of a spec besides components, norm, radius, seed and parameters that change the numbers.
_TERMS = ("target", "pixels", "grid", "rules", "draws", "eot")


def ingest_results(
    session: Session, folder: ServerFolder, prepared: PreparedTask, keys: Mapping[str, Any], reused: Iterable[str] = ()
) -> int:
    """Record the finished runs of a task that are not in the database yet, and return the number of recorded runs.

    Args:
        session: database session for writing.
        folder: folder of the server.
        prepared: the task.
        keys: facts about each run of the task, by key, as the task's process wrote them to `keys.json`. Runs with other
            keys are ignored.
        reused: keys of runs that were copied from earlier tasks.
    """
    store, number = ResultsStore(prepared.folder / "results"), prepared.task.id
    known = set(session.scalars(select(CellRow.key).where(CellRow.task_id == number)))
    count = 0
    for key in sorted(set(store.keys("cells")) - known):  # ids do not depend on the order of hashes
        about = keys.get(key)
        row = None if about is None else _read(store, prepared, key, about)
        if row is not None:
            row.reused, row.reason = key in set(reused), folder.hide(row.reason)
            session.add(row)
            count += 1
    session.flush()
    return count


def copy_existing_runs(
    session: Session, folder: ServerFolder, prepared: PreparedTask, keys: Mapping[str, Any]
) -> list[str]:
    """Copy runs of earlier tasks that a task also needs into the folder of the task.

    Only runs of tasks that the owner of the new task may see are copied. If the earlier task contained programs of
    users, these could have forged the results. Such a run is copied only if the earlier task has the same owner.

    Returns:
        The keys of the copied runs.
    """
    task = prepared.task
    viewer = Viewer(task.owner.id, task.owner.name)
    foreign = select(TaskComponentRow.task_id).join(ComponentRow, ComponentRow.id == TaskComponentRow.component_id)
    foreign = foreign.where(ComponentRow.form.in_(FOREIGN))
    trusted = (CellRow.task_id.not_in(foreign)) | (TaskRow.owner_id == task.owner_id)
    finished = cells_for(viewer).where(CellRow.task_id != task.id, CellRow.state == "done", trusted)
    store, given = ResultsStore(prepared.folder / "results"), []
    for row in session.scalars(finished.where(CellRow.key.in_(list(keys)))):
        source, is_here = folder.task(row.task_id) / "results", store.path("cells", row.key).is_file()
        if row.key not in given and not is_here and _copy_cell(source, store.folder, row, keys[row.key]):
            given.append(row.key)
    if given:  # a task whose runs all exist writes none, so the folder is prepared here
        store.prepare()
    return given


def file_digest(path: Path) -> str:
    """Return the SHA-256 hash of a file, as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def result_files(results: Path) -> list[Path]:
    """Return the files of a results folder that belong to the results of a task, sorted by path.

    Locks, unfinished runs, plans, temporary files and the answer cache are omitted.
    """
    files = (path for path in results.rglob("*") if path.is_file() and not path.is_symlink())
    unsaid = ("locks", "parts", "plans")
    return sorted(
        path
        for path in files
        if path.relative_to(results).parts[0] not in unsaid and path.name[0] != "." and path.name != ANSWERS
    )


def _read(store: ResultsStore, prepared: PreparedTask, key: str, about: Any) -> CellRow | None:
    try:
        record, path = store.read("cells", key), store.path("cells", key)
        cell = AttackRun.from_record(record.meta)
        model, defence = prepared.models[cell.subject.model]
        attacks = list(dict.fromkeys(prepared.attacks[place] for place in about["attacks"]))
        data = prepared.data[about["data"]]
        threat, counts = cell.threat_model, _counts(record)
        knowledge = cell.knowledge
    except (
        DamagedRecordError,
        DavylampError,
        FileNotFoundError,
        KeyError,
        IndexError,
        TypeError,
        ValueError,
        AttributeError,
    ):
        return None
    return CellRow(
        task_id=prepared.task.id,
        key=key,
        file=path.name,
        digest=file_digest(path),
        state=record.meta["status"],
        reason=str(record.meta["reason"] or _broken_rules(record))[:2000],
        model_id=model,
        attack_id=None if cell.search.sums_up else attacks[0],
        attack_ids=attacks,
        defence_id=defence,
        data_id=data,
        model=cell.subject.model[:600],
        attack=cell.title[:600],
        norm=threat.norm,
        epsilon=None if threat.epsilon is None else float(threat.epsilon),
        targeted=threat.targeted,
        knowledge=knowledge,
        seed=cell.seed,
        parameters=_canonical(cell.spec["parameters"]),
        terms=_canonical({name: cell.spec.get(name) for name in _TERMS}),
        images=cell.subject.images,
        created=time.time(),
        **counts,
    )


def _canonical(values: Any) -> str:
    return json.dumps(values, sort_keys=True)


def _counts(record: Record) -> dict[str, float]:
    if record.failed:
        return {"attacked": 0, "fooled": 0}
    names = {"attacked", "success", "violated", "violations", "draws_fooled"} & set(record.table.column_names)
    columns = {name: record.table[name].to_numpy(zero_copy_only=False) for name in names}
    results = results_of(columns)
    kept = results.attacked & ~results.undecided_fooled
    return {"attacked": int(np.sum(kept)), "fooled": float(np.sum(results.fooled[kept]))}


def _broken_rules(record: Record) -> str:
    """Describe how many images of a run have invalid results, and why; "" if all results are valid."""
    if record.failed:
        return ""
    said = [line for line in record.table["violations"].to_pylist() if line]
    if not said:
        return ""
    kinds = Counter(kind for line in said for kind in line.split())
    how_many = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    return f"{len(said)} of {len(record.table)} images have invalid results and do not count: {how_many}"


def _copy_cell(source: Path, target: Path, row: CellRow, about: Mapping[str, Any]) -> bool:
    """Copy a run and the records on which it depends from one results folder to another.

    Returns:
        Whether the run was copied. False if the file of the run is missing, or has changed since it was recorded.
    """
    path = source / "cells" / row.file
    if not path.is_file() or file_digest(path) != row.digest:
        return False
    wanted = [path, *(source / "clean").glob(f"{_plain(about['clean'])}.*")]
    if about.get("fit"):
        wanted += (source / "fits").glob(f"{_plain(about['fit'])}.*")
    for each in reversed(wanted):
        copy = target / each.relative_to(source)
        if each.name.endswith(".parquet") and not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            replace_file(copy, partial(shutil.copyfile, each))
    return True


def _plain(key: Any) -> str:
    """Return a key with letters and digits only, so that it can be used in a glob pattern."""
    return "".join(letter for letter in str(key) if letter.isalnum())[:64] or "none"

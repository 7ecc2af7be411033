"""Prepares the folder of a task for its process: files of the components, and the file `job.json` with the settings."""

import json
import os
import shutil
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from ...engine.store.atomic_files import replace_file
from ...errors import Unavailable
from ..components.blobs import blob_path
from ..components.validation import UNREADABLE, engine_name
from ..database.records import ComponentRow, TaskRow
from ..folder import ServerFolder
from .task_process import write_json
from .task_summary import component_folder, model_names

_LEFT_FREE = 1 << 30  # bytes of disk space kept free


class ExecutorSettings(NamedTuple):
    """Where and how the tasks of a worker run.

    Args:
        executor: executor of the evaluation, as in `davylamp evaluate`.
        workers: number of processes of the executor.
        address: address of the executor's cluster. None for this machine.
        device: torch device of the models.
        trust: whether programs and files of users run in the process of the task. False runs each of them in a sandbox.
        memory: memory limit of each sandbox, in GiB. None for the default.
    """

    executor: str = "local"
    workers: int = 1
    address: str | None = None
    device: str = "cpu"
    trust: bool = False
    memory: float | None = None


class PreparedTask(NamedTuple):
    """A task whose folder is ready for its process.

    Args:
        task: database row of the task.
        folder: folder of the task.
        has_files: whether a component of the task has a file that a user uploaded.
        models: component numbers of model and defence, by the engine's name of the model. The defence is None for an
            undefended model.
        attacks: component numbers of the attacks, in the order of `attacks` in the configs.
        data: component numbers of the data sets, in the order of the configs.
    """

    task: TaskRow
    folder: Path
    has_files: bool
    models: Mapping[str, tuple[int, int | None]]
    attacks: tuple[int, ...]
    data: tuple[int, ...]


def prepare(session: Session, folder: ServerFolder, number: int, where: ExecutorSettings) -> PreparedTask:
    """Prepare the folder of a task. Results of earlier attempts are kept.

    Raises:
        Unavailable: If the file of a component is missing or cannot be unpacked, or if the disk is full.
    """
    task = session.get_one(TaskRow, number)
    place, settings = folder.task(number), task.settings
    try:
        for name in ("room", "results"):
            (place / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in ("given", "outcome.json", "keys.json", "progress.json"):
            (place / name).unlink(missing_ok=True)
        names = {row.id: _lay_out(folder, place / "room", row) for row in task.components}
        has_files = any(row.blob is not None for row in task.components)
        models, configs = _configs(settings, names, where, apart=has_files and not where.trust)
        running = {"executor": where.executor, "workers": where.workers, "address": where.address}
        # A retry by the owner repeats failed runs; one after a crash resumes.
        write_json(place / "job.json", {"configs": configs, "retry_failed": task.attempts <= 1, **running})
    except UNREADABLE as error:  # including archives that differ from their directory
        reason = str(error).replace(f"{place}/", "")  # hides the server's paths
        raise Unavailable(f"could not prepare task {number} ({reason[:300]})") from error
    attacks = tuple(each["component"] for each in settings["attacks"])
    return PreparedTask(task, place, has_files, models, attacks, tuple(settings["data"]))


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file that the process of a task wrote; {} if the file is missing or invalid."""
    try:
        if path.stat().st_size > 64 << 20:
            return {}
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _configs(
    settings: Mapping[str, Any], names: Mapping[int, str], where: ExecutorSettings, *, apart: bool
) -> tuple[dict[str, tuple[int, int | None]], list[dict[str, Any]]]:
    """Convert the settings of a task to configs of the engine.

    Returns:
        Component numbers of model and defence, by the engine's name of the model. Then a config for each data set.
    """
    models = model_names(settings, names)
    attacks = [
        {"attack": names[each["component"]], **{key: each[key] for key in each if key != "component"}}
        for each in settings["attacks"]
    ]
    shared = {"models": list(models), "attacks": attacks, "seeds": settings["seeds"], "limit": settings["limit"]}
    shared |= {name: settings[name] for name in ("order", "stop_when_fooled")} | {"device": where.device}
    shared["eight_bit"] = settings["pixels"]
    if apart:
        shared |= {"isolate": "strict", "memory_limit": where.memory}
    examples = settings.get("examples", "own")  # tasks of an earlier version lack it
    shared["examples"] = "defended" if examples == "own" else examples
    if settings["max_queries"]:
        shared["max_queries"] = settings["max_queries"]
    return models, [{**shared, "data": names[number]} for number in settings["data"]]


def _lay_out(folder: ServerFolder, room: Path, row: ComponentRow) -> str:
    where = component_folder(row)
    if row.blob is not None:
        target = room / where / row.file_name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            stored = blob_path(folder.blobs, row.blob)
            replace_file(target, partial(shutil.copyfile, stored))  # no link: the task's process could write to it
        if row.form == "folder" and not (room / where / "images").is_dir():
            _unpack(target, room / where)
    return engine_name(row, where)


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive of images, whose file names and sizes were validated when it was uploaded."""
    draft = folder / f".images.{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    with zipfile.ZipFile(archive) as opened:
        size, free = sum(info.file_size for info in opened.infolist()), shutil.disk_usage(folder).free
        if size > free - _LEFT_FREE:
            raise OSError(f"the disk is full: the images need {size >> 20} MiB, but {free >> 20} MiB are free")
        for info in opened.infolist():
            target = draft / info.filename
            if info.is_dir():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with opened.open(info) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
    inside = [path for path in draft.iterdir() if path.is_dir()]
    only = len(inside) == 1 and len(list(draft.iterdir())) == 1 and any(each.is_dir() for each in inside[0].iterdir())
    (inside[0] if only else draft).replace(folder / "images")  # the archive has a single top-level folder
    shutil.rmtree(draft, ignore_errors=True)

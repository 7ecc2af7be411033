"""Submits, changes, cancels and repeats tasks. Tasks with invalid settings are refused when they are submitted."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast, get_args

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from ...adapters.threat_model import Norm
from ...engine.plan.config import Order
from ...errors import InvalidInput, MissingLibrary, UnknownName
from ..components.registration import ForbiddenError, NotFoundError, find_component
from ..components.validation import A_KIND, FOREIGN
from ..database.permissions import Viewer, is_owner, note_visibility, tasks_for
from ..database.records import ENDED, CellRow, ComponentRow, Kind, TaskComponentRow, TaskRow, Visibility
from ..folder import ServerFolder
from .sandboxed import why_not_isolated

_TITLES: Mapping[str, Kind] = {"models": "model", "attacks": "attack", "defences": "defence", "data": "data"}
_FLAGS = {"undefended": True, "pixels": False, "stop_when_fooled": False}
_EXAMPLES = ("own", "original", "both")
_SETTINGS = ("limit", "seeds", "max_queries", "order", "examples", *_FLAGS, *_TITLES)
_STORED = {"eight_bit": "pixels"}  # names of settings in tasks that are stored
_OF_ATTACKS = ("component", "norm", "epsilon", "target", "parameters", "defaults")
_MOST_SEEDS, _MOST_PARAMETERS = 20, 30


class TaskRequest(NamedTuple):
    """Settings of a task that a user wants to run.

    Args:
        settings: settings of the evaluation, with these keys:

            - "models", "defences" and "data": lists of component numbers;
            - "attacks": list of component numbers, or of tables with the keys "component", "norm", "epsilon", "target",
              "parameters" and "defaults";
            - "limit": number of images;
            - "undefended": whether each model is also evaluated without a defence;
            - "seeds", "max_queries", "pixels" (8-bit images), "examples", "order" and "stop_when_fooled": as in
              `davylamp evaluate`.
        title: title of the task.
        visibility: "public" if everybody who may see all components of the task may see the task, or "private" for the
            owner only.
        priority: priority among the tasks of the same owner, from -10 to 10.
    """

    settings: Mapping[str, Any]
    title: str = ""
    visibility: str = "private"
    priority: int = 0


def submit(session: Session, folder: ServerFolder, viewer: Viewer, wish: TaskRequest) -> TaskRow:
    """Submit a new task, and return its database row.

    Raises:
        DavylampError: If the user may not submit tasks, a component is missing or withdrawn, a setting is invalid, the
            task is too large, the user has too many unfinished tasks, or files of users cannot be used on this server.
    """
    if viewer.id is None or not viewer.may_submit:
        raise ForbiddenError(
            "submitting a task needs a user who may submit; sign in, or use a token with the scope submit"
        )
    if wish.visibility not in get_args(Visibility):
        raise InvalidInput(f"expected the visibility public or private, got {str(wish.visibility)[:40]!r}")
    settings = read_settings(wish.settings)
    parts = {name: _components(session, viewer, settings, name) for name in _TITLES}
    _check_size(folder, settings)
    _check_attacks(parts["attacks"], settings)
    files = [row for rows in parts.values() for row in rows if row.blob is not None]
    if files and (why := why_not_isolated(trust=folder.settings.trust)):
        raise InvalidInput(f"{files[0].name} cannot be used, because it has a file: {why}")
    waiting = select(func.count()).where(TaskRow.owner_id == viewer.id, TaskRow.state.not_in(ENDED))
    if (session.scalar(waiting) or 0) >= folder.settings.waiting:
        raise InvalidInput(
            f"you already have {folder.settings.waiting} unfinished tasks, the maximum; wait until a task is finished, "
            "or cancel a task"
        )
    row = TaskRow(
        owner_id=viewer.id,
        title=wish.title[:200],
        settings=settings,
        visibility=wish.visibility,
        priority=_whole("priority", wish.priority, -10, 10),
        state="waiting",
        created=time.time(),
    )
    session.add(row)
    session.flush()
    numbers = {component.id for rows in parts.values() for component in rows}
    session.add_all([TaskComponentRow(task_id=row.id, component_id=number) for number in sorted(numbers)])
    session.flush()
    return row


def read_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Check the settings of a task, and return the complete settings. Missing settings get the default values.

    Raises:
        UnknownName: If a setting does not exist.
        InvalidInput: If a value is invalid.
    """
    given = {_STORED.get(name, name): value for name, value in given.items()}
    for name in given:
        if name not in _SETTINGS:
            raise UnknownName("setting", str(name)[:60], _SETTINGS)
    settings: dict[str, Any] = {name: _numbers(name, given.get(name, ())) for name in ("models", "defences", "data")}
    settings["attacks"] = [_attack(each) for each in _list("attacks", given.get("attacks", ()))]
    for name in ("models", "attacks", "data"):
        if not settings[name]:
            raise InvalidInput(f"{name}: expected at least one component, got none")
    settings["limit"] = _whole("limit", given["limit"], 1, 10**6) if given.get("limit") is not None else None
    queries = given.get("max_queries")
    settings["max_queries"] = _whole("max_queries", queries, 1, 10**7) if queries is not None else None
    settings["seeds"] = [_whole("seeds", each, 0, 2**32 - 1) for each in _list("seeds", given.get("seeds") or [0])]
    if len(settings["seeds"]) > _MOST_SEEDS:
        raise InvalidInput(f"expected at most {_MOST_SEEDS} seeds, got {len(settings['seeds'])}")
    settings["order"] = given.get("order") or "given"
    if settings["order"] not in get_args(Order):
        raise UnknownName("order", str(settings["order"])[:40], get_args(Order))
    for name, usual in _FLAGS.items():
        settings[name] = given.get(name, usual)
        if not isinstance(settings[name], bool):
            raise InvalidInput(f"expected {name} as true or false, got {str(settings[name])[:40]!r}")
    settings["examples"] = _examples(given, settings)
    return settings


def find_task(session: Session, viewer: Viewer, number: int) -> TaskRow:
    """Return the task with a given number.

    Raises:
        NotFoundError: If the task does not exist, or if the viewer may not see the task.
    """
    row = session.scalar(tasks_for(viewer).where(TaskRow.id == (number if 0 < number < 2**31 else -1)))
    if row is None:
        raise NotFoundError(f"there is no task {number} that you can see")
    return row


def cancel(session: Session, viewer: Viewer, number: int) -> TaskRow:
    """Cancel a task, and return its database row. Finished results are kept.

    A waiting task ends immediately. A running task is stopped by its worker at the next heartbeat.
    """
    row = _mine(session, viewer, number)
    if row.state == "waiting":
        row.state, row.finished, row.message = "cancelled", time.time(), "cancelled before it started"
    elif row.state == "running":
        row.cancelling = True
    return row


def retry(session: Session, viewer: Viewer, number: int) -> TaskRow:
    """Let a failed or cancelled task run again, and return its database row. Finished runs are not repeated."""
    row = _mine(session, viewer, number)
    if row.state not in ("failed", "cancelled"):
        raise InvalidInput(f"only failed or cancelled tasks can run again, but this task is {row.state}")
    row.state, row.cancelling, row.message, row.attempts, row.finished = "waiting", False, "", 0, 0.0
    session.execute(delete(CellRow).where(CellRow.task_id == row.id, CellRow.state == "failed"))
    return row


def change_task(session: Session, viewer: Viewer, number: int, changes: Mapping[str, Any]) -> TaskRow:
    """Change a task, and return its database row.

    The keys of `changes` are "title", "visibility" and "priority". Other keys are ignored.
    """
    row = _mine(session, viewer, number)
    visibility = changes.get("visibility", row.visibility)
    if visibility not in get_args(Visibility):
        raise InvalidInput(f"expected the visibility public or private, got {str(visibility)[:40]!r}")
    if visibility != row.visibility:
        note_visibility(session)
    row.visibility, row.title = visibility, str(changes.get("title", row.title))[:200]
    row.priority = _whole("priority", changes.get("priority", row.priority), -10, 10)
    return row


def _mine(session: Session, viewer: Viewer, number: int) -> TaskRow:
    row = find_task(session, viewer, number)
    if not is_owner(viewer, row.owner_id):
        raise ForbiddenError(f"expected a task of yours, got {number}, which belongs to a different user")
    return row


def _components(session: Session, viewer: Viewer, settings: Mapping[str, Any], name: str) -> list[ComponentRow]:
    chosen = [each["component"] for each in settings[name]] if name == "attacks" else settings[name]
    rows = [find_component(session, viewer, number) for number in chosen]
    for row in rows:
        if row.kind != _TITLES[name]:
            raise InvalidInput(f"expected {name} only, got {row.name}, which is {A_KIND[cast('Kind', row.kind)]}")
        if row.state != "active":
            raise InvalidInput(f"{row.name} {row.version} cannot be used in new tasks, because it is {row.state}")
    return rows


def _examples(given: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return the setting "examples", which chooses the models on which examples for defended models are made.

    Returns:
        "own" for the defended model, "original" for its undefended model, or "both".
    """
    examples = given.get("examples") or "own"
    examples = "own" if examples == "defended" else examples  # tasks are stored with "own"
    if examples not in _EXAMPLES:
        raise UnknownName("value of examples", str(examples)[:40], ("defended", *_EXAMPLES[1:]))
    if examples != "own" and not (settings["defences"] and settings["undefended"]):
        raise InvalidInput(f"examples = {examples} needs undefended = true and at least one defence")
    return examples


def _check_size(folder: ServerFolder, settings: Mapping[str, Any]) -> None:
    models = len(settings["models"]) * (len(settings["defences"]) + bool(settings["undefended"]))
    cells = models * len(settings["attacks"]) * len(settings["data"]) * len(settings["seeds"])
    if not 0 < cells <= folder.settings.cells:
        raise InvalidInput(f"expected 1 to {folder.settings.cells} runs, got {cells} (models x attacks x data x seeds)")
    if (settings["limit"] or 0) > folder.settings.images:
        raise InvalidInput(f"expected a limit of at most {folder.settings.images} images, got {settings['limit']}")
    settings["limit"] = settings["limit"] or folder.settings.images  # type: ignore[index] - it is a dict of ours


def _check_attacks(rows: Sequence[ComponentRow], settings: Mapping[str, Any]) -> None:
    """Raise an error for settings of attacks that the engine refuses, whatever the models are.

    Attacks from files are not checked here, because their code may run only in a sandbox.
    """
    from ...engine.plan.build_plan import check_config
    from ...engine.plan.config_file import config_from

    names = {row.id: row.entry for row in rows if row.form not in FOREIGN}
    attacks = [
        {"attack": names[each["component"]], **{name: value for name, value in each.items() if name != "component"}}
        for each in settings["attacks"]
        if each["component"] in names
    ]
    shared = {name: settings[name] for name in ("limit", "seeds", "max_queries") if settings[name]}
    shared |= {"eight_bit": True} if settings["pixels"] else {}
    if len(attacks) == len(settings["attacks"]):
        shared |= {name: settings[name] for name in ("order", "stop_when_fooled")}
    if attacks:
        with suppress(MissingLibrary):  # a worker may have it
            check_config(config_from({**shared, "models": ["any"], "data": "any", "attacks": attacks}))


def _attack(given: Any) -> dict[str, Any]:
    table = dict(given) if isinstance(given, Mapping) else {"component": given}
    for name in table:
        if name not in _OF_ATTACKS:
            raise UnknownName("setting of an attack", str(name)[:60], _OF_ATTACKS)
    read: dict[str, Any] = {"component": _whole("component", table.get("component"), 1, 2**31)}
    if table.get("norm") not in (None, ""):
        if table["norm"] not in get_args(Norm):
            raise UnknownName("norm", str(table["norm"])[:40], get_args(Norm))
        read["norm"] = table["norm"]
    if table.get("epsilon") not in (None, ""):
        read["epsilon"] = _radius(table["epsilon"])
    if table.get("target"):
        read["target"] = str(table["target"])[:40]
    parameters = table.get("parameters") or {}
    plain = isinstance(parameters, Mapping) and len(parameters) <= _MOST_PARAMETERS
    if not plain or any(not isinstance(value, (bool, int, float, str)) for value in parameters.values()):
        raise InvalidInput(
            "expected the parameters of an attack as a table of at most 30 names with numbers, texts, true or false"
        )
    read["parameters"] = {str(name)[:60]: value for name, value in parameters.items()}
    read["defaults"] = table.get("defaults") is True
    return read


def _radius(value: Any) -> float:
    from ...adapters.parameters import parse_number

    number = parse_number(value, "a radius") if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 < number < math.inf:
        raise InvalidInput(f"expected epsilon as a positive number, got {str(value)[:40]!r}")
    return float(number)


def _numbers(name: str, given: Any) -> list[int]:
    return list(dict.fromkeys(_whole(name, each, 1, 2**31) for each in _list(name, given)))


def _list(name: str, given: Any) -> Sequence[Any]:
    if not isinstance(given, (list, tuple)) or len(given) > 1000:
        raise InvalidInput(f"expected {name} as a list of at most 1000 values, got {str(given)[:40]!r}")
    return given


def _whole(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInput(f"expected {name} as a whole number from {low} to {high}, got {str(value)[:40]!r}")
    return value

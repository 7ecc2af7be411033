"""Submits, changes, cancels and repeats tasks. Tasks with invalid settings are refused when they are submitted."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from ...adapters.coercion import read_int
from ...adapters.parameters import parse_number
from ...adapters.threat_model import Norm
from ...engine.plan.config import Order
from ...engine.plan.schema import explain_validation
from ...errors import InvalidInput, MissingLibrary, UnknownName
from ..components.registration import ForbiddenError, check_visibility, find_component, find_visible
from ..components.validation import A_KIND, FOREIGN
from ..database.permissions import Viewer, is_owner, note_visibility, tasks_for
from ..database.records import ENDED, CellRow, ComponentRow, Kind, TaskRow, UserRow
from ..folder import ServerFolder
from .sandboxed import why_not_isolated

_TITLES: Mapping[str, Kind] = {"models": "model", "attacks": "attack", "defences": "defence", "data": "data"}
Component = Annotated[int, Field(ge=1, le=2**31, description="number of a component")]
Components = Annotated[list[Component], Field(max_length=1000), AfterValidator(lambda each: list(dict.fromkeys(each)))]


def _radius(value: Any) -> Any:
    return parse_number(value, "a radius") if isinstance(value, str) else value


def _plain_parameters(values: dict[str, Any]) -> dict[str, Any]:
    if len(values) > 30 or not all(isinstance(each, (bool, int, float, str)) for each in values.values()):
        raise InvalidInput(
            "expected the parameters of an attack as a table of at most 30 names with numbers, texts, true or false"
        )
    return {name[:60]: value for name, value in values.items()}


class _Settings(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def check_names(cls, given: Mapping[str, Any], what: str) -> None:
        known = [*cls.model_fields]
        for name in given:
            if name not in known:
                raise UnknownName(what, str(name)[:60], known)


class AttackSettings(_Settings):
    """An attack of a task. It may be given as the number of its component only."""

    component: Component
    norm: Norm | None = None
    epsilon: Annotated[float | None, Field(gt=0), BeforeValidator(_radius)] = None
    target: Annotated[str | None, Field(max_length=40)] = None
    parameters: Annotated[dict[str, Any], AfterValidator(_plain_parameters)] = {}
    defaults: bool = False

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return {"component": given}
        cls.check_names(given, "setting of an attack")
        return {name: value for name, value in given.items() if value not in (None, "")}


class TaskSettings(_Settings):
    """Settings of the evaluation that a task runs."""

    models: Annotated[Components, Field(min_length=1)]
    attacks: list[AttackSettings] = Field(
        min_length=1,
        max_length=1000,
        description="numbers of components, or tables with component, norm, epsilon, target, parameters, defaults",
    )
    data: Annotated[Components, Field(min_length=1)]
    defences: Components = Field(default=[], description="each model is evaluated with each defence")
    undefended: bool = Field(default=True, description="run each model without a defence as well")
    limit: int | None = Field(default=None, ge=1, le=10**6, description="use at most this many images")
    seeds: list[Annotated[int, Field(ge=0, lt=2**32)]] = Field(default=[0], min_length=1, max_length=20)
    max_queries: int | None = Field(default=None, ge=1, le=10**7)
    pixels: bool = Field(default=False, description="make 8-bit images")
    examples: Annotated[
        Literal["own", "original", "both"], BeforeValidator(lambda each: "own" if each == "defended" else each)
    ] = Field(
        default="own",
        description="model on which examples for a defended model are made: the defended model (own), the undefended "
        "model (original), or both",
    )
    order: Order = Field(default="given", description="order of the attacks: given, or cheap-first")
    stop_when_fooled: bool = Field(
        default=False, description="whether to run each attack only on the images that no earlier attack fooled"
    )


class TaskRequest(NamedTuple):
    """Settings of a task that a user wants to run.

    Args:
        settings: settings of the evaluation, see `TaskSettings`.
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
    check_visibility(wish.visibility)
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
        owner=session.get_one(UserRow, viewer.id),
        components=sorted({row.id: row for rows in parts.values() for row in rows}.values(), key=lambda row: row.id),
        title=wish.title[:200],
        settings=settings,
        visibility=wish.visibility,
        priority=_read_priority(wish.priority),
        state="waiting",
        created=time.time(),
    )
    session.add(row)
    session.flush()
    return row


def read_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Check the settings of a task, and return the complete settings. Missing and empty ones get the default values.

    The setting `pixels` may also be called `eight_bit`, as in `davylamp.Config`.

    Raises:
        UnknownName: If a setting does not exist.
        InvalidInput: If a value is invalid.
    """
    names = {"eight_bit": "pixels"}
    given = {names.get(name, name): value for name, value in given.items() if value is not None and value != ""}
    TaskSettings.check_names(given, "setting")
    try:
        read = TaskSettings.model_validate(given)
    except ValidationError as error:
        raise explain_validation(error) from None
    if read.examples != "own" and not (read.defences and read.undefended):
        raise InvalidInput(f"examples = {read.examples} needs undefended = true and at least one defence")
    return {**read.model_dump(), "attacks": [each.model_dump(exclude_none=True) for each in read.attacks]}


def find_task(session: Session, viewer: Viewer, number: int) -> TaskRow:
    """Return the task with a given number.

    Raises:
        NotFoundError: If the task does not exist, or if the viewer may not see the task.
    """
    return find_visible(session, tasks_for(viewer), TaskRow.id, number, "task")


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
    check_visibility(visibility)
    if visibility != row.visibility:
        note_visibility(session)
    row.visibility, row.title = visibility, str(changes.get("title", row.title))[:200]
    row.priority = _read_priority(changes.get("priority", row.priority))
    return row


def _read_priority(value: Any) -> int:
    return read_int(value, "priority as a whole number from -10 to 10", -10, 10)


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

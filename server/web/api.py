"""JSON interface of the server under /api/v1, for everything that the web pages can do."""

from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Query, UploadFile
from fastapi.responses import FileResponse, PlainTextResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict
from sqlalchemy import select

from ..accounts.audit import note
from ..accounts.users import add_user, generate_password, set_active
from ..components.registration import ComponentCard, change_card, delete, find_component, withdraw
from ..components.validation import ComponentRequest
from ..database.permissions import components_for
from ..database.records import AuditRow, ComponentRow, Kind, Role, UserRow
from ..tasks.signing import public_key
from ..tasks.submission import TaskRequest, TaskSettings, cancel, change_task, find_task, retry
from .account_pages import find_other
from .board_pages import Asked, compare_cells, describe_cell, find_cell, of_component, rerun_command, send_cell
from .boards import BoardKind
from .component_pages import register_upload, send_file
from .evaluations import AskedSort, board_effects, list_evaluations
from .rank_history import past_ranks
from .rendering import plain_values
from .request_context import Administering, Reading, Submitting
from .task_pages import cells_of, describe_task, read_log, send_export, submit_task, task_effects, viewer_tasks

router = APIRouter(prefix="/api/v1", tags=["davylamp"])
Answer = dict[str, Any]
_SHOWN = 1000


class TaskBody(TaskSettings):
    """Settings of a new task."""

    title: str = ""
    visibility: str = "private"
    priority: int = 0


class CardChange(BaseModel):
    """Changes to a component. Omitted fields stay unchanged."""

    model_config = ConfigDict(extra="forbid")
    licence: str | None = None
    description: str | None = None
    visibility: str | None = None
    withdrawn: bool | None = None


class TaskChange(BaseModel):
    """Changes to a task. Omitted fields stay unchanged."""

    model_config = ConfigDict(extra="forbid")
    title: str | None = None
    visibility: str | None = None
    priority: int | None = None


class UserBody(BaseModel):
    """Name and role of a new user."""

    model_config = ConfigDict(extra="forbid")
    name: str
    role: Role = "user"


class UserChange(BaseModel):
    """Changes to a user. A user who is not active is blocked."""

    model_config = ConfigDict(extra="forbid")
    active: bool


@router.get("/me")
def me(visit: Reading) -> Answer:
    """Return your user name and permissions, and the public key with which the server signs tasks."""
    viewer = visit.viewer
    about = {"name": viewer.name, "admin": viewer.is_admin, "scopes": sorted(viewer.scopes)}
    return {**about, "public_key": public_key(visit.folder)}


@router.get("/components")
def list_components(visit: Reading, kind: Kind | None = None) -> list[Answer]:
    """List the components that you may see."""
    with visit.folder.database.reading() as session:
        chosen = components_for(visit.viewer).order_by(ComponentRow.id).limit(_SHOWN)
        rows = session.scalars(chosen.where(ComponentRow.kind == kind) if kind else chosen).all()
    return [describe_component(row) for row in rows]


@router.post("/components", status_code=201)
def add_component(  # noqa: PLR0913, PLR0917 - a field each
    visit: Submitting,
    kind: Annotated[Kind, Form()],
    form: Annotated[str, Form(description="named, url, code, onnx, weights, npz or folder")],
    name: Annotated[str, Form()],
    version: Annotated[str, Form()] = "1",
    entry: Annotated[str, Form(description="name, function in the file, architecture or address, by form")] = "",
    licence: Annotated[str, Form()] = "",
    description: Annotated[str, Form()] = "",
    visibility: Annotated[str, Form()] = "private",
    file: Annotated[UploadFile | None, File()] = None,
) -> Answer:
    """Add a component. Forms other than "named" and "url" need a file."""
    card = ComponentCard(name, version, licence, description, visibility)
    row = register_upload(visit, card, ComponentRequest(kind, form, entry), file)
    return describe_component(row)


@router.get("/components/{number}")
def get_component(visit: Reading, number: int) -> Answer:
    """Return the description of a component."""
    with visit.folder.database.reading() as session:
        row = find_component(session, visit.viewer, number)
        return describe_component(row)


@router.patch("/components/{number}")
def change_component(visit: Submitting, number: int, change: CardChange) -> Answer:
    """Change licence, description or visibility of a component of yours, or whether new tasks may use the component."""
    given = {name: value for name, value in change.model_dump().items() if value is not None}
    with visit.folder.database.writing() as session:
        row = change_card(session, visit.viewer, number, given)
        if change.withdrawn is not None:
            row = withdraw(session, visit.viewer, number, back=not change.withdrawn)
        note(session, visit.origin, "changed a component", f"{number}: {', '.join(sorted(given))}")
        return describe_component(row)


@router.delete("/components/{number}")
def delete_component(visit: Submitting, number: int) -> Answer:
    """Delete a component of yours. If a task uses the component, it is archived instead."""
    with visit.folder.database.writing() as session:
        return {"state": delete(session, visit.folder, visit.viewer, number, visit.origin)}


@router.get("/components/{number}/history")
def get_history(visit: Reading, number: int) -> list[Answer]:
    """Return the past ranks of a component on the leaderboards, newest first."""
    with visit.folder.database.reading() as session:
        find_component(session, visit.viewer, number)
        rows = past_ranks(session, visit.viewer, number)
    names = ("time", "board", "data_id", "rank", "rank_low", "rank_high", "subjects", "score")
    return [{name: getattr(row, name) for name in names} for row in rows]


@router.get("/components/{number}/file")
def get_component_file(visit: Reading, number: int) -> FileResponse:
    """Return the file of a component."""
    return send_file(visit, number)


@router.get("/tasks")
def list_tasks(visit: Reading, state: Annotated[str, Query(max_length=20)] = "") -> list[Answer]:
    """List the tasks that you may see, newest first. `state` lists only tasks in this state, such as "running"."""
    with visit.folder.database.reading() as session:
        return plain_values(viewer_tasks(session, visit.viewer, state))


@router.post("/tasks", status_code=201)
def add_task(visit: Submitting, body: TaskBody) -> Answer:
    """Submit a new task."""
    settings = body.model_dump(include={*TaskSettings.model_fields}, exclude_none=True)
    row = submit_task(visit, TaskRequest(settings, body.title, body.visibility, body.priority))
    return plain_values(describe_task(row))


@router.get("/tasks/{number}")
def get_task(visit: Reading, number: int) -> Answer:
    """Return a task with its finished runs and the effects of its defences."""
    with visit.folder.database.reading() as session:
        row = find_task(session, visit.viewer, number)
        cells = [describe_cell(cell) for cell in cells_of(session, number)]
    return plain_values({**describe_task(row), "effects": task_effects(row), "cells": cells})


@router.patch("/tasks/{number}")
def patch_task(visit: Submitting, number: int, change: TaskChange) -> Answer:
    """Change the title, visibility or priority of a task of yours."""
    given = {name: value for name, value in change.model_dump().items() if value is not None}
    with visit.folder.database.writing() as session:
        row = change_task(session, visit.viewer, number, given)
        note(session, visit.origin, "changed a task", f"{number}: {', '.join(sorted(given))}")
        return plain_values(describe_task(row))


@router.post("/tasks/{number}/cancel")
def cancel_task(visit: Submitting, number: int) -> Answer:
    """Cancel a task of yours. Finished runs are kept."""
    with visit.folder.database.writing() as session:
        row = cancel(session, visit.viewer, number)
        note(session, visit.origin, "cancelled a task", str(number))
        return {"id": row.id, "state": row.state, "cancelling": row.cancelling}


@router.post("/tasks/{number}/retry")
def retry_task(visit: Submitting, number: int) -> Answer:
    """Let a failed or cancelled task of yours run again. Finished runs are not repeated."""
    with visit.folder.database.writing() as session:
        row = retry(session, visit.viewer, number)
        note(session, visit.origin, "retried a task", str(number))
        return {"id": row.id, "state": row.state}


@router.get("/tasks/{number}/log", response_class=PlainTextResponse)
def get_log(visit: Reading, number: int) -> PlainTextResponse:
    """Return the end of the log of a task."""
    with visit.folder.database.reading() as session:
        find_task(session, visit.viewer, number)
    return PlainTextResponse(read_log(visit.folder, number))


@router.get("/tasks/{number}/export", response_class=StreamingResponse)
def get_export(visit: Reading, number: int) -> StreamingResponse:
    """Return a finished task as a signed ZIP file, which `davylamp server verify FILE` checks."""
    return send_export(visit, number)


@router.get("/cells")
def list_cells(visit: Reading, component: int = 0) -> list[Answer]:
    """List the finished runs that you may see, newest first. `component` lists only the runs of this component."""
    with visit.folder.database.reading() as session:
        if component:
            find_component(session, visit.viewer, component)
        rows = session.scalars(of_component(visit.viewer, component).limit(_SHOWN)).all()
    return [plain_values(describe_cell(row)) for row in rows]


@router.get("/cells/{number}")
def get_cell(visit: Reading, number: int) -> Answer:
    """Return a run, the command that repeats the run, and the same settings as a file for `davylamp evaluate`."""
    with visit.folder.database.reading() as session:
        row = find_cell(session, visit.viewer, number)
    line, config = rerun_command(visit.folder, row)
    return plain_values({**describe_cell(row), "sha256": row.digest, "line": line, "config": config})


@router.get("/cells/{number}/file")
def get_cell_file(visit: Reading, number: int) -> FileResponse:
    """Return the results of a run on each image, as a Parquet file."""
    return send_cell(visit, number)


@router.get("/compare")
def get_comparison(visit: Reading, first: int, second: int) -> list[Answer]:
    """Compare two components of the same kind.

    The result lists pairs of runs that differ only in the component, with the difference of their fooling rates.
    """
    with visit.folder.database.reading() as session:
        pair = [find_component(session, visit.viewer, number) for number in (first, second)]
        return plain_values(compare_cells(session, visit.viewer, *pair))


@router.get("/leaderboards/{kind}")
def get_board(visit: Reading, kind: BoardKind, asked: Asked) -> Answer:
    """Return a leaderboard, with the score and the rank of each row, their intervals, and the runs that were used.

    The score is the mean response or the ability. A leaderboard of defences also contains the metrics CAV, CCV, COS,
    CRR and CSR of each defended model, on clean images and under each attack.
    """
    board = visit.request.app.state.boards.show(visit.viewer, kind, asked)
    about = {"reason": board.reason, "notes": board.notes, "cells": board.cells, "data": board.data, "made": board.made}
    about |= {"score": board.score}
    if kind == "defences":
        with visit.folder.database.reading() as session:
            about["effects"] = board_effects(session, visit.viewer, asked._replace(data=board.data))
    return plain_values({"rows": [row._asdict() for row in board.rows], **about})


@router.get("/evaluations")
def get_evaluations(visit: Reading, sort: AskedSort = "newest") -> list[Answer]:
    """List the finished tasks that you may see, with their mean accuracy under attack."""
    with visit.folder.database.reading() as session:
        return plain_values(list_evaluations(session, visit.viewer, sort))


@router.get("/users")
def list_users(visit: Administering) -> list[Answer]:
    """List all users. Only for admins."""
    with visit.folder.database.reading() as session:
        rows = session.scalars(select(UserRow).order_by(UserRow.name)).all()
    return [{"name": row.name, "role": row.role, "active": row.active, "created": row.created} for row in rows]


@router.post("/users", status_code=201)
def post_user(visit: Administering, body: UserBody) -> Answer:
    """Create a user account. The response contains a random password, which is not shown again. Only for admins."""
    password = generate_password()
    with visit.folder.database.writing() as session:
        add_user(session, visit.folder.hasher, body.name, password, body.role)
        note(session, visit.origin, "added a user", f"{body.name[:60]}: {body.role}")
    return {"name": body.name, "role": body.role, "password": password}


@router.patch("/users/{name}")
def patch_user(visit: Administering, name: str, change: UserChange) -> Answer:
    """Block or unblock a user. Only for admins."""
    with visit.folder.database.writing() as session:
        user = find_other(session, visit, name)
        set_active(session, user, active=change.active)
        note(session, visit.origin, "changed a user", f"{name[:60]}: {'in' if change.active else 'out'}")
        return {"name": user.name, "role": user.role, "active": user.active}


@router.get("/audit")
def list_audit(visit: Administering) -> list[Answer]:
    """Return the newest entries of the audit log. Only for admins."""
    with visit.folder.database.reading() as session:
        rows = session.scalars(select(AuditRow).order_by(AuditRow.id.desc()).limit(_SHOWN)).all()
    names = ("time", "who", "address", "action", "about")
    return [plain_values({name: getattr(row, name) for name in names}) for row in rows]


def describe_component(row: ComponentRow) -> Answer:
    """Return the description of a component as JSON types."""
    names = ("id", "kind", "name", "version", "licence", "visibility", "description", "form", "entry", "file_name")
    about = {name: getattr(row, name) for name in (*names, "state", "created", "changed")}
    return plain_values({**about, "creator": row.creator.name, "sha256": row.blob})

"""Web pages for tasks: list, form for a new task, and page of one task with progress, log, report and export."""

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from markupsafe import escape
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ...adapters.catalogue.lookup import accepted_parameters, find_implementation
from ...adapters.parameters import PARAMETERS
from ...engine.plan.config_file import parse_text
from ...errors import DavylampError, InvalidInput
from ...report.page.build import build_report, write_file
from ..accounts.audit import note
from ..components.registration import NotFoundError
from ..database.permissions import Viewer, components_for, is_owner, tasks_for
from ..database.records import KINDS, CellRow, ComponentRow, TaskRow
from ..folder import ServerFolder
from ..tasks.signing import export_task
from ..tasks.submission import TaskRequest, cancel, change_task, find_task, retry, submit
from .board_pages import describe_cell
from .evaluations import effects_names
from .rendering import plain_text, redirect, render
from .request_context import Page, RequestContext, Sent, check_signed_in

router = APIRouter(include_in_schema=False, prefix="/tasks")
_SHOWN, _LOG_SHOWN, _REPORTS_KEPT = 200, 64 << 10, 8
# The report is one page with its own script and style, with escaped content.
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts"
)


class TaskReports:
    """Builds and caches the reports of tasks. Only one report is built at a time.

    Args:
        folder: folder of the server.
    """

    def __init__(self, folder: ServerFolder):
        self._folder, self._lock = folder, threading.Lock()
        self._kept: dict[int, tuple[int, str]] = {}

    def show(self, number: int, cells: int, *, is_done: bool) -> str:
        """Return the report of a task as HTML.

        The report of a finished task is built once and stored in the task's folder. The report of an unfinished task is
        built again when the task has further runs.
        """
        place = self._folder.task(number)
        with self._lock:
            last, text = self._kept.pop(number, (0, ""))
            if is_done and (place / "report.html").is_file():
                return (place / "report.html").read_text(encoding="utf-8")
            if is_done or last != cells:
                text = build_report(place / "results", bootstrap=200)
                text = text.replace(str(escape(str(place / "results"))), f"task {number}")
                text = self._folder.hide(text)
            if is_done:
                write_file(text, place / "report.html")
            else:
                self._kept[number] = cells, text
                for oldest in [*self._kept][:-_REPORTS_KEPT]:
                    del self._kept[oldest]
        return text


@router.get("")
def tasks(visit: Page) -> HTMLResponse:
    """Show the tasks that the user may see, newest first."""
    with visit.folder.database.reading() as session:
        return render(visit, "tasks.html", tasks=viewer_tasks(session, visit.viewer))


@router.get("/new")
def new_task(visit: Page) -> HTMLResponse:
    """Show the form for a new task."""
    check_signed_in(visit)
    with visit.folder.database.reading() as session:
        active = components_for(visit.viewer).where(ComponentRow.state == "active").order_by(ComponentRow.name)
        rows = session.scalars(active).all()
    by_kind = {kind: [row for row in rows if row.kind == kind] for kind in KINDS}
    hints = {row.id: _parameter_names(row) for row in by_kind["attack"]}
    return render(visit, "new_task.html", by_kind=by_kind, hints=hints)


@router.post("/new")
def add_task(  # noqa: PLR0913, PLR0917 - a field each
    visit: Sent,
    models: Annotated[list[int], Form()] = [],  # noqa: B006 - FastAPI copies it
    attacks: Annotated[list[int], Form()] = [],  # noqa: B006
    defences: Annotated[list[int], Form()] = [],  # noqa: B006
    data: Annotated[list[int], Form()] = [],  # noqa: B006
    norm: Annotated[str, Form()] = "",
    epsilon: Annotated[str, Form()] = "",
    limit: Annotated[str, Form()] = "",
    seed: Annotated[int, Form()] = 0,
    parameters_of: Annotated[list[int], Form(description="attacks, in the order of `parameters`")] = [],  # noqa: B006
    parameters: Annotated[list[str], Form(description="name=value, name=value")] = [],  # noqa: B006
    examples: Annotated[str, Form()] = "own",
    worst_case: Annotated[bool, Form()] = False,
    title: Annotated[str, Form()] = "",
    visibility: Annotated[str, Form()] = "private",
    priority: Annotated[int, Form()] = 0,
) -> Response:
    """Submit the task that a user sent with the form."""
    shared = {"norm": norm.strip(), "epsilon": epsilon.strip()}
    settings: dict[str, Any] = {"models": models, "defences": defences, "data": data, "seeds": [seed]}
    given = dict(zip(parameters_of, map(parse_parameters, parameters), strict=False))
    settings["attacks"] = [{"component": each, **shared, "parameters": given.get(each, {})} for each in attacks]
    settings["examples"] = examples
    settings |= {"stop_when_fooled": worst_case, "order": "cheap-first" if worst_case else "given"}
    settings["limit"] = int(limit) if limit.strip().isdigit() else limit.strip() or None
    row = submit_task(visit, TaskRequest(settings, title, visibility, priority))
    return redirect(f"/tasks/{row.id}")


@router.get("/{number}")
def task(visit: Page, number: int) -> HTMLResponse:
    """Show the page of a task: progress, components, results and log."""
    with visit.folder.database.reading() as session:
        row = find_task(session, visit.viewer, number)
        cells = [describe_cell(cell) for cell in cells_of(session, number)]
        parts = sorted(row.components, key=lambda each: each.kind)
        effects = task_effects(row)
        names = effects_names(session, visit.viewer, effects)
    shown = {"cells": cells, "parts": parts, "log": read_log(visit.folder, number), "effects": effects, "names": names}
    return render(visit, "task.html", task=describe_task(row), is_owner=is_owner(visit.viewer, row.owner_id), **shown)


@router.get("/{number}/log")
def log(visit: Page, number: int) -> PlainTextResponse:
    """Return the end of the log of a task, without control characters."""
    with visit.folder.database.reading() as session:
        find_task(session, visit.viewer, number)
    return PlainTextResponse(read_log(visit.folder, number))


@router.get("/{number}/report")
def task_report(visit: Page, number: int) -> HTMLResponse:
    """Show the report of a task's results, as written by `davylamp report`."""
    with visit.folder.database.reading() as session:
        row = find_task(session, visit.viewer, number)
        cells = session.scalar(select(func.max(CellRow.id)).where(CellRow.task_id == number))
        if cells is None:
            raise NotFoundError(f"task {number} has no report yet: it is {row.state} and has no finished run")
    text = visit.request.app.state.reports.show(number, cells, is_done=row.state == "done")
    return HTMLResponse(text, headers={"content-security-policy": _REPORT_POLICY})


@router.get("/{number}/export")
def export(visit: Page, number: int) -> StreamingResponse:
    """Return a finished task as a signed ZIP file."""
    return send_export(visit, number)


@router.post("/{number}/cancel")
def cancel_one(visit: Sent, number: int) -> Response:
    """Cancel a task. Finished runs are kept."""
    with visit.folder.database.writing() as session:
        cancel(session, visit.viewer, number)
        note(session, visit.origin, "cancelled a task", str(number))
    return redirect(f"/tasks/{number}")


@router.post("/{number}/retry")
def retry_one(visit: Sent, number: int) -> Response:
    """Let a failed or cancelled task run again."""
    with visit.folder.database.writing() as session:
        retry(session, visit.viewer, number)
        note(session, visit.origin, "retried a task", str(number))
    return redirect(f"/tasks/{number}")


@router.post("/{number}/change")
def change(
    visit: Sent,
    number: int,
    title: Annotated[str, Form()] = "",
    visibility: Annotated[str, Form()] = "private",
    priority: Annotated[int, Form()] = 0,
) -> Response:
    """Change title, visibility and priority of a task."""
    with visit.folder.database.writing() as session:
        change_task(session, visit.viewer, number, {"title": title, "visibility": visibility, "priority": priority})
        note(session, visit.origin, "changed a task", f"{number}: {visibility}")
    return redirect(f"/tasks/{number}")


def parse_parameters(text: str) -> dict[str, Any]:
    """Parse the text of a form field with parameters of an attack, such as "steps=40, step_size=2/255".

    Returns:
        The values, by name of the parameter.

    Raises:
        InvalidInput: If the text has a different form, or if a value is not valid for its parameter.
    """
    given: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not value or name in given:
            raise InvalidInput(f"expected parameters as name=value, name=value, each once, got {part[:60]!r}")
        given[name] = parse_text(name, value) if name in PARAMETERS else _plain(value)
    return given


def _plain(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _parameter_names(row: ComponentRow) -> str:
    """Return the names of the parameters of an attack, separated by commas.

    The result is "" for an attack from a file, and for an attack that is not in davylamp's catalogue.
    """
    with suppress(DavylampError):
        return ", ".join(accepted_parameters(find_implementation(row.entry))) if row.form == "named" else ""
    return ""


def submit_task(visit: RequestContext, wish: TaskRequest) -> TaskRow:
    """Submit a task, add an entry to the audit log, and return the task's database row."""
    check_signed_in(visit)
    with visit.folder.database.writing() as session:
        row = submit(session, visit.folder, visit.viewer, wish)
        note(session, visit.origin, "submitted a task", str(row.id))
    return row


def describe_task(row: TaskRow) -> dict[str, Any]:
    """Return the description of a task for web pages and the JSON interface.

    The keys are columns of `TaskRow`, "owner", "percent" (finished part of the task), "seconds" (time since the start)
    and "seconds_left" (estimated remaining time). "seconds_left" is None if unknown.
    """
    names = ("id", "title", "state", "visibility", "priority", "message", "created", "started", "finished", "settings")
    about = {name: getattr(row, name) for name in (*names, "images", "images_done", "attempts", "signature")}
    about |= {name: getattr(row, name) for name in ("score", "score_low", "score_high")}
    share = row.images_done / row.images if row.images else 0.0
    if row.state == "done":
        share = 1.0
    passed = (row.finished or time.time()) - row.started if row.started else 0.0
    left = passed * (1 - share) / share if row.state == "running" and share > 0.02 else None
    return {**about, "owner": row.owner.name, "percent": round(100 * share, 1), "seconds": passed, "seconds_left": left}


def cells_of(session: Session, number: int) -> list[CellRow]:
    """Return the runs of a task in the order in which they were recorded. Permissions are not checked."""
    return [*session.scalars(select(CellRow).where(CellRow.task_id == number).order_by(CellRow.id))]


def task_effects(row: TaskRow) -> list[dict[str, Any]]:
    """Return the effects of a task's defences, as in `TaskSummary.effects` with the number of the task as "task".

    Empty if the task has no defences, or if the effects are not computed yet.
    """
    return [{**each, "task": row.id} for each in row.effects or []]


def read_log(folder: ServerFolder, number: int) -> str:
    """Return the last 64 KiB of a task's log, without control characters; "" if the task has no log."""
    try:
        with (folder.task(number) / "log.txt").open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _LOG_SHOWN))
            return folder.hide(plain_text(file.read().decode("utf-8", "replace")))
    except OSError:
        return ""


def send_export(visit: RequestContext, number: int) -> StreamingResponse:
    """Build the response with the signed ZIP file of a finished task, which is sent in chunks."""
    with visit.folder.database.reading() as session:
        row = find_task(session, visit.viewer, number)
    if not row.signature:
        raise NotFoundError(f"only finished and signed tasks can be exported, but task {number} is {row.state}")
    file = tempfile.TemporaryFile(dir=visit.folder.uploads)  # noqa: SIM115 - closed when it is sent

    def pieces() -> Iterator[bytes]:
        with file:
            while piece := file.read(1 << 20):
                yield piece

    try:
        export_task(visit.folder, number, file)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    headers = {"content-disposition": f'attachment; filename="task-{number}.zip"'}
    return StreamingResponse(pieces(), media_type="application/zip", headers=headers)


def viewer_tasks(session: Session, viewer: Viewer, state: str = "") -> list[dict[str, Any]]:
    """Return descriptions of the newest tasks that a viewer may see, as `describe_task`."""
    chosen = tasks_for(viewer).order_by(TaskRow.id.desc()).limit(_SHOWN)
    return [describe_task(row) for row in session.scalars(chosen.where(TaskRow.state == state) if state else chosen)]

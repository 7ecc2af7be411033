"""Web pages for components: list, page of one component, upload form, and changes by the owner."""

from collections.abc import Iterator
from typing import Annotated, Any, BinaryIO

from fastapi import APIRouter, File, Form, UploadFile
from fastapi.responses import FileResponse, HTMLResponse, Response

from ..accounts.audit import note
from ..components.blobs import Upload, blob_path, take_upload
from ..components.registration import (
    ComponentCard,
    NotFoundError,
    change_card,
    delete,
    find_component,
    register,
    withdraw,
)
from ..components.validation import FORMS, ComponentRequest
from ..database.permissions import components_for, is_owner
from ..database.records import KINDS, ComponentRow, Kind
from ..folder import ServerFolder
from .board_pages import component_names, describe_cell, of_component
from .boards import count_fooled
from .rank_history import past_ranks
from .rendering import redirect, render
from .request_context import Page, RequestContext, Sent, check_signed_in

router = APIRouter(include_in_schema=False, prefix="/components")
_PIECE = 1 << 20
_SHOWN = 500


@router.get("")
def components(visit: Page, kind: Kind | None = None) -> HTMLResponse:
    """Show the components that the user may see. `kind` shows only components of this kind."""
    with visit.folder.database.reading() as session:
        chosen = components_for(visit.viewer).where(ComponentRow.state != "archived")
        chosen = chosen.where(ComponentRow.kind == kind) if kind else chosen
        rows = session.scalars(chosen.order_by(ComponentRow.kind, ComponentRow.name).limit(_SHOWN)).all()
    return render(visit, "components.html", rows=rows, kinds=KINDS, kind=kind)


@router.get("/new")
def new_component(visit: Page) -> HTMLResponse:
    """Show the form for a new component."""
    check_signed_in(visit)
    return render(visit, "new_component.html", kinds=KINDS, forms=FORMS)


@router.post("/new")
def add_component(  # noqa: PLR0913, PLR0917 - a field each
    visit: Sent,
    kind: Annotated[Kind, Form()],
    form: Annotated[str, Form()],
    name: Annotated[str, Form()],
    version: Annotated[str, Form()] = "1",
    entry: Annotated[str, Form()] = "",
    licence: Annotated[str, Form()] = "",
    description: Annotated[str, Form()] = "",
    visibility: Annotated[str, Form()] = "private",
    file: Annotated[UploadFile | None, File()] = None,
) -> Response:
    """Add the component that a user sent with the form."""
    card = ComponentCard(name.strip(), version.strip(), licence.strip(), description, visibility)
    row = register_upload(visit, card, ComponentRequest(kind, form, entry.strip()), file)
    return redirect(f"/components/{row.id}")


@router.get("/{number}")
def component(visit: Page, number: int) -> HTMLResponse:
    """Show the page of a component: description, results and past ranks."""
    with visit.folder.database.reading() as session:
        row = find_component(session, visit.viewer, number)
        cells = [describe_cell(each) for each in session.scalars(of_component(visit.viewer, row.id).limit(_SHOWN))]
        course = count_fooled(session, visit.viewer, row.id)
        history = past_ranks(session, visit.viewer, row.id)
        names = component_names(session, visit.viewer)
    shown: dict[str, Any] = {"cells": cells, "course": course[-50:], "history": history, "names": names}
    return render(visit, "component.html", row=row, is_owner=is_owner(visit.viewer, row.creator_id), **shown)


@router.get("/{number}/file")
def component_file(visit: Page, number: int) -> FileResponse:
    """Return the file of a component as a download."""
    return send_file(visit, number)


@router.post("/{number}/change")
def change(
    visit: Sent,
    number: int,
    licence: Annotated[str, Form()] = "",
    description: Annotated[str, Form()] = "",
    visibility: Annotated[str, Form()] = "private",
) -> Response:
    """Change licence, description and visibility of a component."""
    changes = {"licence": licence, "description": description, "visibility": visibility}
    with visit.folder.database.writing() as session:
        row = change_card(session, visit.viewer, number, changes)
        note(session, visit.origin, "changed a component", f"{row.id} {row.name}: {row.visibility}")
    return redirect(f"/components/{number}")


@router.post("/{number}/withdraw")
def withdraw_one(visit: Sent, number: int, back: Annotated[bool, Form()] = False) -> Response:
    """Withdraw a component, so that new tasks cannot use the component. `back` undoes the withdrawal."""
    with visit.folder.database.writing() as session:
        withdraw(session, visit.viewer, number, back=back)
        note(session, visit.origin, "put back a component" if back else "withdrew a component", str(number))
    return redirect(f"/components/{number}")


@router.post("/{number}/delete")
def delete_one(visit: Sent, number: int) -> Response:
    """Delete a component. If a task uses the component, it is archived instead."""
    with visit.folder.database.writing() as session:
        delete(session, visit.folder, visit.viewer, number, visit.origin)
    return redirect("/components")


def register_upload(
    visit: RequestContext, card: ComponentCard, wish: ComponentRequest, file: UploadFile | None
) -> ComponentRow:
    """Register the component that a user sent with a form, and return its database row.

    If the component is refused, the uploaded file is deleted.
    """
    check_signed_in(visit)
    folder = visit.folder
    upload = _take(folder, file) if file is not None and file.filename else None
    try:
        with folder.database.writing() as session:
            called = (file.filename or "")[:200] if file is not None else ""
            wish = wish._replace(file_name=called, path=None if upload is None else upload.path)
            row = register(session, folder, visit.viewer, card, wish, upload)
            note(session, visit.origin, "added a component", f"{row.id} {row.kind} {row.name} {row.version}")
    finally:
        if upload is not None:
            upload.path.unlink(missing_ok=True)
    return row


def send_file(visit: RequestContext, number: int) -> FileResponse:
    """Build the response with the file of a component."""
    with visit.folder.database.reading() as session:
        row = find_component(session, visit.viewer, number)
    if row.blob is None:
        raise NotFoundError(f"the component {row.name} has no file, because it is given as a name or an address")
    path = blob_path(visit.folder.blobs, row.blob)
    return FileResponse(
        path, media_type="application/octet-stream", filename=f"{row.name}-{row.version}-{row.file_name}"
    )


def _take(folder: ServerFolder, file: UploadFile) -> Upload:
    return take_upload(folder.uploads, _pieces(file.file), folder.settings.largest)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece

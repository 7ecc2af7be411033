"""Registers, changes, withdraws and deletes components of a server: models, attacks, defences and data."""

import re
import time
from typing import Any, NamedTuple, get_args

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from ...errors import InvalidInput, Unavailable
from ..accounts.audit import Origin, note
from ..database.permissions import Viewer, components_for, is_owner, note_visibility
from ..database.records import KINDS, ComponentRow, TaskComponentRow, UserRow, Visibility
from ..folder import ServerFolder
from .blobs import Upload, drop_unused, keep_upload, used_bytes
from .validation import ComponentRequest, validate_component

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,59}")
VERSION = re.compile(r"[a-z0-9][a-z0-9_.-]{0,29}")
_LONGEST_TEXT = 20_000


class NotFoundError(Unavailable):
    """Raised if an object does not exist, or if the viewer may not see it. The message does not say which."""


class ForbiddenError(Unavailable):
    """Raised if the viewer may see an object, but may not perform the requested action."""


class ComponentCard(NamedTuple):
    """Description of a component by its owner. Licence, description and visibility can be changed later.

    Args:
        name: name of the component: lowercase letters, digits, "_" and "-".
        version: version of the component.
        licence: licence of the component; "" if not stated.
        description: description of the component.
        visibility: "public" if everybody may see and use the component, or "private" for the owner only.
    """

    name: str
    version: str = "1"
    licence: str = ""
    description: str = ""
    visibility: str = "private"


def register(
    session: Session,
    folder: ServerFolder,
    viewer: Viewer,
    card: ComponentCard,
    wish: ComponentRequest,
    upload: Upload | None = None,
) -> ComponentRow:
    """Register a new component, and return its database row.

    Args:
        session: database session for writing.
        folder: folder of the server.
        viewer: the user who registers the component and becomes its owner.
        card: description of the component.
        wish: kind and content of the component.
        upload: the uploaded file of the component. None if the component needs no file.

    Raises:
        DavylampError: If the viewer may not register this component, the name and version are taken, the file is
            invalid, or the user's files would be too large together.
    """
    if viewer.id is None or not viewer.may_submit:
        raise ForbiddenError(
            "adding a component needs a user who may submit; sign in, or use a token with the scope submit"
        )
    if wish.kind not in KINDS:
        raise InvalidInput(f"expected the kind as one of {', '.join(KINDS)}, got {str(wish.kind)[:40]!r}")
    if wish.form == "url" and not viewer.is_admin:
        raise ForbiddenError("only admins can add a model by its address, because the server sends requests to it")
    _check_card(card)
    called = validate_component(wish)
    where = (ComponentRow.creator_id == viewer.id, ComponentRow.kind == wish.kind)
    taken = select(ComponentRow.id).where(*where, ComponentRow.name == card.name, ComponentRow.version == card.version)
    if session.scalar(taken) is not None:
        raise InvalidInput(f"{card.name} {card.version} already exists, and results refer to it; choose a new version")
    if upload is not None:
        _check_room(session, folder, viewer.id, upload)
    blob = None if upload is None else keep_upload(session, folder.blobs, upload).digest
    now = time.time()
    row = ComponentRow(
        kind=wish.kind,
        creator=session.get_one(UserRow, viewer.id),
        form=wish.form,
        entry=wish.entry,
        file_name=called,
        blob=blob,
        state="active",
        created=now,
        changed=now,
        **card._asdict(),
    )
    session.add(row)
    session.flush()
    return row


def find_component(session: Session, viewer: Viewer, number: int) -> ComponentRow:
    """Return the component with a given number.

    Raises:
        NotFoundError: If the component does not exist, or if the viewer may not see the component.
    """
    return find_visible(session, components_for(viewer), ComponentRow.id, number, "component")


def find_visible(session: Session, chosen: Select[Any], column: Any, number: int, what: str) -> Any:
    """Return the row with a given number among the rows that a viewer may see. `what` is its kind, for the message.

    Raises:
        NotFoundError: If there is no such row.
    """
    # PostgreSQL would raise an error for a number out of range.
    row = session.scalar(chosen.where(column == number)) if 0 < number < 2**31 else None
    if row is None:
        raise NotFoundError(f"there is no {what} {number} that you can see")
    return row


def change_card(session: Session, viewer: Viewer, number: int, changes: dict[str, Any]) -> ComponentRow:
    """Change licence, description or visibility of a component, and return its database row.

    The keys of `changes` are "licence", "description" and "visibility". Other keys are ignored.

    Raises:
        DavylampError: If the component belongs to a different user, or if a value is invalid.
    """
    row = _mine(session, viewer, number)
    known = {"licence": row.licence, "description": row.description, "visibility": row.visibility}
    card = ComponentCard(
        row.name, row.version, **{**known, **{name: changes[name] for name in changes if name in known}}
    )
    _check_card(card)
    if card.visibility != row.visibility:
        note_visibility(session)
    row.licence, row.description, row.visibility = card.licence, card.description, card.visibility
    row.changed = time.time()
    return row


def withdraw(session: Session, viewer: Viewer, number: int, *, back: bool = False) -> ComponentRow:
    """Withdraw a component, so that new tasks cannot use the component. Existing results are kept."""
    row = _mine(session, viewer, number)
    row.state, row.changed = "active" if back else "withdrawn", time.time()
    return row


def delete(session: Session, folder: ServerFolder, viewer: Viewer, number: int, origin: Origin) -> str:
    """Delete a component. If tasks use the component, it is archived instead, so that their results stay explainable.

    Returns:
        "deleted" or "archived".
    """
    row = _mine(session, viewer, number)
    what = f"{row.kind} {row.name} {row.version}"
    if (
        session.scalar(select(TaskComponentRow.task_id).where(TaskComponentRow.component_id == row.id).limit(1))
        is not None
    ):
        row.state, row.changed = "archived", time.time()
        note(session, origin, "archived a component", what)
        return "archived"
    blob = row.blob
    session.delete(row)
    session.flush()
    if blob:
        drop_unused(session, folder.blobs, blob)
    note(session, origin, "deleted a component", what)
    return "deleted"


def _mine(session: Session, viewer: Viewer, number: int) -> ComponentRow:
    row = find_component(session, viewer, number)
    if not is_owner(viewer, row.creator_id):
        raise ForbiddenError(f"expected a component of yours, got {row.name}, which belongs to a different user")
    return row


def check_visibility(visibility: Any) -> None:
    """Raise InvalidInput unless the visibility is "public" or "private"."""
    if visibility not in get_args(Visibility):
        raise InvalidInput(f"expected the visibility public or private, got {str(visibility)[:40]!r}")


def _check_card(card: ComponentCard) -> None:
    if not NAME.fullmatch(card.name):
        raise InvalidInput(
            f"expected a name of at most 60 lowercase letters, digits, '_' and '-', got {card.name[:80]!r}"
        )
    if not VERSION.fullmatch(card.version) or ".." in card.version:
        raise InvalidInput(f"expected a version of lowercase letters, digits, '.', '_', '-', got {card.version[:50]!r}")
    check_visibility(card.visibility)
    if len(card.licence) > 100 or len(card.description) > _LONGEST_TEXT:
        raise InvalidInput(
            "the licence or the description is too long: a licence has at most 100 characters, and a description "
            f"{_LONGEST_TEXT}"
        )


def _check_room(session: Session, folder: ServerFolder, user_id: int, upload: Upload) -> None:
    if used_bytes(session, user_id) + upload.size > folder.settings.quota << 20:
        raise InvalidInput(
            f"with this file, your files would exceed {folder.settings.quota} MiB together; delete components that you "
            "do not use"
        )

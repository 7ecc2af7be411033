"""Permissions on components, tasks and runs, used for every page, response, count and file."""

from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, and_, exists, func, or_, select, true
from sqlalchemy.orm import Session

from .records import CellRow, ComponentRow, FactRow, TaskComponentRow, TaskRow

Scope = Literal["read", "submit", "admin"]
ALL_SCOPES: frozenset[Scope] = frozenset(("read", "submit", "admin"))


@dataclass(frozen=True)
class Viewer:
    """User of a request.

    Args:
        id: user id. None for a visitor.
        name: user name.
        is_admin: whether the user is an admin and the request has an admin's rights (a token may lack them).
        scopes: permissions of this request.
    """

    id: int | None = None
    name: str = "visitor"
    is_admin: bool = False
    scopes: frozenset[Scope] = field(default=frozenset(("read",)))

    @property
    def may_submit(self) -> bool:
        """Whether components and tasks may be submitted."""
        return self.id is not None and "submit" in self.scopes


VISITOR = Viewer()


def is_visible(viewer: Viewer) -> ColumnElement[bool]:
    """Return an SQL condition: the component is public, or it is the viewer's, or the viewer is an admin."""
    if viewer.is_admin:
        return true()
    return or_(ComponentRow.visibility == "public", ComponentRow.creator_id == _number(viewer))


def components_for(viewer: Viewer) -> Select[ComponentRow]:
    """Return a query for the components that a viewer may see."""
    return select(ComponentRow).where(is_visible(viewer))


def tasks_for(viewer: Viewer) -> Select[TaskRow]:
    """Return a query for the tasks that a viewer may see: public or their own, with visible components only."""
    if viewer.is_admin:
        return select(TaskRow)
    return select(TaskRow).where(_task_is_seen(viewer))


def cells_for(viewer: Viewer) -> Select[CellRow]:
    """Return a query for the finished runs of the tasks that a viewer may see."""
    chosen = select(CellRow).join(TaskRow, TaskRow.id == CellRow.task_id)
    return chosen if viewer.is_admin else chosen.where(_task_is_seen(viewer))


def is_owner(viewer: Viewer, owner: int) -> bool:
    """Return whether a viewer may change an object of this owner."""
    return viewer.may_submit and (viewer.is_admin or viewer.id == owner)


def note_visibility(session: Session) -> None:
    """Record that a visibility has changed, so that cached results for viewers are recomputed."""
    fact = session.get(FactRow, "seen", with_for_update=True)
    if fact is not None:
        fact.value += 1


def visibility_count(session: Session) -> int:
    """Return the number of changes in visibility so far."""
    return session.scalar(select(FactRow.value).where(FactRow.name == "seen")) or 0


def private_scope(session: Session, viewer: Viewer) -> tuple[int, ...]:
    """Return the owners whose private objects a viewer sees: none (), the viewer, or all users (-1)."""
    if viewer.is_admin:
        return (-1,)
    if viewer.id is None:
        return ()
    hidden = select(func.count()).where(ComponentRow.creator_id == viewer.id, ComponentRow.visibility == "private")
    tasks = select(func.count()).where(TaskRow.owner_id == viewer.id, TaskRow.visibility == "private")
    return (viewer.id,) if session.scalar(hidden) or session.scalar(tasks) else ()


def _task_is_seen(viewer: Viewer) -> ColumnElement[bool]:
    hidden: Any = exists().where(
        TaskComponentRow.task_id == TaskRow.id,
        TaskComponentRow.component_id == ComponentRow.id,
        ComponentRow.visibility != "public",
        ComponentRow.creator_id != _number(viewer),
    )
    return and_(or_(TaskRow.visibility == "public", TaskRow.owner_id == _number(viewer)), ~hidden)


def _number(viewer: Viewer) -> int:
    """Return the viewer's user id, or -1 for a visitor, which matches no user."""
    return -1 if viewer.id is None else viewer.id

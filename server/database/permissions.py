"""Permissions: which components, tasks and runs a user may see, and which of them the user may change."""

from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, and_, exists, func, or_, select, true
from sqlalchemy.orm import Session

from .records import CellRow, ComponentRow, FactRow, TaskComponentRow, TaskRow

Scope = Literal["read", "submit", "admin"]
ALL_SCOPES: frozenset[Scope] = frozenset(("read", "submit", "admin"))


@dataclass(frozen=True)
class Viewer:
    """The user who sent a request, or a visitor.

    Args:
        id: number of the user. None for a visitor who is not signed in.
        name: user name.
        is_admin: whether the request has the rights of an admin. False if an admin uses a token without the scope
            "admin".
        scopes: permissions of the request: "read", "submit", "admin".
    """

    id: int | None = None
    name: str = "visitor"
    is_admin: bool = False
    scopes: frozenset[Scope] = field(default=frozenset(("read",)))

    @property
    def may_submit(self) -> bool:
        """Whether the user may submit components and tasks with this request."""
        return self.id is not None and "submit" in self.scopes


VISITOR = Viewer()


def is_visible(viewer: Viewer) -> ColumnElement[bool]:
    """Return the SQL condition under which a viewer may see a component.

    The component must be public or belong to the viewer. Admins may see all components.
    """
    if viewer.is_admin:
        return true()
    return or_(ComponentRow.visibility == "public", ComponentRow.creator_id == _number(viewer))


def components_for(viewer: Viewer) -> Select[ComponentRow]:
    """Return a query for the components that a viewer may see."""
    return select(ComponentRow).where(is_visible(viewer))


def tasks_for(viewer: Viewer) -> Select[TaskRow]:
    """Return a query for the tasks that a viewer may see.

    The task must be public or belong to the viewer, and the viewer must be allowed to see all components of the task.
    Admins may see all tasks.
    """
    if viewer.is_admin:
        return select(TaskRow)
    return select(TaskRow).where(_task_is_seen(viewer))


def cells_for(viewer: Viewer) -> Select[CellRow]:
    """Return a query for the finished runs of the tasks that a viewer may see."""
    chosen = select(CellRow).join(TaskRow, TaskRow.id == CellRow.task_id)
    return chosen if viewer.is_admin else chosen.where(_task_is_seen(viewer))


def is_owner(viewer: Viewer, owner: int) -> bool:
    """Return whether a viewer may change an object, such as a component or a task."""
    return viewer.may_submit and (viewer.is_admin or viewer.id == owner)


def note_visibility(session: Session) -> None:
    """Count a change in the visibility of a component or task, so that cached leaderboards are computed again."""
    fact = session.get(FactRow, "seen", with_for_update=True)
    if fact is not None:
        fact.value += 1


def visibility_count(session: Session) -> int:
    """Return the number of changes in the visibility of components and tasks so far."""
    return session.scalar(select(FactRow.value).where(FactRow.name == "seen")) or 0


def private_scope(session: Session, viewer: Viewer) -> tuple[int, ...]:
    """Return whose private objects a viewer may see. Viewers with equal results see the same objects.

    Returns:
        (-1,) for an admin, who sees the private objects of all users. The number of the user if the user has private
        objects. () for all others, who see only public objects.
    """
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
    """Return the number of a user, or -1 for a visitor. No user has the number -1."""
    return -1 if viewer.id is None else viewer.id

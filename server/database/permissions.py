"""Who may see which component, task and cell: every page, answer, count and file asks here and nowhere else."""

from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, and_, exists, func, or_, select, true
from sqlalchemy.orm import Session

from .records import CellRow, ComponentRow, FactRow, TaskComponentRow, TaskRow

Scope = Literal["read", "submit", "admin"]
ALL_SCOPES: frozenset[Scope] = frozenset(("read", "submit", "admin"))


@dataclass(frozen=True)
class Viewer:
    """Who asks.

    Args:
        id: of the user; None: a visitor.
        name: of the user.
        is_admin: whether the user is one and asks as one (a token may not).
        scopes: what this request may do.
    """

    id: int | None = None
    name: str = "visitor"
    is_admin: bool = False
    scopes: frozenset[Scope] = field(default=frozenset(("read",)))

    @property
    def may_submit(self) -> bool:
        """Whether components and tasks may be made."""
        return self.id is not None and "submit" in self.scopes


VISITOR = Viewer()


def is_visible(viewer: Viewer) -> ColumnElement[bool]:
    """Of a component: whether it is public, the viewer's, or the viewer an admin."""
    if viewer.is_admin:
        return true()
    return or_(ComponentRow.visibility == "public", ComponentRow.creator_id == _number(viewer))


def components_for(viewer: Viewer) -> Select[ComponentRow]:
    """The components that a viewer may see."""
    return select(ComponentRow).where(is_visible(viewer))


def tasks_for(viewer: Viewer) -> Select[TaskRow]:
    """The tasks that a viewer may see: public or one's property, and of components that may be seen, every one."""
    if viewer.is_admin:
        return select(TaskRow)
    return select(TaskRow).where(_task_is_seen(viewer))


def cells_for(viewer: Viewer) -> Select[CellRow]:
    """The finished cells of the tasks that a viewer may see."""
    chosen = select(CellRow).join(TaskRow, TaskRow.id == CellRow.task_id)
    return chosen if viewer.is_admin else chosen.where(_task_is_seen(viewer))


def is_owner(viewer: Viewer, owner: int) -> bool:
    """Whether a viewer may change what is a user's."""
    return viewer.may_submit and (viewer.is_admin or viewer.id == owner)


def note_visibility(session: Session) -> None:
    """Remember that somebody may see more or less than before: what was computed for viewers is out of date."""
    fact = session.get(FactRow, "seen", with_for_update=True)
    if fact is not None:
        fact.value += 1


def visibility_count(session: Session) -> int:
    """How often what may be seen has changed."""
    return session.scalar(select(FactRow.value).where(FactRow.name == "seen")) or 0


def private_scope(session: Session, viewer: Viewer) -> tuple[int, ...]:
    """Whose private property a viewer sees: of no user (0 components), or of the viewer; -1: of everybody."""
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
    """Of the viewer as a user; that of a visitor is nobody's."""
    return -1 if viewer.id is None else viewer.id

"""Leases of tasks to workers. A worker must renew the lease of its task by heartbeats, or the lease expires."""

import secrets
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from sqlalchemy import and_, func, or_, select, update
from sqlalchemy.engine import CursorResult
from sqlalchemy.orm import Session

from ..database.connecting import Database
from ..database.records import TaskRow, TaskState, UserRow

SECONDS = 30.0  # seconds until a lease without heartbeat expires
RECENT = 24 * 3600.0  # seconds over which a user's computing affects the order
WEEK = 7 * 24 * 3600.0  # seconds over which a user's hours are counted
MOST_ATTEMPTS = 100  # most leases of a task, in case it crashes its worker's machine
_LOOKED_AT = 500


class Lease(NamedTuple):
    """Lease of a task to a worker, during which no other worker runs the task.

    Args:
        task: number of the task.
        mark: secret that identifies this lease.
    """

    task: int
    mark: str


class Heartbeat(NamedTuple):
    """Response to a heartbeat of a worker.

    Args:
        is_kept: whether the worker still has the lease of the task.
        cancelling: whether the owner has cancelled the task.
        over: reason why the task must wait, if the owner's hours of computing are used up; otherwise "".
    """

    is_kept: bool
    cancelling: bool = False
    over: str = ""


def lease_task(database: Database, seconds: float = SECONDS) -> Lease | None:
    """Lease the next task to this worker.

    Tasks are ordered by these criteria, in this order: fewest running tasks of the owner, least computing time for the
    owner's tasks in the last day, highest priority, earliest submission. Tasks of owners whose hours of computing are
    used up are not leased. A running task whose lease has expired can be leased again.

    Returns:
        The lease. None if no task can be leased.
    """
    with database.writing() as session:
        now = time.time()
        for task in _in_turn(session, now):
            lease = Lease(task.id, secrets.token_hex(16))
            if task.attempts >= MOST_ATTEMPTS:
                reason = f"its worker ended {task.attempts} times before the task was finished"
                _swap(session, task, state="failed", message=reason, finished=now, lease="")
                continue
            values: dict[str, Any] = {"state": "running", "lease": lease.mark, "lease_until": now + seconds}
            values |= {"attempts": task.attempts + 1, "started": task.started or now, "message": ""}
            if _swap(session, task, **values):
                return lease
    return None


def renew_lease(database: Database, lease: Lease, length: float = SECONDS, **values: Any) -> Heartbeat:
    """Renew the lease of a task (heartbeat), and store the progress of the task."""
    with database.writing() as session:
        values = {**values, "lease_until": time.time() + length}
        if not _change(session, lease, values):
            return Heartbeat(False)
        task = session.get_one(TaskRow, lease.task)
        return Heartbeat(True, bool(task.cancelling), list_over(session).get(task.owner_id, ""))


def end_task(session: Session, lease: Lease, state: TaskState, message: str, **values: Any) -> bool:
    """Record the end of a task, if this worker still has the lease of the task.

    Returns:
        Whether the end was recorded. False if the lease belongs to a different worker now.
    """
    ended = {"state": state, "message": message[:2000], "finished": time.time(), "lease": "", "cancelling": False}
    return _change(session, lease, {**ended, **values})


def release_task(database: Database, lease: Lease, **values: Any) -> None:
    """Return a leased task to the queue, so that it waits for a worker again."""
    with database.writing() as session:
        _change(session, lease, {"state": "waiting", "lease": "", "lease_until": 0.0, **values})


def list_spent(session: Session) -> dict[int, float]:
    """Return the computing time for the tasks of each user in the last seven days, in seconds, by user number."""
    since = time.time() - WEEK
    within = or_(TaskRow.started > since, TaskRow.finished > since, TaskRow.state == "running")
    sums = select(TaskRow.owner_id, func.sum(TaskRow.seconds)).where(within).group_by(TaskRow.owner_id)
    return {owner: float(seconds or 0) for owner, seconds in session.execute(sums)}


def list_over(session: Session) -> dict[int, str]:
    """Return a message for each user whose hours of computing are used up, by user number."""
    users = session.execute(select(UserRow.id, UserRow.hours).where(UserRow.hours.is_not(None))).all()
    limits = {user: hours for user, hours in users if hours is not None}
    spent = list_spent(session) if limits else {}
    return {
        user: f"waits: {spent.get(user, 0.0) / 3600:.3g} of {hours:g} hours of computing in seven days are used"
        for user, hours in limits.items()
        if spent.get(user, 0.0) >= hours * 3600
    }


def _in_turn(session: Session, now: float) -> Sequence[TaskRow]:
    free = or_(TaskRow.state == "waiting", and_(TaskRow.state == "running", TaskRow.lease_until < now))
    over = list_over(session)
    if over:
        free = and_(free, TaskRow.owner_id.not_in(over))
    rows = session.scalars(select(TaskRow).where(free).order_by(TaskRow.created).limit(_LOOKED_AT)).all()
    running: Counter[int] = Counter(
        session.scalars(select(TaskRow.owner_id).where(TaskRow.state == "running", TaskRow.lease_until >= now))
    )
    recent = select(TaskRow.owner_id, func.sum(TaskRow.seconds)).where(TaskRow.started > now - RECENT)
    spent = {owner: float(seconds or 0) for owner, seconds in session.execute(recent.group_by(TaskRow.owner_id))}

    def turn(task: TaskRow) -> tuple[Any, ...]:
        owner = task.owner_id
        return running[owner], spent.get(owner, 0.0), owner, -task.priority, task.created, task.id

    return sorted(rows, key=turn)


def _swap(session: Session, task: TaskRow, **values: Any) -> bool:
    """Change the row of a task, unless a different process has changed the row since it was read.

    Returns:
        Whether the row was changed.
    """
    same = (TaskRow.id == task.id, TaskRow.state == task.state, TaskRow.lease == task.lease)
    return _count(session, update(TaskRow).where(*same, TaskRow.lease_until == task.lease_until).values(**values)) == 1


def _change(session: Session, lease: Lease, values: dict[str, Any]) -> bool:
    mine = (TaskRow.id == lease.task, TaskRow.lease == lease.mark, TaskRow.state == "running")
    return _count(session, update(TaskRow).where(*mine).values(**values)) == 1


def _count(session: Session, statement: Any) -> int:
    done = session.execute(statement, execution_options={"synchronize_session": False})
    return cast("CursorResult[Any]", done).rowcount

"""Which worker has which task, until when: taken by compare-and-swap, kept by a heartbeat, free again after a death."""

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

SECONDS = 30.0  # that a task stays taken without a heartbeat
RECENT = 24 * 3600.0  # whose computing counts against a user
WEEK = 7 * 24 * 3600.0  # in which a user's hours of computing are counted
MOST_ATTEMPTS = 100  # times that a task is taken; one that ends its worker's machine would else go on for ever
_LOOKED_AT = 500


class Lease(NamedTuple):
    """A task that a worker has.

    Args:
        task: its number.
        mark: by which the worker is known to have it.
    """

    task: int
    mark: str


class Heartbeat(NamedTuple):
    """What a heartbeat answers: whether the task is still the worker's, whether it is to end, or to wait and why."""

    is_kept: bool
    cancelling: bool = False
    over: str = ""


def lease_task(database: Database, seconds: float = SECONDS) -> Lease | None:
    """The task that is next, now this worker's; None if none waits.

    Next is the one whose owner has the fewest tasks running, then the fewest seconds computed in the last day; of one
    owner the one with the highest priority, then the oldest. Tasks of an owner whose hours are used up wait. A task
    whose worker has not been heard of for `seconds` waits again.
    """
    with database.writing() as session:
        now = time.time()
        for task in _in_turn(session, now):
            lease = Lease(task.id, secrets.token_hex(16))
            if task.attempts >= MOST_ATTEMPTS:
                reason = f"its worker ended {task.attempts} times before the task did"
                _swap(session, task, state="failed", message=reason, finished=now, lease="")
                continue
            values: dict[str, Any] = {"state": "running", "lease": lease.mark, "lease_until": now + seconds}
            values |= {"attempts": task.attempts + 1, "started": task.started or now, "message": ""}
            if _swap(session, task, **values):
                return lease
    return None


def renew_lease(database: Database, lease: Lease, length: float = SECONDS, **values: Any) -> Heartbeat:
    """Say that the worker lives, and how far the task is."""
    with database.writing() as session:
        values = {**values, "lease_until": time.time() + length}
        if not _change(session, lease, values):
            return Heartbeat(False)
        task = session.get_one(TaskRow, lease.task)
        return Heartbeat(True, bool(task.cancelling), list_over(session).get(task.owner_id, ""))


def end_task(session: Session, lease: Lease, state: TaskState, message: str, **values: Any) -> bool:
    """End a task that is still this worker's; False if it is another's by now."""
    ended = {"state": state, "message": message[:2000], "finished": time.time(), "lease": "", "cancelling": False}
    return _change(session, lease, {**ended, **values})


def release_task(database: Database, lease: Lease, **values: Any) -> None:
    """Let a task wait again at once: its worker is being stopped, or its owner's hours are used up."""
    with database.writing() as session:
        _change(session, lease, {"state": "waiting", "lease": "", "lease_until": 0.0, **values})


def list_spent(session: Session) -> dict[int, float]:
    """Seconds computed for each user's tasks that ran within seven days, by the user's number."""
    since = time.time() - WEEK
    within = or_(TaskRow.started > since, TaskRow.finished > since, TaskRow.state == "running")
    sums = select(TaskRow.owner_id, func.sum(TaskRow.seconds)).where(within).group_by(TaskRow.owner_id)
    return {owner: float(seconds or 0) for owner, seconds in session.execute(sums)}


def list_over(session: Session) -> dict[int, str]:
    """The users whose hours of computing are used up, by number, with what their tasks say while they wait."""
    users = session.execute(select(UserRow.id, UserRow.hours).where(UserRow.hours.is_not(None))).all()
    limits = {user: hours for user, hours in users if hours is not None}
    spent = list_spent(session) if limits else {}
    return {
        user: f"waits: {spent.get(user, 0.0) / 3600:.3g} of {hours:g} hours of computing in seven days are used"
        for user, hours in limits.items()
        if spent.get(user, 0.0) >= hours * 3600
    }


def _in_turn(session: Session, now: float) -> Sequence[TaskRow]:
    """The tasks that can be taken, in the order in which they are."""
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
    """Change a task if it is still as it was seen."""
    same = (TaskRow.id == task.id, TaskRow.state == task.state, TaskRow.lease == task.lease)
    return _count(session, update(TaskRow).where(*same, TaskRow.lease_until == task.lease_until).values(**values)) == 1


def _change(session: Session, lease: Lease, values: dict[str, Any]) -> bool:
    mine = (TaskRow.id == lease.task, TaskRow.lease == lease.mark, TaskRow.state == "running")
    return _count(session, update(TaskRow).where(*mine).values(**values)) == 1


def _count(session: Session, statement: Any) -> int:
    done = session.execute(statement, execution_options={"synchronize_session": False})
    return cast("CursorResult[Any]", done).rowcount

"""Adds an example task to a new server, so that its leaderboards are not empty."""

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from ..accounts.users import SYSTEM
from ..database.permissions import ALL_SCOPES, Viewer
from ..database.records import ComponentRow, TaskRow, UserRow
from ..folder import ServerFolder
from .submission import TaskRequest, submit

_FIRST = {
    "models": ("demo:mnist-lenet5", "demo:mnist-lenet5-robust"),
    "data": ("demo:mnist",),
    "attacks": ("foolbox:fgsm", "foolbox:pgd", "torchattacks:pgd"),
}


def seed_task(session: Session, folder: ServerFolder) -> bool:
    """Add a public example task, and return whether the task was added.

    The task is added if the server has no tasks yet, and if the server has the models, data and attacks of the example.
    """
    system = session.scalar(select(UserRow).where(UserRow.name == SYSTEM))
    if system is None or session.scalar(select(TaskRow.id).limit(1)) is not None:
        return False
    numbers = {row.entry: row.id for row in session.scalars(select(ComponentRow).filter_by(creator_id=system.id))}
    if not numbers.keys() >= {*_FIRST["models"], *_FIRST["data"], *_FIRST["attacks"]}:
        return False
    settings: dict[str, Any] = {name: [numbers[entry] for entry in entries] for name, entries in _FIRST.items()}
    settings["attacks"] = [{"component": each, "norm": "linf", "epsilon": 0.2} for each in settings["attacks"]]
    viewer = Viewer(system.id, SYSTEM, scopes=ALL_SCOPES)
    submit(session, folder, viewer, TaskRequest({**settings, "limit": 20}, "An example: two models of MNIST", "public"))
    return True

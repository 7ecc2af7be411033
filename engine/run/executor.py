"""What an executor is, and what all of them share.

An executor takes an iterator of tasks and yields an outcome for each, in the order in which they are finished. It asks
for the next task only when it can start on it, so that a task is claimed as late as possible.
"""

import os
from collections.abc import Callable, Iterator
from functools import cache
from typing import Protocol

from ...adapters.user_code_guard import name_error
from ...errors import InvalidInput, ModelSpoiled
from .task import Task, TaskResult
from .worker import TaskRunner

Progress = Callable[[str, int], object]
ATTEMPTS = 3  # a task whose worker dies as often is given up


class Executor(Protocol):
    """Does tasks and yields what came of them."""

    def __call__(self, tasks: Iterator[Task], progress: Progress) -> Iterator[TaskResult]:
        """Do the tasks; `progress` is called with a cell's attack and the images just attacked."""
        ...


def worker_died_message(attempts: int) -> str:
    """Why a task is given up whose worker died as often as it was tried."""
    return f"its worker died {attempts} {'time' if attempts == 1 else 'times'} (killed, or out of memory)"


def reason_of(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]


def pickling_error(task: Task, error: BaseException) -> InvalidInput:
    """The line for a model or an attack that was handed over and cannot be sent to another process."""
    return InvalidInput(
        f"expected {label_of(task)} on {task.model.name} as objects that can be sent to another process, got "
        f"{name_error(error)}; evaluate in this process (workers=1), or by name (my_file.py:NAME)"
    )


def label_of(task: Task) -> str:
    """What a progress bar calls a task."""
    if task.cell is None:
        return f"clean predictions of {task.subject.model}"
    before = {"transfer": "transfer of ", "fit": "what is learned by "}.get(task.kind, "")
    return f"{before}{task.cell.attack}"


def run_task_here(task: Task) -> TaskResult:
    """Do a task in this worker process, which keeps its workbench, and ends once an attack has changed it for good."""
    try:
        return _bench().do(task)
    except ModelSpoiled:  # the task is tried again, in a new process
        os._exit(1)


@cache
def _bench() -> TaskRunner:
    """The workbench of a worker process."""
    return TaskRunner()

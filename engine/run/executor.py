"""The interface of executors, and functions that executors share.

An executor takes an iterator of tasks and yields a result for each, in the order in which they finish. It takes a task
from the iterator only when it can start the task. Every task is therefore locked as late as possible.
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
ATTEMPTS = 3  # a task is given up after as many worker deaths


class Executor(Protocol):
    """Executes tasks and yields their results."""

    def __call__(self, tasks: Iterator[Task], progress: Progress) -> Iterator[TaskResult]:
        """Execute tasks.

        Args:
            tasks: the tasks.
            progress: called with the attack's name and the number of images just attacked.
        """
        ...


def worker_died_message(attempts: int) -> str:
    """Return the error message for a task that was abandoned because its worker processes died."""
    return f"its worker died {attempts} {'time' if attempts == 1 else 'times'} (killed, or out of memory)"


def reason_of(error: BaseException) -> str:
    """Format an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]


def pickling_error(task: Task, error: BaseException) -> InvalidInput:
    """Build the error for a model or attack that is an object and cannot be sent to a worker process."""
    return InvalidInput(
        f"{label_of(task)} on {task.model.name} cannot be sent to a worker process ({name_error(error)}); "
        "evaluate in this process (workers=1), or by name (my_file.py:NAME)"
    )


def label_of(task: Task) -> str:
    """Return a task's name for progress bars."""
    if task.cell is None:
        return f"clean predictions of {task.subject.model}"
    before = {"transfer": "transfer of ", "fit": "fit of "}.get(task.kind, "")
    return f"{before}{task.cell.attack}"


def run_task_here(task: Task) -> TaskResult:
    """Run a task in this worker process.

    Loaded models stay in the process for later tasks. If an attack has changed the process permanently, the process
    ends.
    """
    try:
        return _bench().do(task)
    except ModelSpoiled:  # the task is retried in a new process
        os._exit(1)


@cache
def _bench() -> TaskRunner:
    return TaskRunner()

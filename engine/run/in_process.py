"""Tasks done one after the other in this process."""

from collections.abc import Iterator

from .executor import Progress, label_of
from .task import Task, TaskResult
from .worker import Workbench


class ThisProcess:
    """Does one task after the other in this process; what is loaded stays for the next call."""

    def __init__(self) -> None:
        self._bench = Workbench()

    def __call__(self, tasks: Iterator[Task], progress: Progress) -> Iterator[TaskResult]:
        """Do the tasks in their order."""
        for task in tasks:
            name, reported = label_of(task), 0

            def count(images: int, name: str = name) -> None:
                nonlocal reported
                reported += images
                progress(name, images)

            outcome = self._bench.do(task, count)
            progress(name, task.images - reported)
            yield outcome

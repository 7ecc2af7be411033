"""Executes tasks in this process."""

from collections.abc import Iterator
from functools import partial

from ..sources import LoadedCache
from .executor import Progress, label_of
from .task import Task, TaskResult
from .worker import TaskRunner


class InProcessExecutor:
    """Executes tasks in this process, one after the other. Loaded models stay in memory for the next call."""

    def __init__(self) -> None:
        self._bench = TaskRunner()

    def take_over(self, loaded: LoadedCache) -> None:
        """Use a model and images that the caller has already loaded."""
        self._bench.adopt(loaded)

    def __call__(self, tasks: Iterator[Task], progress: Progress) -> Iterator[TaskResult]:
        """Execute the tasks in their order."""
        for task in tasks:
            name = label_of(task)
            progress(name, 0)
            count = Count(name, progress)
            outcome = self._bench.do(task, count)
            progress(name, task.images - count.images)
            yield outcome


class Count:
    """Progress callback of a task. It passes on the number of finished images.

    If the receiver has a method `asked`, it also passes on the number of queries.
    """

    def __init__(self, name: str, progress: Progress):
        self.images, self._name, self._progress = 0, name, progress
        asked = getattr(progress, "asked", None)
        self.asked = None if asked is None else partial(asked, name)

    def __call__(self, images: int) -> None:
        """Report finished images."""
        self.images += images
        self._progress(self._name, images)

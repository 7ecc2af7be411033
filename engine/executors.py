"""Where tasks are done: in this process, in several on this machine (`cluster.py`: on many machines).

An executor takes an iterator of tasks and yields an outcome for each, in the order in which they are finished. It asks
for the next task only when it can start on it, so that a task is claimed as late as possible.
"""

import multiprocessing
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from typing import Any, Protocol

from ..errors import InvalidInput, UnknownName
from .work import Outcome, Task, Workbench

Progress = Callable[[str, int], object]
ATTEMPTS = 3  # a task that is there whenever its worker dies is given up after so many


class Executor(Protocol):
    """Does tasks and yields what came of them."""

    def __call__(self, tasks: Iterator[Task], progress: Progress) -> Iterator[Outcome]:
        """Do the tasks; `progress` is called with a cell's attack and the images just attacked."""
        ...


def run_serially(tasks: Iterator[Task], progress: Progress) -> Iterator[Outcome]:
    """Do one task after the other in this process."""
    bench = Workbench()
    for task in tasks:
        name, told = label_of(task), 0

        def count(images: int, name: str = name) -> None:
            nonlocal told
            told += images
            progress(name, images)

        outcome = bench.do(task, count)
        progress(name, task.images - told)
        yield outcome


class LocalWorkers:
    """Does tasks in several processes, each with its share of the machine's cores.

    Args:
        workers: how many processes.
    """

    def __init__(self, workers: int):
        if workers < 1:
            raise InvalidInput(f"expected at least one worker, got {workers}")
        self.workers = workers

    def __call__(self, tasks: Iterator[Task], progress: Progress) -> Iterator[Outcome]:
        """Do the tasks; a task whose worker is killed is tried again, alone."""
        running: dict[Future[Outcome], Task] = {}
        suspects: deque[Task] = deque()
        attempts: Counter[str] = Counter()
        pool = self._pool()
        try:
            while True:
                self._submit(pool, tasks, suspects, running)
                if not running:
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                finished = [future for future in done if not isinstance(future.exception(), BrokenProcessPool)]
                for future in finished:
                    task = running.pop(future)
                    progress(label_of(task), task.images)
                    yield future.result()
                if len(finished) < len(done):
                    pool.shutdown(wait=False, cancel_futures=True)
                    pool = self._pool()
                    attempts.update(task.name for task in running.values())
                    lost = [task for task in running.values() if attempts[task.name] >= ATTEMPTS]
                    suspects.extend(task for task in running.values() if task not in lost)
                    running.clear()
                    for task in lost:
                        progress(label_of(task), task.images)
                        yield Outcome(task, None, reason=f"its worker died {ATTEMPTS} times (killed, or out of memory)")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _submit(
        self,
        pool: ProcessPoolExecutor,
        tasks: Iterator[Task],
        suspects: deque[Task],
        running: dict[Future[Outcome], Task],
    ) -> None:
        """Give the pool what it has room for. Whose fault a death was shows when each task gets the pool to itself."""
        if suspects:
            if not running:
                task = suspects.popleft()
                running[pool.submit(_do, task)] = task
            return
        while len(running) < self.workers and (task := next(tasks, None)) is not None:
            running[pool.submit(_do, task)] = task

    def _pool(self) -> ProcessPoolExecutor:
        threads = max(1, (os.cpu_count() or 1) // self.workers)
        # A forked child of a process that has used torch's threads can hang; a spawned one starts clean.
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self.workers, context, initializer=_start, initargs=(threads,))


def choose_executor(name: str, *, workers: int = 1, address: str | None = None, device: str = "cpu") -> Executor:
    """The executor of a name: "local" (this process, or several) or "ray" (a cluster).

    Args:
        name: "local" or "ray".
        workers: processes on this machine; for Ray, tasks at once (0: as many as the cluster has room for).
        address: of a running Ray cluster; None: one is started on this machine.
        device: where the tasks compute.

    Raises:
        UnknownName: if there is no such executor.
        MissingLibrary: if Ray is not installed.
    """
    if name == "ray":
        from .cluster import RayCluster

        return RayCluster(address, device=device)
    if name != "local":
        raise UnknownName("executor", name, ("local", "ray"))
    if address is not None:
        raise InvalidInput(f"expected --address with --executor ray only, got {address}")
    return run_serially if workers == 1 else LocalWorkers(workers)


def label_of(task: Task) -> str:
    """What a progress bar calls a task."""
    return task.cell.attack if task.cell else task.subject.model


@cache
def _bench() -> Workbench:
    """The workbench of a worker process."""
    return Workbench()


def _start(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


def _do(task: Task) -> Any:
    return _bench().do(task)

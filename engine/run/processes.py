"""Executes tasks in several processes on this machine. `ray_cluster` uses several machines."""

import multiprocessing
import os
import pickle
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from io import BytesIO
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import BaseContext
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar

import cloudpickle

from ...adapters.user_code_guard import protect_process
from ...errors import InvalidInput, Unavailable
from ...memory import keep_freed_memory
from .executor import ATTEMPTS, Progress, label_of, pickling_error, reason_of, run_task_here, worker_died_message
from .task import Task, TaskResult

PRELOADED = ["davylamp.engine.run.preload"]  # imported by the server from which workers are forked
_GUARD = 'a script that starts workers needs `if __name__ == "__main__":` around its code'


class WorkerPoolExecutor:
    """Executes tasks in several processes on this machine, which share its cores equally.

    The processes stay alive for the next call.

    Args:
        workers: number of processes.
        devices: devices that the processes use in turn, in place of those of the tasks; empty for those of the tasks.

    Raises:
        InvalidInput: if the number of workers is less than 1.
        Unavailable: if this process is itself a worker that is importing the script which started it.
    """

    def __init__(self, workers: int, devices: Sequence[str] = ()):
        if workers < 1:
            raise InvalidInput(f"expected at least one worker, got {workers}")
        # A worker that runs its script again would wait here for its own task.
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise Unavailable(f"workers cannot be started while a script is imported; {_GUARD}")
        self.workers = workers
        _start_server()
        threads = max(1, (os.cpu_count() or 1) // workers)
        given = devices or ("",)
        self._all = [_Worker(threads, given[number % len(given)]) for number in range(workers)]

    def __call__(self, tasks: Iterator[Task], progress: Progress) -> Iterator[TaskResult]:
        """Execute the tasks. A task whose worker dies is retried while no other task runs.

        Raises:
            Unavailable: if no process can be started.
            InvalidInput: if a model or attack object cannot be sent to one.
        """
        for worker in self._all:
            worker.start()
        idle = list(self._all)
        running: dict[Future[tuple[Any, ...]], tuple[Task, _Worker]] = {}
        lost: deque[Task] = deque()
        deaths: Counter[str] = Counter()
        try:
            while True:
                while idle and (task := _next(tasks, lost, [each for each, _ in running.values()], deaths)) is not None:
                    worker = idle.pop()
                    _stop(idle if deaths[task.name] else ())  # idle workers hold models and freed memory
                    running[worker.submit(task)] = (task, worker)
                if not running:
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    task, worker = running.pop(future)
                    idle.append(worker)
                    if isinstance(future.exception(), BrokenProcessPool):
                        worker.check_start()
                        deaths[task.name] += 1
                        if deaths[task.name] < ATTEMPTS:
                            lost.append(task)
                            continue
                        outcome = TaskResult(task, None, reason=worker_died_message(ATTEMPTS))
                    elif (error := future.exception()) is not None:  # the task or its result could not be sent
                        outcome = TaskResult(task, None, reason=reason_of(error))
                    else:
                        outcome = TaskResult(task, *future.result())
                    progress(label_of(task), task.images)
                    yield outcome
        finally:
            for _, worker in running.values():
                worker.kill()


_SHARED: Any = ForkingPickler(BytesIO())


class _Pickler(cloudpickle.Pickler):
    """Pickler for tasks. Definitions in scripts and notebooks are pickled by value.

    Tensors are shared between processes.
    """

    # An instance's table is the public one, in which torch registers how tensors are shared.
    dispatch_table: ClassVar[Any] = {**_SHARED.dispatch_table, **cloudpickle.Pickler.dispatch_table}


def _pack(task: Task) -> bytes:
    file = BytesIO()
    try:
        _Pickler(file).dump(task)
    except Exception as error:  # users' objects may raise anything
        raise pickling_error(task, error) from error
    return file.getvalue()


def _work(sent: bytes) -> tuple[Any, ...]:
    return run_task_here(pickle.loads(sent))[1:]


class _Worker:
    def __init__(self, threads: int, device: str = ""):
        self.threads, self.device = threads, device
        self.pool: ProcessPoolExecutor | None = None
        self.greeting: Future[int] | None = None

    def submit(self, task: Task) -> "Future[tuple[Any, ...]]":
        """Send a task to the process.

        Raises:
            InvalidInput: if a model or attack object cannot be sent to a process.
        """
        sent = _pack(replace(task, device=self.device) if self.device else task)
        if self.pool is not None:
            try:
                return self.pool.submit(_work, sent)
            except BrokenProcessPool:  # it died since its last task
                self.stop()
        self.start()
        assert self.pool is not None
        return self.pool.submit(_work, sent)

    def start(self) -> None:
        if self.pool is None:
            self.pool = ProcessPoolExecutor(1, _context(), initializer=_start, initargs=(self.threads, self.device))
            self.greeting = self.pool.submit(os.getpid)

    def check_start(self) -> None:
        """Raise Unavailable if the last process died before its first task, so that no task caused it."""
        if self.greeting is not None and isinstance(self.greeting.exception(), BrokenProcessPool):
            raise Unavailable(f"a worker process died while it started; {_GUARD}")

    def stop(self, *, wait: bool = False) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=wait, cancel_futures=True)
            self.pool = None

    def kill(self) -> None:
        """Kill the process immediately; its result is not needed."""
        if self.pool is not None:
            for process in list(self.pool._processes.values()):  # no public API before Python 3.14
                process.kill()
            self.stop(wait=True)

    def __del__(self) -> None:
        # A pool that is still closing when the interpreter ends can find its pipe closed twice: a traceback at exit.
        self.stop(wait=True)


def _context() -> BaseContext:
    """Return a multiprocessing context that does not fork this process. A fork with threads of torch can hang."""
    methods = multiprocessing.get_all_start_methods()
    return multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")


def _start_server() -> None:
    """Start the server process in the background. It imports torch and the libraries for all workers."""
    context = _context()
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(PRELOADED)
        # Ctrl-C reaches every process of a terminal's command; only this one handles it. Children inherit the mask.
        resource_tracker.ensure_running()  # it unblocks the signal when it starts
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _next(tasks: Iterator[Task], lost: deque[Task], running: list[Task], deaths: Mapping[str, int]) -> Task | None:
    """Return the next task to start. None if no task can be started now.

    If a worker died, perhaps because memory was exhausted, its task is repeated while no other task runs.
    """
    if lost:
        return None if running else lost.popleft()
    return None if any(deaths[each.name] for each in running) else next(tasks, None)


def _stop(workers: Iterable[_Worker]) -> None:
    for worker in workers:
        worker.stop(wait=True)


def _start(threads: int, device: str) -> None:
    import torch

    torch.set_num_threads(threads)
    if device.startswith("cuda"):
        torch.cuda.set_device(device)  # for libraries that use "cuda" without a number
    keep_freed_memory()
    protect_process()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent process is killed. Without this, it would wait forever for its next task."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

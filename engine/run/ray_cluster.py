"""Executes tasks on a Ray cluster: several machines, with one GPU or a fraction of one for each task."""

import logging
import os
import pickle
import socket
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...adapters.user_code_guard import protect_process
from ...errors import InvalidInput, MissingLibrary, Unavailable
from ...memory import keep_freed_memory
from .executor import ATTEMPTS, Progress, label_of, pickling_error, reason_of, run_task_here, worker_died_message
from .task import Task, TaskResult

# No warnings on machines without a GPU, and no usage statistics.
_QUIET = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_REACH_SECONDS = 5
_KEPT = 4  # models and data sets passed in memory that each worker keeps


class RayCluster:
    """Executes tasks on a Ray cluster.

    If a worker or a machine is lost, its tasks are repeated elsewhere in the cluster.

    davylamp must be on every machine, and so must files that tasks use by name (models, weights). Models and images
    that were passed as objects are sent to the machines. The connection ends with this process, or with
    `ray.shutdown()`.

    Args:
        address: address of a running cluster, "HOST:PORT" or "auto". If None, the environment variable `RAY_ADDRESS` is
            used. Without this variable, a new cluster is started on this machine.
        device: device of the tasks. "cuda..." reserves GPUs.
        gpus_per_task: number of GPUs for each task. With 0.5, two tasks share a GPU.
        attempts: largest number of attempts for a task whose worker dies.

    Raises:
        MissingLibrary: if Ray is not installed.
        Unavailable: if there is no such cluster, or it does not have the requested GPUs.
        InvalidInput: if `gpus_per_task` or `attempts` is not positive, or the address is invalid.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        device: str = "cpu",
        gpus_per_task: float = 1.0,
        attempts: int = ATTEMPTS,
    ):
        if gpus_per_task <= 0:
            raise InvalidInput(f"expected gpus_per_task > 0, got {gpus_per_task}")
        if attempts < 1:
            raise InvalidInput(f"expected attempts >= 1, got {attempts}")
        self.attempts = attempts
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        try:
            import ray
        except ImportError as error:
            raise MissingLibrary("ray", "ray") from error
        self._ray = ray
        self._on_gpu = device.startswith("cuda")
        self._share = gpus_per_task if self._on_gpu else 1.0
        self._stored: dict[int, tuple[Any, Any]] = {}
        self._connect(address)
        if self._on_gpu and self.slots < 1:
            gpus = ray.cluster_resources().get("GPU", 0)
            raise Unavailable(
                f"expected at least {gpus_per_task:g} GPUs in the Ray cluster, as each task needs, got {gpus:g}"
            )
        options = {"num_cpus": 1, "num_gpus": self._share if self._on_gpu else 0, "max_retries": attempts - 1}
        self._remote = ray.remote(**options)(_work)

    @property
    def slots(self) -> int:
        """Number of tasks that the cluster can run at the moment."""
        return int(self._ray.cluster_resources().get("GPU" if self._on_gpu else "CPU", 0) / self._share)

    def __call__(self, tasks: Iterator[Task], progress: Progress) -> Iterator[TaskResult]:
        """Execute the tasks.

        One task more than the cluster can run is submitted, so that no machine waits for this process.
        """
        running: dict[Any, Task] = {}
        # Ray reports lost machines on standard output, which belongs to the caller's results.
        with redirect_stdout(sys.stderr):
            try:
                while True:
                    while len(running) <= self.slots and (task := next(tasks, None)) is not None:
                        running[self._submit(task)] = task
                    if not running:
                        return
                    ready, _ = self._ray.wait(list(running), num_returns=1)
                    task = running.pop(ready[0])
                    outcome = self._outcome(task, ready[0])
                    progress(label_of(task), task.images)
                    yield outcome
            finally:
                for reference in running:
                    self._ray.cancel(reference, force=True)

    def _connect(self, address: str | None) -> None:
        if self._ray.is_initialized():
            return
        address = address or os.environ.get("RAY_ADDRESS") or "local"
        if address not in ("auto", "local"):
            _check_reachable(address)
        try:
            self._ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, include_dashboard=False)
        except (OSError, RuntimeError, ValueError, ImportError) as error:
            raise Unavailable(f"cannot connect to a Ray cluster at {address} ({_one_line(error)})") from error

    def _submit(self, task: Task) -> Any:
        """Submit a task. Large objects that many tasks share are sent to each machine only once."""
        try:
            given = self._store(task.model.classifier), self._store(task.data.data)
            return self._hand_over(task, given)
        except (TypeError, pickle.PicklingError) as error:
            raise pickling_error(task, error) from error

    def _hand_over(self, task: Task, given: tuple[Any, Any]) -> Any:
        light = replace(
            task,
            device="cuda"
            if self._on_gpu
            else task.device,  # of the machine's GPUs, Ray shows a task only those assigned to it
            model=replace(task.model, classifier=None),
            data=replace(task.data, data=None),
        )
        return self._remote.remote(light, given, str(Path.cwd()))

    def _store(self, value: Any) -> Any:
        if value is None:
            return None
        if id(value) not in self._stored:
            self._stored[id(value)] = value, self._ray.put(value)
        return self._stored[id(value)][1]

    def _outcome(self, task: Task, reference: Any) -> TaskResult:
        from ray import exceptions as errors

        try:
            return TaskResult(task, *self._ray.get(reference))
        except (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError, errors.ObjectLostError):
            return TaskResult(task, None, reason=worker_died_message(self.attempts))
        except Exception as error:  # it could not be started or its result read: only this task fails
            return TaskResult(task, None, reason=reason_of(error))


def _work(task: Task, given: tuple[Any, Any], folder: str) -> tuple[Any, ...]:
    keep_freed_memory()
    protect_process()
    if Path(folder).is_dir():
        os.chdir(folder)  # names may contain relative paths
    classifier, data = (None if reference is None else _fetch(reference) for reference in given)
    task = replace(task, model=replace(task.model, classifier=classifier), data=replace(task.data, data=data))
    return run_task_here(task)[1:]


@lru_cache(_KEPT)
def _fetch(reference: Any) -> Any:
    import ray

    return ray.get(reference)


def _check_reachable(address: str) -> None:
    """Raise Unavailable if the address cannot be reached. Ray itself would try for minutes and print messages."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidInput(f"expected the address of a Ray cluster as HOST:PORT or auto, got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        advice = "start a cluster there with: ray start --head"
        raise Unavailable(f"cannot connect to a Ray cluster at {address} ({error}); {advice}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]

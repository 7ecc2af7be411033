"""The worker of a server, which leases tasks and runs each task in a separate process."""

import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy.exc import DBAPIError, OperationalError

from ...errors import DavylampError
from ..database.records import TaskRow, TaskState
from ..folder import ServerFolder
from .ingest import copy_existing_runs, ingest_results
from .leases import SECONDS, Lease, end_task, lease_task, release_task, renew_lease
from .preparing import ExecutorSettings, PreparedTask, prepare, read_json
from .sandboxed import ProcessExit, TaskLimits, run_sandboxed, why_not_isolated
from .signing import sign_task
from .task_summary import note_summary

_ATTEMPTS = 3  # attempts if a process was ended by a signal: killed, or out of memory
_IDLE_SECONDS = 1.0
# Removes the working folder from the path, because it contains users' files.
_START = "import sys; del sys.path[0]; from davylamp.server.tasks.task_process import main; sys.exit(main())"
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "HOME", "TMPDIR", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "TORCH_HOME")


class WorkerSettings(NamedTuple):
    """Settings of a worker.

    Args:
        where: where and how tasks run.
        limits: limits of each task.
        lease: number of seconds without a heartbeat after which a different worker may take over the task.
        trust: whether programs and files that users uploaded are run and read without a sandbox.
    """

    where: ExecutorSettings = ExecutorSettings()
    limits: TaskLimits = TaskLimits()
    lease: float = SECONDS
    trust: bool = False


class TaskWorker:
    """Worker that runs one task after the other.

    Args:
        folder: folder of the server.
        working: settings of the worker.
        stopped: function that returns whether the worker must stop. If so, the running task returns to the queue.
    """

    def __init__(
        self,
        folder: ServerFolder,
        working: WorkerSettings = WorkerSettings(),  # noqa: B008 - frozen
        stopped: Callable[[], bool] = lambda: False,
    ):
        self.folder, self.working, self.stopped = folder, working, stopped
        folder.check_hidden()

    def run(self) -> None:
        """Run tasks until `stopped` returns True. If the database is unavailable, wait until it is available again."""
        while not self.stopped():
            try:
                if not self.run_one():
                    time.sleep(_IDLE_SECONDS)
            except (OperationalError, DBAPIError):
                time.sleep(_IDLE_SECONDS)

    def run_one(self) -> bool:
        """Run the next task, if there is one, and return whether a task could be leased."""
        lease = lease_task(self.folder.database, self.working.lease)
        if lease is None:
            return False
        watch = _TaskMonitor(self.folder, lease, self.working, self.stopped)
        try:
            with self.folder.database.reading() as session:
                prepared = prepare(session, self.folder, lease.task, self._where)
            outcome = self._run(prepared, watch)
            self._end(prepared, lease, watch, outcome)
        except (OperationalError, DBAPIError):
            raise  # the lease expires, and the next worker resumes the task
        except Exception as error:  # a task that crashes its worker would be leased repeatedly
            is_ours = isinstance(error, DavylampError)
            if not is_ours:
                traceback.print_exc()
            reason = str(error) if is_ours else f"the worker failed: {type(error).__name__}: {error}"
            with self.folder.database.writing() as session:
                end_task(session, lease, "failed", self.folder.hide(" ".join(reason.split())))
        return True

    @property
    def _where(self) -> ExecutorSettings:
        return self.working.where._replace(trust=self.working.trust, memory=self.working.limits.program_memory)

    def _run(self, prepared: PreparedTask, watch: "_TaskMonitor") -> ProcessExit:
        if prepared.has_files and (why := why_not_isolated(trust=self.working.trust)):
            return ProcessExit(1, f"refused: {why}")
        watch.prepared = prepared
        command = [sys.executable, "-c", _START, ".."]
        environment = _environment()
        outcome = ProcessExit(1)
        for _ in range(_ATTEMPTS):
            for name in ("given", "keys.json", "outcome.json"):
                (prepared.folder / name).unlink(missing_ok=True)
            outcome = run_sandboxed(command, prepared.folder, self.working.limits, watch=watch, environment=environment)
            if outcome.code >= 0 or outcome.reason:
                break
        return outcome

    def _end(self, prepared: PreparedTask, lease: Lease, watch: "_TaskMonitor", outcome: ProcessExit) -> None:
        """Record how the process of a task ended, and sign the task if it is done.

        If the worker was stopped, or if the owner's hours of computing are used up, the task returns to the queue. If a
        different worker has the lease now, nothing is recorded.
        """
        if watch.is_lost:
            return
        if outcome.reason == _STOPPED or outcome.reason == watch.over != "":
            release_task(self.folder.database, lease, message=watch.over, seconds=watch.seconds)
            return
        said = read_json(prepared.folder / "outcome.json")
        state, message = _verdict(said, outcome)
        message = self.folder.hide(message)
        with self.folder.database.writing() as session:
            ingest_results(session, self.folder, prepared, watch.keys, watch.reused)
        values: dict[str, Any] = {"seconds": watch.seconds}
        if state == "done":
            images = _count(read_json(prepared.folder / "progress.json"), "images")
            values |= {"images": images, "images_done": images}
            with self.folder.database.reading() as session:
                values["signature"] = sign_task(session, self.folder, session.get_one(TaskRow, lease.task))
        with self.folder.database.writing() as session:
            is_ended = end_task(session, lease, state, message, **values)
        if is_ended:  # copies of stored files; a retry restores them
            shutil.rmtree(prepared.folder / "room", ignore_errors=True)
        if is_ended and state == "done":
            note_summary(self.folder, lease.task)


_STOPPED, _LOST, _CANCELLED = "the worker was stopped", "the task was leased to a different worker", "cancelled"


class _TaskMonitor:
    """Monitors a running task: sends heartbeats, copies existing runs, and records progress and finished runs."""

    def __init__(self, folder: ServerFolder, lease: Lease, working: WorkerSettings, stopped: Callable[[], bool]):
        self.folder, self.lease, self.working, self.stopped = folder, lease, working, stopped
        self.prepared: PreparedTask | None = None
        self.keys: dict[str, Any] = {}
        self.reused: list[str] = []
        self.is_lost, self.over = False, ""
        self._start = time.monotonic()
        self._next, self._until = 0.0, self._start + working.lease

    @property
    def seconds(self) -> float:
        """Computing time of the task in seconds, including earlier attempts."""
        before = self.prepared.task.seconds if self.prepared else 0.0
        return before + time.monotonic() - self._start

    def __call__(self) -> str:
        """Return the reason why the task must stop; "" if the task may continue."""
        if self.stopped():
            return _STOPPED
        try:
            self._give()
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + min(2.0, self.working.lease / 5)
                return self._beat()
        except (OperationalError, DBAPIError):  # it may recover before the lease expires
            if time.monotonic() > self._until:
                self.is_lost = True
                return _LOST
        return ""

    def _give(self) -> None:
        assert self.prepared is not None
        mark = self.prepared.folder / "given"
        if mark.exists() or not (self.prepared.folder / "keys.json").is_file():
            return
        keys = read_json(self.prepared.folder / "keys.json").get("cells", {})
        self.keys = keys if isinstance(keys, dict) else {}
        with self.folder.database.reading() as session:
            self.reused += copy_existing_runs(session, self.folder, self.prepared, self.keys)
        mark.write_text("", encoding="utf-8")

    def _beat(self) -> str:
        assert self.prepared is not None
        progress = read_json(self.prepared.folder / "progress.json")
        values: dict[str, Any] = {}
        values |= {"images": _count(progress, "images"), "images_done": _count(progress, "done")} if progress else {}
        values["seconds"] = self.seconds
        start = time.monotonic()
        answer = renew_lease(self.folder.database, self.lease, self.working.lease, **values)
        if not answer.is_kept:
            self.is_lost = True
            return _LOST
        self._until = start + self.working.lease
        if self.keys:
            with self.folder.database.writing() as session:
                ingest_results(session, self.folder, self.prepared, self.keys, self.reused)
        self.over = answer.over
        return _CANCELLED if answer.cancelling else self.over


def _verdict(said: dict[str, Any], outcome: ProcessExit) -> tuple[TaskState, str]:
    """Return the final state of a task, and the message for its owner."""
    if outcome.reason == _CANCELLED:
        return "cancelled", "cancelled; finished results are kept"
    if outcome.reason:
        return "failed", outcome.reason
    if "error" in said:
        return "failed", str(said["error"])
    if not said:
        how = f"ended by signal {-outcome.code} {_ATTEMPTS} times (out of memory?)" if outcome.code < 0 else "crashed"
        return "failed", f"its process {how}; see the log"
    failed, left_out = said.get("failed") or {}, said.get("left_out") or {}
    counts = f"{_count(said, 'done')} finished, {_count(said, 'kept')} reused, {len(failed)} failed"
    reasons = list(dict.fromkeys([*map(str, failed.values()), *(f"{name}: {why}" for name, why in left_out.items())]))
    message = "; ".join([counts, *reasons[:5]])
    all_failed = len(failed) >= _count(said, "done") + _count(said, "kept")
    return ("failed" if all_failed else "done"), message


def _count(document: dict[str, Any], name: str) -> int:
    value = document.get(name)
    return min(max(int(value), 0), 2**31 - 1) if isinstance(value, int) else 0


def _environment() -> dict[str, str]:
    """Return the environment variables of a task's process. Variables with tokens, passwords or proxies are omitted."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, (os.cpu_count() or 2) // 2))
    paths = [str(Path(path).absolute()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**passed, "OMP_NUM_THREADS": threads, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}

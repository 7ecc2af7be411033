"""Runs the process of a task, with limits on time and disk space."""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from ...adapters.models.sandbox.bubblewrap import find_sandbox, machine_bytes

_POLL_SECONDS = 0.2
_GRACE_SECONDS = 5.0
_DISK_SECONDS = 5.0  # seconds between measurements of a task's disk use
_LEAST_FREE = 1 << 28  # bytes of disk space that tasks must leave free
_LOG_BYTES = 1 << 20


class TaskLimits(NamedTuple):
    """Limits of a task.

    Args:
        seconds: time limit of the whole task, in seconds.
        memory: memory limit of each program of a user, with all its processes, in GiB. None for a quarter of the
            machine's memory.
        disk: largest size of the task's folder, in GiB.
    """

    seconds: float = 24 * 3600.0
    memory: float | None = None
    disk: float = 20.0

    @property
    def program_memory(self) -> float:
        """Memory limit of each program of a user, in GiB, with the default if `memory` is None."""
        return self.memory or max(1.0, machine_bytes() / 4 / 2**30)


class ProcessExit(NamedTuple):
    """How a process ended.

    Args:
        code: exit code. If a signal ended the process, the negative number of the signal.
        reason: reason why the process was stopped. "" if it ended by itself.
    """

    code: int
    reason: str = ""


def why_not_isolated(*, trust: bool) -> str:
    """Return the reason why programs and files of users cannot be used on this machine; "" if they can be used.

    They can be used if the machine has a sandbox, or if `trust` allows to use them without a sandbox.
    """
    sandbox = find_sandbox()
    if trust or sandbox.program:
        return ""
    why = f"there is no sandbox here: {sandbox.explained}"
    return f"this server takes no files of users ({why}; start it with --no-sandbox to use them without a sandbox)"


def run_sandboxed(
    command: Sequence[str],
    scratch: Path,
    limits: TaskLimits,
    *,
    watch: Callable[[], str],
    environment: Mapping[str, str],
) -> ProcessExit:
    """Run the command of a task until it ends, exceeds a limit, or is stopped.

    The standard input of the command is a pipe. The pipe closes if this process dies, so that the command can notice
    this and end as well.

    Args:
        command: the command.
        scratch: folder of the task. The output of the command is written to `log.txt` in this folder, up to 1 MiB.
        limits: limits of the task. Only time and disk space are limited here.
        watch: function that is called several times per second, and returns the reason to stop the command, or "".
        environment: environment variables of the command.

    Returns:
        How the command ended.
    """
    meter = _LimitMeter(scratch, limits)
    with (scratch / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            command,
            cwd=scratch / "room",
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdout is not None
        reader = threading.Thread(target=_copy, args=(process.stdout, log), daemon=True)
        reader.start()
        reason = ""
        try:
            while process.poll() is None and not reason:
                time.sleep(_POLL_SECONDS)
                reason = watch() or meter.beyond()
        finally:
            _end(process)
            reader.join(_GRACE_SECONDS)
            process.stdout.close()
    return ProcessExit(process.returncode, reason)


def used_bytes(folder: Path) -> int:
    """Return the total size in bytes of the files in a folder and its subfolders."""
    count = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                count += (Path(place) / name).lstat().st_size
    return count


class _LimitMeter:
    """Measures the time and disk space that a task uses."""

    def __init__(self, scratch: Path, limits: TaskLimits):
        self.scratch, self.limits = scratch, limits
        self._start, self._next = time.monotonic(), 0.0

    def beyond(self) -> str:
        """Return a message about a limit that the task exceeds; "" if the task exceeds no limit."""
        now = time.monotonic()
        if now - self._start > self.limits.seconds:
            return f"it took longer than {self.limits.seconds:.0f} s"
        if now < self._next:
            return ""
        self._next = now + _DISK_SECONDS
        if used_bytes(self.scratch) > self.limits.disk * 2**30:
            return f"its folder holds more than {self.limits.disk:g} GiB"
        free = shutil.disk_usage(self.scratch).free
        return "" if free >= _LEAST_FREE else f"the server's disk is full: {free >> 20} MiB are free"


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)  # its children share its process group


def _copy(source: IO[bytes], log: IO[bytes]) -> None:
    """Copy the output of a process to a log, up to the size limit of the log. Further output is read and discarded."""
    left = _LOG_BYTES - log.tell()
    while chunk := source.read1(1 << 16):  # type: ignore[attr-defined] - a buffered reader
        if left > 0:
            log.write(chunk[:left])
            log.flush()
            left -= len(chunk)
            if left <= 0:
                log.write(b"\n[more was printed than a log holds]\n")
                log.flush()

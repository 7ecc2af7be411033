"""The fork server: a process that forks workers on request. It loads torch, but never runs a model or an attack itself.

The fork server serves only the process that started it. When that process ends, the fork server ends all workers and
itself. A worker runs until the other end of its socket is closed. The last message on this socket reports how the
worker ended.
"""

import ctypes
import gc
import importlib
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from .messages import Channel, receive_with_files, send_message
from .shared_bytes import SharedBytes

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, as in Linux's prctl.h
_CRASHED = 70
_LARGEST_FILE = 1 << 33  # size of the largest file that a worker may write
_LOOK_MILLISECONDS = 50
_END_SECONDS = 5.0  # time for killed processes to end
_REAP_SECONDS = 0.5
_REPORT_SECONDS = 0.1
_FIRST_PROCESS = "bwrap"  # command name of a sandbox's first process
_SCRATCH = (Path("/tmp"), Path("/dev/shm"))  # in-memory folders of the sandbox


def run_forkserver() -> None:
    """Run the fork server in this process. It reads requests from standard input, which is a socket.

    The function does not return.
    """
    control = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    _die_with(os.getppid())
    _load([f"{__package__}.model_worker"])
    server = _ForkServer(control)
    with suppress(OSError, EOFError, ValueError):
        server.run()
    server.end(list(server.workers))
    os._exit(0)


class _Forked(NamedTuple):
    """A worker: its socket, and its limits on processes and memory.

    Processes or memory with a limit of 0 are not counted.
    """

    wire: socket.socket
    processes: int
    bytes: int


class _ForkServer:
    """A server that forks workers on request, and keeps them by process id.

    Each untrusted worker runs in its own sandbox. The server counts the processes and the memory of the sandbox, and
    ends all its processes when the worker ends. It does this because the system's limits are not sufficient:
    `RLIMIT_DATA` applies to each process separately, and `RLIMIT_NPROC` does not apply to root. In older kernels, all
    sandboxes share the limit `RLIMIT_NPROC`.

    Args:
        control: socket from which requests are received.
    """

    def __init__(self, control: socket.socket):
        self._control, self._alone = control, _is_alone()
        self.workers: dict[int, _Forked] = {}
        self._woken, wake = self._wake_up = os.pipe()
        for end in self._wake_up:
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        """Serve requests until the parent process closes the connection.

        Raises:
            OSError, EOFError, ValueError: when the connection is closed.
        """
        while True:
            has_request, left = self._wait()
            self._reap()
            if why := self._too_much():
                counted = [process for process, worker in self.workers.items() if worker.processes]
                for process in counted:
                    self._report(process, None, why)
                self.end(counted)
            self.end([process for process in left if process in self.workers])
            if has_request:
                self._answer()

    def _wait(self) -> tuple[bool, list[int]]:
        """Wait until a request arrives, a worker ends, a socket is closed, or untrusted workers must be checked.

        The server looks for a request first. Therefore every socket that was closed before the request was sent is
        included.

        Returns:
            Whether a request has arrived, and the workers whose socket the parent process has closed.
        """
        watched = select.poll()
        watched.register(self._control, select.POLLIN)
        watched.register(self._woken, select.POLLIN)
        processes = {worker.wire.fileno(): process for process, worker in self.workers.items()}
        for file in processes:
            watched.register(file, 0)  # poll reports a closed other end without being registered for it
        limit = _LOOK_MILLISECONDS if any(worker.processes for worker in self.workers.values()) else None
        ready = [file for file, _ in watched.poll(limit)]
        with suppress(BlockingIOError):
            os.read(self._woken, 1 << 12)
        return self._control.fileno() in ready, [processes[file] for file in ready if file in processes]

    def _reap(self) -> None:
        for process in list(self.workers):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                self._report(process, os.waitstatus_to_exitcode(status))
                self._forget(process)

    def _report(self, process: int, status: int | None, why: str = "") -> None:
        wire = self.workers[process].wire
        with suppress(OSError):
            wire.settimeout(_REPORT_SECONDS)
            send_message(wire, {"do": "ended", "status": status, "why": why})

    def end(self, processes: Iterable[int]) -> None:
        for process in processes:
            for kill in (os.killpg, os.kill):
                with suppress(ProcessLookupError, PermissionError):
                    kill(process, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(process, 0)
            self._forget(process)

    def _forget(self, process: int) -> None:
        """Clean up after a worker: end its child processes. For an untrusted worker, also delete its files."""
        worker = self.workers.pop(process)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process, signal.SIGKILL)
        if worker.processes and not any(each.processes for each in self.workers.values()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(-1, signal.SIGKILL)
            _wait_for_others(_END_SECONDS, dead=False)
            _wait_for_others(_REAP_SECONDS, dead=True)  # they count until the first process has reaped them
            for folder in _SCRATCH:
                _clear(folder)
        worker.wire.close()

    def _too_much(self) -> str:
        """Describe the limit that the untrusted workers exceed. "" if they exceed no limit."""
        counted = [worker for worker in self.workers.values() if worker.processes]
        if not counted:
            return ""
        most = sum(worker.processes for worker in counted)
        size = sum(worker.bytes for worker in counted) if all(worker.bytes for worker in counted) else 0
        places = _others()
        if len(places) > most:
            return f"started more than {most} processes"
        # The quick measure counts memory shared after a fork twice; the other does not.
        if size and _held(places, _resident) > size and _held(places, _proportional) > size:
            return f"exceeded the memory limit of {size / 2**30:.3g} GiB across its processes"
        return ""

    def _answer(self) -> None:
        """Handle a request: fork a worker, or confirm that workers with a closed socket have ended."""
        message, files = receive_with_files(self._control)
        if message["do"] == "open":
            _load(message["packages"])
            wire, (inward, outward) = socket.socket(fileno=files[0]), files[1:]
            process = self._fork(message, wire, inward, outward)
            for file in (inward, outward):  # no other worker may have them
                os.close(file)
            self.workers[process] = _Forked(wire, message["processes"] if self._alone else 0, message["bytes"])
        send_message(self._control, {"done": True})

    def _fork(self, limits: dict[str, Any], wire: socket.socket, inward: int, outward: int) -> int:
        parent = os.getpid()
        process = os.fork()
        if process:
            with suppress(OSError):
                os.setpgid(process, process)
            return process
        status = _CRASHED
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for other in (self._control, *(worker.wire for worker in self.workers.values())):
                other.close()
            for end in self._wake_up:
                os.close(end)
            os.setpgid(0, 0)
            _die_with(parent)
            _limit(limits)
            module, _, function = limits["serve"].partition(":")
            getattr(importlib.import_module(module), function)(Channel(wire, SharedBytes(outward), SharedBytes(inward)))
            status = 0
        except (EOFError, ConnectionError):  # the parent closed the connection
            status = 0
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        finally:
            with suppress(Exception):
                sys.stderr.flush()
            os._exit(status)


def _others(*, dead: bool = False) -> list[Path]:
    """Return the /proc folders of the other processes in the sandbox.

    This process and the first process of the sandbox are not included.

    Args:
        dead: whether to include processes that have ended.
    """
    ours = ("1", str(os.getpid()))
    places = [each for each in Path("/proc").iterdir() if each.name.isdigit() and each.name not in ours]
    return [each for each in places if dead or _lives(each)]


def _lives(place: Path) -> bool:
    with suppress(OSError, IndexError):
        return (place / "stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


def _held(places: list[Path], measure: Callable[[Path], int]) -> int:
    """Return the memory of several processes in bytes.

    Args:
        places: /proc folders of the processes.
        measure: returns the memory of one process.
    """
    count = 0
    for place in places:
        with suppress(OSError, ValueError, IndexError):
            count += measure(place)
    return count


def _resident(place: Path) -> int:
    words = (place / "statm").read_text().split()
    return int(words[1]) * resource.getpagesize()


def _proportional(place: Path) -> int:
    """Return a process's share of memory in bytes, in which shared memory is divided among its users.

    If the share is not readable, all memory of the process counts.
    """
    try:
        lines = (place / "smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return _resident(place)


def _is_alone() -> bool:
    """Whether the sandbox contains only this process and its first process. This is checked before a fork."""
    with suppress(OSError):
        return os.getppid() == 1 and Path("/proc/1/comm").read_text().strip() == _FIRST_PROCESS
    return False


def _wait_for_others(seconds: float, *, dead: bool) -> None:
    """Wait until there are no other processes in the sandbox.

    Args:
        seconds: longest waiting time.
        dead: whether to wait also for processes that have ended but still exist.
    """
    until = time.monotonic() + seconds
    while _others(dead=dead) and time.monotonic() < until:
        time.sleep(0.005)


def _clear(folder: Path) -> None:
    """Delete the contents of a folder, except for file systems that are mounted inside."""
    with suppress(OSError):
        device = folder.lstat().st_dev
        for each in [*folder.iterdir()]:
            with suppress(OSError):
                if each.lstat().st_dev != device:
                    continue
                if each.is_dir() and not each.is_symlink():
                    _clear(each)
                    each.rmdir()
                else:
                    each.unlink()


def _load(names: list[str]) -> None:
    for name in names:
        if name not in sys.modules:
            with suppress(Exception):  # the worker that needs it reports the error
                importlib.import_module(name)
            gc.collect()
            gc.freeze()


def _die_with(parent: int) -> None:
    """Let the system end this process when its parent process ends for any reason."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


def _limit(limits: dict[str, Any]) -> None:
    """Set the resource limits of a worker.

    If the machine runs out of memory, the system then kills the worker first.
    """
    size, largest = limits["bytes"], limits["file"] or _LARGEST_FILE
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    if limits["processes"]:
        _limit_processes(limits["processes"])
    if size:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _limit_processes(most: int) -> None:
    """Limit the number of processes, if the system counts the processes of each sandbox separately."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    most *= 4  # threads are counted as well
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NPROC, (most, hard))
        try:
            probe = threading.Thread(target=lambda: None)
            probe.start()
            probe.join()
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        except RuntimeError:  # processes outside are counted, and exceed the limit
            resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))

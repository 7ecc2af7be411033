"""The fork server: a process that forks workers, one after the other. It never runs a model or an attack itself.

The fork server has loaded torch, so a worker starts quickly. It serves only the process that started it. When that
process ends, the fork server ends its worker and itself. A worker runs until the other end of its socket is closed. The
last message on this socket reports how the worker ended.
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
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from .messages import Channel, SharedBytes, receive_with_files, send_message

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
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    is_alone = _is_alone()
    with suppress(OSError, EOFError, ValueError):
        while True:
            request, files = receive_with_files(control)
            _load(request["packages"])
            _run_worker(request, files, control, (woken, wake), is_counted=is_alone and bool(request["processes"]))
    os._exit(0)


def _run_worker(
    request: dict[str, Any], files: list[int], control: socket.socket, wake_up: tuple[int, int], *, is_counted: bool
) -> None:
    """Run a worker until it ends, its socket is closed, or it exceeds its limits. Then end its child processes.

    For an untrusted worker, the processes and the memory of the whole sandbox are counted, because the system's limits
    are not sufficient: `RLIMIT_DATA` applies to each process separately, and `RLIMIT_NPROC` does not apply to root. In
    older kernels, all sandboxes share the limit `RLIMIT_NPROC`.

    Args:
        request: code and limits of the worker, see `WorkerSpec`.
        files: the worker's socket, and its memory for either direction.
        control: socket to the parent process, which is told when the worker has started and when it has ended.
        wake_up: pipe to which a byte is written when a child process ends.
        is_counted: whether the worker is untrusted and alone in its sandbox.
    """
    wire = socket.socket(fileno=files[0])
    process = _fork(request, wire, files[1:], (control.fileno(), *wake_up))
    for file in files[1:]:
        os.close(file)
    send_message(control, {"done": True})
    watched = select.poll()
    watched.register(wake_up[0], select.POLLIN)
    for each in (wire, control):
        watched.register(each, 0)  # poll reports a closed other end without being registered for it
    ended, why, is_closed = 0, "", False
    while not (ended or why or is_closed):
        ready = [file for file, _ in watched.poll(_LOOK_MILLISECONDS if is_counted else None)]
        with suppress(BlockingIOError):
            os.read(wake_up[0], 1 << 12)
        is_closed = any(file != wake_up[0] for file in ready)
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            _report(wire, os.waitstatus_to_exitcode(status), "")
        elif is_counted and (why := _too_much(request["processes"], request["bytes"])):
            _report(wire, None, why)
    for kill in (os.killpg, *([] if ended else [os.kill])):
        with suppress(ProcessLookupError, PermissionError):
            kill(process, signal.SIGKILL)
    if not ended:
        os.waitpid(process, 0)
    if is_counted:
        _empty_sandbox()
    wire.close()
    send_message(control, {"done": True})


def _report(wire: socket.socket, status: int | None, why: str) -> None:
    with suppress(OSError):
        wire.settimeout(_REPORT_SECONDS)
        send_message(wire, {"do": "ended", "status": status, "why": why})


def _fork(request: dict[str, Any], wire: socket.socket, memory: list[int], others: tuple[int, ...]) -> int:
    """Fork a worker, and return its process id. The worker closes the `others` of this process's files."""
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
        for file in others:
            os.close(file)
        os.setpgid(0, 0)
        _die_with(parent)
        _limit(request)
        module, _, function = request["serve"].partition(":")
        inward, outward = (SharedBytes(file) for file in memory)
        getattr(importlib.import_module(module), function)(Channel(wire, outward, inward))
        status = 0
    except (EOFError, ConnectionError):  # the parent closed the connection
        status = 0
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


def _empty_sandbox() -> None:
    """End all processes of the sandbox, and delete the files of the worker."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(-1, signal.SIGKILL)
    _wait_for_others(_END_SECONDS, dead=False)
    _wait_for_others(_REAP_SECONDS, dead=True)  # they count until the first process has reaped them
    for folder in _SCRATCH:
        _clear(folder)


def _too_much(processes: int, size: int) -> str:
    """Describe the limit that the processes of the sandbox exceed. "" if they exceed no limit.

    Args:
        processes: limit on processes.
        size: limit on memory in bytes. 0 for no limit.
    """
    places = _others()
    if len(places) > processes:
        return f"started more than {processes} processes"
    # The quick measure counts memory shared after a fork twice; the other does not.
    if size and _held(places, _resident) > size and _held(places, _proportional) > size:
        return f"exceeded the memory limit of {size / 2**30:.3g} GiB across its processes"
    return ""


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

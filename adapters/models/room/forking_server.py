"""The process that rooms are forked from: it has torch loaded, and never runs a model itself.

It answers the process that started it, and nobody else; when that one is gone, it ends every room and itself.
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

from .channel import receive_with_files, send_message

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, as in Linux's prctl.h
_CRASHED = 70
_LARGEST_FILE = 1 << 33  # bytes that a room may write to one file
_LOOK_SECONDS = 0.05
_END_SECONDS = 5.0  # for what was killed to be gone
_REAP_SECONDS = 0.5
_FIRST_PROCESS = "bwrap"  # of a sandbox
_SCRATCH = (Path("/tmp"), Path("/dev/shm"))  # of the sandbox, in memory


def serve_rooms() -> None:
    """Fork rooms as standard input, a socket, asks for them; does not return."""
    wire = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    _die_with(os.getppid())
    _load([f"{__package__}.resident"])
    rooms: set[int] = set()
    crowd = _Crowd()
    with suppress(OSError, EOFError, ValueError):
        send_message(wire, {"ready": True})
        while True:
            crowd.watch_until_asked(wire)
            message, files = receive_with_files(wire)
            if message["do"] == "open":
                _load(message["packages"])
                process = _fork_room(wire, files[0], message)
                crowd.begin(process, message["processes"], message["bytes"])
                rooms.add(process)
                send_message(wire, {"process": process})
            else:
                rooms.discard(message["process"])
                status = _end(message["process"], kill=message["kill"])
                send_message(wire, {"status": status, "why": crowd.finish(message["process"])})
    for process in rooms:
        _end(process, kill=True)
    os._exit(0)


class _Crowd:
    """The processes of rooms that have this sandbox to themselves: counted, as is their memory; none outlives them.

    Limits of the system are for each process (`RLIMIT_DATA`), or do not hold for root, nor in older kernels for one
    sandbox alone (`RLIMIT_NPROC`).
    """

    def __init__(self) -> None:
        self._rooms: dict[int, tuple[int, int]] = {}  # those that are limited: processes and bytes
        self._ended: dict[int, str] = {}  # why they were ended

    def begin(self, room: int, processes: int, size: int) -> None:
        """A room with at most that many processes and bytes; 0 processes: without a limit."""
        if processes and _is_alone():
            self._rooms[room] = processes, size

    def watch_until_asked(self, wire: socket.socket) -> None:
        """Wait for the next message; end every process if they are too many, or take too much, before it comes."""
        while self._rooms and not select.select([wire], [], [], _LOOK_SECONDS)[0]:
            why = self._too_much()
            if why:
                self._ended |= dict.fromkeys(self._rooms, why)
                self._rooms.clear()
                _end_everything()

    def finish(self, room: int) -> str:
        """After the last room end what is left and clear the scratch; why this one was ended before, "" if not."""
        was_limited = self._rooms.pop(room, None) is not None or room in self._ended
        if was_limited and not self._rooms:
            _end_everything()
            _wait(_REAP_SECONDS, dead=True)  # they count against the limit until the first process has seen them
            for folder in _SCRATCH:
                _clear(folder)
        return self._ended.pop(room, "")

    def _too_much(self) -> str:
        counts, sizes = zip(*self._rooms.values(), strict=True)
        most, size = sum(counts), sum(sizes) if all(sizes) else 0
        places = _others()
        if len(places) > most:
            return f"started more than {most} processes"
        # What is forked is counted twice by the quick look, and not by the other.
        if size and _held(places, _resident) > size and _held(places, _proportional) > size:
            return f"took more than {size / 2**30:.3g} GiB of memory in all of its processes"
        return ""


def _others(*, dead: bool = False) -> list[Path]:
    """Where the system tells of the processes besides this one and the sandbox's first; if asked of dead ones, too."""
    ours = ("1", str(os.getpid()))
    places = [each for each in Path("/proc").iterdir() if each.name.isdigit() and each.name not in ours]
    return [each for each in places if dead or _lives(each)]


def _lives(place: Path) -> bool:
    with suppress(OSError, IndexError):
        return (place / "stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


def _held(places: list[Path], measure: Callable[[Path], int]) -> int:
    """Bytes of memory that processes hold, as a measure has it of each."""
    count = 0
    for place in places:
        with suppress(OSError, ValueError, IndexError):
            count += measure(place)
    return count


def _resident(place: Path) -> int:
    words = (place / "statm").read_text().split()
    return int(words[1]) * resource.getpagesize()


def _proportional(place: Path) -> int:
    """A process's share of what it holds with others; all of that if it does not let itself be looked at."""
    try:
        lines = (place / "smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return _resident(place)


def _is_alone() -> bool:
    """Whether this process and the sandbox's first, which is its parent, are all that there was before the room."""
    with suppress(OSError):
        return os.getppid() == 1 and Path("/proc/1/comm").read_text().strip() == _FIRST_PROCESS
    return False


def _end_everything() -> None:
    """End every process but this one and the first of the sandbox."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(-1, signal.SIGKILL)
    _wait(_END_SECONDS, dead=False)


def _wait(seconds: float, *, dead: bool) -> None:
    """Wait until there are no others, but not for ever."""
    until = time.monotonic() + seconds
    while _others(dead=dead) and time.monotonic() < until:
        time.sleep(0.005)


def _clear(folder: Path) -> None:
    """Remove what lies in a folder; other file systems in it stay as they are."""
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
    """Import what rooms need, once for all of them."""
    for name in names:
        if name not in sys.modules:
            with suppress(Exception):  # the room that needs it says what is wrong
                importlib.import_module(name)
            gc.collect()
            gc.freeze()


def _fork_room(wire: socket.socket, file: int, limits: dict[str, Any]) -> int:
    parent = os.getpid()
    process = os.fork()
    if process:
        os.close(file)
        return process
    status = _CRASHED
    try:
        wire.close()
        os.setpgid(0, 0)
        _die_with(parent)
        _limit(limits)
        module, _, function = limits["serve"].partition(":")
        getattr(importlib.import_module(module), function)(socket.socket(fileno=file))
        status = 0
    except (EOFError, ConnectionError):  # nobody asks any more
        status = 0
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


def _end(process: int, *, kill: bool) -> int | None:
    """How a room has ended, as `os.waitstatus_to_exitcode` has it; None if it was not there."""
    with suppress(ProcessLookupError, PermissionError):
        if kill:
            os.killpg(process, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        if kill:
            os.kill(process, signal.SIGKILL)
    with suppress(ChildProcessError):
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process, signal.SIGKILL)  # what it has started
        return status
    return None


def _die_with(parent: int) -> None:
    """End this process when its parent ends, however that happens."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


def _limit(limits: dict[str, Any]) -> None:
    """What a room may use; the first to go where the machine runs out of memory."""
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
    """Have the system refuse more processes, where it counts those of this sandbox alone."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    most *= 4  # threads count, too
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NPROC, (most, hard))
        try:
            probe = threading.Thread(target=lambda: None)
            probe.start()
            probe.join()
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        except RuntimeError:  # those outside are counted, and there are as many
            resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))

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
from contextlib import suppress
from pathlib import Path
from typing import Any

from .channel import receive_with_files, send_message

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, as in Linux's prctl.h
_CRASHED = 70
_LARGEST_FILE = 1 << 33  # bytes that a room may write to one file
_LOOK_SECONDS = 0.05
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
                crowd.begin(message["processes"])
                process = _fork_room(wire, files[0], message)
                rooms.add(process)
                send_message(wire, {"process": process})
            else:
                rooms.discard(message["process"])
                status = _end(message["process"], kill=message["kill"])
                send_message(wire, {"status": status, "why": crowd.finish()})
    for process in rooms:
        _end(process, kill=True)
    os._exit(0)


class _Crowd:
    """The processes of a room that has this sandbox to itself: they are counted, and none outlives it.

    A limit of the system (`RLIMIT_NPROC`) does not hold for root, nor in older kernels for one sandbox alone.
    """

    def __init__(self) -> None:
        self._most, self._why = 0, ""

    def begin(self, most: int) -> None:
        """A room with at most that many processes; 0: without a limit, as it is not alone here."""
        self._most, self._why = most if most and _is_alone() else 0, ""

    def watch_until_asked(self, wire: socket.socket) -> None:
        """Wait for the next message; end every process if they are too many before it comes."""
        while self._most and not select.select([wire], [], [], _LOOK_SECONDS)[0]:
            count = sum(each.name.isdigit() for each in Path("/proc").iterdir()) - 2
            if count > self._most:
                self._why = f"started more than {self._most} processes"
                _end_everything()

    def finish(self) -> str:
        """End what is left of the room and clear its scratch; why it was ended before, "" if it was not."""
        if self._most:
            _end_everything()
            for folder in _SCRATCH:
                _clear(folder)
        self._most = 0
        return self._why


def _is_alone() -> bool:
    """Whether this process and bubblewrap, which is its parent, are all that there was before the room."""
    with suppress(OSError):
        return os.getppid() == 1 and Path("/proc/1/comm").read_text().strip() == "bwrap"
    return False


def _end_everything() -> None:
    """End every process but this one and the first of the sandbox."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(-1, signal.SIGKILL)


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

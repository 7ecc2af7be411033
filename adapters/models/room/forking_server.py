"""The process that rooms are forked from: it has torch loaded, and never runs a model itself.

It answers the process that started it, and nobody else; when that one is gone, it ends every room and itself.
"""

import ctypes
import gc
import importlib
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from .channel import receive_with_files, send_message

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, as in Linux's prctl.h
_CRASHED = 70
_LARGEST_FILE = 1 << 33  # bytes that a room may write to one file


def serve_rooms() -> None:
    """Fork rooms as standard input, a socket, asks for them; does not return."""
    wire = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    _die_with(os.getppid())
    _load([f"{__package__}.resident"])
    rooms: set[int] = set()
    with suppress(OSError, EOFError, ValueError):
        send_message(wire, {"ready": True})
        while True:
            message, files = receive_with_files(wire)
            if message["do"] == "open":
                _load(message["packages"])
                process = _fork_room(wire, files[0], message)
                rooms.add(process)
                send_message(wire, {"process": process})
            else:
                rooms.discard(message["process"])
                send_message(wire, {"status": _end(message["process"], kill=message["kill"])})
    for process in rooms:
        _end(process, kill=True)
    os._exit(0)


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
        _limit(limits["bytes"])
        importlib.import_module(f"{__package__}.resident").serve_model(socket.socket(fileno=file))
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


def _limit(size: int) -> None:
    """What a room may use; the first to go where the machine runs out of memory."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
    if size:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")

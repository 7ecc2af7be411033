"""Our end of the process that rooms are forked from: one for all rooms of a kind; shows what they print, cleaned."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from ....errors import Unavailable, Unsupported
from ...user_code import one_line
from .channel import receive_message, send_message
from .sandbox import environment, find_sandbox, sandboxed
from .task_limit import TaskLimit

_START_SECONDS = 120
_END_SECONDS = 10
_MOST_SHOWN = 1 << 16  # bytes of what rooms print
_MOST_TASKS = 64 + 16 * (os.cpu_count() or 1)  # processes and threads of a sandbox with programs of strangers
_MOST_KEPT = 3  # servers without a room: each is some 300 MB with what it has imported
_SERVE_MODEL = f"{__package__}.resident:serve_model"
_PROGRAM = """
import importlib, json, sys
sys.path[:] = json.loads(sys.argv[1])
importlib.import_module(sys.argv[2]).serve_rooms()
"""


class RoomLimits(NamedTuple):
    """What a room may use; 0: as much as there is, or the usual.

    Args:
        bytes: of memory that it may ask for.
        file: bytes of the largest file that it may write.
        processes: how many it may have, where it has a sandbox to itself.
    """

    bytes: int = 0
    file: int = 0
    processes: int = 0


_ANY = RoomLimits()


class ServerProcess:
    """A process that forks rooms; started by the first that asks, and again if it has died.

    Args:
        strict: in a sandbox that shows nothing but Python and `visible`.
        visible: files and folders.
        guest: the file whose code its rooms run, one after the other and no others; "": any models'. It sees no GPU.
    """

    def __init__(self, strict: bool, visible: tuple[Path, ...], guest: str = ""):
        self.strict, self.visible, self.guest = strict, visible, guest
        self.turn = threading.RLock()  # held by a guest's room as long as it is open
        self._lock = threading.Lock()
        self._starting: socket.socket | None = None
        self._wire: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._shown = 0
        self._last_words = self.ended_for = ""
        self._numbers = count()
        self._abandoned: deque[int] = deque()  # rooms to be ended by whoever asks next
        self._rooms: dict[int, int] = {}  # those that are open, by number: their processes as the server counts

    def prepare(self) -> None:
        """Begin to start it, if it is not there, and do not wait."""
        with self._lock:
            if self._wire is None and self._starting is None:
                self._begin()

    def open_room(
        self, limits: RoomLimits = _ANY, packages: Sequence[str] = (), serve: str = _SERVE_MODEL
    ) -> tuple[socket.socket, int]:
        """A new room: the socket that leads there, and its number, which no other room of this server ever has.

        Args:
            limits: what it may use.
            packages: that the model needs and that are slow to import; loaded once for all rooms.
            serve: "module:function" of ours that is called with the socket in there.

        Raises:
            Unavailable: if no process can be started.
        """
        with self._lock:
            self._end_abandoned()
            self._shown = 0
            for attempt in (1, 2):
                if self._wire is None:
                    self._start()
                ours, theirs = socket.socketpair()
                try:
                    assert self._wire is not None
                    how = {"packages": [*packages], "serve": serve, **limits._asdict()}
                    send_message(self._wire, {"do": "open", **how}, [theirs.fileno()])
                    answer = receive_message(self._wire, time.monotonic() + _START_SECONDS)
                    number = next(self._numbers)
                    self._rooms[number] = int(answer["process"])
                    return ours, number
                except (OSError, EOFError, ValueError, KeyError) as error:
                    ours.close()
                    self._stop()
                    if attempt == 2:
                        raise Unavailable(f"could not start a process for a model ({one_line(error)})") from error
                finally:
                    theirs.close()
        raise AssertionError

    def end_room(self, number: int, *, kill: bool) -> int | None:
        """End a room; its exit code, below 0 the signal that ended it, or None if nobody knows.

        `ended_for` is why it was ended before, "" if it was not.
        A room of an earlier process of this server is gone with it; another may have its process number by now.
        """
        with self._lock:
            self._end_abandoned()
            status, self.ended_for = self._end(number, kill=kill)
            return status

    def abandon(self, number: int) -> None:
        """End a room that nobody refers to any more: now, or before the next question if this server is being asked.

        For finalisers: the garbage collector calls them anywhere, in the middle of a question of the same thread, too.
        """
        self._abandoned.append(number)
        if self._lock.acquire(blocking=False):
            try:
                self._end_abandoned()
            finally:
                self._lock.release()

    def end_if_idle(self) -> None:
        """End it, if there is no room in it; the next that asks starts it again."""
        with self._lock:
            self._end_abandoned()
            if not self._rooms and self._wire is not None:
                self._stop()

    def _end_abandoned(self) -> None:
        while self._abandoned:
            self._end(self._abandoned.popleft(), kill=True)

    def _end(self, number: int, *, kill: bool) -> tuple[int | None, str]:
        process = self._rooms.pop(number, None)
        if self._wire is None or process is None:
            return None, ""
        try:
            send_message(self._wire, {"do": "end", "process": process, "kill": kill})
            answer = receive_message(self._wire, time.monotonic() + _END_SECONDS)
            status, why = answer["status"], one_line(answer.get("why", ""))
        except (OSError, EOFError, ValueError, KeyError):
            self._stop()  # with every room in it
            return None, ""
        return status if type(status) is int else None, why

    def _begin(self) -> None:
        command = [sys.executable, "-c", _PROGRAM, json.dumps(sys.path), f"{__package__}.forking_server"]
        sandbox, limit = find_sandbox(), None
        if self.strict and not sandbox.program:
            raise Unsupported(f"expected a sandbox for --isolate strict, got none: {sandbox.explained}")
        if sandbox.program:
            how = {"strict": self.strict, "visible": self.visible, "guest": bool(self.guest)}
            command = sandboxed(sandbox.program, command, **how)
            if self.strict or self.guest:
                limit = TaskLimit(_MOST_TASKS)
                command = limit.limited(command)
        ours, theirs = socket.socketpair()
        started = threading.Event()
        # bubblewrap ends with the thread that started it: that is the one that stays for what it prints.
        threading.Thread(target=self._run, args=(command, limit, theirs, started), daemon=True).start()
        started.wait()
        self._starting = ours

    def _start(self) -> None:
        if self._starting is None:
            self._begin()
        ours, self._starting = self._starting, None
        assert ours is not None
        try:
            receive_message(ours, time.monotonic() + _START_SECONDS)
        except (OSError, EOFError, ValueError) as error:
            ours.close()
            self._stop()
            why = self._last_words or one_line(error) or "it ended at once"
            raise Unavailable(f"could not start a process for a model ({why})") from error
        self._wire = ours

    def _run(
        self, command: Sequence[str], limit: TaskLimit | None, theirs: socket.socket, started: threading.Event
    ) -> None:
        """Start the process and show what it prints, cut and cleaned, until it ends."""
        clean_up = limit.remove if limit is not None else lambda: None
        try:
            process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment(strict=self.strict),
                start_new_session=True,
            )
            self._process = process
        except OSError as error:
            self._last_words = one_line(error)
            clean_up()
            return
        finally:
            theirs.close()
            started.set()
        assert process.stdout is not None
        with process.stdout as stream, suppress(OSError, ValueError):
            while data := os.read(stream.fileno(), 1 << 16):
                self._show(data)
        process.wait()
        clean_up()

    def _show(self, data: bytes) -> None:
        if self._shown >= _MOST_SHOWN:
            return
        self._shown += len(data)
        for line in data.decode(errors="replace").splitlines():
            if clean := one_line(line):
                self._last_words = clean
                with suppress(OSError, ValueError):
                    sys.stderr.write(f"{clean}\n")
        if self._shown >= _MOST_SHOWN:
            with suppress(OSError, ValueError):
                sys.stderr.write("(the model prints more, which is not shown)\n")

    def _stop(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process = None
        self._rooms.clear()


def server_for(process: int, strict: bool, visible: tuple[Path, ...], guest: str = "") -> ServerProcess:
    """The server of a process for one kind of room; a forked child has none of its parent's.

    Args:
        process: ours.
        strict: see `ServerProcess`.
        visible: see there.
        guest: see there.
    """
    key = process, strict, visible, guest
    with _LOCK:
        server = _SERVERS.pop(key, None) or ServerProcess(strict, visible, guest)
        idle = [each for (of, *_), each in _SERVERS.items() if of == process][: max(0, len(_SERVERS) + 1 - _MOST_KEPT)]
        _SERVERS[key] = server  # the last one used
    for each in idle:
        each.end_if_idle()
    return server


_LOCK = threading.Lock()
_SERVERS: dict[tuple[int, bool, tuple[Path, ...], str], ServerProcess] = {}

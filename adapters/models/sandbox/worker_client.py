"""Parent side of workers: starts fork servers, and communicates with workers under a time limit.

Workers are not trusted. Their messages are checked and never unpickled.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from .... import errors
from ....errors import AttackDied, ModelDied, ModelFailed, Unavailable, Unsupported
from ...user_code_guard import one_line
from .bubblewrap import TaskLimit, environment, find_sandbox, machine_bytes, sandboxed
from .isolation import Isolation
from .messages import Channel, SharedBytes, receive_message, send_message

_START_SECONDS = 120
_END_SECONDS = 10
_MOST_SHOWN = 1 << 16  # bytes of workers' output that are printed
_MOST_TASKS = 64 + 16 * (os.cpu_count() or 1)  # processes and threads of a sandbox with untrusted code
_MOST_IDLE = 3  # idle fork servers: each takes about 300 MB with its imports
_LONGEST_TEXT = 600
_PROGRAM = """
import importlib, json, sys
sys.path[:] = json.loads(sys.argv[1])
importlib.import_module(sys.argv[2]).run_forkserver()
"""
_BLAMABLE: Mapping[str, type[Exception]] = {
    **{kind.__name__: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)},
    "ValueError": ValueError,
    "TypeError": TypeError,
}
Answering = Callable[[dict[str, Any], list[Tensor]], tuple[dict[str, Any], list[Tensor]]]


class WorkerSpec(NamedTuple):
    """The code that runs in a worker, and the limits of the worker.

    A limit of 0 stands for no limit, or for the system's default.

    Args:
        serve: "module:function" in davylamp. The function is called with the worker's end of the channel.
        packages: packages that are slow to import. The fork server imports them once for its later workers, too.
        bytes: memory limit in bytes.
        file: size of the largest file that the worker may write, in bytes.
        processes: limit on processes. It applies only if the worker is alone in its sandbox.
        answer: largest size of the tensors in one message of the worker, in bytes.
    """

    serve: str
    packages: tuple[str, ...] = ()
    bytes: int = 0
    file: int = 0
    processes: int = 0
    answer: int = 1 << 32


class Surroundings(NamedTuple):
    """The part of the machine that a worker sees.

    Args:
        strict: whether the sandbox shows only Python and `visible`.
        visible: files and folders that the sandbox shows.
        guest: whether the worker runs an attack. The sandbox then has no GPU.
    """

    strict: bool
    visible: tuple[Path, ...] = ()
    guest: bool = False


class ForkServer:
    """Parent side of a fork server, which runs one worker at a time. It starts at the first use.

    Args:
        around: the surroundings of its workers.
    """

    def __init__(self, around: Surroundings):
        self.around, self.owner = around, os.getpid()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_busy = False  # whether it has a worker, which may have been abandoned
        self._shown, self._last_words = 0, ""

    def prepare(self) -> None:
        """Start the fork server in the background, if it is not running."""
        if self._control is None:
            self._begin()

    def open(self, spec: WorkerSpec) -> Channel:
        """Start a worker. The earlier worker must be closed.

        Returns:
            The channel to the worker. When the channel is closed, the worker and its child processes end.

        Raises:
            Unavailable: if the fork server cannot be started.
            Unsupported: if a sandbox is required, but not available.
        """
        self.settle()
        self._shown = 0
        for attempt in (1, 2):
            self.prepare()
            ours, theirs = socket.socketpair()
            channel = Channel(ours, SharedBytes.create(machine_bytes()), SharedBytes.create(spec.answer))
            with theirs:
                try:
                    assert self._control is not None
                    self._control.settimeout(_START_SECONDS)
                    send_message(self._control, {"do": "open", **spec._asdict()}, [theirs.fileno(), *channel.files])
                    receive_message(self._control, time.monotonic() + _START_SECONDS)
                except (OSError, EOFError, ValueError) as error:
                    channel.close()
                    self.stop()
                    if attempt == 2:
                        why = self._last_words or one_line(error) or "it ended immediately"
                        raise Unavailable(f"could not start a process for a model ({why})") from error
                else:
                    self._is_busy = True
                    return channel
        raise AssertionError

    def settle(self) -> None:
        """Wait until the closed worker has ended. If it does not end, the fork server is stopped."""
        if self._is_busy and self._control is not None:
            try:
                receive_message(self._control, time.monotonic() + _END_SECONDS)
            except (OSError, EOFError, ValueError):
                self.stop()
        self._is_busy = False

    def stop(self) -> None:
        """Stop the fork server and its worker."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process = None

    def _begin(self) -> None:
        command = [sys.executable, "-c", _PROGRAM, json.dumps(sys.path), f"{__package__}.forkserver"]
        sandbox, limit = find_sandbox(), None
        if self.around.strict and not sandbox.program:
            raise Unsupported(f"`isolate='strict'` needs a sandbox: {sandbox.explained}")
        if sandbox.program:
            command = sandboxed(sandbox.program, command, **self.around._asdict())
            if self.around.strict or self.around.guest:
                limit = TaskLimit(_MOST_TASKS)
                command = limit.limited(command)
        self._control, theirs = socket.socketpair()
        started = threading.Event()
        # bubblewrap ends with the thread that started it, so the thread that reads its output starts it.
        threading.Thread(target=self._run, args=(command, limit, theirs, started), daemon=True).start()
        started.wait()

    def _run(
        self, command: Sequence[str], limit: TaskLimit | None, theirs: socket.socket, started: threading.Event
    ) -> None:
        """Run the fork server, and print its output, truncated and cleaned, until it ends."""
        try:
            process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment(strict=self.around.strict),
                start_new_session=True,
            )
            self._process = process
        except OSError as error:
            self._last_words = one_line(error)
            process = None
        finally:
            theirs.close()
            started.set()
        if process is not None and process.stdout is not None:
            with process.stdout as stream, suppress(OSError, ValueError):
                while data := os.read(stream.fileno(), 1 << 16):
                    self._show(data)
            process.wait()
        if limit is not None:
            limit.remove()

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
                sys.stderr.write("(further output of the model is not shown)\n")


_IDLE: list[ForkServer] = []  # the most recently used last; changed by atomic operations only, see `_give_back`


def _take_server(around: Surroundings) -> ForkServer:
    """Return an idle fork server with these surroundings, or a new one. A forked child process starts its own."""
    found = [each for each in [*_IDLE] if (each.around, each.owner) == (around, os.getpid())]
    while found:
        with suppress(ValueError):  # a different thread has taken it
            _IDLE.remove(server := found.pop())
            return server
    return ForkServer(around)


def _give_back(server: ForkServer) -> None:
    """Keep an idle fork server for the next worker, and stop the longest unused ones. Finalisers call this function."""
    _IDLE.append(server)
    ours = [each for each in [*_IDLE] if each.owner == os.getpid()]
    for each in ours[:-_MOST_IDLE]:
        with suppress(ValueError):
            _IDLE.remove(each)
            each.stop()


def prestart(around: Surroundings) -> None:
    """Start a fork server for a worker with these surroundings in the background."""
    server = _take_server(around)
    server.prepare()
    _give_back(server)


class Worker:
    """A worker process. It handles requests until it is closed or sends an invalid message.

    Args:
        name: name of the model or attack, for messages.
        around: surroundings of the worker.
        spec: code and limits of the worker.
        seconds: time limit for one reply. The time in which the worker waits for this process does not count.
        too_long: error message if a reply takes longer.
        died: error class that is raised if the worker has ended.
    """

    def __init__(
        self,
        name: str,
        around: Surroundings,
        spec: WorkerSpec,
        *,
        seconds: float,
        too_long: str,
        died: type[ModelDied] | type[AttackDied] = ModelDied,
    ):
        self.name, self.seconds, self._too_long, self._died = name, seconds, too_long, died
        self._is_open = False
        self._server = _take_server(around)
        self._channel = self._server.open(spec)
        self._is_open = True

    def ask(
        self, do: str, tensors: Sequence[Tensor] = (), *, answering: Answering | None = None, **message: Any
    ) -> tuple[dict[str, Any], list[Tensor]]:
        """Send a request to the worker.

        Args:
            do: name of the request.
            tensors: tensors sent with the request.
            answering: function that answers requests which the worker sends before its reply, such as queries of a
                model. None if the worker may not send requests.
            **message: other contents of the request, as JSON types.

        Returns:
            The values and the tensors of the reply. The tensors are on the CPU. Their shapes and contents are not
            checked.

        Raises:
            ModelDied, AttackDied: if the worker ends, does not reply in time, or sends an invalid reply.
        """
        left, answer, given = self.seconds, {"do": do, **message}, tensors
        while True:
            start = time.monotonic()
            try:
                with suppress(BrokenPipeError, ConnectionError):  # the reason of its end can still be read
                    self._channel.send(answer, given, start + left)
                results, tensors = self._channel.receive(start + left)
            except TimeoutError:
                raise self._end(self._too_long) from None
            except (OSError, EOFError):
                raise self._end("ended its process") from None
            except ValueError as error:
                raise self.refuse(one_line(error)) from None
            except TypeError:  # a tensor cannot be sent
                raise
            except BaseException:  # Ctrl-C: otherwise the next request would receive this reply
                self.close()
                raise
            left -= time.monotonic() - start
            if results.get("do") == "ended":
                raise self._end(_describe_ended(results))
            if results.get("do") == "done":
                return results, tensors
            if results.get("do") not in ("forward", "backward") or answering is None:
                raise self.refuse("expected a request")
            answer, given = answering(results, tensors)

    def refuse(self, reason: str) -> ModelDied | AttackDied:
        """End the worker because of an invalid message.

        Args:
            reason: reason why the message is invalid.

        Returns:
            The error that the caller must raise.
        """
        return self._end(f"sent an invalid message ({reason}) and was stopped")

    def close(self) -> None:
        """End the worker and its child processes."""
        if self._is_open:
            self._is_open = False
            self._channel.close()
            self._server.settle()
            _give_back(self._server)

    def abandon(self) -> None:
        """End the worker without waiting. Finalisers use this method, because they may run at any time."""
        if self._is_open:
            self._is_open = False
            self._channel.close()
            _give_back(self._server)

    def _end(self, reason: str) -> ModelDied | AttackDied:
        self.close()
        return self._died(f"{self.name} {reason}")


def error_of(answer: Mapping[str, Any]) -> Exception:
    """Convert an error in a worker's reply to an exception of the same class. The text is shortened and cleaned."""
    kind = _BLAMABLE.get(str(answer["error"]), ModelFailed)
    error = kind.__new__(kind)
    Exception.__init__(error, clean_text(answer))
    return error


def clean_text(answer: Mapping[str, Any]) -> str:
    """Return the text of an error in a worker's reply as one line."""
    text = " ".join(str(answer.get("text", "")).split())
    return "".join(c if c.isprintable() else "?" for c in text)[:_LONGEST_TEXT]


def _describe_ended(message: Mapping[str, Any]) -> str:
    """Describe how a worker ended, from the report of the fork server.

    A worker could send a forged report. Such a worker is ended as well.
    """
    status, why = message.get("status"), message.get("why")
    if isinstance(why, str) and why:
        return one_line(why)
    if type(status) is not int:
        return "ended its process"
    if status >= 0:
        return f"ended its process (exit code {status})"
    name = signal.Signals(-status).name if -status in [*signal.Signals] else "unknown"
    memory = ", possibly out of memory" if -status in (signal.SIGKILL, signal.SIGABRT) else ""
    return f"was killed (signal {-status}, {name}{memory})"


def memory_limit_bytes(isolation: Isolation, device: str) -> int:
    """Return the memory limit of a worker in bytes.

    On a GPU it is 0 (no limit), because the driver reserves the whole address range.
    """
    if not device.startswith("cpu"):
        return 0
    if isolation.gibibytes is not None:
        return int(isolation.gibibytes * 2**30)
    return machine_bytes() * 4 // 5

"""Our end of a room: questions, how long they may take, and one line on how it ended if it did."""

import os
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .... import errors
from ....errors import DavylampError, ModelDied, ModelFailed
from ...user_code import one_line
from . import random_states
from .channel import receive_message, send_message
from .facts import checked_facts
from .isolating import Isolation, packages_of, read_files
from .sandbox import visible_parts
from .server_process import RoomLimits, ServerProcess, server_for
from .shared_bytes import SharedBytes, bytes_of

_ANSWER_BYTES = 1 << 20  # beside what a gradient takes
_LARGEST_ANSWER = 1 << 32
_LONGEST_TEXT = 600
_PROCESSES = 64  # of a stranger's model; a fourfold of that in threads
_BLAMABLE: Mapping[str, type[Exception]] = {
    **{kind.__name__: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)},
    "ValueError": ValueError,
    "TypeError": TypeError,
}


class Room:
    """A model by name in a process of its own, started when it is first asked.

    A room whose process has died stays dead, so that a model that hangs does so once in an attack; `renew` has it
    start anew. Of that process nothing is believed: what it sends is checked, and not unpickled.

    Args:
        name: of the model.
        device: where it computes.
        fold: see `load_model`.
        isolation: what it may use.
    """

    def __init__(self, name: str, device: str, fold: bool, isolation: Isolation):
        self.name, self.device, self.fold, self.isolation = name, device, fold, isolation
        self.facts: dict[str, Any] | None = None
        self._lock = threading.RLock()
        self._wire: socket.socket | None = None
        self._server: ServerProcess | None = None
        self._number = 0
        self._inward: SharedBytes | None = None
        self._outward: SharedBytes | None = None
        self._states: dict[str, Any] | None = None
        self._draws = False
        self._forgotten: list[int] = []
        self._opened = 0  # how often
        self.died = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return Room, (self.name, self.device, self.fold, self.isolation)

    def __del__(self) -> None:
        try:  # the interpreter may be ending, where other names than the built-in ones are gone
            self._leave(abandoned=True)
        except Exception:
            return

    def load(self) -> dict[str, Any]:
        """Start it, if it is not: what is known of its model.

        Raises:
            DavylampError: as `load_model`; `ModelDied` if its process ends.
        """
        with self._lock:
            if self._wire is None:
                self._open()
            assert self.facts is not None
            return self.facts

    def ask(self, do: str, tensors: Sequence[Tensor] = (), **values: Any) -> tuple[dict[str, Any], list[Tensor]]:
        """The answer to a question: values, and tensors on the CPU; both are what the room says, shapes and all.

        Raises:
            ModelDied: if the process of the model ends, or gives no answer in time, or none that is one.
            DavylampError, ValueError, TypeError: what was raised in there.
        """
        with self._lock:
            self.load()
            if self._draws and do == "forward":
                return self._ask_of_random(do, tensors, values)
            answer, results = self._ask(do, tensors, values, {})
            if answer.get("draws"):
                self._draws = True
                return self._ask_of_random(do, tensors, values)
            return answer, results

    def forget(self, graph: int) -> None:
        """Let the room drop an answer that nobody will ask gradients of; said with the next question."""
        self._forgotten.append(graph)  # from a finaliser, perhaps in the middle of a question

    @property
    def opened(self) -> int:
        """How often it was started: an answer of an earlier process has no gradients any more."""
        return self._opened

    def renew(self) -> None:
        """Make ready for another attack: a dead room may start again, and the model's tensors are as they were loaded.

        Raises:
            DavylampError: as `load`.
        """
        with self._lock:
            self.died = ""
            if self._wire is not None:
                self.ask("renew")

    def close(self) -> None:
        """End its process."""
        self._leave(abandoned=False)

    def _leave(self, *, abandoned: bool) -> None:
        with self._lock:
            wire, server = self._wire, self._server
            self._wire = None
            if wire is not None:
                wire.close()
            if server is not None and wire is not None:
                if abandoned:
                    server.abandon(self._number)
                else:
                    server.end_room(self._number, kill=True)
            for memory in (self._inward, self._outward):
                if memory is not None:
                    memory.close()
            self._inward = self._outward = None

    def refuse(self, reason: str) -> ModelDied:
        """End the room for what it sent: an error to raise."""
        with self._lock:
            return self._end(f"sent something that is no answer ({reason}) and was killed")

    def _ask_of_random(
        self, do: str, tensors: Sequence[Tensor], values: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[Tensor]]:
        """The answer of a model that draws numbers: from our generators, which then go on behind them.

        A stranger's model (`strict`) gets a seed from them instead, as it could set them to what it likes.
        """
        if self.isolation.isolate == "strict":
            seed = int(torch.randint(1 << 62, (1,), device="cpu"))
            return self._ask(do, tensors, values, {"seed": seed})
        answer, results = self._ask(do, tensors, values, {"states": random_states.read_states()})
        with self._checked():
            random_states.set_states(answer.get("states"))
        return answer, results

    def _ask(
        self, do: str, tensors: Sequence[Tensor], values: Mapping[str, Any], more: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[Tensor]]:
        if self.died:
            raise ModelDied(self.died)
        question: dict[str, Any] = {"do": do, "values": dict(values), **more}
        question["forget"], self._forgotten = self._forgotten, []
        grown = self._grow("inward", bytes_of(tensors)) | self._grow("outward", bytes_of(tensors) + _ANSWER_BYTES)
        question["tensors"] = [] if self._inward is None else self._inward.put(tensors)
        answer = self._exchange(question, grown)
        with self._checked():
            if "needs" in answer:
                needed = answer["needs"]
                if type(needed) is not int or not 0 < needed <= _LARGEST_ANSWER:
                    raise ValueError(f"more than {_LARGEST_ANSWER >> 30} GiB at once")
                answer = self._exchange({"do": "collect"}, self._grow("outward", needed))
            if "error" in answer:
                raise _error_of(answer)
            results = [] if self._outward is None else self._outward.take(answer.get("tensors", []))
        return answer, results

    def _exchange(self, question: Mapping[str, Any], grown: Mapping[str, SharedBytes]) -> dict[str, Any]:
        """Send a question and wait for the answer; whatever goes wrong with that ends the room."""
        assert self._wire is not None
        memory = {"memory": {name: each.size for name, each in grown.items()}}
        deadline = time.monotonic() + self.isolation.seconds
        try:
            self._wire.settimeout(self.isolation.seconds)
            send_message(self._wire, {**question, **memory}, [each.file for each in grown.values()])
            return receive_message(self._wire, deadline)
        except TimeoutError:
            raise self._end(f"gave no answer in {self.isolation.seconds:g} seconds and was killed") from None
        except (OSError, EOFError):
            raise self._end("") from None
        except ValueError as error:
            raise self._end(f"sent something that is no answer ({one_line(error)}) and was killed") from None
        except BaseException:  # Ctrl-C: the answer would be taken for that of the next question
            self.close()
            raise

    def _checked(self) -> "_Checked":
        return _Checked(self)

    def _grow(self, which: str, size: int) -> dict[str, SharedBytes]:
        """The shared memory of one direction, if it had to be made anew to hold so many bytes."""
        attribute = f"_{which}"
        known: SharedBytes | None = getattr(self, attribute)
        if known is not None and known.size >= size:
            return {}
        if known is None and not size:
            return {}
        if known is not None:
            known.close()
        made = SharedBytes.create(size)
        setattr(self, attribute, made)
        return {which: made}

    def _open(self) -> None:
        if self.died:
            raise ModelDied(self.died)
        strict = self.isolation.isolate == "strict"
        self._server = server_of(self.name, self.isolation)
        limits = limits_of(self.isolation, self.device)
        self._wire, self._number = self._server.open_room(limits, packages_of(self.name))
        self._opened += 1
        self._forgotten = []
        if self._states is None:
            self._states = random_states.read_states()
        values = {"name": self.name, "device": self.device, "fold": self.fold}
        values |= {"threads": torch.get_num_threads(), "folder": str(Path.cwd())}
        try:
            answer, _ = self._ask("load", (), values, {"states": self._states})
            with self._checked():
                facts = checked_facts(answer.get("facts"))
                if self.facts is None and not strict:
                    random_states.set_states(answer.get("states"))
        except ModelDied as error:
            raise ModelDied(f"{error} (while it was loaded)") from None
        except BaseException:
            self.close()
            raise
        if self.facts is not None and self.facts["digest"] != facts["digest"]:
            self.close()
            why = "its file was edited meanwhile, or what it makes is random (seed it)"
            raise ModelFailed(f"the model {self.name} is not what it was when its process started first: {why}")
        self.facts = facts

    def _end(self, reason: str) -> ModelDied:
        """End the process, and say why: as told, or as its exit code has it."""
        wire, server = self._wire, self._server
        if wire is None or server is None:
            return ModelDied(self.died)
        time.sleep(0 if reason else 0.02)  # a process that crashes closes its files a moment before it is gone
        status = server.end_room(self._number, kill=True)
        wire.close()
        self._wire = None
        for memory in (self._inward, self._outward):
            if memory is not None:
                memory.close()
        self._inward = self._outward = None
        self.died = f"the model {self.name} {reason or server.ended_for or describe_end(status)}"
        return ModelDied(self.died)


def server_of(name: str, isolation: Isolation) -> ServerProcess:
    """The process that rooms for a model are forked from.

    Raises:
        Unsupported: if there is to be a sandbox, and there is none.
    """
    strict = isolation.isolate == "strict"
    return server_for(os.getpid(), strict, visible_parts(read_files(name), strict=strict))


def limits_of(isolation: Isolation, device: str) -> RoomLimits:
    """What a room may use: a stranger's can't have any number of processes."""
    return RoomLimits(bytes_allowed(isolation, device), processes=_PROCESSES if isolation.isolate == "strict" else 0)


class _Checked:
    """A block in which a ValueError means that the room has sent what it must not: it is ended for that."""

    def __init__(self, room: Room):
        self.room = room

    def __enter__(self) -> None:
        """What is checked follows."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """End the room if what it sent cannot be."""
        if isinstance(error, _Raised):
            raise error.error from None
        if isinstance(error, (ValueError, TypeError)) and not isinstance(error, DavylampError):
            raise self.room._end(f"sent something that is no answer ({one_line(error)}) and was killed") from None


class _Raised(Exception):
    """Carries what was raised in the room past the check of its answer."""

    def __init__(self, error: Exception):
        super().__init__()
        self.error = error


def _error_of(answer: Mapping[str, Any]) -> _Raised:
    """What was raised in the room, as the same error here; its text is cut and cleaned."""
    kind = _BLAMABLE.get(str(answer["error"]), ModelFailed)
    text = " ".join(str(answer.get("text", "")).split())
    error = kind.__new__(kind)
    Exception.__init__(error, "".join(c if c.isprintable() else "?" for c in text)[:_LONGEST_TEXT])
    return _Raised(error)


def describe_end(status: int | None) -> str:
    """How a process has ended, from its exit code (below 0: a signal); None: nobody knows."""
    if status is None:
        return "ended its process"
    if status >= 0:
        return f"ended its process (exit code {status})"
    name = signal.Signals(-status).name if -status in [*signal.Signals] else "unknown"
    memory = ", perhaps as memory ran out" if -status in (signal.SIGKILL, signal.SIGABRT) else ""
    return f"was killed (signal {-status}, {name}{memory})"


def bytes_allowed(isolation: Isolation, device: str) -> int:
    """Of memory that a room may ask for; 0: as many as there are, for a GPU, whose driver reserves its whole range."""
    if not device.startswith("cpu"):
        return 0
    if isolation.gibibytes is not None:
        return int(isolation.gibibytes * 2**30)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 4 // 5

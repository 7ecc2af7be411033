"""Our end of an attack's room: it gets images, asks about others through us, hands images back; nothing is believed."""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .... import errors
from ....errors import AttackDied, AttackFailed, DavylampError, ModelFailed, Unsupported
from ...attack import Implementation
from ...models.room import random_states
from ...models.room.channel import receive_message, send_message
from ...models.room.isolating import Isolation
from ...models.room.plain_values import to_plain
from ...models.room.room import bytes_allowed, describe_end
from ...models.room.sandbox import visible_parts
from ...models.room.server_process import RoomLimits, server_for
from ...models.room.shared_bytes import SharedBytes, bytes_of
from ...user_code import one_line
from .answering import Answering
from .described import GivenApart, row_described

_ROOM = f"{__package__}.guest"
_SLOW: Mapping[str, tuple[str, ...]] = {  # what a file mentions -> what is imported for all of its visits
    "torchattacks": ("torchattacks",),
    "foolbox": ("foolbox",),
    "art": ("art.attacks.evasion", "art.estimators.classification"),
    "torchvision": ("torchvision",),
}
_LARGEST_QUESTION = 1 << 30  # bytes of images that are asked about at once
_LARGEST_FILE = 1 << 27
_PROCESSES = 32
_LINE = re.compile(r"[A-Za-z_]\w{0,60}")
_Answering = Callable[[dict[str, Any], list[Tensor]], tuple[dict[str, Any], list[Tensor]]]


def row_apart(name: str, path: Path, isolation: Isolation) -> Implementation:
    """The row of "path/to/file.py:NAME", whose file is loaded in a process of its own only.

    Raises:
        Unavailable, UnknownName, ModelFailed, InvalidInput: as `row.implementation_from_file`.
        AttackDied: if that process ends, or says what cannot be.
    """
    if not path.is_file():
        raise errors.Unavailable(f"expected a Python file with an attack, found none at {path}")
    with AttackVisit(name, path, isolation) as visit:
        answer, _ = visit.ask("describe", path=str(path), where=name, folder=str(Path.cwd()))
        try:
            return row_described(answer.get("facts"), name, path, isolation)
        except (ValueError, TypeError) as error:
            raise visit.refuse(one_line(error)) from None


def attack_apart(
    given: GivenApart, model: nn.Module, call: tuple[Tensor, Tensor, Any, Tensor | None], words: Mapping[str, Any]
) -> Tensor:
    """What a user's attack returns, from a process of its own.

    Args:
        given: the attack.
        model: asked for every pass that the attack makes: it counts them, and ends what goes on too long.
        call: inputs (n, C, H, W), labels (n,), the threat model, and targets (n,) or None.
        words: arguments in the attack's words.

    Raises:
        AttackDied: if its process ends, takes too long, or sends what is no answer.
        AttackFailed: if it raises something; the name of the class is that of what it raised.
    """
    inputs, labels, threat_model, targets = call
    if threat_model.reach is not None:
        raise Unsupported(f"{given.where} takes one radius for all images in a process of its own")
    tensors: list[Tensor] = []
    cpu = [None if each is None else each.detach().cpu() for each in (inputs, labels, targets)]
    values: dict[str, Any] = {"given": to_plain([*cpu, dict(words)], tensors)}
    values |= {"path": str(given.path), "where": given.where, "folder": str(Path.cwd())}
    values |= {"digest": given.identity.digest, "threads": torch.get_num_threads()}
    values |= {"norm": threat_model.norm, "epsilon": threat_model.epsilon, "targeted": threat_model.targeted}
    dtype = next((each.dtype for each in model.parameters() if each.is_floating_point()), torch.float32)
    values |= {"dtype": str(dtype).removeprefix("torch."), "classes": int(getattr(model, "num_classes", 0))}
    values["states"] = random_states.read_states()
    with AttackVisit(given.where, given.path, given.isolation) as visit:
        answers = Answering(model, inputs, visit, bytes_allowed(given.isolation, "cpu") // 2)
        _, returned = visit.ask("attack", tensors, answers.answer, most=4 * bytes_of(cpu[:1]) + (1 << 16), **values)  # type: ignore[arg-type]
        if len(returned) != 1:
            raise visit.refuse(f"expected images, got {len(returned)} tensors")
    return returned[0].to(inputs.device)


class AttackVisit:
    """One use of an attack in a new process, which is gone afterwards with all that it has started.

    Args:
        name: of the attack, for messages.
        path: of its file.
        isolation: what the process may use; its seconds are those that it computes by itself.
    """

    def __init__(self, name: str, path: Path, isolation: Isolation):
        self.name, self._path, self._isolation = name, path, isolation
        strict = isolation.isolate == "strict"
        visible = visible_parts([path], strict=strict)
        self._server = server_for(os.getpid(), strict, visible, guest=str(path.resolve()))
        self._memory: dict[str, SharedBytes] = {}
        self._left = isolation.seconds

    def __enter__(self) -> "AttackVisit":
        self._server.turn.acquire()
        try:
            limits = RoomLimits(bytes_allowed(self._isolation, "cpu"), _LARGEST_FILE, _PROCESSES)
            packages = [_ROOM, *_packages_in(self._path)]
            self._wire, self._number = self._server.open_room(limits, packages, f"{_ROOM}:serve_attack")
        except BaseException:
            self._server.turn.release()
            raise
        self._open = True
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._close()
        finally:
            self._server.turn.release()

    def ask(
        self,
        do: str,
        tensors: Sequence[Tensor] = (),
        answering: _Answering | None = None,
        most: int = 0,
        **values: Any,
    ) -> tuple[dict[str, Any], list[Tensor]]:
        """What the room has in the end; on the way it asks, and `answering` answers.

        Args:
            do: what is asked for.
            tensors: that go along.
            answering: from a question and its tensors to an answer and its tensors; None: it may not ask.
            most: bytes of tensors that the room may hand over in the end.
            **values: plain values.

        Raises:
            AttackDied: see `AttackVisit`.
            AttackFailed, DavylampError: what was raised in there.
        """
        self._send({"do": do, "values": values}, tensors)
        while True:
            message = self._receive()
            kind, allowed = message.get("do"), most if answering is None else max(most, _LARGEST_QUESTION)
            if kind == "needs":
                self._grow_outward(message.get("bytes"), allowed)
                continue
            results = self._taken(message)
            if kind == "done":
                if "error" in message:
                    raise _error_of(message, loading=answering is None)
                return message, results
            if kind not in ("forward", "backward") or answering is None:
                raise self.refuse("expected a question")
            answer, given = answering(message, results)
            self._send(answer, given)

    def refuse(self, reason: str) -> AttackDied:
        """End the room for what it sent: an error to raise."""
        return self._end(f"sent something that is no answer ({reason}) and was killed")

    def _grow_outward(self, size: Any, allowed: int) -> None:
        if type(size) is not int or not 0 < size <= allowed:
            got = f"{size / 2**30:.3g} GiB" if type(size) is int else "no number"
            raise self.refuse(f"it announced {got}, expected at most {max(allowed, 1) / 2**30:.3g} GiB")
        self._send({}, (), outward=size)

    def _send(self, message: Mapping[str, Any], tensors: Sequence[Tensor], outward: int = 0) -> None:
        """A message, with the shared memory of a direction where that has to be larger."""
        sizes = {"inward": bytes_of(tensors), "outward": outward}
        grown = {name: self._made(name, size) for name, size in sizes.items() if size > self._size(name)}
        described = self._memory["inward"].put(tensors) if tensors else []
        whole = {**message, "tensors": described, "memory": {name: each.size for name, each in grown.items()}}
        try:
            self._wire.settimeout(max(1e-3, self._left))
            send_message(self._wire, whole, [each.file for each in grown.values()])
        except TimeoutError:
            raise self._end(self._too_long) from None
        except OSError:
            raise self._end("") from None

    def _size(self, name: str) -> int:
        return self._memory[name].size if name in self._memory else 0

    def _made(self, name: str, size: int) -> SharedBytes:
        if name in self._memory:
            self._memory[name].close()
        self._memory[name] = SharedBytes.create(size)
        return self._memory[name]

    @property
    def _too_long(self) -> str:
        return f"took more than {self._isolation.seconds:g} seconds by itself and was killed (--time-limit)"

    def _receive(self) -> dict[str, Any]:
        start = time.monotonic()
        try:
            return receive_message(self._wire, start + self._left)
        except TimeoutError:
            raise self._end(self._too_long) from None
        except ValueError as error:
            raise self.refuse(one_line(error)) from None
        except (OSError, EOFError):
            raise self._end("") from None
        finally:
            self._left -= time.monotonic() - start

    def _taken(self, message: Mapping[str, Any]) -> list[Tensor]:
        described = message.get("tensors")
        try:
            if not described:
                return []
            if "outward" not in self._memory:
                raise ValueError("expected tensors in the shared memory")
            return self._memory["outward"].take(described)
        except (ValueError, TypeError, RuntimeError) as error:
            raise self.refuse(one_line(error)) from None

    def _end(self, reason: str) -> AttackDied:
        """End the process and say why: as told, or as its exit code has it."""
        time.sleep(0 if reason else 0.02)  # a process that crashes closes its files a moment before it is gone
        status = self._close()
        return AttackDied(f"{self.name} {reason or self._server.ended_for or describe_end(status)}")

    def _close(self) -> int | None:
        if not self._open:
            return None
        self._open = False
        self._wire.close()
        for memory in self._memory.values():
            memory.close()
        return self._server.end_room(self._number, kill=True)


def _packages_in(path: Path) -> list[str]:
    """Slow modules that a file needs."""
    text = path.read_bytes()
    used = [name for name in _SLOW if re.search(rb"\b(?:import|from)\s+" + name.encode() + rb"\b", text)]
    return [module for name in used for module in _SLOW[name]]


def _error_of(message: Mapping[str, Any], *, loading: bool) -> Exception:
    """What was raised in the room, as an error here; what an attack raises is never the model's fault."""
    name, text = str(message.get("error")), str(message.get("text", ""))
    text = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))[:600]
    kind = getattr(errors, name, None)
    if loading:
        known = isinstance(kind, type) and issubclass(kind, DavylampError) and message.get("ours") is True
        error = (kind if known else ModelFailed).__new__(kind if known else ModelFailed)  # type: ignore[arg-type]
        Exception.__init__(error, text if known else one_line(f"{name}: {text}"))
        return error
    return type(name if _LINE.fullmatch(name) else "Exception", (AttackFailed,), {})(text)

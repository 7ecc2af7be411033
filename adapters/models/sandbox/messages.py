"""JSON messages of limited size between this process and a worker, with tensors in shared memory.

Nothing is unpickled. Open files (for the shared memory) are passed to a worker, and never accepted from one.
"""

import json
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from .shared_bytes import SharedBytes, bytes_of

_HEAD = struct.Struct("<4sI")
_MARK = b"room"
_LONGEST = 1 << 20
_MOST_FILES = 4


def send_message(wire: socket.socket, message: Mapping[str, Any], files: Sequence[int] = ()) -> None:
    """Send a message together with open files.

    Raises:
        OSError: if the connection is closed.
    """
    body = json.dumps(message).encode()
    data = memoryview(_HEAD.pack(_MARK, len(body)) + body)
    sent = socket.send_fds(wire, [data], list(files)) if files else wire.send(data)
    wire.sendall(data[sent:])


def receive_message(wire: socket.socket, deadline: float | None = None) -> dict[str, Any]:
    """Receive the next message of an untrusted worker, and reject files sent with it.

    Args:
        wire: the socket.
        deadline: latest arrival, as a value of `time.monotonic()`. None to wait without limit.

    Raises:
        TimeoutError: if no message arrives in time.
        EOFError: if the other side has closed the connection.
        ValueError: if the message is not valid.
    """
    return _read(_receive(wire, _HEAD.size, deadline), wire, deadline)


def receive_with_files(wire: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Receive the next message in a worker, with the files sent with it.

    Raises:
        EOFError, ValueError: as for `receive_message`.
    """
    head, files, _, _ = socket.recv_fds(wire, _HEAD.size, _MOST_FILES)
    if not head:
        raise EOFError
    head += _receive(wire, _HEAD.size - len(head), None)
    return _read(head, wire, None), files


def _read(head: bytes, wire: socket.socket, deadline: float | None) -> dict[str, Any]:
    mark, length = _HEAD.unpack(head)
    if mark != _MARK or length > _LONGEST:
        raise ValueError("expected a message, got other bytes")
    try:
        message = json.loads(_receive(wire, length, deadline))
    except RecursionError as error:
        raise ValueError("expected a message, got one that is nested too deeply") from error
    if not isinstance(message, dict):
        raise ValueError(f"expected a message, got a {type(message).__name__}")
    return message


def _receive(wire: socket.socket, length: int, deadline: float | None) -> bytes:
    parts = []
    while length:
        if deadline is not None:
            wire.settimeout(max(1e-3, deadline - time.monotonic()))
        part = wire.recv(min(length, 1 << 16))
        if not part:
            raise EOFError
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


class Channel:
    """One end of the connection between this process and a worker, for messages and for tensors in shared memory.

    Only the parent process allocates shared memory, and passes it to the worker. It accepts only bytes from a worker.

    Args:
        wire: the socket, which the channel owns and closes.
    """

    def __init__(self, wire: socket.socket):
        self.wire = wire
        self._memory: dict[str, SharedBytes] = {}  # "inward": tensors to the worker; "outward": from it

    def close(self) -> None:
        """Close the socket and release the memory. A worker ends when its socket is closed."""
        self.wire.close()
        while self._memory:
            self._memory.popitem()[1].close()

    def _size(self, name: str) -> int:
        return self._memory[name].size if name in self._memory else 0

    def _replace(self, name: str, memory: SharedBytes) -> None:
        if name in self._memory:
            self._memory[name].close()
        self._memory[name] = memory


class OurChannel(Channel):
    """The parent process's end of a channel. It checks everything that it receives."""

    def send(
        self, message: Mapping[str, Any], tensors: Sequence[Tensor] = (), *, outward: int = 0, seconds: float
    ) -> None:
        """Send a message, and reserve `outward` bytes of shared memory for tensors in the reply.

        Raises:
            TypeError: if a tensor has a dtype that cannot be sent. Nothing is sent then.
            TimeoutError, OSError: if the worker no longer reads.
        """
        sizes = {"inward": bytes_of(tensors), "outward": outward}
        made = {name: SharedBytes.create(size) for name, size in sizes.items() if size > self._size(name)}
        described = made.get("inward", self._memory.get("inward")).put(tensors) if tensors else []  # type: ignore[union-attr]
        for name, memory in made.items():
            self._replace(name, memory)
        memory = {name: each.size for name, each in made.items()}
        self.wire.settimeout(max(1e-3, seconds))
        whole = {**message, "tensors": described, "memory": memory}
        send_message(self.wire, whole, [each.file for each in made.values()])

    def receive(self, deadline: float, most: int) -> tuple[dict[str, Any], list[Tensor]]:
        """Receive the next message with copies of its tensors.

        Args:
            deadline: latest arrival, as a value of `time.monotonic()`.
            most: largest total size of the tensors, in bytes.

        Raises:
            TimeoutError: if no message arrives in time.
            EOFError, OSError: if the other side has closed the connection.
            ValueError, TypeError, RuntimeError: if the message is not valid.
        """
        while (message := receive_message(self.wire, deadline)).get("do") == "needs":
            size = message.get("bytes")
            if type(size) is not int or not 0 < size <= most:
                announced = f"{size / 2**30:.3g} GiB" if type(size) is int else "no number"
                raise ValueError(f"it announced {announced}, expected at most {max(most, 1) / 2**30:.3g} GiB")
            self.send({}, outward=size, seconds=deadline - time.monotonic())
        described = message.get("tensors")
        if described and "outward" not in self._memory:
            raise ValueError("expected tensors in the shared memory")
        return message, self._memory["outward"].take(described) if described else []


class WorkerChannel(Channel):
    """The worker's end of a channel. It trusts the parent process."""

    def send(self, message: Mapping[str, Any], tensors: Sequence[Tensor] = ()) -> None:
        """Send a message. If its tensors need more shared memory, request it from the parent process first."""
        if (needed := bytes_of(tensors)) > self._size("outward"):
            send_message(self.wire, {"do": "needs", "bytes": needed})
            self.receive()
        described = self._memory["outward"].put(tensors) if self._size("outward") and tensors else []
        send_message(self.wire, {**message, "tensors": described})

    def receive(self) -> tuple[dict[str, Any], list[Tensor]]:
        """Receive the next message and its tensors.

        Raises:
            EOFError: when the other side closes the connection.
        """
        message, files = receive_with_files(self.wire)
        for (name, size), file in zip(message.get("memory", {}).items(), files, strict=True):
            self._replace(name, SharedBytes(file, size))
        described = message.get("tensors")
        return message, self._memory["inward"].take(described) if described else []

"""JSON messages of limited size between this process and a worker, with tensors in shared memory.

Messages are never unpickled. Open files can be sent only to a fork server, with a request for a worker. Files from a
fork server or worker are never accepted.
"""

import json
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from .shared_bytes import SharedBytes

_HEAD = struct.Struct("<4sI")
_MARK = b"room"
_LONGEST = 1 << 20
_MOST_FILES = 3  # a worker's socket, and its memory for either direction


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
    """Receive the next message of a process that is not trusted. Files that arrive with the message are rejected.

    Args:
        wire: the socket.
        deadline: latest arrival, as a value of `time.monotonic()`. None to wait without limit.

    Raises:
        TimeoutError: if no message arrives in time.
        EOFError: if the other process has closed the connection.
        ValueError: if the message is not valid.
    """
    return _read(_receive(wire, _HEAD.size, deadline), wire, deadline)


def receive_with_files(wire: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Receive the next message in a fork server, with the open files that arrive with the message.

    Raises:
        EOFError: if the other process has closed the connection.
        ValueError: if the message is not valid.
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
    """One end of the connection between this process and a worker. All received messages are checked.

    Args:
        wire: the socket, which the channel owns and closes. A worker ends when its socket is closed.
        sent: memory for the tensors of messages that are sent from this end.
        received: memory for the tensors of messages that are received here.
    """

    def __init__(self, wire: socket.socket, sent: SharedBytes, received: SharedBytes):
        self.wire, self._sent, self._received = wire, sent, received

    @property
    def files(self) -> list[int]:
        """File descriptors of the shared memory, in the order that a fork server expects."""
        return [self._sent.file, self._received.file]

    def send(self, message: Mapping[str, Any], tensors: Sequence[Tensor] = (), deadline: float | None = None) -> None:
        """Send a message with copies of tensors.

        Args:
            message: the message, as JSON types.
            tensors: tensors to send.
            deadline: latest time, as a value of `time.monotonic()`. None to wait without limit.

        Raises:
            TypeError: if a tensor has a dtype that cannot be sent. Nothing is sent then.
            TimeoutError, OSError: if the other process no longer reads.
        """
        described = self._sent.put(tensors)
        if deadline is not None:
            self.wire.settimeout(max(1e-3, deadline - time.monotonic()))
        send_message(self.wire, {**message, "tensors": described})

    def receive(self, deadline: float | None = None) -> tuple[dict[str, Any], list[Tensor]]:
        """Receive the next message with copies of its tensors.

        Raises:
            TimeoutError, EOFError, OSError: as for `receive_message`.
            ValueError: if the message is not valid.
        """
        message = receive_message(self.wire, deadline)
        return message, self._received.take(message.get("tensors", []))

    def close(self) -> None:
        """Close the socket and release the memory."""
        self.wire.close()
        self._sent.close()
        self._received.close()

"""Messages through the wall: a length and a JSON object, of limited size; files go along only on the way in."""

import json
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

_HEAD = struct.Struct("<4sI")
_MARK = b"room"
_LONGEST = 1 << 20
_MOST_FILES = 4


def send_message(wire: socket.socket, message: Mapping[str, Any], files: Sequence[int] = ()) -> None:
    """Send a message, and open files with it.

    Raises:
        OSError: if nobody listens any more.
    """
    body = json.dumps(message).encode()
    data = memoryview(_HEAD.pack(_MARK, len(body)) + body)
    sent = socket.send_fds(wire, [data], list(files)) if files else wire.send(data)
    wire.sendall(data[sent:])


def receive_message(wire: socket.socket, deadline: float | None = None) -> dict[str, Any]:
    """The next message of a room, which may say anything: files that come with it are not taken.

    Args:
        wire: where it comes from.
        deadline: of `time.monotonic()`; None: wait for ever.

    Raises:
        TimeoutError: if it is not here in time.
        EOFError: if the other side has closed.
        ValueError: if it is no message.
    """
    return _read(_receive(wire, _HEAD.size, deadline), wire, deadline)


def receive_with_files(wire: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next message of whoever opened the room, with the files that come along.

    Raises:
        EOFError, ValueError: as `receive_message`.
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

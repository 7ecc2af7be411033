"""JSON messages of limited size between this process and a worker, with tensors in shared memory.

Messages are never unpickled. Open files can be sent only to a fork server, with a request for a worker. Files from a
fork server or worker are never accepted.

The shared memory has no name, so it is freed when both processes end or are killed. Parts that are never written take
no space. On Linux the memory is sealed, so that it cannot be shortened while it is read. The descriptions of its
tensors are validated before they are read.
"""

import json
import math
import mmap
import os
import socket
import struct
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeGuard

import torch
from torch import Tensor

_ALIGNMENT = 64
_MOST_DIMENSIONS = 8
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool)
}
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


class SharedBytes:
    """Memory that two processes share, with its file descriptor.

    Args:
        file: file descriptor, which this object owns and closes.
    """

    def __init__(self, file: int):
        self.file, self._map = file, mmap.mmap(file, 0)
        self.size = len(self._map)

    @classmethod
    def create(cls, size: int) -> "SharedBytes":
        """Reserve shared memory.

        Args:
            size: size in bytes. A larger size than an eighth of this process's address space is reduced to it.
        """
        import resource  # not available on some systems

        space, _ = resource.getrlimit(resource.RLIMIT_AS)
        size = size if space == resource.RLIM_INFINITY else min(size, space // 8)
        if not hasattr(os, "memfd_create"):  # not Linux
            with tempfile.TemporaryFile() as file:
                os.ftruncate(file.fileno(), size)
                return cls(os.dup(file.fileno()))
        import fcntl

        descriptor = os.memfd_create("davylamp", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, size)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        return cls(descriptor)

    def close(self) -> None:
        """Release the memory."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1
            with suppress(BufferError):  # still referenced
                self._map.close()

    def put(self, tensors: Sequence[Tensor]) -> list[dict[str, Any]]:
        """Write tensors into the memory, one after the other.

        Tensors for which there is no space are not written. The receiving process sees from the descriptions that the
        tensors are too large, and refuses the message.

        Args:
            tensors: tensors to write.

        Returns:
            A description of each tensor, as JSON types: dtype, shape, strides and offset. The strides are included
            because they decide the order of summation, and thus the rounding, in later computations.

        Raises:
            TypeError: if a tensor has an unsupported dtype.
        """
        described, offset = [], 0
        for tensor in tensors:
            strides = torch.empty_like(tensor, device="meta").stride()
            name = str(tensor.dtype).removeprefix("torch.")
            if name not in _DTYPES:
                raise TypeError(f"expected a tensor of {', '.join(_DTYPES)}, got {name}")
            shape, start = tuple(tensor.shape), offset
            offset += _aligned(tensor.numel() * tensor.element_size())
            described.append({"dtype": name, "shape": shape, "strides": strides, "offset": start})
            if tensor.numel() and offset <= self.size:
                self._view(tensor.dtype, shape, strides, start).copy_(tensor.detach())
        return described

    def take(self, described: Any) -> list[Tensor]:
        """Return copies of tensors in the memory.

        Args:
            described: descriptions of the tensors, as returned by `put` in the other process.

        Raises:
            ValueError: if a description is invalid.
        """
        if not isinstance(described, list) or len(described) > 1 << 14:
            raise ValueError("the descriptions of the tensors are not a list, or there are too many")
        checked = [_checked(each) for each in described]
        size = sum(_aligned(math.prod(shape) * dtype.itemsize) for dtype, shape, _, _ in checked)
        if size > self.size:
            raise ValueError(f"expected tensors of at most {self.size / 2**30:.3g} GiB, got {size / 2**30:.3g} GiB")
        return [self._take(*each) for each in checked]

    def _take(self, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Tensor:
        if offset + math.prod(shape) * dtype.itemsize > self.size:
            raise ValueError("a tensor exceeds the shared memory")
        copy = torch.empty_strided(shape, strides, dtype=torch.uint8 if dtype == torch.bool else dtype, device="cpu")
        if copy.numel():
            copy.copy_(self._view(copy.dtype, shape, strides, offset))
        return copy != 0 if dtype == torch.bool else copy

    def _view(self, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int], offset: int) -> Tensor:
        flat = torch.frombuffer(self._map, dtype=dtype, count=math.prod(shape), offset=offset)
        return flat.as_strided(tuple(shape), tuple(strides))


def bytes_of(tensors: Sequence[Tensor]) -> int:
    """Return the size of tensors in bytes."""
    return sum(_aligned(tensor.numel() * tensor.element_size()) for tensor in tensors)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _checked(described: Any) -> tuple[torch.dtype, tuple[int, ...], tuple[int, ...], int]:
    """Validate the description of a tensor in shared memory.

    Returns:
        The dtype, shape, strides and offset in bytes.
    """
    if not isinstance(described, dict) or described.get("dtype") not in [*_DTYPES]:
        raise ValueError("a tensor has an unsupported dtype")
    dtype = _DTYPES[described["dtype"]]
    shape, strides, offset = described.get("shape"), described.get("strides"), described.get("offset")
    if not (_are_counts(shape) and _are_counts(strides) and len(shape) == len(strides) and _are_counts([offset])):
        raise ValueError("the shape, strides or offset of a tensor are not whole numbers")
    offset, count = int(offset or 0), math.prod(shape)
    reach = sum((side - 1) * stride for side, stride in zip(shape, strides, strict=True))
    if count and (reach >= count or offset % dtype.itemsize):
        raise ValueError("the strides or the offset of a tensor are invalid")
    return dtype, tuple(shape), tuple(strides), offset


def _are_counts(values: Any) -> TypeGuard[list[int]]:
    return (
        isinstance(values, list)
        and len(values) <= _MOST_DIMENSIONS
        and all(type(value) is int and 0 <= value < 1 << 40 for value in values)
    )


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

"""Memory shared by two processes, and the tensors in it, whose descriptions are validated before they are read.

The memory has no name, so it is freed when both processes end or are killed. Parts that are never written take no
space. On Linux the memory is sealed, so that it cannot be shortened while it is read.
"""

import math
import mmap
import os
import tempfile
from collections.abc import Sequence
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

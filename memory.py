"""Memory that a process keeps once it had it: what a model's layers free and ask for again costs no page faults."""

import ctypes
import gc
import os
import sys
from functools import cache

# mallopt's parameters, as in glibc's malloc.h
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_NEVER = -1
_LARGEST = (1 << 30, 1 << 25)  # bytes; older glibc takes no more than the second
_CHOSEN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_")


@cache
def keep_freed_memory() -> bool:
    """Let this process keep the memory that tensors free on a CPU, up to 1 GB each, for the tensors that follow.

    By default glibc gives every block above 32 MB back at once, and the top of its heap: each layer of each step then
    asks the system for pages anew, which takes as long as the convolutions themselves (`benchmarks/speed/models.py`).
    A process holds more at most: 2.4 GB instead of 1.9 in an evaluation of 1000 images of 224 x 224 by a small CNN. All
    threads share one heap, as each would keep what it freed in its own. `give_memory_back` gives back what is free.

    Returns:
        Whether it was done: not where the C library is not glibc, and not where the environment sets malloc's
        thresholds (`MALLOC_TRIM_THRESHOLD_` and such, or `glibc.malloc` in `GLIBC_TUNABLES`).
    """
    if not sys.platform.startswith("linux") or _chosen_by_user():
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    mallopt(_ARENA_MAX, 1)
    # The trim threshold alone would fix the other at 128 KB, far slower than the default.
    return any(mallopt(_MMAP_THRESHOLD, size) for size in _LARGEST) and bool(mallopt(_TRIM_THRESHOLD, _NEVER))


def give_memory_back() -> None:
    """Give the system what this process keeps and does not use, as between two tasks of a worker among many."""
    if keep_freed_memory.cache_info().currsize and keep_freed_memory():
        ctypes.CDLL(None).malloc_trim(0)


def end_quickly() -> None:
    """Spare a process that ends the search for cycles among all that it holds, half a second after a table.

    What nobody refers to is freed all the same, and what was registered for the exit runs; objects in cycles go with
    the process.
    """
    gc.freeze()


def _chosen_by_user() -> bool:
    return any(name in os.environ for name in _CHOSEN) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")

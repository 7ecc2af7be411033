"""Memory that a process keeps once it had it: what a model's layers free and ask for again costs no page faults."""

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

# mallopt's parameters, as in glibc's malloc.h
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_NEVER = -1
_LARGEST = (1 << 30, 1 << 25)  # bytes; older glibc takes no more than the second
_PLENTY = 0.5  # share of the memory that is left
# By the controller that /proc/self/cgroup names ("" is version 2): where its groups lie, the files that have the limit
# and what is used, and how memory.stat calls the files in it.
_GROUPS = {
    "": ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    "memory": ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
_CHOSEN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_")


@cache
def keep_freed_memory() -> bool:
    """Let this process keep the memory that tensors free on a CPU, up to 1 GB each, for the tensors that follow.

    By default glibc gives every block above 32 MB back at once, and the top of its heap: each layer of each step then
    asks the system for pages anew, which takes as long as the convolutions themselves (`tools/speed/models.py`).
    A process holds more at most: 2.9 GB instead of 1.9 in an evaluation of 1000 images of 224 x 224 by a small CNN. All
    threads share one heap, as each would keep what it freed in its own. `release_unused_memory` gives back what is free.

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


def release_unused_memory() -> None:
    """Give the system what this process keeps and does not use."""
    if keep_freed_memory.cache_info().currsize and keep_freed_memory():
        ctypes.CDLL(None).malloc_trim(0)


def release_unused_memory_if_low() -> None:
    """Give back what this process keeps where others may need it, as between two tasks of a worker among many.

    That is where less than half of the memory is left. Elsewhere it would be asked for anew at the next pass, the first
    one of a model then taking more than twice as long.
    """
    if available_memory_fraction() < _PLENTY:
        release_unused_memory()


def available_memory_fraction(system: Path = Path("/")) -> float:
    """Share, from 0 to 1, of this machine's memory that is available; of its control group's where less of that is.

    Files that the system holds in memory count as available. 0 where nothing is known: not on Linux.

    Args:
        system: the root of the file system that is read.
    """
    try:
        lines = (system / "proc/meminfo").read_text(encoding="ascii").splitlines()
        known = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        shares = [known["MemAvailable"] / known["MemTotal"]]
    except (OSError, ValueError, LookupError, ZeroDivisionError):
        return 0.0
    with suppress(OSError):
        for line in (system / "proc/self/cgroup").read_text(encoding="utf-8", errors="surrogateescape").split("\n"):
            if line.count(":") >= 2:  # a name may have more of them, and any bytes
                shares += _left_of_groups(system, *line.split(":", 2)[1:])
    return max(0.0, min(shares))


def _left_of_groups(system: Path, controller: str, name: str) -> Iterator[float]:
    """Share that is left of the limit of a control group and of each that it is in; nothing where there is no limit."""
    if controller not in _GROUPS:
        return
    root, limit, used, cached = _GROUPS[controller]
    folder = Path(name.lstrip("/"))
    for group in (folder, *folder.parents):  # a container shows its own as the root of all, whatever it is called
        with suppress(OSError, ValueError, KeyError, ZeroDivisionError):
            most, now = (int((system / root / group / file).read_text(encoding="ascii")) for file in (limit, used))
            counts = (system / root / group / "memory.stat").read_text(encoding="ascii").splitlines()
            yield 1 - (now - int(dict(line.split() for line in counts)[cached])) / most


def skip_final_gc() -> None:
    """Spare a process that ends the search for cycles among all that it holds, half a second after a table.

    To be registered for the exit (`atexit`): a process that goes on would never search what it holds now.
    What nobody refers to is freed all the same, and what was registered for the exit runs; objects in cycles go with
    the process.
    """
    gc.freeze()


def _chosen_by_user() -> bool:
    return any(name in os.environ for name in _CHOSEN) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")

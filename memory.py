"""Makes a process keep the memory of freed tensors, which makes models on a CPU faster."""

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
_LARGEST = (1 << 30, 1 << 25)  # bytes; older glibc accepts no more than the second
_PLENTY = 0.5  # proportion of available memory
# By controller in /proc/self/cgroup ("" is version 2): root of its groups, and the files with the limit
_GROUPS = {
    "": ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    "memory": ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
_CHOSEN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_")


@cache
def keep_freed_memory() -> bool:
    """Make this process keep the CPU memory of freed tensors, up to 1 GB per tensor, for later tensors.

    By default, glibc immediately returns freed blocks above 32 MB to the system. Each layer of a model then requests
    its memory again in each step, which can take as long as the convolutions (`tools/speed/models.py`).

    The peak memory use rises, for example from 1.9 to 2.9 GB in an evaluation of 1000 images of 224 x 224 with a small
    CNN. `release_unused_memory` returns free memory to the system. All threads share one heap, because otherwise each
    thread would keep freed memory of its own.

    Returns:
        Whether the setting was changed. It is not changed if the C library is not glibc. It is also not changed if the
        environment sets malloc's thresholds (`MALLOC_TRIM_THRESHOLD_` and similar, or `glibc.malloc` in
        `GLIBC_TUNABLES`).
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
    """Give unused memory of this process back to the system."""
    if keep_freed_memory.cache_info().currsize and keep_freed_memory():
        ctypes.CDLL(None).malloc_trim(0)


def release_unused_memory_if_low() -> None:
    """Give unused memory back to the system if less than half of the machine's memory is available.

    Workers call this function between two tasks. If enough memory is available, the memory is kept. Otherwise the next
    pass would have to request the memory again, and would take more than twice as long.
    """
    if available_memory_fraction() < _PLENTY:
        release_unused_memory()


def available_memory_fraction(system: Path = Path("/")) -> float:
    """Return the proportion of memory that is available, from 0 to 1. 0 if unknown, as on systems other than Linux.

    The proportions are computed for the machine and for the memory limits of the process's control groups. The smallest
    one is returned. Memory in which the system caches files counts as available.

    Args:
        system: root of the file system to read.
    """
    try:
        lines = (system / "proc/meminfo").read_text(encoding="ascii").splitlines()
        known = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        shares = [known["MemAvailable"] / known["MemTotal"]]
    except (OSError, ValueError, LookupError, ZeroDivisionError):
        return 0.0
    with suppress(OSError):
        for line in (system / "proc/self/cgroup").read_text(encoding="utf-8", errors="surrogateescape").split("\n"):
            if line.count(":") >= 2:  # a name may contain more colons, and any bytes
                shares += _left_of_groups(system, *line.split(":", 2)[1:])
    return max(0.0, min(shares))


def _left_of_groups(system: Path, controller: str, name: str) -> Iterator[float]:
    """Yield the proportion of memory that is available under each memory limit of a control group and its parents."""
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
    """Make Python skip its final search for reference cycles, which can take half a second at the end of a command.

    Call this function only at exit (`atexit`): afterwards, current objects in reference cycles are never freed. Exit
    handlers still run, and objects without references are freed as usual.
    """
    gc.freeze()


def _chosen_by_user() -> bool:
    return any(name in os.environ for name in _CHOSEN) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")

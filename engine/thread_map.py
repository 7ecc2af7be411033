"""Independent steps at once: a thread for each core, and each product of matrices on one thread of its own."""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST = 8  # threads: what they do holds the interpreter now and then
_WAITING = 2  # steps for each thread that are begun before their results are taken


def thread_map(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`map` on threads: for steps that spend their time in NumPy, Arrow, Pillow or torch, or wait for a disk.

    Results come in the order of the items, whose iterator is used by the calling thread alone. Few steps are ahead of
    the caller, so that memory holds few results. While it goes on, NumPy and SciPy multiply matrices with one thread
    each in this process: products of thin matrices on several threads are slower, tenfold where other processes use
    the cores.

    Args:
        function: of one item; called from several threads at a time, and in this one where there is one core.
        items: what it is called with.

    Yields:
        What it returns.

    Raises:
        Whatever it raises, at its place in the order; what has not begun by then is left undone.
    """
    threads = min(_MOST, _usable_cores())
    with _ONE_THREAD:
        if threads < 2:
            yield from map(function, items)
            return
        pool, ahead = ThreadPoolExecutor(threads), deque[Future[Result]]()
        try:
            for item in items:
                ahead.append(pool.submit(function, item))
                if len(ahead) > _WAITING * threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _SingleThreadedBlas:
    """Products of matrices on one thread, until everyone who entered has left."""

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._limits: Any = None
        self._libraries: dict[bool, Any] = {}  # found once, and once more when SciPy has loaded its own

    def __enter__(self) -> None:
        from threadpoolctl import ThreadpoolController

        has_scipy = "scipy.linalg" in sys.modules
        with self._lock:
            if not self._inside:
                if has_scipy not in self._libraries:
                    self._libraries[has_scipy] = ThreadpoolController()
                self._limits = self._libraries[has_scipy].limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._limits.restore_original_limits()


_ONE_THREAD = _SingleThreadedBlas()

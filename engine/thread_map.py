"""A parallel `map` with one thread per core and single-threaded matrix products."""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST = 8  # threads: they hold the interpreter lock now and then
_WAITING = 2  # steps per thread that are started before their results are consumed


def thread_map(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Apply a function to items on several threads, and yield the results in the order of the items.

    Use this for functions that spend their time in native libraries or on a disk. The iterator of the items is used
    only by the calling thread. To limit memory, only a few results are computed in advance. During the map, NumPy and
    SciPy use one thread for each matrix product in this process, because products of thin matrices are slower on
    several threads.

    Args:
        function: called with one item, on several threads at the same time. With one core, called on the calling
            thread.
        items: arguments of the calls.

    Yields:
        The results of the function.

    Raises:
        Any exception of the function, in place of its result. Calls that have not started are cancelled.
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
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _SingleThreadedBlas:
    """Context manager in which matrix products use one thread. Several threads can enter it, also repeatedly."""

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._limits: Any = None
        self._libraries: dict[bool, Any] = {}  # found once, and again after SciPy has loaded its own

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

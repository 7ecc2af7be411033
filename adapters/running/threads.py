"""Finds and ends threads that a call has started."""

import ctypes
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..models.identity.source_files import module_origin

_STARTERS: dict[threading.Thread, int] = {}  # while a call is going on: the identifier of the thread that started each
_START: dict[str, Any] = {"now": threading.Thread.start, "calls": 0}
_START_LOCK = threading.Lock()


def _start_and_note(thread: threading.Thread) -> None:
    _STARTERS[thread] = threading.get_ident()
    _START["now"](thread)


@contextmanager
def started_threads() -> Iterator[Callable[[], list[threading.Thread]]]:
    """Find threads that are started inside the block, by this thread or by threads that it started.

    Python does not record which thread started another. `Thread.start` is therefore replaced by a function that records
    this. It is restored when the last of several simultaneous blocks has ended.

    Yields:
        A function that returns those of the threads that are still running.
    """
    with _START_LOCK:
        if not _START["calls"]:
            _START["now"] = threading.Thread.start
            threading.Thread.start = _start_and_note  # type: ignore[method-assign]
        _START["calls"] += 1
    before, caller = {*threading.enumerate()}, threading.get_ident()

    def started() -> list[threading.Thread]:
        threads, idents = [], {caller}
        for thread, starter in [*_STARTERS.items()]:  # in the order of their start
            if thread not in before and starter in idents:
                threads.append(thread)
                idents.add(thread.ident or caller)
        return [thread for thread in threads if thread.is_alive()]

    try:
        yield started
    finally:
        with _START_LOCK:
            _START["calls"] -= 1
            if not _START["calls"]:
                threading.Thread.start = _START["now"]  # type: ignore[method-assign]
                _STARTERS.clear()


def end_threads(threads: Iterable[threading.Thread]) -> None:
    """End threads that run a user's code. Each thread gets an exception like that of `sys.exit`.

    A thread that is blocked in C code ends when it returns to Python. Its attribute `left` is set, so that the command
    line does not wait for this thread.
    """
    for thread in threads:
        code = getattr(thread, "_target", None) or type(thread).run
        if thread.ident is not None and module_origin(getattr(code, "__module__", "")) in ("local", "unknown"):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
            thread.join(0.5)
            thread.left = thread.is_alive()  # type: ignore[attr-defined]

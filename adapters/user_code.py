"""The wall around code that is not ours: whatever it raises, exits with or prints becomes one line that names it."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from ..errors import DavylampError, ModelFailed

_TORCH = next(iter(getattr(find_spec("torch"), "submodule_search_locations", None) or ["torch"]))
_LONGEST = 300  # characters of a reason


class user_code:  # noqa: N801 - used as a verb: with user_code("model.py"): ...
    """Run user code so that it can end neither this process nor its output; to be entered with `with`.

    What it raises becomes a `ModelFailed` with one line that names `where`, the reason and the user's line; so do
    `sys.exit`, `os._exit` and a KeyboardInterrupt that nobody typed. Errors of davylamp pass as they are, and so does
    a Ctrl-C that was typed (a SIGINT that arrived), even one that the code caught. What it prints to standard output,
    which belongs to our caller's results, goes to standard error. Gradients that it switched off are on again after.

    It takes some 11 microseconds, 2 inside another or inside `guarded`. Standard output, `os._exit` and the handler of
    SIGINT belong to the whole process: they are replaced while any thread is inside, and `os._exit` ends the process as
    ever for threads that are not, and for children. What kills the process from below Python (a signal, `abort`, a
    crash in C) is not held up: only workers survive it (`--workers`).

    Args:
        where: the file or the model, as the line shall name it.
        descriptors: also what is written past Python's `sys.stdout`, as by programs that the code starts; some
            10 microseconds more.

    Raises:
        ModelFailed: if the code does not come to its end.
    """

    __slots__ = ("_diverted", "_grad", "descriptors", "where")

    def __init__(self, where: str, *, descriptors: bool = False):
        self.where, self.descriptors = where, descriptors
        self._diverted: AbstractContextManager[None] = nullcontext()

    def __enter__(self) -> None:
        torch = sys.modules.get("torch")  # not loaded where a record of a library is
        self._grad = torch.is_grad_enabled() if torch else None
        if self.descriptors:
            self._diverted = descriptor_diverted()
            self._diverted.__enter__()
        _GUARD.enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        interrupted = _GUARD.leave()
        if self.descriptors:
            self._diverted.__exit__(None, None, None)
        if self._grad is not None and (torch := sys.modules["torch"]).is_grad_enabled() != self._grad:
            torch.set_grad_enabled(self._grad)
        if interrupted and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        if error is None or interrupted or isinstance(error, DavylampError):
            return False
        raise ModelFailed(f"{self.where} {describe_error(error)}") from error


def describe_error(error: BaseException) -> str:
    """What happened, in one line without control characters: "raised ValueError: ... (line 3 of model.py)"."""
    if isinstance(error, _Exited):
        said = f"called os._exit({error.code!r}){_place(error)}"
    elif isinstance(error, SystemExit):
        said = f"called sys.exit({'' if error.code is None else repr(error.code)}){_place(error)}"
    else:
        said = f"raised {name_error(error)}"
    return said


def name_error(error: BaseException) -> str:
    """An error in one line without control characters: "ValueError: ... (line 3 of model.py)"."""
    said = "os._exit" if isinstance(error, _Exited) else type(error).__name__
    with suppress(Exception):  # an error whose text is an error
        said += f": {one_line(error)}" if one_line(error) else ""
    place = "" if isinstance(error, SyntaxError) else _place(error)  # its text names the line
    return f"{one_line(said)}{place}"


def one_line(text: object) -> str:
    """A text as one line of at most 300 characters that a terminal can show."""
    words = " ".join(str(text).split())
    return "".join(c if c.isprintable() else "?" for c in words)[:_LONGEST]


def _place(error: BaseException) -> str:
    """The innermost line of the user's code, as " (line 3 of model.py)"; "" if only libraries are on the way."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        file = Path(code.co_filename)
        outside = any(part in ("site-packages", "dist-packages") for part in file.parts) or code.co_filename.startswith(
            "<"
        )
        if not outside and not code.co_filename.startswith((_TORCH, *_OURS, _STANDARD)):
            place = f" (line {trace.tb_lineno} of {file.name})"
        trace = trace.tb_next
    return place


@contextmanager
def guarded() -> Iterator[None]:
    """Put up once, around a library's many passes, what every wall inside puts up: each costs a fifth then.

    A call of `os._exit` inside is a SystemExit; a Ctrl-C that was typed and swallowed is raised at the end.
    """
    _GUARD.enter()
    try:
        yield
    finally:
        if _GUARD.leave() and not isinstance(sys.exc_info()[1], KeyboardInterrupt):
            raise KeyboardInterrupt


def was_interrupted() -> bool:
    """Whether Ctrl-C was typed since this thread went behind the wall: else a KeyboardInterrupt is an error."""
    return threading.current_thread() is threading.main_thread() and _GUARD.interrupted


@contextmanager
def descriptor_diverted() -> Iterator[None]:
    """Let file descriptor 1, where programs write that the code starts, lead to standard error."""
    kept = None
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(2, 1)
    try:
        yield
    finally:
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)


class _Exited(SystemExit):
    """`os._exit` was called by user code."""


class _Guard:
    """What is replaced while user code runs, by whichever threads, and put back when the last one leaves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: dict[int, int] = {}  # by thread: how many walls deep
        self._stdout: Any = None
        self._exit: Any = os._exit
        self._process = 0
        self._handler: Any = None
        self.interrupted = False

    def enter(self) -> None:
        thread = threading.get_ident()
        with self._lock:
            if not self._inside:
                self._stdout, sys.stdout = sys.stdout, sys.stderr
                self._exit, os._exit = os._exit, self._refuse_exit
                self._process = os.getpid()
            depth = self._inside.get(thread, 0)
            self._inside[thread] = depth + 1
        if not depth and thread == threading.main_thread().ident:
            self.interrupted = False
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):  # else ignored, or the system's default: nothing reaches Python
                self._handler = handler
                signal.signal(signal.SIGINT, self._note_interrupt)

    def leave(self) -> bool:
        """Put everything back; whether Ctrl-C was typed meanwhile, as the thread knows that it interrupts."""
        thread = threading.get_ident()
        main = thread == threading.main_thread().ident
        if main and self._handler is not None and self._inside.get(thread) == 1:
            signal.signal(signal.SIGINT, self._handler)
            self._handler = None
        with self._lock:
            depth = self._inside.pop(thread) - 1
            if depth:
                self._inside[thread] = depth
            if not self._inside:
                sys.stdout, os._exit = self._stdout, self._exit
                self._stdout = None
        return main and self.interrupted

    def _note_interrupt(self, number: int, frame: Any) -> None:
        try:
            self._handler(number, frame)
        except KeyboardInterrupt:
            self.interrupted = True
            raise

    def _refuse_exit(self, status: int = 0) -> None:
        if os.getpid() == self._process and threading.get_ident() in self._inside:
            raise _Exited(status)
        self._exit(status)


_GUARD = _Guard()
_OURS = tuple(str(Path(__file__).parent.parent / part) for part in ("adapters", "engine", "api"))
_STANDARD = str(Path(os.__file__).parent)

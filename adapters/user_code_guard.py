"""Code that is not ours: whatever it raises or exits with becomes one line that names it."""

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


class guard_user_code:  # noqa: N801 - used as a verb: with guard_user_code("model.py"): ...
    """Run user code so that whatever it raises is one line; to be entered with `with`.

    It becomes a `ModelFailed` that names `where`, the reason and the user's line; so does `sys.exit`. Errors of
    davylamp pass as they are, and so does a KeyboardInterrupt. Gradients that it switched off are on again after.

    In a caller's process nothing else is touched. In a process of davylamp's (`protect_process`: the command line and
    every worker) user code can end neither the process nor its output: `os._exit` is an error of that kind, too, as is
    a KeyboardInterrupt that nobody typed; one that was typed passes even if the code caught it; and what the code
    prints to standard output goes to standard error. What kills the process from below Python (a signal, `abort`, a
    crash in C) is not held up: only workers survive it (`--workers`).

    Args:
        where: the file or the model, as the line shall name it.
        descriptors: divert also what is written past Python's `sys.stdout`, as by programs that the code starts.

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
            self._diverted = stdout_to_stderr()
            self._diverted.__enter__()
        _PROTECTION.enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        interrupted = _PROTECTION.leave()
        if self.descriptors:
            self._diverted.__exit__(None, None, None)
        if self._grad is not None and (torch := sys.modules["torch"]).is_grad_enabled() != self._grad:
            torch.set_grad_enabled(self._grad)
        if interrupted and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        typed = isinstance(error, KeyboardInterrupt) and (interrupted or not _PROTECTION.is_on)
        if error is None or typed or isinstance(error, DavylampError):
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


def protect_process() -> None:
    """Protect this process from the user code that it runs, for the rest of it; for davylamp's processes only."""
    _PROTECTION.switch_on()


@contextmanager
def process_protected() -> Iterator[None]:
    """As `protect_process` inside the block; after it `os._exit` and SIGINT's handler are as before."""
    if _PROTECTION.is_on:
        yield
        return
    _PROTECTION.switch_on()
    try:
        yield
    finally:
        _PROTECTION.switch_off()


@contextmanager
def guard_once() -> Iterator[None]:
    """Put up once, around a library's many passes, what every `guard_user_code` inside puts up.

    A call of `os._exit` inside is a SystemExit; a Ctrl-C that was typed and swallowed is raised at the end: both in a
    process that is protected.
    """
    _PROTECTION.enter()
    try:
        yield
    finally:
        if _PROTECTION.leave() and not isinstance(sys.exc_info()[1], KeyboardInterrupt):
            raise KeyboardInterrupt


def was_interrupted() -> bool:
    """Whether a KeyboardInterrupt stands for a Ctrl-C: not where the process is protected, and nobody typed one."""
    if not _PROTECTION.is_on:
        return True
    return threading.current_thread() is threading.main_thread() and _PROTECTION.interrupted


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """In a protected process, let file descriptor 1, where programs write, lead to standard error."""
    kept = None
    if _PROTECTION.is_on:
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


class _Protection:
    """What is replaced in a process of davylamp's; standard output only while user code runs, in whichever threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: dict[int, int] = {}  # by thread: how deep
        self._stdout: Any = None
        self._exit: Any = os._exit
        self._handler: Any = None  # of SIGINT: ours calls it
        self._at_entry: Any = None
        self._process = 0
        self.is_on = self.interrupted = False

    def switch_on(self) -> None:
        if self.is_on:
            return
        self.is_on, self._process = True, os.getpid()
        self._exit, os._exit = os._exit, self._refuse_exit
        if threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT)):
            self._handler = signal.signal(signal.SIGINT, self._note_interrupt)

    def switch_off(self) -> None:
        os._exit, self.is_on = self._exit, False
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            self._handler = None

    def enter(self) -> None:
        if not self.is_on:
            return
        thread = threading.get_ident()
        with self._lock:
            if not self._inside:
                self._stdout, sys.stdout = sys.stdout, sys.stderr
            depth = self._inside.get(thread, 0)
            self._inside[thread] = depth + 1
        if not depth and thread == threading.main_thread().ident:
            self.interrupted, self._at_entry = False, signal.getsignal(signal.SIGINT)

    def leave(self) -> bool:
        """Put standard output back; whether Ctrl-C was typed meanwhile, as the thread knows that it interrupts."""
        thread = threading.get_ident()
        if thread not in self._inside:
            return False
        with self._lock:
            depth = self._inside.pop(thread) - 1
            if depth:
                self._inside[thread] = depth
            if not self._inside:
                sys.stdout, self._stdout = self._stdout, None
        if thread != threading.main_thread().ident:
            return False
        if not depth and self._at_entry is not None and signal.getsignal(signal.SIGINT) != self._at_entry:
            signal.signal(signal.SIGINT, self._at_entry)  # the code has set another
        return self.interrupted

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


_PROTECTION = _Protection()
_OURS = tuple(str(Path(__file__).parent.parent / part) for part in ("adapters", "engine", "api"))
_STANDARD = str(Path(os.__file__).parent)

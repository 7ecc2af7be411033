"""Runs user code such that an exception, or an attempt to exit the process, becomes a one-line davylamp error."""

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
    """Context manager that converts any exception of user code, and `sys.exit`, to a one-line `ModelFailed`.

    The message contains `where`, the reason and the line in the user's code. davylamp's own errors and
    KeyboardInterrupt are raised unchanged. Torch's gradient mode is restored on exit.

    In davylamp's own processes (the command line and its workers, see `protect_process`), the context manager does
    more. A call of `os._exit` becomes a `ModelFailed`, and so does a KeyboardInterrupt that does not come from Ctrl-C.
    A real Ctrl-C is raised even if the user code catches it. Standard output of the user code is redirected to standard
    error. User code can still kill the process with a signal, `abort` or a crash in C. Use `--workers` to survive this.

    Args:
        where: name of the file or model, for the message.
        descriptors: whether to redirect output that bypasses `sys.stdout`, such as the output of child processes, too.

    Raises:
        ModelFailed: if the code raises an error or exits.
    """

    __slots__ = ("_diverted", "_grad", "descriptors", "where")

    def __init__(self, where: str, *, descriptors: bool = False):
        self.where, self.descriptors = where, descriptors
        self._diverted: AbstractContextManager[None] = nullcontext()

    def __enter__(self) -> None:
        torch = sys.modules.get("torch")  # not loaded when a library definition is
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
    """Describe an error in one line without control characters: "raised ValueError: ... (line 3 of model.py)"."""
    if isinstance(error, _Exited):
        said = f"called os._exit({error.code!r}){_place(error)}"
    elif isinstance(error, SystemExit):
        said = f"called sys.exit({'' if error.code is None else repr(error.code)}){_place(error)}"
    else:
        said = f"raised {name_error(error)}"
    return said


def name_error(error: BaseException) -> str:
    """Return an error in one line without control characters: "ValueError: ... (line 3 of model.py)"."""
    said = "os._exit" if isinstance(error, _Exited) else type(error).__name__
    with suppress(Exception):  # an error whose message raises an error
        said += f": {one_line(error)}" if one_line(error) else ""
    place = "" if isinstance(error, SyntaxError) else _place(error)  # its message has the line number
    return f"{one_line(said)}{place}"


def one_line(text: object) -> str:
    """Return a text as one printable line of at most 300 characters."""
    words = " ".join(str(text).split())
    return "".join(c if c.isprintable() else "?" for c in words)[:_LONGEST]


def _place(error: BaseException) -> str:
    """Return the innermost line of user code in a traceback, as " (line 3 of model.py)". "" if there is none."""
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
    """Protect this process from user code until it ends, see `guard_user_code`. Only for davylamp's own processes."""
    _PROTECTION.switch_on()


@contextmanager
def process_protected() -> Iterator[None]:
    """Context manager that protects the process from user code, see `guard_user_code`, and restores it on exit."""
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
    """Context manager for a library call. It sets up the protection of `guard_user_code` once for all passes.

    In a protected process, a call of `os._exit` raises SystemExit. If user code has caught a Ctrl-C, KeyboardInterrupt
    is raised on exit.
    """
    _PROTECTION.enter()
    try:
        yield
    finally:
        if _PROTECTION.leave() and not isinstance(sys.exc_info()[1], KeyboardInterrupt):
            raise KeyboardInterrupt


def was_interrupted() -> bool:
    """Whether a KeyboardInterrupt comes from Ctrl-C. Always true in a process that is not protected."""
    if not _PROTECTION.is_on:
        return True
    return threading.current_thread() is threading.main_thread() and _PROTECTION.interrupted


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Context manager that redirects file descriptor 1, to which child processes write, to standard error.

    It has an effect only in a protected process.
    """
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
    """Raised when user code calls `os._exit`."""


class _Protection:
    """Replaces `os._exit`, the handler of Ctrl-C and standard output in a protected process.

    Standard output is replaced only while a thread runs user code.
    """

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
        """Restore standard output. Returns whether Ctrl-C was pressed in the block. False outside the main thread."""
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
            signal.signal(signal.SIGINT, self._at_entry)  # the code has set a different handler
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

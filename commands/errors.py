"""Error handling of commands. An error is printed as one line on standard error, and determines the exit code."""

import errno
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from ..errors import DavylampError, InvalidInput

FAILED, USAGE, BUG, INTERRUPTED = 1, 2, 70, 130  # exit codes; 70 is EX_SOFTWARE of sysexits.h
_FULL = {errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT, errno.EBADF}


def open_output() -> None:
    """Make the standard streams escape characters that their encoding does not have."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - it stays open
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def protected() -> AbstractContextManager[None]:
    """Context manager that protects the process from user code while a command runs, see `protect_process`."""
    from ..adapters.user_code_guard import process_protected

    return process_protected()


def refuse_empty(arguments: Sequence[str]) -> None:
    """Raise InvalidInput if a command line argument is empty, for example because of an unset shell variable."""
    for place, text in enumerate(arguments):
        option, equals, value = text.partition("=") if text.startswith("--") else ("", "=", text)
        if equals and not value.strip():
            before = arguments[place - 1] if place and arguments[place - 1].startswith("-") else ""
            name = option or before or f"argument {place + 1}"
            with exits_with(USAGE):
                raise InvalidInput(f"expected a value for {name}, got an empty text; check for an unset shell variable")


@contextmanager
def exits_with(code: int) -> Iterator[None]:
    """Context manager that sets the exit code of every davylamp error to `code`."""
    try:
        yield
    except DavylampError as error:
        error.exit_code = code
        raise


def print_note(line: str) -> None:
    """Print a note to standard error."""
    from ..report.text.console import print_error

    print_error(f"- {line}")


def print_interrupted(folder: object, otherwise: str = "") -> None:
    """Print that a command was interrupted, and how to resume it.

    Args:
        folder: results folder from which the same command resumes. Empty if no results are stored.
        otherwise: advice to print if `folder` is empty.
    """
    from ..report.text.console import print_error

    kept = f"finished results are stored in {folder}; run the same command again to resume"
    print_error(f"davylamp: interrupted; {kept if folder else f'no results are stored; {otherwise}'}")


def explain(error: BaseException) -> int:
    """Print an error as one line, and return its exit code."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if os.environ.get("DAVYLAMP_DEBUG"):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, BrokenPipeError):  # `davylamp table results | head` closes the pipe
        return FAILED
    from ..report.text.console import print_error

    if isinstance(error, DavylampError):
        print_error(f"davylamp: {error}")
        return error.exit_code
    if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
        print_error(f"davylamp: could not write the output ({error.strerror})")
        return FAILED
    if isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error):
        print_error("davylamp: out of memory; use fewer images (--limit) or smaller batches (--batch-size)")
        return FAILED
    message = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    print_error(f"davylamp: {message}; this is a bug; run with DAVYLAMP_DEBUG=1 for the traceback")
    return BUG


def close_output() -> int:
    """Write buffered output. Returns 0, or 1 if the output could not be written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # Python would retry to flush the buffer at exit, with a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return explain(error)
    except ValueError:  # closed in the meantime
        return FAILED
    return 0

"""Errors raised by davylamp. The command line prints each error as one line and ends with its exit code."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

_LONGEST_LIST = 230  # characters of the names in a message


class DavylampError(Exception):
    """Base class of davylamp's errors.

    Messages name keywords in backticks. On the command line, these keywords are replaced by the names of options.

    Attributes:
        path: configuration key to which the error applies, such as "attacks[0].norm". The message begins with this key.
            "" for an error without a key.
        exit_code: exit code of the command line program.
    """

    path = ""
    exit_code = 1


class InvalidInput(DavylampError, ValueError):
    """An argument has a wrong value."""


@contextmanager
def as_invalid_input() -> Iterator[None]:
    """Context manager that converts a ValueError to InvalidInput. It is for `scoring`, which raises built-in errors."""
    try:
        yield
    except DavylampError:
        raise
    except ValueError as error:
        raise InvalidInput(" ".join(str(error).split())) from error


class WrongType(InvalidInput, TypeError):
    """An argument has a wrong type."""


class UnknownName(DavylampError, LookupError):
    """A name is unknown. The message suggests similar names, or else contains `hint` or the known names."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, meant: str = "", hint: str = ""):
        known = sorted(known)
        close = [meant] if meant else close_names(name, known)
        ending = f"did you mean {' or '.join(close)}?" if close else hint or f"known: {_listed(known)}"
        super().__init__(f"unknown {kind} {name!r}; {ending}")


def close_names(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three known names that may be meant by a wrong name.

    Known names that begin with the wrong name come first, followed by similar names.
    """
    names, plain = list(known), name.strip().lower()
    longer = [each for each in names if len(plain) > 1 and each.lower().startswith(plain)]
    longer.sort(key=lambda each: not each.startswith(name.strip()))  # first those with the same capitals
    similar = get_close_matches(name, names) or get_close_matches(plain, names)
    return list(dict.fromkeys((*longer, *similar)))[:3]


def _listed(names: list[str]) -> str:
    text = ", ".join(names)
    if len(text) <= _LONGEST_LIST:
        return text or "none"
    shown = text[:_LONGEST_LIST].split(", ")[:-1]
    return f"{', '.join(shown)} and {len(names) - len(shown)} more"


class Unsupported(DavylampError, ValueError):
    """A combination of settings is not supported. This error is raised before anything is computed."""


class MissingLibrary(DavylampError, ImportError):
    """A required library is not installed. The message contains the command that installs the library."""

    def __init__(self, library: str, extra: str, reason: str = "", *, package: str = "", command: str = ""):
        why = f" ({reason})" if reason else ""
        install = f'"davylamp[{extra}]"' if extra else package or library
        super().__init__(f"{library} is not installed{why}; run: {command or f'pip install {install}'}")


class Unavailable(DavylampError, OSError):
    """A file or other resource could not be read or downloaded. The message says how to solve the problem."""


class AttackFailed(DavylampError, RuntimeError):
    """An attack library raised an error, which is the `__cause__` of this error."""


class AttackDied(AttackFailed):
    """The process of a user's attack ended, took too long, or sent an invalid message."""


class TrainingFailed(DavylampError, RuntimeError):
    """A training diverged to non-finite values. Earlier checkpoints are kept."""


class ModelFailed(InvalidInput, RuntimeError):
    """User code of a model or of data raised an error, or a model did not return logits."""


class ModelSpoiled(ModelFailed):
    """An attack changed a model or the process irreversibly. No further results can be computed in this process."""


class ModelDied(ModelFailed):
    """The process of a model ended, or did not send a valid reply in time. The model's state is lost."""


class StoreMismatch(DavylampError, ValueError):
    """A results file has a different format from that of this version of davylamp."""

"""Errors raised by davylamp. The command line turns each into one line and an exit code."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

_LONGEST_LIST = 230  # characters of the names in a message


class DavylampError(Exception):
    """Base class of davylamp's errors. Keywords in backticks in a message are translated by the command line.

    Attributes:
        path: configuration key at the start of the message, such as "attacks[0].norm". "" if there is none.
        exit_code: exit code of the command line.
    """

    path = ""
    exit_code = 1


class InvalidInput(DavylampError, ValueError):
    """An argument has a wrong value: "expected ..., got ..."."""


@contextmanager
def as_invalid_input() -> Iterator[None]:
    """Convert a ValueError in the block to InvalidInput, for packages that raise only built-in errors (scoring)."""
    try:
        yield
    except DavylampError:
        raise
    except ValueError as error:
        raise InvalidInput(" ".join(str(error).split())) from error


class WrongType(InvalidInput, TypeError):
    """An argument has a wrong type: "expected ..., got ..."."""


class UnknownName(DavylampError, LookupError):
    """A name is not registered. The message contains close matches, or else `hint` or the known names."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, meant: str = "", hint: str = ""):
        known = sorted(known)
        close = [meant] if meant else close_names(name, known)
        ending = f"did you mean {' or '.join(close)}?" if close else hint or f"known: {_listed(known)}"
        super().__init__(f"unknown {kind} {name!r}; {ending}")


def close_names(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three known names that a wrong name may mean: those that begin with it, then similar ones."""
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
    """A required library is not installed. The message contains the install command."""

    def __init__(self, library: str, extra: str, reason: str = "", *, package: str = "", command: str = ""):
        why = f" ({reason})" if reason else ""
        install = f'"davylamp[{extra}]"' if extra else package or library
        super().__init__(f"{library} is not installed{why}; run: {command or f'pip install {install}'}")


class Unavailable(DavylampError, OSError):
    """A resource could not be downloaded or read. The message contains the remedy."""


class AttackFailed(DavylampError, RuntimeError):
    """The attack library crashed. Its error is the cause (`__cause__`)."""


class AttackDied(AttackFailed):
    """The process of a user's attack ended, took too long, or sent an invalid message."""


class TrainingFailed(DavylampError, RuntimeError):
    """A training diverged to non-finite values. Earlier checkpoints are kept."""


class ModelFailed(InvalidInput, RuntimeError):
    """A model, its file or its data code raised an error, or the model returned no logits.

    The library is not at fault.
    """


class ModelSpoiled(ModelFailed):
    """An attack changed a model or this process irreversibly, so no further results are computed in this process."""


class ModelDied(ModelFailed):
    """The process of a model ended, or did not send a valid reply in time. The model's state is lost."""


class StoreMismatch(DavylampError, ValueError):
    """A results file was written in a different format."""

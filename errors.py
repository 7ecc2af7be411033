"""Every error that davylamp raises on purpose; the command line turns each into one line and exit code 1."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

_LONGEST_LIST = 230  # characters of the names in a message


class DavylampError(Exception):
    """Base of every error below; a message has keywords of verbs in backticks, which the command line translates.

    Attributes:
        path: key of a configuration with which the message begins, if it does: "attacks[0].norm".
    """

    path = ""


class InvalidInput(DavylampError, ValueError):
    """An argument has a wrong value: "expected ..., got ..."."""


@contextmanager
def as_invalid_input() -> Iterator[None]:
    """Raise InvalidInput, in one line, where a part that has no errors of its own (scoring) raises ValueError."""
    try:
        yield
    except DavylampError:
        raise
    except ValueError as error:
        raise InvalidInput(" ".join(str(error).split())) from error


class WrongType(InvalidInput, TypeError):
    """An argument has a wrong type: "expected ..., got ..."."""


class UnknownName(DavylampError, LookupError):
    """A name that nothing is registered under; the message holds the close matches, else `hint` or the known names."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, meant: str = "", hint: str = ""):
        known = sorted(known)
        close = [meant] if meant else get_close_matches(name, known) or get_close_matches(name.strip().lower(), known)
        ending = f"did you mean {' or '.join(close)}?" if close else hint or f"known: {_listed(known)}"
        super().__init__(f"unknown {kind} {name!r}; {ending}")


def _listed(names: list[str]) -> str:
    """The names with commas, as many as a line holds."""
    text = ", ".join(names)
    if len(text) <= _LONGEST_LIST:
        return text or "none"
    shown = text[:_LONGEST_LIST].split(", ")[:-1]
    return f"{', '.join(shown)} and {len(names) - len(shown)} more"


class Unsupported(DavylampError, ValueError):
    """What is asked for exists, but not in this combination; raised before anything is computed."""


class MissingLibrary(DavylampError, ImportError):
    """A library that is needed here is not installed; the message says what to install."""

    def __init__(self, library: str, extra: str, reason: str = "", *, package: str = "", command: str = ""):
        why = f" ({reason})" if reason else ""
        install = f'"davylamp[{extra}]"' if extra else package or library
        super().__init__(f"{library} is not installed{why}; run: {command or f'pip install {install}'}")


class Unavailable(DavylampError, OSError):
    """Something that had to be fetched or read could not be; the message says what to do."""


class AttackFailed(DavylampError, RuntimeError):
    """The attack library crashed; its error is the cause (`__cause__`)."""


class AttackDied(AttackFailed):
    """The process that a user's attack runs in ended, took too long, or sent what is no answer."""


class TrainingFailed(DavylampError, RuntimeError):
    """A training went to where no number is; what was kept before stays."""


class ModelFailed(InvalidInput, RuntimeError):
    """A model, its file or its data code failed, or returned no logits; never the fault of an attack library."""


class ModelSpoiled(ModelFailed):
    """An attack has changed a model, or this process, in a way that could not be put back: nothing is measured here."""


class ModelDied(ModelFailed):
    """The process that a model runs in ended, or gave no answer in time or none that is one; what it says is gone."""


class StoreMismatch(DavylampError, ValueError):
    """A results file was written in another format."""

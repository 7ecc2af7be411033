"""What a source of models is: a prefix before the colon of a name, and how the rest of the name is loaded."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from ....errors import UnknownName
from ..classifier import Classifier
from .state_dict import Architecture


@dataclass(frozen=True)
class Provider:
    """A source of models whose names begin with one prefix.

    Args:
        prefix: what stands before the colon.
        load: (whole name, what stands behind the prefix) -> its classifier on the CPU, as published.
        patterns: of its names, for help texts; none where `names` are all.
        names: those that a `*` may stand for, without the prefix.
        fits: (name without the prefix, name of data) -> whether a `*` stands for that model on that data.
        architecture: what stands behind the prefix -> the model without its weights; None: its weights are loaded and
            replaced.
    """

    prefix: str
    load: Callable[[str, str], Classifier]
    patterns: tuple[str, ...] = ()
    names: Callable[[], Iterable[str]] = tuple
    fits: Callable[[str, str], bool] = lambda _name, _data: True
    architecture: Callable[[str], Architecture] | None = None

    def matches(self, rest: str) -> bool:
        """Whether a name behind the prefix can be one of its own; what it is exactly, loading it says."""
        return bool(self.patterns) or rest in self.names()

    def list_names(self) -> list[str]:
        """The names that a `*` may stand for, whole."""
        return [f"{self.prefix}:{name}" for name in self.names()]


def unknown_among(kind: str, name: str, known: Iterable[str], hint: str) -> UnknownName:
    """An UnknownName that does not list a thousand names where none is close."""
    known = list(known)
    return UnknownName(kind, name, known if get_close_matches(name, known, n=1, cutoff=0.5) else [hint])

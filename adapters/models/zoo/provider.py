"""Definition of a model source: a prefix of model names, and a function that loads a model by the rest of its name."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from ....errors import UnknownName
from ..classifier import Classifier
from .state_dict import Architecture


@dataclass(frozen=True)
class Provider:
    """A source of models whose names start with a prefix.

    Args:
        prefix: the part before the colon.
        load: (whole name, part after the prefix) -> its classifier on the CPU, as published.
        patterns: patterns of its names, for help texts. Empty if `names` lists all.
        names: names that a `*` may represent, without the prefix.
        fits: (name without the prefix, name of data) -> whether a `*` includes that model for that data.
        architecture: part after the prefix -> the model without its weights. If None, its weights are loaded and
            replaced.
    """

    prefix: str
    load: Callable[[str, str], Classifier]
    patterns: tuple[str, ...] = ()
    names: Callable[[], Iterable[str]] = tuple
    fits: Callable[[str, str], bool] = lambda _name, _data: True
    architecture: Callable[[str], Architecture] | None = None

    def matches(self, rest: str) -> bool:
        """Whether a name after the prefix may belong to this source. Only loading shows whether it does."""
        return bool(self.patterns) or rest in self.names()

    def list_names(self) -> list[str]:
        """Return the full names that a `*` may represent."""
        return [f"{self.prefix}:{name}" for name in self.names()]


def unknown_among(kind: str, name: str, known: Iterable[str], hint: str) -> UnknownName:
    """Build an UnknownName error. If no name is similar, it contains a hint instead of a thousand names."""
    known = list(known)
    return UnknownName(kind, name, known if get_close_matches(name, known, n=1, cutoff=0.5) else [hint])

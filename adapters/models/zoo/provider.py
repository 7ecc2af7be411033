"""Definition of a collection of models, whose names start with the same prefix."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..classifier import Classifier
from .state_dict import Architecture


@dataclass(frozen=True)
class Provider:
    """A collection of models, such as torchvision's. The names of its models start with the same prefix.

    Args:
        prefix: part of a name before the first colon, such as "torchvision".
        load: function that gets the whole name and the part after the prefix. It returns the classifier on the CPU, as
            published.
        patterns: patterns of the names, for help texts. Empty if `names` lists all names.
        names: names without the prefix. A pattern with `*` selects models among these names.
        fits: function that gets a name without the prefix and the name of data. It returns whether a pattern with `*`
            selects this model for these data.
        architecture: function that gets the part after the prefix. It returns the model without its weights. None if
            the collection has no such function. The model is then loaded with its published weights, which are
            replaced.
    """

    prefix: str
    load: Callable[[str, str], Classifier]
    patterns: tuple[str, ...] = ()
    names: Callable[[], Iterable[str]] = tuple
    fits: Callable[[str, str], bool] = lambda _name, _data: True
    architecture: Callable[[str], Architecture] | None = None

    def matches(self, rest: str) -> bool:
        """Whether a name may belong to this collection. A model of this name need not exist.

        Args:
            rest: name without the prefix.
        """
        return bool(self.patterns) or rest in self.names()

    def list_names(self) -> list[str]:
        """Return the full names among which a pattern with `*` selects models."""
        return [f"{self.prefix}:{name}" for name in self.names()]

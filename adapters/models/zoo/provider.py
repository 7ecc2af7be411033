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
        patterns: patterns of the names, for help texts. Empty if `names` lists all.
        names: the names with which a pattern with `*` is compared, without the prefix.
        fits: called with a name without the prefix and the name of data. It returns whether a pattern with `*` includes
            this model for these data.
        architecture: called with the part after the prefix. It returns the model without its weights. If None, the
            published weights are loaded and replaced.
        load_multi_label: as `load`, for a model whose outputs are scores of several labels. If None, `load` is called.
    """

    prefix: str
    load: Callable[[str, str], Classifier]
    patterns: tuple[str, ...] = ()
    names: Callable[[], Iterable[str]] = tuple
    fits: Callable[[str, str], bool] = lambda _name, _data: True
    architecture: Callable[[str], Architecture] | None = None
    load_multi_label: Callable[[str, str], Classifier] | None = None

    def matches(self, rest: str) -> bool:
        """Whether a name may belong to this collection. A model of this name need not exist.

        Args:
            rest: name without the prefix.
        """
        return bool(self.patterns) or rest in self.names()

    def list_names(self) -> list[str]:
        """Return the full names among which a pattern with `*` selects models."""
        return [f"{self.prefix}:{name}" for name in self.names()]

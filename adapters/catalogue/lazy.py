"""A mapping that is built when it is first used."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TypeVar

Value = TypeVar("Value")


class LazyMapping(Mapping[str, Value]):
    """A mapping that calls `make` once, at the first access, to build its contents.

    The catalogue uses it because the library definitions of other packages import `davylamp.adapters`, and so cannot be
    loaded while that package is itself being imported.

    Args:
        make: returns the mapping.
    """

    def __init__(self, make: Callable[[], Mapping[str, Value]]):
        self._make = make

    @cached_property
    def _made(self) -> Mapping[str, Value]:
        return self._make()

    def __getitem__(self, key: str) -> Value:
        return self._made[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def __contains__(self, key: object) -> bool:
        return key in self._made

    def __repr__(self) -> str:
        return repr(self._made)

"""A mapping that is built when it is first used."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TypeVar

Value = TypeVar("Value")


class LazyMapping(Mapping[str, Value]):
    """A mapping whose contents are built at the first access, by calling `make`.

    The catalogue is such a mapping. Definitions of libraries in other packages import `davylamp.adapters`. If the
    catalogue were built while `davylamp.adapters` is being imported, these imports would fail.

    Args:
        make: function that returns the contents as a mapping.
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

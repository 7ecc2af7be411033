"""A named defence or detector: its source, its parameters, and the code that builds it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ...errors import InvalidInput, MissingLibrary, UnknownName
from ..attack import Parameter
from ..parameters import check_parameter, parse_parameter

_MODULES = {"pillow": "PIL", "davylamp": "torch"}  # of other libraries: their name
_EXTRAS = {"art": "art", "kornia": "kornia", "sklearn": "detectors"}  # extras of davylamp that install a module


@dataclass(frozen=True)
class Component:
    """A defence or a detector, as listed in its catalogue.

    Args:
        name: usual name, such as "jpeg".
        library: library of the implementation, such as "art". The full name is then "art:jpeg". The first row with a
            name is also available under this name alone.
        title: title for display.
        source: the paper.
        build: ".module:NAME" in this package, of the class or function that builds it.
        params: canonical parameters by name, with their default values.
        module: Python module that must be installed, if it is not the library's own.
        findings: known issues of the library's code.
    """

    name: str
    library: str
    title: str
    source: str
    build: str
    params: Mapping[str, tuple[Parameter, Any]] = field(default_factory=dict)
    module: str = field(default="", kw_only=True)
    findings: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def full_name(self) -> str:
        """Library and name, such as "art:jpeg"."""
        return f"{self.library}:{self.name}"

    def load(self) -> Any:
        """Return the class or function that builds it. Raises MissingLibrary if its library is not installed."""
        needed = self.module or _MODULES.get(self.library, self.library)
        if find_spec(needed) is None:
            raise MissingLibrary(needed, _EXTRAS.get(needed, ""), f"for {self.full_name}")
        module, _, made = self.build.partition(":")
        return getattr(import_module(module, __package__), made)

    def complete(self, given: Mapping[str, Any], *others: str) -> dict[str, Any]:
        """Complete parameters, given as values or as texts, with their defaults.

        Args:
            given: values by name.
            *others: further valid names, which the error about an unknown name lists.

        Raises:
            UnknownName: if there is no such parameter.
            InvalidInput: if a value is out of range.
        """
        known = {word: parameter for word, (parameter, _) in self.params.items()}
        values = {word: default for word, (_, default) in self.params.items()}
        for word, value in given.items():
            if word not in known:  # it may be that of an attack
                raise UnknownName(f"parameter of {self.full_name}", word, [*known, *others])
            is_text = isinstance(value, str) and known[word].type is not str
            values[word] = (parse_parameter if is_text else check_parameter)(word, value, known)
        if values.get("window", 1) % 2 == 0:
            raise InvalidInput(f"expected window as an odd number, got {values['window']}")
        return values

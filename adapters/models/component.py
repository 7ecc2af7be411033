"""Base class of named defences and detectors."""

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
    """A defence or a detector, as listed in the catalogue of defences or detectors.

    Args:
        name: usual name, such as "jpeg".
        library: library of the implementation, such as "art". The full name is then "art:jpeg". If several libraries
            have the same name, the short name stands for the first of them in the catalogue.
        title: title for display.
        source: the paper.
        build: class or function that builds the component, as ".module:NAME" relative to this package.
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
        """Return the class or function that builds the component.

        Raises MissingLibrary if its library is not installed.
        """
        needed = self.module or _MODULES.get(self.library, self.library)
        if find_spec(needed) is None:
            raise MissingLibrary(needed, _EXTRAS.get(needed, ""), f"for {self.full_name}")
        module, _, made = self.build.partition(":")
        return getattr(import_module(module, __package__), made)

    def complete(self, given: Mapping[str, Any], *others: str) -> dict[str, Any]:
        """Check the given parameters, convert them to their types, and add the default values of all others.

        Args:
            given: values by name. A value may be given as text, such as "0.5".
            *others: names that are also valid in this place, such as "gradients". The error for an unknown name lists
                them.

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

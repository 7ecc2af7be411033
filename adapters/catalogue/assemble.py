"""Joins the library definitions into one catalogue, without loading the libraries or torch."""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from ..attack import Attack, Implementation
from ..libraries import collect_libraries
from ..libraries.common_known_issues import COMMON
from ..libraries.library import Library
from ..parameters import PARAMETERS, SUPPLIED
from .attacks import ATTACKS as CANONICAL


def _why_unusable(library: Library, known: Mapping[str, Attack], findings: set[str]) -> str:
    """Return the reason why the definition of a library cannot be used. "" if it can be used.

    A definition cannot be used if it is invalid, or conflicts with the definitions that were added before.
    """
    introduced = {attack.name: attack for attack in library.introduces}
    for name, attack in introduced.items():
        if known.get(name, attack) != attack:
            return f"it defines the attack {name} differently from an earlier definition"
    for row in library.attacks:
        if row.attack not in known and row.attack not in introduced:
            return f"{row.name}: the catalogue has no attack {row.attack}; the library must define it in `introduces`"
        if strange := set(row.params) - {*PARAMETERS, *SUPPLIED}:
            return f"{row.name}: unknown parameter {', '.join(sorted(strange))}; see davylamp.adapters.PARAMETERS"
        if strange := set(row.findings) - {*library.findings, *findings}:
            return f"{row.name}: no known issue is called {', '.join(sorted(strange))}"
    return ""


class Catalogue(NamedTuple):
    """Libraries, attacks and implementations by name, and libraries that cannot be used with the reasons."""

    libraries: Mapping[str, Library]
    attacks: Mapping[str, Attack]
    implementations: Mapping[str, Implementation]
    refused: Mapping[str, str]


@cache
def catalogue() -> Catalogue:
    """Build the catalogue from davylamp's own library definitions and from those of other installed packages."""
    records, refused = collect_libraries()
    libraries: dict[str, Library] = {}
    attacks = dict(CANONICAL)
    for name, library in records.items():
        if why := _why_unusable(library, attacks, set(COMMON)):
            refused[name] = why
        else:
            libraries[name] = library
            attacks |= {attack.name: attack for attack in library.introduces}
    rows = {row.name: row for library in libraries.values() for row in library.attacks}
    return Catalogue(libraries, attacks, rows, refused)

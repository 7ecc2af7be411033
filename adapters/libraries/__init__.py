"""Definitions of the attack libraries. There is one subpackage for each library that davylamp supports.

Other packages can provide definitions of further libraries through an entry point. A definition that is invalid is not
used. `catalogue.lookup.LIBRARIES` contains the libraries in use.
"""

from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points

from ...errors import DavylampError
from ..user_code_guard import guard_user_code
from . import adv_lib, art, cleverhans, davylamp, foolbox, pyautoattack, secml_torch, torchattack, torchattacks
from .library import KnownIssue, Library

Finding = KnownIssue  # its name in 0.1, which records of other packages use
__all__ = ["ENTRY_POINTS", "Finding", "KnownIssue", "Library", "collect_libraries"]

ENTRY_POINTS = "davylamp.libraries"


def collect_libraries() -> tuple[dict[str, Library], dict[str, str]]:
    """Collect the definitions of libraries, from davylamp and from other packages.

    Returns:
        The libraries by name, and the reasons why definitions in other packages cannot be used.
    """
    known = {
        module.LIBRARY.name: module.LIBRARY
        for module in (
            art,
            foolbox,
            torchattacks,
            adv_lib,
            torchattack,
            cleverhans,
            secml_torch,
            pyautoattack,
            davylamp,
        )
    }
    refused: dict[str, str] = {}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        try:
            library = _load(point)
            if library.name in known:
                raise ValueError(f"the name {library.name} is already taken")
        except Exception as error:
            why = error if isinstance(error, DavylampError) else f"{type(error).__name__}: {error}"
            refused[point.name] = " ".join(str(why).split())[:300]
        else:
            known[library.name] = library
    return known, refused


def _load(point: EntryPoint) -> Library:
    with guard_user_code(point.value, descriptors=True):  # it may end neither a command nor what that prints
        library = point.load()
    if not isinstance(library, Library):
        raise TypeError(f"expected a davylamp.adapters.Library at {point.value}, got {type(library).__name__}")
    return replace(library, provider=point.dist.name if point.dist else "")

"""`best(A,B,...)`: the row that stands for several attacks that search together."""

from collections.abc import Mapping, Sequence

from ..adapters import Attack, Implementation, attack_of, find_implementation
from ..adapters.attack import Knowledge
from ..adapters.catalogue.lookup import find_library
from ..adapters.parameters import SUPPLIED
from ..adapters.threat_model import NORMS
from ..adapters.user_file import is_file_name
from ..errors import InvalidInput, Unsupported
from .search import Search, names_several

_NEAREST_CLASS = "adv-lib:deepfool"
# Chosen on the digits models: tools/best_effort/RESULTS.md.
DEFAULTS: Mapping[str, tuple[str, ...]] = {
    "linf": ("adv-lib:fab-t", "adv-lib:fmn@repaired", "adv-lib:fab", "adv-lib:apgd-dlr"),
    "l2": (
        "adv-lib:ddn@repaired",
        "adv-lib:fmn@repaired",
        _NEAREST_CLASS,
        "adv-lib:pdgd",
        "adv-lib:alma@repaired",
    ),
}
_KNOWLEDGE: tuple[Knowledge, ...] = ("decision-based", "score-based", "white-box")  # ever more
LIBRARY = "davylamp"  # whose search it is
VERSION = "5"  # of the search: part of a cell's key, raised whenever the same attacks would search otherwise


def default_names(norm: str, *, targeted: bool = False) -> tuple[str, ...]:
    """The attacks of `best(auto)`; Unsupported for a norm in which none were compared.

    DeepFool, which cannot be aimed at a class, is left out of a targeted search.
    """
    if norm not in DEFAULTS:
        raise Unsupported(f"best(auto) knows {' and '.join(DEFAULTS)}, not {norm}: name the attacks, best(A,B)")
    return tuple(name for name in DEFAULTS[norm] if not (targeted and name == _NEAREST_CLASS))


def portfolio_row(names: Sequence[str]) -> Implementation:
    """A row that stands for a search by several attacks: it has the norms that all of them have.

    Raises:
        InvalidInput: if a name is missing, occurs twice, or is no `library:attack`.
        Unsupported: for a user's attack, or one that makes one perturbation for all images, or if no norm is common.
        UnknownName: if there is no such row.
    """
    for name in names:
        if ":" not in name or set(name) & set("()"):
            raise InvalidInput(f"expected best(...) of several attacks as LIBRARY:NAME each, got {name!r}")
        if is_file_name(name):
            raise Unsupported(_alone(name))
    if len(set(names)) < len(names):
        raise InvalidInput(f"expected different attacks in best(...), got {', '.join(names)}")
    rows = [find_implementation(name) for name in names]
    if universal := next((row.name for row in rows if row.universal), ""):
        raise Unsupported(f"{universal} makes one perturbation for all images: no image has a radius of its own")
    norms = [norm for norm in NORMS if all(norm in row.classes for row in rows)]
    if not norms:
        raise Unsupported(f"{', '.join(names)} have no norm in common")
    known = [attack_of(row) for row in rows]
    title = f"Best of {', '.join(dict.fromkeys(attack.title for attack in known))}"
    knowledge: Knowledge = known[0].knowledge
    for most in _KNOWLEDGE:
        knowledge = most if any(attack.knowledge == most for attack in known) else knowledge
    joined = ",".join(names)
    return Implementation(
        joined,
        LIBRARY,
        classes=dict.fromkeys(norms, ""),
        params={name: name for row in rows for name in row.params if name not in SUPPLIED},
        targeted="no" if any(row.targeted == "no" for row in rows) else "yes",
        random=tuple(dict.fromkeys(source for row in rows for source in row.random)),
        findings=tuple(dict.fromkeys(finding for row in rows for finding in row.findings)),
        described=Attack(joined, title, "minimum-norm", knowledge, "davylamp"),
    )


def _alone(name: str) -> str:
    """How a user's attack can be run, which does not search together with others."""
    refused = f"{name}: expected attacks of libraries in best(A,B), got one of a file"
    row = find_implementation(name)
    if row.universal:
        return f"{refused}; it makes one perturbation for all images: run it without best(...)"
    if attack_of(row).kind == "minimum-norm":
        return f"{refused}; it looks for the smallest change by itself: run it without best(...)"
    return f"{refused}; search it alone: best({name})"


def rows_in(row: Implementation) -> list[Implementation]:
    """The rows that a portfolio's row stands for."""
    return [find_implementation(name) for name in Search("best", row.attack).members]


def inside_of(row: Implementation) -> str:
    """What stands inside the name of a search by a row: its name, or those of all attacks that it stands for."""
    return row.attack if names_several(row.attack) else row.name


def version_of_search(row: Implementation) -> str:
    """Of the search, and of every library in it."""
    libraries = dict.fromkeys(each.library for each in rows_in(row))
    versions = [f"{name} {find_library(name).version}" for name in libraries]
    return f"search {VERSION}, {', '.join(versions)}"

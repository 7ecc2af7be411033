"""One interface to the attacks of several libraries. Importing this package loads no attack library.

from davylamp.adapters import Classifier, ThreatModel, run_attack

result = run_attack("foolbox:pgd", Classifier(model), inputs, labels, ThreatModel("linf", 8 / 255), steps=40)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..deprecation import current_name

if TYPE_CHECKING:
    from .attack import Attack, Implementation
    from .catalogue.lookup import (
        ATTACKS,
        IMPLEMENTATIONS,
        LIBRARIES,
        canonical_attack,
        find_attack,
        find_implementation,
        implementations_of,
        library_defaults,
    )
    from .libraries import Finding, KnownIssue, Library
    from .libraries.user.as_implementation import as_implementation
    from .models.classifier import Classifier
    from .models.defences.defend import defend
    from .parameters import PARAMETERS
    from .result import AttackResult, Distances
    from .running.queries import QueryCounter
    from .running.run import run_attack
    from .threat_model import ThreatModel

_HOMES = {
    ".attack": ("Attack", "Implementation"),
    ".catalogue.lookup": (
        "ATTACKS",
        "IMPLEMENTATIONS",
        "LIBRARIES",
        "canonical_attack",
        "find_attack",
        "find_implementation",
        "implementations_of",
        "library_defaults",
    ),
    ".libraries": ("Finding", "KnownIssue", "Library"),
    ".libraries.user.as_implementation": ("as_implementation",),
    ".models.classifier": ("Classifier",),
    ".models.defences.defend": ("defend",),
    ".parameters": ("PARAMETERS",),
    ".result": ("AttackResult", "Distances"),
    ".running.queries": ("QueryCounter",),
    ".running.run": ("run_attack",),
    ".threat_model": ("ThreatModel",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_RENAMED = {"attack_of": "canonical_attack"}

__all__ = [
    "ATTACKS",
    "IMPLEMENTATIONS",
    "LIBRARIES",
    "PARAMETERS",
    "Attack",
    "AttackResult",
    "Classifier",
    "Distances",
    "Finding",
    "Implementation",
    "KnownIssue",
    "Library",
    "QueryCounter",
    "ThreatModel",
    "as_implementation",
    "canonical_attack",
    "defend",
    "find_attack",
    "find_implementation",
    "implementations_of",
    "library_defaults",
    "run_attack",
]


def __getattr__(name: str) -> Any:
    name = current_name("davylamp.adapters", name, _RENAMED)
    if name not in _HOME_OF:
        raise AttributeError(f"module 'davylamp.adapters' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

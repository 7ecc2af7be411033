"""One interface to the attacks of ART, Foolbox, torchattacks and adversarial-library; importing it loads none of them.

from davylamp.adapters import Classifier, ThreatModel, run_attack

result = run_attack("foolbox:pgd", Classifier(model), inputs, labels, ThreatModel("linf", 8 / 255), steps=40)
"""

from .attack import Attack, Implementation
from .catalogue.lookup import (
    ATTACKS,
    IMPLEMENTATIONS,
    LIBRARIES,
    attack_of,
    find_attack,
    find_implementation,
    implementations_of,
    library_defaults,
)
from .libraries import Finding, Library
from .libraries.user.row import as_implementation
from .models.classifier import Classifier
from .models.defences.defend import defend
from .parameters import PARAMETERS
from .result import AttackResult, Distances
from .running.queries import QueryCounter
from .running.run import run_attack
from .threat_model import ThreatModel

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
    "Library",
    "QueryCounter",
    "ThreatModel",
    "as_implementation",
    "attack_of",
    "defend",
    "find_attack",
    "find_implementation",
    "implementations_of",
    "library_defaults",
    "run_attack",
]

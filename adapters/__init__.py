"""One interface to the attacks of ART, Foolbox and torchattacks; importing it loads none of them.

from davylamp.adapters import Classifier, ThreatModel, run_attack

result = run_attack("foolbox:pgd", Classifier(model), inputs, labels, ThreatModel("linf", 8 / 255), steps=40)
"""

from .attack import Attack, AttackResult, Distances, Implementation, ThreatModel
from .attacks import ATTACKS
from .catalogue import IMPLEMENTATIONS, find_attack, find_implementation, implementations_of, library_defaults
from .classifier import Classifier
from .parameters import PARAMETERS
from .queries import QueryCounter
from .run import run_attack

__all__ = [
    "ATTACKS",
    "IMPLEMENTATIONS",
    "PARAMETERS",
    "Attack",
    "AttackResult",
    "Classifier",
    "Distances",
    "Implementation",
    "QueryCounter",
    "ThreatModel",
    "find_attack",
    "find_implementation",
    "implementations_of",
    "library_defaults",
    "run_attack",
]

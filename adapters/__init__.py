"""One interface to the attacks of ART, Foolbox and torchattacks; importing it loads none of them.

from davylamp.adapters import Classifier, ThreatModel, run_attack

result = run_attack("foolbox:pgd", Classifier(model), inputs, labels, ThreatModel("linf", 8 / 255), steps=40)
"""

from .attack import Attack, AttackResult, Distances, Implementation, ThreatModel
from .catalogue.attacks import ATTACKS
from .catalogue.lookup import IMPLEMENTATIONS, find_attack, find_implementation, implementations_of, library_defaults
from .catalogue.parameters import PARAMETERS
from .models.classifier import Classifier
from .running.queries import QueryCounter
from .running.run import run_attack

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

"""A library that does what a test says, in the place of torchattacks."""

from collections.abc import Callable
from typing import Any

import pytest

from davylamp.adapters import Classifier, Implementation, ThreatModel, run_attack
from davylamp.adapters.libraries.torchattacks import driver as torchattacks

LINF = ThreatModel("linf", 0.1)
PGD = Implementation("pgd", "torchattacks", {"linf": "torchattacks:PGD"}, random=("torch",))


@pytest.fixture
def library(monkeypatch, digits) -> Callable[..., Any]:
    """Replace the library by a function of (model, inputs, labels); returns a runner on four digits."""

    def runner(function, row=PGD, threat_model=LINF, model=None, **parameters):
        def run(attack_class, model, inputs, labels, threat_model, targets=None, **kwargs):
            return function(model, inputs, labels)

        monkeypatch.setattr(torchattacks, "run", run)
        case = digits.first(4)
        classifier = model if isinstance(model, Classifier) else Classifier(model or case.module)
        return run_attack(row, classifier, case.inputs, case.labels, threat_model, **parameters)

    return runner

"""What a library cannot be run on is said before it is called, at the smallest case where that is so and beside it."""

import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.errors import Unsupported


def model_of(classes: int, side: int) -> Classifier:
    torch.manual_seed(0)
    return Classifier(nn.Sequential(nn.Flatten(), nn.Linear(side**2, classes)))


@pytest.mark.parametrize(
    ("attack", "norm", "classes", "side", "parameters", "refused"),
    [
        ("art:sign-opt", "l2", 2, 8, {"steps": 1, "max_queries": 200}, True),
        ("art:sign-opt", "l2", 3, 8, {"steps": 1, "max_queries": 200}, False),
        ("torchattack:l2t", "linf", 3, 9, {"steps": 1}, True),
        ("torchattack:l2t", "linf", 3, 10, {"steps": 1}, False),
        ("pyautoattack:margin-ensemble", "l1", 3, 8, {"steps": 2}, True),
        ("pyautoattack:margin-ensemble", "l1", 3, 8, {"steps": 3}, False),
        ("pyautoattack:margin-ensemble", "l2", 3, 8, {"steps": 1}, False),
    ],
)
def test_what_a_library_refuses_is_refused_and_no_more(attack, norm, classes, side, parameters, refused):
    model, inputs = model_of(classes, side), torch.rand(2, 1, side, side)
    labels = model.predict_logits(inputs).argmax(1)
    rules = ThreatModel(norm, None if attack == "art:sign-opt" else 1.0)
    if refused:
        with pytest.raises(Unsupported):
            run_attack(attack, model, inputs, labels, rules, **parameters)
    else:
        assert run_attack(attack, model, inputs, labels, rules, **parameters).errors == ()

"""Two and three classes: linear models, whose least perturbations are a formula, against the margin ensemble."""

import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.errors import Unsupported

GENERATOR = torch.Generator().manual_seed(0)
IMAGES = 0.3 + 0.4 * torch.rand(30, 1, 6, 6, generator=GENERATOR)
WEIGHT = torch.randn(36, generator=GENERATOR)
Z = IMAGES.flatten(1) @ WEIGHT
BIAS = -float(Z.sort().values[15:17].mean())
LEAST = {"linf": (Z + BIAS).abs() / WEIGHT.abs().sum(), "l2": (Z + BIAS).abs() / WEIGHT.norm()}
RADII = {norm: float(least.sort().values[14:16].mean()) for norm, least in LEAST.items()}  # half are within it
FEW = {"steps": 50, "max_queries": 800}  # Square, the last of the ensemble, is given 5000 where nothing is fooled


class Linear(nn.Module):
    """One logit w.x + b, times a factor."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, inputs):
        return self.factor * (inputs.flatten(1) @ WEIGHT + BIAS)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("factor", [1, 1000])
@pytest.mark.parametrize("attack", ["apgd-margin", "margin-ensemble"])
def test_it_fools_what_lies_within_the_radius_and_nothing_else(attack, factor, norm):
    model, labels = Classifier(Linear(factor), outputs="logit"), (Z + BIAS > 0).long()
    result = run_attack(f"pyautoattack:{attack}", model, IMAGES, labels, ThreatModel(norm, RADII[norm]), **FEW)
    assert torch.equal(result.success, LEAST[norm] < RADII[norm])
    assert int(result.success.sum()) == 15
    assert not result.invalid.any()


def test_the_cross_entropy_alone_misses_most_of_it_where_it_saturates():
    model, labels = Classifier(Linear(1000), outputs="logit"), (Z + BIAS > 0).long()
    rules = ThreatModel("linf", RADII["linf"])
    by_entropy = run_attack("pyautoattack:apgd-ce", model, IMAGES, labels, rules, steps=50)
    assert int(by_entropy.success.sum()) < 8


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", ["pyautoattack:autoattack", "torchattacks:autoattack", "torchattacks:apgd-dlr"])
def test_what_needs_more_classes_is_refused_in_a_line_that_names_what_does_not(name, classes):
    if name.endswith("dlr") and classes == 3:
        pytest.skip("its loss is defined for three")
    model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(36, classes)))
    labels = model.predict_logits(IMAGES).argmax(1)
    with pytest.raises(Unsupported, match=r"needs at least \d classes, got \d; (margin-ensemble|apgd-margin)"):
        run_attack(name, model, IMAGES, labels, ThreatModel("linf", 0.1))


def test_three_classes_are_attacked_on_the_margin():
    model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(36, 3)))
    labels = model.predict_logits(IMAGES).argmax(1)
    rules = ThreatModel("linf", 0.02)
    weight = model.model[1].weight
    logits = model.predict_logits(IMAGES)
    margins = logits.gather(1, labels[:, None]) - logits
    dual = (weight[labels][:, None] - weight[None]).abs().sum(2)
    least = torch.where(dual > 0, margins / dual, torch.inf).amin(1)
    result = run_attack("pyautoattack:margin-ensemble", model, IMAGES, labels, rules, **FEW)
    assert torch.equal(result.success, least < 0.02)
    assert 0 < int(result.success.sum()) < 30

"""Black and white pixels: which attacks never move them, as their findings say, and that others do."""

import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier, ThreatModel, find_implementation, run_attack


@pytest.fixture(scope="module")
def half_saturated():
    """A linear model, which every pixel counts for, and images with every other pixel at 0 or 1."""
    generator = torch.Generator().manual_seed(3)
    layer = nn.Linear(36, 3)
    layer.weight.data = torch.randn(3, 36, generator=generator)
    layer.bias.data.zero_()
    inputs = torch.rand(3, 1, 6, 6, generator=generator) * 0.6 + 0.2
    saturated = torch.arange(36).view(6, 6) % 2 == 0
    inputs[..., saturated] = (inputs[..., saturated] > 0.5).float()
    model = Classifier(nn.Sequential(nn.Flatten(), layer), num_classes=3)
    return model, inputs, model(inputs).argmax(1), saturated


def moved(half_saturated, name, norm, epsilon=None, **words):
    """The shares of saturated and of other pixels that an attack changes in the images that it fools."""
    model, inputs, labels, saturated = half_saturated
    result = run_attack(name, model, inputs, labels, ThreatModel(norm, epsilon), seed=1, **words)
    assert result.success.any()
    changed = (result.adv_inputs - inputs).abs()[result.success] > 1e-4
    return float(changed[..., saturated].float().mean()), float(changed[..., ~saturated].float().mean())


@pytest.mark.parametrize("name", ["torchattacks:cw", "torchattacks:cw@fixed"])
def test_the_change_of_variables_of_torchattacks_leaves_them_where_they_are(half_saturated, name):
    at_bounds, inside = moved(half_saturated, name, "l2", steps=60, learning_rate=0.1, initial_const=10.0)
    assert at_bounds == 0
    assert inside > 0.3
    assert "saturated-pixels" in find_implementation(name).findings


@pytest.mark.parametrize(("norm", "epsilon"), [("linf", 0.3), ("l2", 1.5)])
def test_an_image_clipped_inside_the_graph_has_no_gradient_there(half_saturated, norm, epsilon):
    pixel = torch.zeros(1, requires_grad=True)
    (slope,) = torch.autograd.grad(pixel.clamp(0, 1).sum(), pixel)
    at_bounds, inside = moved(half_saturated, "torchattacks:smoothed-pgd", norm, epsilon, steps=40)
    assert (at_bounds > 0.2) == bool(slope)  # torch up to 2.14 has a gradient of 1
    assert inside > 0.9
    assert "clamped-in-graph" in find_implementation("torchattacks:smoothed-pgd").findings


@pytest.mark.parametrize("name", ["art:pgd", "foolbox:pgd", "torchattacks:pgd", "adv-lib:pgd", "foolbox:ddn"])
def test_others_move_those_that_the_loss_wants_inside(half_saturated, name):
    norm, epsilon = ("l2", None) if name.endswith("ddn") else ("linf", 0.3)
    at_bounds, _ = moved(half_saturated, name, norm, epsilon, steps=40)
    assert 0.3 < at_bounds < 0.7  # half of them would have to leave [0, 1]

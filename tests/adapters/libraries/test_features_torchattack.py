"""Which layer torchattack's attacks on features are given, and what is left of that afterwards."""

from typing import Any

import pytest
import torch
from torch import nn
from torchvision.models import vgg16

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.libraries.torchattack.features import tapped
from davylamp.errors import AttackFailed, Unsupported

STEPS = {"steps": 4, "step_size": 0.03}
LAYERED = ("fia", "naa", "danaa", "dr", "ilpd", "bfa")


def attack(name: str, case: Any, module: nn.Module | None = None, **parameters: Any) -> Any:
    words = (Classifier(module or case.module), case.inputs, case.labels, ThreatModel("linf", 0.1))
    return run_attack(f"torchattack:{name}", *words, **STEPS, **parameters)


def hooks(module: nn.Module) -> int:
    return sum(len(part._forward_hooks) + len(part._backward_hooks) for part in module.modules())


def test_the_middle_convolution_of_vgg_16_is_the_papers():
    """conv3_3, the seventh of thirteen."""
    with torch.device("meta"):
        network = vgg16()
    with tapped(network, network, ""):
        assert [name for name, part in network.named_modules() if part._forward_hooks] == ["features.14"]
    assert not hooks(network)


@pytest.mark.parametrize("name", LAYERED)
def test_the_default_layer_can_be_named_and_another_gives_other_images(digits, name):
    case = digits.first(2)
    default, named, other = (attack(name, case, **words).adv_inputs for words in ({}, {"layer": "0"}, {"layer": "2"}))
    assert torch.equal(default, named)
    assert not torch.equal(default, other)


@pytest.mark.parametrize("name", [*LAYERED, "fda"])
def test_the_model_is_as_before_also_if_the_attack_fails(digits, name, monkeypatch):
    case = digits.first(1)
    assert "model-changed" not in attack(name, case).violations[0]
    assert not hooks(case.module)
    monkeypatch.setattr(torch.Tensor, "backward", lambda *_, **__: 1 / 0)
    with pytest.raises(AttackFailed):
        attack(name, case)
    assert not hooks(case.module)


def test_a_layer_that_the_next_one_writes_over_is_read_before(digits):
    layers = list(digits.module)
    over = nn.Sequential(layers[0], nn.ReLU(inplace=True), layers[2], nn.ReLU(inplace=True), *layers[4:])
    for name in ("fia", "ilpd"):
        images = [attack(name, digits.first(2), module, layer="2").adv_inputs for module in (digits.module, over)]
        assert torch.equal(*images)


def test_of_a_model_without_convolutions_the_images_are_the_layer(linear):
    with tapped(linear.module, linear.module, "") as reached:
        read = []
        reached.tap.register_forward_hook(lambda _, given, output: read.append((given[0], output)))
        assert torch.equal(reached(linear.inputs), linear.module(linear.inputs))
    assert torch.equal(read[0][1], linear.inputs)


def test_an_unknown_layer_is_refused_with_some_that_there_are(digits):
    with pytest.raises(Unsupported, match=r"needs a layer of the model \(0, 1, 2, 3, 4, \.\.\."):
        attack("fia", digits.first(1), layer="layer2")


def test_features_without_a_relu_give_fda_nothing_to_disrupt(linear):
    words = (linear.classifier, linear.inputs, linear.labels, ThreatModel("linf", 1e-6))
    result = run_attack("torchattack:fda", *words, **STEPS)
    assert all("no-gradient" in kinds for kinds in result.violations)
    assert not result.robust.any()

"""Attacks that learn once: what they learn is the library's, its cost is counted, and it is applied as it is."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from art.attacks.evasion import TargetedUniversalPerturbation, UniversalPerturbation
from art.estimators.classification import PyTorchClassifier
from torch import nn

import davylamp
from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.libraries.davylamp.gd_uap import learn_perturbation
from davylamp.adapters.running.fit import Fitted, fit_attack
from davylamp.adapters.running.surrogate import run_transfer
from davylamp.errors import AttackFailed, InvalidInput, Unsupported

RULES = ThreatModel("linf", 0.2)


class Counted(nn.Module):
    """The model, and how many images went through it in either direction."""

    def __init__(self, net):
        super().__init__()
        self.net, self.forwards, self.backwards = net, 0, 0

    def forward(self, inputs):
        self.forwards += len(inputs)
        logits = self.net(inputs)
        if logits.requires_grad:
            logits.register_hook(lambda gradient: self._count(len(gradient)))
        return logits

    def _count(self, images):
        self.backwards += images


@pytest.fixture(scope="module")
def learned(digits) -> Fitted:
    return fit_attack("art:uap", digits.classifier, digits.inputs[:6], digits.labels[:6], RULES, seed=5, steps=2)


def test_it_learns_what_art_learns_for_what_art_asks(digits, learned):
    net = Counted(digits.module)
    estimator = PyTorchClassifier(
        net, nn.CrossEntropyLoss(), (3, 16, 16), 10, clip_values=(0.0, 1.0), device_type="cpu"
    )
    attack = UniversalPerturbation(
        estimator, eps=0.2, norm=np.inf, max_iter=2, batch_size=6, verbose=False, attacker_params={"verbose": False}
    )
    random.seed(5)
    attack.generate(digits.inputs[:6].numpy(), digits.labels[:6].numpy())
    assert attack.noise is not None
    assert np.array_equal(learned.arrays["perturbation"], attack.noise[0])
    assert (learned.forwards, learned.backwards, learned.images) == (net.forwards, net.backwards, 6)


def test_it_is_added_to_images_that_it_has_not_seen(digits, learned):
    inputs, labels = digits.inputs[6:], digits.labels[6:]
    result = run_attack("art:uap", digits.classifier, inputs, labels, RULES, fitted=learned)
    expected = (inputs + torch.from_numpy(learned.arrays["perturbation"])).clamp(0, 1)
    assert torch.equal(result.adv_inputs, expected)
    assert torch.equal(result.success, digits.module(expected).argmax(1) != labels)
    assert not result.forwards.any()
    assert not result.backwards.any()
    assert not result.invalid.any()
    assert result.fitted is learned
    assert result.parameters == {"steps": 2}
    one = run_attack("art:uap", digits.classifier, inputs, labels, RULES, fitted=learned, batch_size=1)
    assert torch.equal(one.adv_inputs, expected)


def test_made_on_one_model_it_is_scored_on_another(digits, learned):
    other = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(768, 10)))
    labels = other(digits.inputs).argmax(1)
    result = run_transfer("art:uap", other, digits.classifier, digits.inputs, labels, RULES, fitted=learned)
    expected = (digits.inputs + torch.from_numpy(learned.arrays["perturbation"])).clamp(0, 1)
    assert torch.equal(result.adv_inputs, expected)
    assert torch.equal(result.success, other(expected).argmax(1) != labels)


def test_only_images_that_the_model_gets_right_are_learned_from(digits, learned):
    labels = torch.cat([digits.labels[:6], (digits.labels[6:] + 1) % 10])
    again = fit_attack("art:uap", digits.classifier, digits.inputs, labels, RULES, seed=5, steps=2)
    assert again.digest == learned.digest
    other = fit_attack("art:uap", digits.classifier, digits.inputs[:6], labels[:6], RULES, seed=6, steps=1)
    assert other.digest != learned.digest
    with pytest.raises(InvalidInput, match="none of the 10 fit images"):
        fit_attack("art:uap", digits.classifier, digits.inputs[6:], labels[6:], RULES)


def test_what_was_learned_otherwise_is_refused(digits, learned):
    given = (digits.classifier, digits.inputs, digits.labels)
    with pytest.raises(InvalidInput, match="but the attack is art:uap@fixed under"):
        run_attack("art:uap@fixed", *given, RULES, fitted=learned)
    with pytest.raises(InvalidInput, match="but the attack is art:uap under"):
        run_attack("art:uap", *given, ThreatModel("linf", 0.1), fitted=learned)
    narrow = replace(learned, arrays={"perturbation": np.zeros((3, 8, 8), np.float32)})
    with pytest.raises(InvalidInput, match="a perturbation for images of shape"):
        run_attack("art:uap", *given, RULES, fitted=narrow)
    with pytest.raises(Unsupported, match="it attacks each image separately"):
        fit_attack("foolbox:pgd", *given, RULES)


AIMED = ThreatModel("l2", 3.0, targeted=True)


@pytest.fixture(scope="module")
def learned_for_two(digits) -> Fitted:
    words = {"steps": 3, "step_size": 3.0}
    return fit_attack("art:targeted-uap", digits.classifier, digits.inputs, digits.labels, AIMED, target=2, **words)


def test_a_targeted_one_learns_what_art_learns_from_the_images_of_other_classes(digits, learned_for_two):
    others = digits.labels != 2
    assert 0 < others.sum() < len(others)
    net = Counted(digits.module)
    estimator = PyTorchClassifier(
        net, nn.CrossEntropyLoss(), (3, 16, 16), 10, clip_values=(0.0, 1.0), device_type="cpu"
    )
    inner = {"targeted": True, "norm": 2, "eps": 3.0}
    attack = TargetedUniversalPerturbation(estimator, eps=3.0, norm=2, max_iter=3, attacker_params=inner)
    random.seed(0)
    attack.generate(digits.inputs[others].numpy(), np.eye(10, dtype=np.float32)[np.full(int(others.sum()), 2)])
    assert np.array_equal(learned_for_two.arrays["perturbation"], attack.noise[0])
    assert (learned_for_two.forwards, learned_for_two.backwards) == (net.forwards, net.backwards)
    assert (learned_for_two.images, learned_for_two.target) == (int(others.sum()), 2)
    assert learned_for_two.arrays["perturbation"].any()


def test_a_targeted_one_leads_to_its_target_and_no_other(digits, learned_for_two):
    others = digits.labels != 2
    given = (digits.classifier, digits.inputs[others], digits.labels[others], AIMED)
    targets = torch.full((int(others.sum()),), 2)
    result = run_attack("art:targeted-uap", *given, targets=targets, fitted=learned_for_two)
    added = (given[1] + torch.from_numpy(learned_for_two.arrays["perturbation"])).clamp(0, 1)
    assert torch.equal(result.success, digits.module(added).argmax(1) == 2)
    assert result.success.any()
    targets[1] = 4
    with pytest.raises(InvalidInput, match=r"expected the target 2 .* got 1 images with different targets, such as 4"):
        run_attack("art:targeted-uap", *given, targets=targets, fitted=learned_for_two)
    everything = torch.where(digits.labels == 2, 4, 2)  # an image of the class itself cannot be led there
    whole = (digits.classifier, digits.inputs, digits.labels, AIMED)
    assert len(run_attack("art:targeted-uap", *whole, targets=everything, fitted=learned_for_two).success) == 16


@pytest.mark.parametrize(
    ("rules", "target", "message"),
    [
        (AIMED, None, "moves all images to one class"),
        (ThreatModel("l2", 3.0), 2, "moves all images to one class"),
        (AIMED, 10, "expected a target class from 0 to 9, got 10"),
    ],
)
def test_a_targeted_one_needs_a_class(digits, rules, target, message):
    with pytest.raises(InvalidInput, match=message):
        fit_attack("art:targeted-uap", digits.classifier, digits.inputs, digits.labels, rules, target=target)


def test_a_target_is_for_targeted_attacks_and_some_image_has_another_class(digits):
    with pytest.raises(InvalidInput, match="expected no target for an untargeted threat model, got class 2"):
        fit_attack("art:uap", digits.classifier, digits.inputs, digits.labels, RULES, target=2)
    twos = digits.labels == 2
    with pytest.raises(InvalidInput, match="have the target class 2"):
        fit_attack("art:targeted-uap", digits.classifier, digits.inputs[twos], digits.labels[twos], AIMED, target=2)


def test_a_library_that_crashes_has_learned_nothing_and_the_model_is_as_it_was(digits, monkeypatch):
    def crash(self, *_, **__):
        self.estimator.model.zero_grad()
        raise RuntimeError("no luck")

    monkeypatch.setattr(UniversalPerturbation, "generate", crash)
    with pytest.raises(AttackFailed, match="crashed while it was fitted: RuntimeError: no luck"):
        fit_attack("art:uap", digits.classifier, digits.inputs, digits.labels, RULES)


def test_in_python_two_verbs(digits):
    fitted = davylamp.fit_attack("davylamp:gd-uap", digits.module, digits.inputs, digits.labels, epsilon=0.2, steps=9)
    result = davylamp.run_attack(
        "davylamp:gd-uap", digits.module, digits.inputs, digits.labels, epsilon=0.2, fitted=fitted
    )
    assert result.fitted is fitted
    assert not any("fitted on" in note for note in result.notes)
    seen = davylamp.run_attack("art:uap", digits.module, digits.inputs[:2], digits.labels[:2], epsilon=0.2, steps=1)
    assert any("fitted on the evaluation images" in note for note in seen.notes)
    assert (fitted.forwards, fitted.backwards, fitted.images) == (9, 9, 0)
    assert "9 forward and 9 backward passes" in repr(fitted)


def test_gd_uap_on_one_convolution_is_the_steepest_direction():
    """|w * (1/2 + v)|^2 of a 1 x 1 convolution with a positive weight is largest where v is largest everywhere."""
    layer = nn.Conv2d(1, 1, 1, bias=False)
    nn.init.constant_(layer.weight, 2.0)
    net = nn.Sequential(layer, nn.Flatten(), nn.Linear(16, 2)).requires_grad_(False)
    torch.manual_seed(0)
    learned = learn_perturbation(net, torch.zeros(1, 1, 4, 4), epsilon=0.1, steps=300)
    assert torch.allclose(learned, torch.full((1, 4, 4), 0.1))


def test_gd_uap_halves_what_is_saturated_and_keeps_the_strongest():
    """Its objective falls when the perturbation is halved: what is kept is what stood before."""
    layer = nn.Conv2d(1, 1, 1, bias=False)
    nn.init.constant_(layer.weight, 2.0)
    net = nn.Sequential(layer, nn.Flatten(), nn.Linear(16, 2)).requires_grad_(False)
    asked = []
    layer.register_forward_hook(lambda _, given, __: asked.append(given[0].detach() - 0.5))
    learn_perturbation(net, torch.zeros(1, 1, 4, 4), epsilon=0.1, steps=300)
    sizes = torch.stack(asked).abs().flatten(1).amax(1)
    drops = (sizes[1:] < 0.6 * sizes[:-1]).sum()
    assert sizes.max() <= 0.1 + 1e-6
    assert drops >= 1


def test_gd_uap_needs_layers(digits):
    class Sum(nn.Module):
        def forward(self, inputs):
            return inputs.flatten(1)[:, :3]

    with pytest.raises(Unsupported, match="convolutions or linear layers"):
        run_attack("davylamp:gd-uap", Classifier(Sum()), digits.inputs, digits.labels * 0, ThreatModel("linf", 0.1))

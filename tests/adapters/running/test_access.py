"""What a model does not give is refused in one line before it is attacked; what it gives is enough for the rest."""

import numpy as np
import pytest
import torch
from torch import nn

from davylamp import ThreatModel, run_attack
from davylamp.adapters.models.classifier import Classifier
from davylamp.adapters.running.fit import fit_attack
from davylamp.adapters.running.surrogate import run_transfer
from davylamp.errors import ModelFailed, Unsupported

LINF, L2 = ThreatModel("linf", 0.1), ThreatModel("l2", 2.0)


class Ending(nn.Module):
    def __init__(self, net, end):
        super().__init__()
        self.net, self.end, self.asked = net, end, 0

    def forward(self, inputs):
        self.asked += len(inputs)
        return self.end(self.net(inputs))


class Arrays(nn.Module):
    """As a model of another library: images become arrays, which those with gradients cannot."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, inputs):
        return self.net(torch.from_numpy(np.asarray(inputs.numpy())))


def labels_only(net):
    return Classifier(Ending(net, lambda z: z.argmax(1)), name="m")


@pytest.mark.parametrize(
    ("name", "norm", "words"),
    [
        (
            "art:pgd",
            LINF,
            "art:pgd needs gradients, but the model returns labels only; choose a decision-based attack: ",
        ),
        (
            "foolbox:genattack",
            LINF,
            "foolbox:genattack needs scores, and the model returns labels only; choose a decis",
        ),
        ("torchattacks:square", LINF, "torchattacks:square needs scores, and the model returns labels only; choose a"),
        (
            "art:simba",
            L2,
            "art:simba needs scores, and the model returns labels only; choose a decision-based attack: ",
        ),
    ],
)
def test_labels_are_not_enough_for_every_attack(digits, name, norm, words):
    classifier = labels_only(digits.module)
    with pytest.raises(Unsupported) as caught:
        run_attack(name, classifier, digits.inputs[:4], digits.labels[:4], norm)
    assert str(caught.value).startswith(words)
    assert ":hopskipjump" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert classifier.model.asked == 4  # the clean images


def detached(logits):
    return logits.detach()


@pytest.mark.parametrize("make", [lambda net: Ending(net, detached), Arrays, lambda net: torch.no_grad()(net.forward)])
def test_a_model_without_gradients_is_seen_once(digits, make):
    module = make(digits.module)
    if not isinstance(module, nn.Module):
        module = Ending(nn.Identity(), module)
    classifier = Classifier(module)
    for name in ("art:pgd", "foolbox:deepfool"):
        with pytest.raises(
            Unsupported, match=rf"^{name} needs gradients, but the model returns none.*; choose a score-"
        ):
            run_attack(name, classifier, digits.inputs[:2], digits.labels[:2], LINF)
    assert not classifier.gradients
    assert ("numpy" in classifier.answers.no_gradients) == (make is Arrays)
    case = digits.inputs[:4], digits.labels[:4], LINF
    blind = run_attack("torchattacks:square", classifier, *case, steps=20)
    seeing = run_attack("torchattacks:square", Classifier(digits.module), *case, steps=20)
    assert torch.equal(blind.adv_inputs, seeing.adv_inputs)
    classifier.name = "m"
    with pytest.raises(Unsupported, match="fitting art:uap@fixed needs gradients, but m has none; fit it on a surrog"):
        fit_attack("art:uap@fixed", classifier, *case)


def test_a_model_that_fails_is_not_called_one_without_gradients(digits):
    def fails(logits):
        raise RuntimeError("no")

    with pytest.raises(ModelFailed, match="raised RuntimeError: no"):
        run_attack("art:pgd", Classifier(Ending(digits.module, fails)), digits.inputs[:2], digits.labels[:2], LINF)


@pytest.mark.parametrize(
    ("name", "norm", "settings"),
    [
        ("foolbox:hopskipjump", "l2", {"steps": 2, "max_queries": 300}),
        ("art:boundary", "l2", {"max_queries": 150}),
        ("foolbox:boundary", "l2", {"steps": 40}),
        ("davylamp:rays", "linf", {"max_queries": 200}),
        ("torchattack:geoda", "l2", {"max_queries": 200}),
    ],
)
def test_decisions_are_all_that_a_decision_based_attack_asks_for(digits, name, norm, settings):
    """The same model with labels only gives the same examples at the same cost."""
    results = [
        run_attack(name, classifier, digits.inputs[:3], digits.labels[:3], ThreatModel(norm), seed=3, **settings)
        for classifier in (Classifier(digits.module), labels_only(digits.module))
    ]
    assert torch.equal(results[0].adv_inputs, results[1].adv_inputs)
    assert torch.equal(results[0].forwards, results[1].forwards)
    assert torch.equal(results[0].success, results[1].success)
    assert results[0].forwards.sum() > 100


@pytest.mark.parametrize("name", ["foolbox:pgd", "torchattacks:pgd", "art:pgd"])
def test_the_softmax_before_the_loss_changes_nothing_but_rounding(digits, name):
    """Cross entropy of log-probabilities is that of the logits, as long as the softmax is not saturated."""
    soft = Classifier(Ending(digits.module, lambda z: (z / 8).softmax(1)))
    results = [
        run_attack(name, classifier, digits.inputs, digits.labels, LINF, steps=5, step_size=0.02, seed=1)
        for classifier in (Classifier(Ending(digits.module, lambda z: z / 8)), soft)
    ]
    assert soft.outputs == "probabilities"
    assert torch.equal(results[0].success, results[1].success)
    torch.testing.assert_close(results[0].distance, results[1].distance, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(results[0].adv_inputs, results[1].adv_inputs, rtol=0, atol=1e-5)
    torch.testing.assert_close(
        results[0].adv_logits.log_softmax(1), results[1].adv_logits.log_softmax(1), rtol=1e-3, atol=1e-3
    )


def test_a_surrogate_has_the_gradients(digits):
    classifier = labels_only(digits.module)
    made = run_transfer("art:pgd", classifier, Classifier(digits.module), digits.inputs, digits.labels, LINF, steps=5)
    direct = run_attack("art:pgd", Classifier(digits.module), digits.inputs, digits.labels, LINF, steps=5)
    assert torch.equal(made.success, direct.success)
    assert made.knowledge == "transfer"

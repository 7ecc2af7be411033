"""Attacks through a surrogate: made there with everything it tells, judged here by predictions alone."""

import copy

import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters import Classifier, QueryCounter, ThreatModel, run_attack
from davylamp.adapters.models.ensemble import mean_logit_ensemble
from davylamp.adapters.running.surrogate import run_transfer
from davylamp.errors import InvalidInput

EPSILON = 0.25
RULES = ThreatModel("linf", EPSILON)


def moved(digits, seed: int, share: float = 0.4) -> nn.Module:
    """The digits CNN with its weights moved: another model of the same classes, right on most of the images."""
    generator, net = torch.Generator().manual_seed(seed), copy.deepcopy(digits.module)
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(share * weight.std() * torch.randn(weight.shape, generator=generator))
    return net


@pytest.fixture(scope="module")
def pair(digits):
    """The model under judgement and its surrogate; each is wrong on some image that the other gets right."""
    return Classifier(moved(digits, 1, 0.6), name="judged"), Classifier(moved(digits, 2, 0.6), name="surrogate")


def right(model, digits):
    return model(digits.inputs).argmax(1) == digits.labels


@pytest.mark.parametrize(("attack", "more"), [("foolbox:pgd", {"steps": 5}), ("torchattacks:deepfool", {"steps": 5})])
def test_the_examples_are_those_of_the_surrogate_and_the_verdict_is_the_models(digits, pair, attack, more):
    judged, surrogate = pair
    rules = RULES if attack.endswith("pgd") else ThreatModel("l2")
    result = run_transfer(attack, judged, surrogate, digits.inputs, digits.labels, rules, seed=3, **more)
    attacked = right(judged, digits)
    made = run_attack(attack, surrogate, digits.inputs, digits.labels, rules, seed=3, attacked=attacked, **more)
    assert torch.equal(result.adv_inputs, made.adv_inputs)
    fooled = judged(made.adv_inputs).argmax(1) != digits.labels
    clean = torch.tensor(["unchanged" in kinds for kinds in result.violations])
    assert torch.equal(result.success, attacked & fooled & ~clean)
    assert 0 < int(result.success.sum()) < len(result.success)
    assert torch.equal(result.attacked, attacked)
    assert not result.invalid.any()
    assert result.knowledge == "transfer"
    assert result.surrogate == "surrogate"
    assert torch.equal(result.success_8bit, result.success & (judged(on_grid(made)).argmax(1) != digits.labels))


def on_grid(result):
    return (result.adv_inputs * 255 + 0.5).floor() / 255


def test_where_both_models_are_right_it_is_the_attack_on_the_surrogate_by_hand(digits):
    judged, surrogate = moved(digits, 1, 0.2), Classifier(moved(digits, 3, 0.2))
    both = right(judged, digits) & right(surrogate, digits)
    inputs, labels = digits.inputs[both], digits.labels[both]
    assert int(both.sum()) > 8
    made = run_attack("foolbox:pgd", surrogate, inputs, labels, RULES, steps=5, seed=1)
    result = davylamp.run_attack("foolbox:pgd", judged, inputs, labels, RULES, steps=5, seed=1, surrogate=surrogate)
    assert torch.equal(result.adv_inputs, made.adv_inputs)
    assert torch.equal(result.success, judged(made.adv_inputs).argmax(1) != labels)
    assert not torch.equal(result.success, made.success)


def test_one_step_on_the_mean_of_two_models_logits_by_hand(digits, pair):
    judged, one = pair
    other = Classifier(moved(digits, 5))
    inputs = digits.inputs.clone().requires_grad_(True)
    logits = (one(inputs) + other(inputs)) / 2
    nn.functional.cross_entropy(logits, digits.labels, reduction="sum").backward()
    assert inputs.grad is not None
    expected = (digits.inputs + EPSILON * inputs.grad.sign()).clamp(0, 1)
    result = davylamp.run_attack(
        "torchattacks:fgsm", judged, digits.inputs, digits.labels, RULES, surrogate=[one, other]
    )
    attacked = right(judged, digits)
    assert torch.allclose(result.adv_inputs[attacked], expected[attacked], atol=1e-6)
    assert result.surrogate == "surrogate + Sequential"
    assert mean_logit_ensemble([one]) is one


def test_the_surrogate_is_asked_and_the_model_is_not(digits, pair, monkeypatch):
    judged, surrogate = pair
    asked: list[Classifier] = []
    keep = QueryCounter.__init__

    def note(self, classifier, *arguments, **more):
        asked.append(classifier)
        keep(self, classifier, *arguments, **more)

    monkeypatch.setattr(QueryCounter, "__init__", note)
    result = run_transfer("torchattacks:pgd", judged, surrogate, digits.inputs, digits.labels, RULES, steps=4)
    assert asked
    assert all(each is surrogate for each in asked)
    attacked = right(judged, digits)
    assert result.surrogate_forwards is not None
    assert result.surrogate_backwards is not None
    assert torch.equal(result.surrogate_forwards, 4 * attacked.long())
    assert torch.equal(result.surrogate_backwards, 4 * attacked.long())
    assert not result.forwards.any()
    assert not result.backwards.any()
    assert {"surrogate_forwards", "surrogate_backwards"} <= set(result.to_frame().columns)
    assert "via surrogate" in repr(result)


def test_an_image_that_the_surrogate_gets_wrong_is_attacked_like_the_others(digits, pair):
    judged, surrogate = pair
    result = run_transfer("foolbox:pgd", judged, surrogate, digits.inputs, digits.labels, RULES, steps=5)
    wrong = right(judged, digits) & ~right(surrogate, digits)
    assert wrong.any()
    assert (result.distances.linf[wrong] > EPSILON / 2).all()
    nearest = run_transfer("foolbox:deepfool", judged, surrogate, digits.inputs, digits.labels, ThreatModel("l2"))
    assert not nearest.distances.l2[wrong].any()  # the clean image is an example of the surrogate already
    assert not nearest.invalid[wrong].any()
    assert nearest.robust[wrong].all()


def test_restarts_and_budgets_are_the_surrogates(digits, pair):
    judged, surrogate = pair
    shared = {"steps": 3, "random_start": True, "restarts": 3, "max_queries": 14}
    attacked = right(judged, digits)
    one = run_transfer("foolbox:pgd", judged, surrogate, digits.inputs, digits.labels, RULES, **shared)
    made = run_attack("foolbox:pgd", surrogate, digits.inputs, digits.labels, RULES, attacked=attacked, **shared)
    assert torch.equal(one.adv_inputs, made.adv_inputs)
    assert one.surrogate_forwards is not None
    assert one.surrogate_backwards is not None
    assert int((one.surrogate_forwards + one.surrogate_backwards).max()) <= 14


def test_targets_are_what_the_surrogate_finds_likely(digits, pair):
    judged, surrogate = pair
    result = davylamp.run_attack(
        "foolbox:pgd", judged, digits.inputs, digits.labels, norm="linf", epsilon=0.1, target="least-likely",
        surrogate=surrogate, steps=3,
    )  # fmt: skip
    logits = surrogate(digits.inputs).scatter(1, digits.labels[:, None], torch.inf)
    assert torch.equal(result.targets, logits.argmin(1))
    assert torch.equal(result.success, result.attacked & (judged(result.adv_inputs).argmax(1) == result.targets))


def test_a_model_that_answers_without_sense_fools_nobody(digits, pair):
    class Silent(nn.Module):
        """NaN off the clean images."""

        def __init__(self, net, clean):
            super().__init__()
            self.net, self.clean = net, clean

        def forward(self, inputs):
            known = (inputs[:, None] == self.clean).flatten(2).all(2).any(1)
            return self.net(inputs).where(known[:, None], torch.nan)

    silent = Classifier(Silent(digits.module, digits.inputs))
    result = run_transfer("foolbox:fgsm", silent, pair[1], digits.inputs, digits.labels, RULES)
    assert set(result.violations) == {("nan-logits",)}
    assert not result.success.any()


def test_a_surrogate_with_other_classes_and_wrong_flags_are_refused(digits, pair):
    few = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(768, 3)), name="few")
    with pytest.raises(InvalidInput, match="expected a surrogate with the 10 classes of judged, got few with 3"):
        run_transfer("foolbox:fgsm", pair[0], few, digits.inputs, digits.labels, RULES)
    with pytest.raises(InvalidInput, match="expected attacked as 16 booleans"):
        run_attack("foolbox:fgsm", pair[0], digits.inputs, digits.labels, RULES, attacked=torch.ones(16))
    with pytest.raises(InvalidInput, match="at least one surrogate"):
        davylamp.run_attack("foolbox:fgsm", pair[0], digits.inputs, digits.labels, RULES, surrogate=[])

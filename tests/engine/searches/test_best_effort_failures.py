"""Best effort around a library that misbehaves, and plain results moved to 8 bits."""

import pytest
import torch

from davylamp.adapters import ThreatModel, run_attack
from davylamp.adapters.libraries.torchattacks import driver as torchattacks
from davylamp.adapters.running.judge import quantise
from davylamp.engine import round_to_8bit, search_radius
from davylamp.errors import AttackFailed


@pytest.fixture
def library(monkeypatch, digits):
    """Replace torchattacks by a function of (inputs, epsilon, steps); search four digits with it, 8 radii up to 0.8."""

    def runner(function, **parameters):
        def run(attack_class, model, inputs, labels, ball, targets=None, *, steps=None, **kwargs):
            return function(inputs, ball.epsilon, steps)

        case = digits.classifier, digits.inputs[:4], digits.labels[:4]
        monkeypatch.setattr(torchattacks, "run", run)
        return search_radius("torchattacks:pgd", *case, ThreatModel("linf", 0.8), rounds=3, **parameters)

    return runner


def test_the_nearest_example_is_kept_wherever_it_was_found(library, digits):
    inputs = digits.inputs[:4]
    near = run_attack("foolbox:pgd", *(digits.classifier, inputs, digits.labels[:4]), ThreatModel("linf", 0.2))
    assert near.success.all()
    shift = {0.8: 1.0, 0.4: 1.9}  # nearest at the largest radius; farther, but in a smaller ball, at the next one
    result = library(
        lambda clean, epsilon, _: (clean + shift.get(epsilon, 0.0) * (near.adv_inputs - inputs)[: len(clean)]).clamp(
            0, 1
        )
    )
    assert result.budget.tolist() == [0.4] * 4
    assert result.distance.tolist() == pytest.approx([0.2] * 4)
    assert torch.allclose(result.adv_inputs, near.adv_inputs, atol=1e-6)


def test_one_combination_that_proves_nothing_leaves_an_unfooled_image_unproven(library):
    weak = library(lambda inputs, epsilon, steps: (inputs + 0.01).clamp(0, 1))
    assert weak.robust.all()
    result = library(
        lambda inputs, epsilon, steps: (inputs + (0.01 if steps == 1 else torch.nan)).clamp(0, 1),
        grid={"steps": [1, 2]},
    )
    assert result.violations == (("nan",),) * 4
    assert result.invalid.all()


def test_a_crash_below_the_top_keeps_what_was_found(library, digits):
    def crash_below_half(inputs, epsilon, steps):
        if epsilon < 0.5:
            raise RuntimeError("too small for me")
        return (1 - inputs).clamp(inputs - epsilon, inputs + epsilon)

    result = library(crash_below_half)
    assert result.success.any()
    assert (result.budget[result.success] == 0.8).all()
    assert "too small for me" in " ".join(result.errors)
    assert result.violations == ((),) * 4
    assert result.runs[result.success].max() == 2


def test_a_crash_at_the_largest_radius_is_an_error_and_what_proves_nothing_neither_fooled_nor_robust(library):
    with pytest.raises(AttackFailed, match="torchattacks:pgd crashed"):
        library(lambda *_: 1 / 0)
    result = library(lambda inputs, epsilon, steps: inputs * torch.nan)
    assert result.invalid.all()
    assert result.budget.isinf().all()
    assert (result.violations, result.runs.tolist()) == ((("nan",),) * 4, [1] * 4)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("levels", [0.5, 2.5, 8])
def test_a_success_on_pixels_is_inside_the_ball(digits, norm, levels):
    inputs = quantise(digits.inputs)
    threat_model = ThreatModel(norm, levels / 255 * (1 if norm == "linf" else 12))
    result = run_attack("foolbox:pgd", digits.classifier, inputs, digits.labels, threat_model, steps=10, step_size=0.05)
    rounded = round_to_8bit(result, digits.classifier, inputs)
    assert torch.equal(quantise(rounded.adv_inputs), rounded.adv_inputs)
    distance = getattr(rounded.distances, norm)
    assert (distance[rounded.success] <= threat_model.epsilon + 1e-6).all()
    fooled = digits.classifier.predict_logits(rounded.adv_inputs).argmax(1) != digits.labels
    assert torch.equal(rounded.success, result.success & fooled & (distance <= threat_model.epsilon + 1e-6))
    if norm == "linf" and levels == 2.5:
        assert (distance[result.success] > 1.9 / 255).all()
    if levels == 8:
        assert rounded.success.any()
        whole = (distance * 255 - levels).abs() < 1e-3 if norm == "linf" else torch.zeros(16, dtype=torch.bool)
        assert torch.equal(rounded.adv_inputs[whole], quantise(result.adv_inputs)[whole])


def test_a_plain_result_is_moved_to_pixels(digits):
    result = run_attack("foolbox:deepfool", digits.classifier, digits.inputs, digits.labels, ThreatModel("l2"))
    rounded = round_to_8bit(result, digits.classifier, digits.inputs)
    assert torch.equal(rounded.adv_inputs, torch.floor(result.adv_inputs * 255 + 0.5) / 255)
    assert torch.equal(rounded.success, result.success_8bit)
    assert result.success.sum() > rounded.success.sum()  # DeepFool stops just behind the boundary
    assert torch.equal(rounded.adv_logits.argmax(1) != rounded.labels, rounded.success)
    assert torch.equal(round_to_8bit(rounded, digits.classifier, digits.inputs).adv_inputs, rounded.adv_inputs)
    assert rounded.budget is None

"""Findings and limits of adversarial-library's rows, each shown as shipped; and what davylamp mends, gone after it."""

import importlib.util
import inspect
import math
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from davylamp.adapters import Classifier, ThreatModel, find_implementation, run_attack
from davylamp.adapters.libraries.adv_lib import functions

from .direct import part, rows_of, sizes

attack = rows_of("adv-lib")


def test_apgd_halves_its_step_although_the_loss_improves(digits, monkeypatch):
    """halved-anyway: from the second check on, the loss of the last check is the tensor that it is compared with."""
    module, same = inspect.getmodule(functions.apgd), []

    def look(loss_steps: Tensor, *_: Any, **__: Any) -> Tensor:
        there = sys._getframe(1).f_locals
        same.append(there["loss_best_last_check"] is there["loss_best"])
        return torch.zeros_like(loss_steps[0], dtype=torch.bool)  # no loss oscillates

    monkeypatch.setattr(module, "check_oscillation", look)
    functions.apgd(digits.module, digits.inputs, digits.labels, eps=0.1, norm=math.inf, n_iter=50)
    assert len(same) > 2
    assert same == [False] + [True] * (len(same) - 1)


def test_the_targeted_ratio_of_apgd_does_not_know_the_label():
    """target-against-best: the same loss, whatever class of the others the label is."""
    ratio = inspect.getmodule(functions.apgd).difference_of_logits_ratio
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.5, 0.0]])
    paper = [(logits[0, 4] - logits[0, label]) / (3 - (1 + 0.5) / 2) for label in (0, 1)]
    loss = ratio(logits, torch.tensor([4]), targeted=True)
    assert loss.item() == pytest.approx(paper[0].item())
    assert loss.item() != pytest.approx(paper[1].item())


def test_ddn_rounds_where_a_level_is_too_coarse(linear):
    """rounds-to-8-bit."""
    words = {"steps": 100, "initial_epsilon": 0.02}
    rounded, free = (attack(name, linear, "l2", **words) for name in ("ddn", "ddn@fixed"))
    assert torch.allclose(rounded.adv_inputs * 255, (rounded.adv_inputs * 255).round(), atol=1e-3)
    assert free.success.all()
    assert (rounded.distance > 2 * free.distance).all()
    torch.testing.assert_close(free.distance, linear.least["l2"].double(), rtol=0.05, atol=0)


def test_a_flat_gradient_stops_perc_al_for_good(digits):
    """nan-on-flat."""

    class FlatAtFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.asked = 0

        def forward(self, inputs: Tensor) -> Tensor:
            self.asked += inputs.requires_grad
            return digits.module(inputs) * (0.0 if self.asked == 1 and inputs.requires_grad else 1.0)

    case = digits.first(2)
    for module, moves in ((FlatAtFirst(), False), (case.module, True)):
        result = attack("perc-al", case._replace(module=module), "unrestricted", steps=40)
        assert result.success.tolist() == [moves] * 2


def test_trust_region_reaches_a_tenth_by_default(digits):
    """short-reach."""
    digits = digits.first(3)
    result = attack("trust-region", digits, "l2")
    assert not result.success.any()
    assert (sizes(digits, result.adv_inputs, 2) < 0.115).all()
    assert attack("trust-region", digits, "l2", step_size=0.1).success.all()


def test_the_last_stage_of_strattack_is_long(linear, monkeypatch):
    """long-last-stage: eight rounds of 400 steps, whatever is asked for."""
    asked = []
    module = inspect.getmodule(functions.str_attack)
    monkeypatch.setattr(
        module, "range", lambda *bounds: range(min(2, asked.append(bounds) or bounds[0])), raising=False
    )
    attack("strattack", linear, "l2", steps=1, binary_search_steps=1)
    assert asked[:5] == [(1,), (1,), (8,), (400,), (400,)]


def test_it_runs_without_visdom_and_leaves_no_trace_of_one():
    assert functions.fmn.__module__.startswith("adv_lib.")
    assert ("visdom" in sys.modules) == (importlib.util.find_spec("visdom") is not None)


@pytest.mark.parametrize("steps", [1, 2])
def test_pgd_looks_at_its_last_step(digits, steps):
    """last-step-unseen: n steps of the repaired row are n of every other library's."""
    words = {"steps": steps, "step_size": 0.3 / steps, "random_start": False}
    rows = ("pgd", "pgd@fixed", "torchattacks:pgd")
    shipped, repaired, other = (attack(name, digits, "linf", 0.3, **words) for name in rows)
    assert torch.equal(repaired.success, other.success)
    assert repaired.success.sum() > shipped.success.sum() or steps > 1
    if steps == 1:
        assert torch.equal(shipped.adv_inputs, digits.inputs)
        torch.testing.assert_close(repaired.adv_inputs, other.adv_inputs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["alma", "alma-ssim"])
def test_alma_keeps_images_short_of_their_target(digits, name):
    """tolerance-turned: with a tolerance of one logit what it keeps need not reach the target."""
    targets = digits.module(digits.inputs).argsort(1)[:, -2]
    norm = "l2" if name == "alma" else "unrestricted"
    words = {"targets": targets, "steps": 100, "confidence": 1.0}
    shipped = attack(name, digits, norm, **words)
    assert (shipped.adv_inputs != digits.inputs).flatten(1).any(1).all()
    assert not (shipped.success.any() if name == "alma" else shipped.success.all())
    repaired = attack(f"{name}@fixed", digits, norm, **words)
    assert repaired.success.all()
    best = repaired.adv_logits.topk(2).values
    assert (best[:, 0] - best[:, 1] >= 1 - 1e-3).all()
    assert torch.equal(
        attack(name, digits, norm, steps=20).adv_inputs,
        attack(f"{name}@fixed", digits, norm, steps=20).adv_inputs,
    )


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_fmn_crosses_the_boundary(digits, linear, norm):
    """short-of-the-boundary: on a linear model and, in l1, on a network."""
    case, words = (linear, {"steps": 60}) if norm == "l2" else (digits, {"steps": 100})
    shipped, repaired = (attack(name, case, norm, **words) for name in ("fmn", "fmn@fixed"))
    assert norm == "l2" or not shipped.success.all()  # on a linear model the processor's rounding decides: see below
    assert repaired.success.all()
    both = shipped.success
    torch.testing.assert_close(repaired.distance[both], shipped.distance[both], rtol=0.02, atol=0)
    if norm == "l2":
        torch.testing.assert_close(repaired.distance, linear.least["l2"].double(), rtol=2e-3, atol=0)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_fmn_leaves_a_tie(norm):
    """short-of-the-boundary, exact in binary: it comes to where both logits are 0, and the way from there is 0 long."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    with torch.no_grad():
        network[1].weight.zero_()[1, 0] = 1
        network[1].bias[0], network[1].bias[1] = 0, -0.5
    images, labels = torch.full((1, 3, 2, 2), 0.25), torch.tensor([0])
    for name, successful in (("adv-lib:fmn", False), ("adv-lib:fmn@fixed", True)):
        result = run_attack(name, Classifier(network), images, labels, ThreatModel(norm), steps=100)
        assert result.success.item() is successful
    assert 0.25 < result.distance.item() <= 0.25 * 1.002


def test_fmn_leaves_what_is_inside_the_l2_ball():
    """projection-stretches."""
    from davylamp.adapters.libraries.adv_lib.patches import crossing_projections

    module: Any = inspect.getmodule(functions.fmn)
    shipped, inside = module.l2_projection_, torch.full((1, 3, 2, 2), 0.01)
    with crossing_projections():
        assert torch.equal(module.l2_projection_(inside.clone(), torch.ones(1)), inside.flatten(1))
        outside = module.l2_projection_(torch.ones(1, 3, 2, 2), torch.ones(1))
    assert outside.norm().item() == pytest.approx(1.001)
    assert module.l2_projection_ is shipped
    assert shipped(inside.clone(), torch.ones(1)).norm().item() == pytest.approx(1)


def test_fmn_survives_an_image_that_one_component_fools():
    """last-component."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).requires_grad_(False)
    module[1].weight.zero_()[1, 0] = 1.0
    module[1].bias.copy_(torch.tensor([0.0, -0.1, -5.0]))
    case = SimpleNamespace(module=module, inputs=torch.zeros(1, 3, 2, 2), labels=torch.tensor([0]))
    with pytest.raises(RuntimeError, match="out of bounds"):
        functions.fmn(module, case.inputs, case.labels, norm=0, steps=20)
    result = attack("fmn@fixed", case, "l0", steps=20)
    assert result.success.all()
    assert result.distance.item() == 1


def test_pdpgd_with_the_operator_of_the_paper_changes_fewer_components(digits):
    """whole-pixels: three components at a time, and several times as many."""
    digits = digits.first(4)
    shipped, repaired = (
        attack(name, digits, "l0", steps=300).adv_inputs - digits.inputs for name in ("pdpgd", "pdpgd@fixed")
    )
    pixels = (shipped != 0).sum(1)
    assert set(pixels.unique().tolist()) == {0, 3}
    counts = [int((change != 0).sum()) for change in (shipped, repaired)]
    assert counts[0] > 2 * counts[1] > 0


def test_strattack_gives_up_where_it_finds_nothing(digits, monkeypatch):
    """Its last stage asks for a percentile of no change at all."""
    module: Any = inspect.getmodule(functions.str_attack)
    shorter = lambda *bounds: range(*(3 if bound == 400 else bound for bound in bounds))  # noqa: E731
    monkeypatch.setattr(module, "range", shorter, raising=False)
    case = digits.first(1)
    words = {"max_iterations": 1, "binary_search_steps": 1, "initial_const": 1e-6}
    with pytest.raises(IndexError):
        functions.str_attack(case.module, case.inputs, case.labels, **words)
    result = attack("strattack", case, "l2", steps=1, binary_search_steps=1, initial_const=1e-6)
    assert not result.errors
    assert torch.equal(result.adv_inputs, case.inputs)
    import numpy as np

    assert module.np is np


def test_cw_stops_for_itself_and_runs_below_ten_steps(digits):
    case = digits.first(4)
    words = {"steps": 40, "binary_search_steps": 2, "initial_const": 10.0, "learning_rate": 0.05}
    together = attack("cw", case, "l2", **words)
    for i in range(4):
        one = part(case, i)
        assert torch.equal(attack("cw", one, "l2", **words).adv_inputs, together.adv_inputs[i : i + 1])
    with pytest.raises(ZeroDivisionError):
        functions.carlini_wagner_l2(case.module, case.inputs, case.labels, max_iterations=5)
    assert attack("cw", case, "l2", **{**words, "steps": 5}).forwards.tolist() == [10] * 4


@pytest.mark.parametrize("name", ["fmn", "fmn@fixed"])
def test_fmn_begins_at_the_examples_that_it_is_given(digits, name):
    case, l2 = digits.first(5), ThreatModel("l2")
    nearby = attack("ddn@fixed", case, "l2", steps=40)
    row, examples = find_implementation(f"adv-lib:{name}"), nearby.adv_inputs
    assert nearby.success.all()
    asked: list[Tensor] = []

    class Watching(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            asked.append(inputs.detach().clone())
            return digits.module(inputs)

    begun = replace(row, fixed={**row.fixed, row.begins_at: examples})
    words = {"steps": 3, "batch_size": 2, "learning_rate": 0.1, "logits": nearby.logits}
    result = run_attack(begun, Classifier(Watching()), case.inputs, case.labels, l2, **words)
    assert result.forwards.tolist() == [4] * 5  # one to see that they fool the model, no bisection
    assert result.backwards.tolist() == [3] * 5
    starts = [batch for batch in asked for some in examples.split(2) if torch.equal(batch, some)]
    assert len(starts) >= 3  # each batch of two as it was given, none scaled or mixed up
    assert (result.distance <= nearby.distance + 1e-6).all()

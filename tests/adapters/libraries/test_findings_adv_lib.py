"""The findings and limits of adversarial-library that its rows carry, each shown in the library as shipped."""

import inspect
import math
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.libraries.adv_lib import functions
from davylamp.errors import Unsupported


def attack(name: str, case: Any, threat_model: ThreatModel, **parameters: Any) -> Any:
    classifier = Classifier(case.module, outputs="logits")
    classifier.answers.note_gradients(there=True)  # the attack's questions are the first
    return run_attack(f"adv-lib:{name}", classifier, case.inputs, case.labels, threat_model, **parameters)


def sizes(case: Any, images: Tensor, norm: float) -> Tensor:
    return (images - case.inputs).flatten(1).norm(p=norm, dim=1)


def fooled(case: Any, images: Tensor) -> Tensor:
    return case.module(images).argmax(1) != case.labels


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


def test_fmn_stretches_in_l2(digits):
    """projection-stretches: what is inside the ball is put on the sphere."""
    project = inspect.getmodule(functions.fmn).l2_projection_
    inside = 0.1 * torch.ones(2, 3, 2, 2) / math.sqrt(12)
    assert project(inside.clone(), torch.tensor([1.0, 0.5])).norm(dim=1).tolist() == pytest.approx([1.0, 0.5])


def test_ddn_rounds_where_a_level_is_too_coarse(linear):
    """rounds-to-8-bit."""
    words = {"steps": 100, "initial_epsilon": 0.02}
    rounded, free = (attack(name, linear, ThreatModel("l2"), **words) for name in ("ddn", "ddn@repaired"))
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
        result = attack("perc-al", case._replace(module=module), ThreatModel("unrestricted"), steps=40)
        assert result.success.tolist() == [moves] * 2


def test_trust_region_reaches_a_tenth_by_default(digits):
    """short-reach."""
    digits = digits.first(3)
    result = attack("trust-region", digits, ThreatModel("l2"))
    assert not result.success.any()
    assert (sizes(digits, result.adv_inputs, 2) < 0.115).all()
    assert attack("trust-region", digits, ThreatModel("l2"), step_size=0.1).success.all()


def test_the_last_stage_of_strattack_is_long(linear, monkeypatch):
    """long-last-stage: eight rounds of 400 steps, whatever is asked for."""
    asked = []
    module = inspect.getmodule(functions.str_attack)
    monkeypatch.setattr(
        module, "range", lambda *bounds: range(min(2, asked.append(bounds) or bounds[0])), raising=False
    )
    attack("strattack", linear, ThreatModel("l2"), steps=1, binary_search_steps=1)
    assert asked[:5] == [(1,), (1,), (8,), (400,), (400,)]


@pytest.mark.parametrize(
    ("name", "shape", "classes", "norm", "parameters", "message"),
    [
        ("perc-al", (1, 12, 12), 10, "unrestricted", {}, "3 channels"),
        ("alma-ciede2000", (1, 12, 12), 10, "unrestricted", {}, "3 channels"),
        ("alma-ssim", (3, 8, 12), 10, "unrestricted", {}, "at least 11 x 11 pixels"),
        ("pdgd", (3, 8, 8), 10, "l2", {"steps": 1}, "at least 2 steps"),
        ("pdpgd", (3, 8, 8), 10, "linf", {"steps": 1}, "at least 2 steps"),
        ("cw", (3, 8, 8), 10, "linf", {"confidence": 1.0}, "confidence 0 in linf"),
    ],
)
def test_what_a_function_cannot_take_is_said_in_one_line(name, shape, classes, norm, parameters, message):
    torch.manual_seed(0)
    inputs = torch.rand(1, *shape)
    module = nn.Sequential(nn.Flatten(), nn.Linear(inputs.numel(), classes)).requires_grad_(False)
    case = SimpleNamespace(module=module, inputs=inputs, labels=module(inputs).argmax(1))
    with pytest.raises(Unsupported, match=message):
        attack(name, case, ThreatModel(norm), **parameters)


def test_alma_needs_four_classes_to_aim_at_one():
    torch.manual_seed(0)
    inputs = torch.rand(1, 3, 8, 8)
    module = nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).requires_grad_(False)
    case = SimpleNamespace(module=module, inputs=inputs, labels=module(inputs).argmax(1))
    assert attack("alma", case, ThreatModel("l2"), steps=50).success.all()
    with pytest.raises(Unsupported, match="at least 4 classes"):
        attack("alma", case, ThreatModel("l2", targeted=True), targets=(case.labels + 1) % 3, steps=50)


def test_a_word_that_a_function_lacks_is_refused():
    from davylamp.adapters.libraries.adv_lib.driver import run

    inputs = torch.rand(1, 3, 8, 8)
    module = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    module.num_classes = 4
    with pytest.raises(ValueError, match="expected parameters of fmn, got n_iter"):
        run(functions.fmn, module, inputs, module(inputs).argmax(1), ThreatModel("l2"), n_iter=3)

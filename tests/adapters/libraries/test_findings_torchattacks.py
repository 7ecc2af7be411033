"""The findings and limits of torchattacks that its rows carry, each shown in the library as shipped."""

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torchattacks
from torch import Tensor, nn

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.errors import Unsupported

SEED = 7
STEPS = {"steps": 3, "step_size": 0.04}


def _known(module: Any) -> Classifier:
    """A classifier that nobody has to ask what it gives: the attack's questions are the first."""
    classifier = Classifier(module, outputs="logits")
    classifier.answers.note_gradients(there=True)
    return classifier


def attack(name: str, case: Any, threat_model: ThreatModel, targets: Tensor | None = None, **parameters: Any) -> Any:
    return run_attack(
        f"torchattacks:{name}",
        _known(case.module),
        case.inputs,
        case.labels,
        threat_model,
        targets=targets,
        seed=SEED,
        **parameters,
    )


def directly(library_class: str, case: Any, targets: Tensor | None = None, **words: Any) -> Tensor:
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    library_attack = getattr(torchattacks, library_class)(case.module, **words)
    if targets is not None:
        library_attack.set_mode_targeted_by_function(lambda *_: targets, quiet=True)
    return library_attack(case.inputs, case.labels).detach()


def second_likely(case: Any) -> Tensor:
    return case.module(case.inputs).scatter(1, case.labels[:, None], -torch.inf).argmax(1)


def test_ead_goes_on_between_rounds_and_runs_below_ten_steps(digits):
    case, asked = digits.first(1), []
    words = {"max_iterations": 5, "binary_search_steps": 2, "initial_const": 10.0}
    with pytest.raises(ZeroDivisionError):
        directly("EADEN", case, **words)
    result = attack("ead-en", case, ThreatModel("l1"), steps=5, binary_search_steps=2, initial_const=10.0)
    hook = case.module.register_forward_pre_hook(lambda _, given: asked.append(given[0].detach().clone()))
    assert torch.equal(result.adv_inputs, directly("EADEN", case, **words, abort_early=False).clamp(0, 1))
    hook.remove()
    assert torch.equal(asked[1], case.inputs)
    assert not torch.allclose(asked[1 + 2 * 5], case.inputs, atol=1e-3)
    assert result.forwards.item() == len(asked) == 1 + 2 * 2 * 5


def test_pgd_starts_near_the_image_in_l2(digits):
    copies = digits._replace(inputs=digits.inputs[:1].expand(64, -1, -1, -1), labels=digits.labels[:1].expand(64))
    starts = directly("PGDL2", copies, eps=0.04, alpha=0.0, steps=1) - copies.inputs
    assert 0.4 < (starts.flatten(1).norm(dim=1) / 0.04).mean() < 0.6


@pytest.mark.parametrize("name", ["mi-fgsm", "ni-fgsm", "si-ni-fgsm", "vmi-fgsm", "vni-fgsm", "upgd", "di-fgsm"])
def test_a_zero_gradient_stops_the_momentum_attacks_for_good(digits, name):
    class FlatAtFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.asked = 0

        def forward(self, inputs: Tensor) -> Tensor:
            self.asked += torch.is_grad_enabled()
            return digits.module(inputs) * (1.0 if self.asked != 1 else 0.0)

    case = digits.first(1)
    for row, moves in ((name, False), ("bim", True)):
        flat = case._replace(module=FlatAtFirst())
        parameters = {"scales": 1} if row == "si-ni-fgsm" else {}
        moved = attack(row, flat, ThreatModel("linf", 0.1), **STEPS, **parameters).adv_inputs != case.inputs
        assert bool(moved.any()) == moves


def test_attacks_that_take_labels_for_targets(digits):
    case, targets = digits.first(3), second_likely(digits.first(3))
    for library_class in ("SPSA", "PIFGSMPP"):
        by_function = directly(library_class, case, targets)
        library_attack = getattr(torchattacks, library_class)(case.module)
        library_attack.set_mode_targeted_by_label(quiet=True)
        torch.manual_seed(SEED)
        by_label = library_attack(case.inputs, case.labels)
        assert torch.equal(by_function, by_label)  # targets-ignored: the labels, not the targets
    parameters = {"steps": 10, "samples": 64, "learning_rate": 0.05}
    assert attack("spsa", case, ThreatModel("linf", 0.3, targeted=True), targets, **parameters).success.any()
    assert attack("pi-fgsm++", case, ThreatModel("linf", 0.3, targeted=True), targets).success.any()


def test_defaults_that_leave_something_out(digits):
    case = digits.first(2)
    assert (directly("SPSA", case) - case.inputs).abs().max() < 0.0101  # of 0.3
    inner = torchattacks.AutoAttack(case.module)._autoattack.attacks
    assert [getattr(each, "steps", None) for each in inner] == [10, 10, 10, None]
    for library_class in ("PIFGSM", "PIFGSMPP"):
        plain, other = (directly(library_class, case, momentum=m, prob=p) for m, p in ((1.0, 0.7), (0.0, 0.1)))
        assert torch.equal(plain, other)
    assert torch.equal(directly("TIFGSM", case, len_kernel=1), directly("DIFGSM", case))
    assert torchattacks.DIFGSM(case.module).decay == torchattacks.TIFGSM(case.module).decay == 0


def test_fewer_classes_than_the_library_expects(linear):
    least = float(linear.least["linf"].min())
    with pytest.raises(IndexError):
        directly("APGDT", linear, eps=least / 2)
    assert not attack("apgd-t", linear, ThreatModel("linf", least / 2)).success.any()


@pytest.mark.parametrize(
    ("name", "shape", "norm", "epsilon", "message"),
    [
        ("ti-fgsm", (1, 8, 8), "linf", 0.1, "3 channels"),
        ("pi-fgsm", (1, 8, 8), "linf", 0.1, "3 channels"),
        ("one-pixel", (3, 8, 8), "l0", 2, "epsilon >= 3"),
        ("jsma", (3, 8, 8), "l0", 1, "epsilon >= 2"),
        ("jsma", (3, 90, 90), "l0", 4, "at most 20000 components"),
    ],
)
def test_what_a_class_cannot_take_is_said_in_one_line(name, shape, norm, epsilon, message):
    torch.manual_seed(0)
    inputs = torch.rand(1, *shape)
    module = nn.Sequential(nn.Flatten(), nn.Linear(inputs.numel(), 12)).requires_grad_(False)
    case = SimpleNamespace(module=module, inputs=inputs, labels=module(inputs).argmax(1))
    with pytest.raises(Unsupported, match=message):
        attack(name, case, ThreatModel(norm, epsilon))

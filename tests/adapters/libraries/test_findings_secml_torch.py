"""The findings of SecML-Torch that its rows carry, each shown in the library as shipped."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from davylamp.adapters import ThreatModel, run_attack
from davylamp.adapters.libraries.secml_torch.natives import ClassifierElsewhere, DDNNative, PGDNative

PGD = {"steps": 10, "step_size": 0.025}


def attack(name: str, case: Any, rules: ThreatModel, **parameters: Any) -> Any:
    return run_attack(name, case.classifier, case.inputs, case.labels, rules, **parameters)


def directly(native: Any, case: Any) -> Tensor:
    batch = DataLoader(TensorDataset(case.inputs, case.labels), batch_size=len(case.inputs))
    return torch.cat([images for images, _ in native(ClassifierElsewhere(case.module), batch, stream=True)]).detach()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_pgd_never_looks_at_its_last_step(digits, norm):
    """last-step-unseen: one step is none; the repaired row's one step is Foolbox's where it raises the loss."""
    rules = ThreatModel(norm, {"linf": 0.1, "l2": 1.5}[norm])
    words = {"steps": 1, "step_size": rules.epsilon, "random_start": False}
    shipped, repaired, other = (
        attack(name, digits, rules, **words).adv_inputs
        for name in ("secml-torch:pgd", "secml-torch:pgd@repaired", "foolbox:pgd")
    )
    assert torch.equal(shipped, digits.inputs)
    assert (repaired != digits.inputs).flatten(1).any(1).all()
    torch.testing.assert_close(repaired, other, rtol=0, atol=1e-6)


def test_the_random_start_is_the_image(digits):
    """starts-from-the-image: nearly every component begins at +epsilon; in the repaired row they are spread."""
    native = PGDNative(
        perturbation_model="linf", epsilon=0.04, num_steps=1, step_size=0.0, random_start=True, y_target=None
    )
    torch.manual_seed(0)
    at_the_corner = (directly(native, digits) - digits.inputs) >= 0.04 - 1e-6
    assert at_the_corner.float().mean() > 0.8
    words = {"steps": 1, "step_size": 1e-9, "random_start": True}
    change = attack("secml-torch:pgd@repaired", digits, ThreatModel("linf", 0.04), **words).adv_inputs - digits.inputs
    assert (change >= 0.04 - 1e-6).float().mean() < 0.01
    assert change.mean().abs() < 1e-3
    assert change.std().item() == pytest.approx(0.04 / 3**0.5, rel=0.02)


def test_fmn_has_no_radius_until_an_image_is_fooled(linear):
    """no-first-radius: adversarial-library's ends within a thousandth of the optimum in as many steps."""
    words = {"steps": 60, "learning_rate": 0.01, "gamma": 0.05}
    least = linear.least["linf"]
    far, near = (
        attack(f"{library}:fmn", linear, ThreatModel("linf"), **words).distance / least
        for library in ("secml-torch", "adv-lib")
    )
    assert (near < 1.002).all()
    assert far.max() > 4


def test_ddn_does_not_hear_of_gamma(digits):
    """gamma-overwritten."""
    case = digits.first(4)
    slow, fast = (directly(DDNNative(num_steps=30, gamma=gamma), case) for gamma in (0.02, 0.3))
    assert torch.equal(slow, fast)
    words = {"steps": 30, "initial_epsilon": 1.0}
    rows = [
        attack("secml-torch:ddn@repaired", case, ThreatModel("l2"), gamma=gamma, **words).distance
        for gamma in (0.02, 0.05, 0.3)
    ]
    assert torch.equal(rows[1], attack("secml-torch:ddn", case, ThreatModel("l2"), **words).distance)
    assert len({tuple(row.tolist()) for row in rows}) == 3


def test_ddn_begins_too_near_for_some_images(digits):
    """small-first-radius: with the paper's radius all are fooled in as many steps."""
    shipped, papers = (
        attack("secml-torch:ddn", digits, ThreatModel("l2"), steps=100, **more)
        for more in ({}, {"initial_epsilon": 1.0})
    )
    assert papers.success.all()
    assert not shipped.success.all()


def test_a_word_that_a_class_lacks_is_refused(digits):
    from davylamp.adapters.libraries.secml_torch.driver import run

    with pytest.raises(ValueError, match="expected parameters of DDNNative, got alpha"):
        run(DDNNative, digits.module, digits.inputs, digits.labels, ThreatModel("l2"), alpha=1.0)

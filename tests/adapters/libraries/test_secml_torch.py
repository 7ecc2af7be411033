"""Findings of SecML-Torch's rows, each shown as shipped; and what davylamp mends so that it runs."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from davylamp.adapters.libraries.secml_torch.native_attacks import DDNNative, DeviceBridgingClassifier, PGDNative
from davylamp.adapters.libraries.secml_torch.patches import _Noise

from .direct import part, rows_of

attack = rows_of("secml-torch")


def directly(native: Any, case: Any) -> Tensor:
    batch = DataLoader(TensorDataset(case.inputs, case.labels), batch_size=len(case.inputs))
    return torch.cat(
        [images for images, _ in native(DeviceBridgingClassifier(case.module), batch, stream=True)]
    ).detach()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_pgd_never_looks_at_its_last_step(digits, norm):
    """last-step-unseen: one step is none; the repaired row's one step is Foolbox's where it raises the loss."""
    epsilon = {"linf": 0.1, "l2": 1.5}[norm]
    words = {"steps": 1, "step_size": epsilon, "random_start": False}
    shipped, repaired, other = (
        attack(name, digits, norm, epsilon, **words).adv_inputs
        for name in ("secml-torch:pgd", "secml-torch:pgd@fixed", "foolbox:pgd")
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
    change = attack("secml-torch:pgd@fixed", digits, "linf", 0.04, **words).adv_inputs - digits.inputs
    assert (change >= 0.04 - 1e-6).float().mean() < 0.01
    assert change.mean().abs() < 1e-3
    assert change.std().item() == pytest.approx(0.04 / 3**0.5, rel=0.02)


def test_fmn_has_no_radius_until_an_image_is_fooled(linear):
    """no-first-radius: adversarial-library's ends within a thousandth of the optimum in as many steps."""
    words = {"steps": 60, "learning_rate": 0.01, "gamma": 0.05}
    least = linear.least["linf"]
    far, near = (
        attack(f"{library}:fmn", linear, "linf", **words).distance / least for library in ("secml-torch", "adv-lib")
    )
    assert (near < 1.002).all()
    assert far.max() > 4


def test_ddn_does_not_hear_of_gamma(digits):
    """gamma-overwritten."""
    case = digits.first(4)
    slow, fast = (directly(DDNNative(num_steps=30, gamma=gamma), case) for gamma in (0.02, 0.3))
    assert torch.equal(slow, fast)
    words = {"steps": 30, "initial_epsilon": 1.0}
    rows = [attack("secml-torch:ddn@fixed", case, "l2", gamma=gamma, **words).distance for gamma in (0.02, 0.05, 0.3)]
    assert torch.equal(rows[1], attack("secml-torch:ddn", case, "l2", **words).distance)
    assert len({tuple(row.tolist()) for row in rows}) == 3


def test_ddn_begins_too_near_for_some_images(digits):
    """small-first-radius: with the paper's radius all are fooled in as many steps."""
    shipped, papers = (
        attack("secml-torch:ddn", digits, "l2", steps=100, **more) for more in ({}, {"initial_epsilon": 1.0})
    )
    assert papers.success.all()
    assert not shipped.success.all()


def l1_pgd(case: Any) -> Tensor:
    native = PGDNative(
        perturbation_model="l1", epsilon=8.0, num_steps=4, step_size=3.0, random_start=False, y_target=None
    )
    batch = DataLoader(TensorDataset(case.inputs, case.labels), batch_size=len(case.inputs))
    return torch.cat(
        [images for images, _ in native(DeviceBridgingClassifier(case.module), batch, stream=True)]
    ).detach()


def test_l1_pgd_moves_one_image_of_a_batch(digits):
    """As shipped the steepest component of the whole batch moves alone; the row is the library one image at a time."""
    case = digits.first(4)
    alone = torch.cat([l1_pgd(part(case, i)) for i in range(4)])
    moved = (l1_pgd(case) != case.inputs).flatten(1).any(1)
    assert moved.sum() < (alone != case.inputs).flatten(1).any(1).sum()
    words = {"steps": 4, "step_size": 3.0, "random_start": False}
    result = attack("pgd", case, "l1", 8.0, **words)
    assert torch.equal(result.adv_inputs, alone)


def test_the_model_is_asked_on_its_device_and_answers_on_that_of_the_images():
    """A stand-in for a GPU: the meta device takes no tensor of the CPU."""

    class Elsewhere(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, device="meta"))
            self.asked: list[str] = []

        def forward(self, inputs: Tensor) -> Tensor:
            self.asked.append(inputs.device.type)
            return torch.zeros(len(inputs), 3)

    module = Elsewhere()
    assert DeviceBridgingClassifier(module).decision_function(torch.zeros(2, 3, 4, 4)).device.type == "cpu"
    assert module.asked == ["meta"]


@pytest.mark.parametrize(("norm", "order"), [("l2", 2), ("l1", 1)])
def test_the_random_start_of_the_repaired_row_is_uniform_in_the_ball(norm, order):
    """A uniform point of a ball in d dimensions lies within r of the centre with probability r ** d."""
    torch.manual_seed(0)
    sizes = _Noise(norm, 2.0)(torch.zeros(4000, 1, 2, 2)).flatten(1).norm(p=order, dim=1) / 2
    assert sizes.max() <= 1
    shares = [(sizes < bound).float().mean().item() for bound in (0.5, 0.8)]
    assert shares == pytest.approx([0.5**4, 0.8**4], abs=0.03)


def test_it_is_imported_without_the_libraries_that_it_wraps(run_fresh):
    """Nor with a visdom that is none: as shipped it imports Foolbox and adv_lib where they are."""
    code = (
        "import sys, davylamp.adapters.libraries.secml_torch.native_attacks\n"
        "print(sorted({'foolbox', 'adv_lib', 'visdom'} & set(sys.modules)))"
    )
    assert run_fresh(code) == "[]\n"

"""What davylamp mends in SecML-Torch so that it runs as it should: each defect shown, and gone after the repair."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from davylamp.adapters import ThreatModel, run_attack
from davylamp.adapters.libraries.secml_torch.natives import ClassifierElsewhere, PGDNative
from davylamp.adapters.libraries.secml_torch.repairs import _Noise


def l1_pgd(case: Any) -> Tensor:
    native = PGDNative(
        perturbation_model="l1", epsilon=8.0, num_steps=4, step_size=3.0, random_start=False, y_target=None
    )
    batch = DataLoader(TensorDataset(case.inputs, case.labels), batch_size=len(case.inputs))
    return torch.cat([images for images, _ in native(ClassifierElsewhere(case.module), batch, stream=True)]).detach()


def test_l1_pgd_moves_one_image_of_a_batch(digits):
    """As shipped the steepest component of the whole batch moves alone; the row is the library one image at a time."""
    case = digits.first(4)
    alone = torch.cat(
        [l1_pgd(case._replace(inputs=case.inputs[i : i + 1], labels=case.labels[i : i + 1])) for i in range(4)]
    )
    moved = (l1_pgd(case) != case.inputs).flatten(1).any(1)
    assert moved.sum() < (alone != case.inputs).flatten(1).any(1).sum()
    words = {"steps": 4, "step_size": 3.0, "random_start": False}
    rules = ThreatModel("l1", 8.0)
    result = run_attack("secml-torch:pgd", case.classifier, case.inputs, case.labels, rules, **words)
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
    assert ClassifierElsewhere(module).decision_function(torch.zeros(2, 3, 4, 4)).device.type == "cpu"
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
        "import sys, davylamp.adapters.libraries.secml_torch.natives\n"
        "print(sorted({'foolbox', 'adv_lib', 'visdom'} & set(sys.modules)))"
    )
    assert run_fresh(code) == "[]\n"

"""The findings and limits of torchattack that its rows carry, each shown as shipped, and what is mended of them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchattack
from torch import Tensor, nn

from davylamp.adapters import IMPLEMENTATIONS, Classifier, ThreatModel, run_attack
from davylamp.adapters.contract.linear import ContractCase
from davylamp.adapters.libraries.torchattack import repairs
from davylamp.errors import Unsupported

LINF = ThreatModel("linf", 0.5)
STEP = 0.01
UNCHANGED = {"ssa": {"spread": 0.0}}  # its transform is then the identity, with noise
COPIES = {"si-ni-fgsm": "scales", "ssa": "samples", "decowa": "samples"}


def _known(module: Any) -> Classifier:
    """A classifier that nobody has to ask what it gives: the attack's questions are the first."""
    classifier = Classifier(module, outputs="logits")
    classifier.answers.note_gradients(there=True)
    return classifier


def attack(name: str, case: ContractCase, threat_model: ThreatModel = LINF, **parameters: Any) -> Any:
    words = (case.inputs, case.labels, threat_model)
    return run_attack(f"torchattack:{name}", _known(case.module), *words, **parameters)


class Scripted(nn.Module):
    """Two classes whose difference rises with every pixel, at the i-th call with a gradient by `slope(i)`."""

    def __init__(self, slope: Callable[[int], float]):
        super().__init__()
        self.slope, self.calls, self.seen = slope, 0, []

    def forward(self, inputs: Tensor) -> Tensor:
        slope = 1.0
        if inputs.requires_grad:
            slope, self.calls = self.slope(self.calls), self.calls + 1
            self.seen.append(inputs.detach().clone())
        brightness = inputs.flatten(1).mean(1)
        return torch.stack([0.1 * slope * (brightness - 0.5) + 2, 0 * brightness], 1)


def scripted(slope: Callable[[int], float], count: int = 2, side: int = 16) -> ContractCase:
    """Grey images of class 0 under such a model: a slope of 1 makes an attack darken them."""
    inputs = torch.full((count, 3, side, side), 0.5)
    return ContractCase(Scripted(slope), inputs, torch.zeros(count, dtype=torch.long))


def mean_steps(name: str, slope: Callable[[int], float], **parameters: Any) -> float:
    """How many steps darker the images are in the mean."""
    case = scripted(slope)
    result = attack(name, case, step_size=STEP, decay=1.0, **parameters)
    return float((case.inputs - result.adv_inputs).mean()) / STEP


@pytest.mark.parametrize("name", ["ni-fgsm", "si-ni-fgsm", "ti-fgsm", "ssa", "decowa"])
def test_a_momentum_that_accumulates_goes_on_against_one_gradient(name):
    """momentum-dropped: after two steps down, a third gradient that points up turns those without a momentum."""
    a_step = 2 if name == "decowa" else 1
    words = {"steps": 3, **UNCHANGED.get(name, {})} | ({COPIES[name]: 1} if name in COPIES else {})
    shipped, mended = (
        mean_steps(n, lambda i: -1 if i >= 2 * a_step else 1, **words) for n in (name, f"{name}@repaired")
    )
    assert shipped == pytest.approx(1, abs=0.3)
    assert mended == pytest.approx(3, abs=0.5)


def test_the_first_copy_counts_more_than_the_last():
    """copies-counted-again: of two copies with gradients 1 and -3 / 2, the first counts twice."""
    shipped, mended = (
        mean_steps(n, lambda i: (1, -3)[i], steps=1, scales=2) for n in ("si-ni-fgsm", "si-ni-fgsm@repaired")
    )
    assert (shipped, mended) == (pytest.approx(1), pytest.approx(-1))


def test_the_gradient_that_tunes_a_warp_counts():
    """tuning-counted: against three times the gradient of the tuned warp, it wins."""
    shipped, mended = (mean_steps(n, lambda i: (-3, 1)[i], steps=1, samples=1) for n in ("decowa", "decowa@repaired"))
    assert shipped < -0.9
    assert mended > 0.9


@pytest.mark.filterwarnings("ignore:torch.meshgrid:UserWarning")
def test_a_warp_is_tuned_by_the_whole_call(digits):
    """one-warp: the first image alone is another than in a batch, unless nothing is tuned."""
    for rho, differs in ((1.0, True), (0.0, False)):
        first = []
        for count in (1, 4):
            torch.manual_seed(0)
            words = {"eps": 0.1, "alpha": 0.1, "steps": 1, "num_warping": 2, "rho": rho}
            first.append(
                torchattack.DeCoWA(digits.module, device="cpu", **words)(digits.inputs[:count], digits.labels[:count])[
                    0
                ]
            )
        assert bool(((first[0] - first[1]).abs() > 1e-3).any()) == differs


def test_the_kernel_is_the_root_of_the_papers():
    """wider-kernel: its variance is twice that of the paper's, as far as the window reaches."""

    def variance(kernel: Any) -> float:
        place = torch.arange(41.0) - 20
        return float((torch.tensor(kernel).float().sum(0) * place**2).sum())

    shipped, mended = (each.gkern(41, 6) for each in (torchattack.TIFGSM, repairs.TIFGSM))
    assert variance(shipped) / variance(mended) == pytest.approx(2, rel=0.1)
    assert mended.sum() == pytest.approx(1)


def test_mig_makes_the_model_surer(digits):
    """climbs-the-label."""
    words = {"steps": 8, "scales": 5}
    shipped, mended = (attack(name, digits, ThreatModel("linf", 0.1), **words) for name in ("mig", "mig@repaired"))
    rows = range(len(digits.labels))
    before, after = (logits.log_softmax(1)[rows, digits.labels] for logits in (shipped.logits, shipped.adv_logits))
    assert not shipped.success.any()
    assert (after >= before - 1e-4).all()
    assert (after > before).float().mean() > 0.7
    assert mended.success.float().mean() > 0.6


@pytest.mark.parametrize(("name", "steps"), [("gra", (1 - 0.94**20) / 0.06), ("gra@repaired", 20)])
def test_gra_takes_shorter_and_shorter_steps_along_one_gradient(name, steps):
    """every-step-shrinks: 20 equal gradients carry it less than 12 steps far."""
    moved = mean_steps(name, lambda _: 1, steps=20, samples=1)
    assert moved == pytest.approx(steps, rel=1e-3)


@pytest.mark.parametrize(("name", "steps"), [("gra", -3), ("gra@repaired", 3)])
def test_targeted_gra_flees_its_target(name, steps):
    """neighbours-flee: darker images are nearer to class 1."""
    case = scripted(lambda _: 1)
    targets, rules = 1 - case.labels, ThreatModel("linf", 0.5, targeted=True)
    result = attack(name, case, rules, targets=targets, steps=3, step_size=STEP, samples=1)
    moved = float((case.inputs - result.adv_inputs).mean()) / STEP
    assert moved == pytest.approx(steps, abs=0.3)


def test_an_image_alone_is_mixed_with_itself():
    """mixed-with-itself: the first copy is the image times 1 + portion."""
    case = scripted(lambda _: 1, count=1)
    attack("admix", case, steps=1, samples=2, portion=0.3)
    torch.testing.assert_close(case.module.seen[0][:2], 1.3 * case.inputs.repeat(2, 1, 1, 1))


def test_a_random_start_in_l2_leaves_the_box_and_is_near(digits):
    """start-outside, radius-uniform."""
    case = scripted(lambda _: 1, count=400)._replace(inputs=torch.zeros(400, 3, 4, 4))
    torchattack.PGDL2(case.module, eps=2.0, steps=1)(case.inputs, case.labels)
    (start,) = case.module.seen
    assert start.min() < 0
    assert start.flatten(1).norm(dim=1).mean().item() == pytest.approx(1, abs=0.1)


def test_confident_images_take_shorter_steps_in_l2():
    """epsilon-on-mean-gradient: a gradient of 1e-12 takes half of the step."""
    inputs = torch.full((1, 3, 16, 16), 0.5, requires_grad=True)
    module, label = Scripted(lambda _: 1e-8), torch.zeros(1, dtype=torch.long)
    gradient = torch.autograd.grad(nn.functional.cross_entropy(module(inputs), label), inputs)[0].norm().item()
    words = {"eps": 1.0, "alpha": 0.1, "steps": 1, "random_start": False}
    moved = (torchattack.PGDL2(module, **words)(inputs.detach(), label) - inputs).norm().item()
    assert gradient < 1e-10
    assert moved == pytest.approx(0.1 * gradient / (gradient + 1e-12), rel=1e-3)


STRUCTURES = ("sgm", "bpa", "tgr", "pna-patchout", "vdc", "att")  # test_structures_torchattack.py
ROWS = [row for row in IMPLEMENTATIONS.values() if row.library == "torchattack" and row.attack not in STRUCTURES]
NAN = [row.name for row in ROWS if "nan-momentum" in row.findings]


@pytest.mark.parametrize("name", [*NAN, "torchattack:ni-fgsm@repaired", "torchattack:ssa@repaired"])
def test_a_flat_gradient_stops_an_image_for_good(name):
    """nan-momentum: flat in the first of three steps, the same slope ever after."""
    row = IMPLEMENTATIONS[name]
    words = {word: 2 for word in ("samples", "scales") if word in row.params} | {"step_size": STEP}
    torch.manual_seed(0)
    images = 0.4 + 0.2 * torch.rand(1, 3, 16, 16)

    def distance(slope: Callable[[int], float], steps: int) -> tuple[float, int]:
        case = scripted(slope, count=1)._replace(inputs=images)
        result = attack(name.partition(":")[2], case, steps=steps, **words)
        return float((result.adv_inputs - images).abs().max()), case.module.calls

    moved, calls_of_a_step = distance(lambda _: 1, 1)
    assert moved > 0.9 * STEP
    stopped, _ = distance(lambda i: float(i >= calls_of_a_step), 3)
    assert (stopped == 0) == ("nan-momentum" in row.findings)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("ti-fgsm", (1, 8, 8), "3 channels"),
        ("di-fgsm", (3, 8, 12), "square images"),
        ("decowa", (3, 8, 12), "square images"),
        ("mumodig", (3, 8, 12), "square images"),
        ("l2t", (3, 8, 12), "square images"),
        ("mumodig", (3, 245, 245), "at most 244 pixels"),
        ("geoda", (3, 8, 12), "square images"),
        ("geoda", (1, 8, 8), "3 channels"),
        ("bsr", (3, 5, 12), "at most 2 blocks"),
    ],
)
def test_what_a_class_cannot_take_is_said_in_one_line(name, shape, message):
    case = scripted(lambda _: 1)._replace(inputs=torch.full((2, *shape), 0.5))
    with pytest.raises(Unsupported, match=message):
        attack(name, case, ThreatModel("l2") if name == "geoda" else LINF)


def test_a_word_that_a_class_lacks_is_refused():
    from davylamp.adapters.libraries.torchattack.driver import run

    case = scripted(lambda _: 1)
    with pytest.raises(ValueError, match="expected parameters of FGSM, got steps"):
        run(torchattack.FGSM, case.module, case.inputs, case.labels, LINF, steps=3)

"""Findings and limits of torchattack's rows, each shown as shipped; what is mended against torchattacks and papers."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torchattack
from torch import Tensor, nn

from davylamp.adapters import IMPLEMENTATIONS, ThreatModel
from davylamp.adapters.contract.linear_model import ContractCase
from davylamp.adapters.libraries.torchattack import geoda, patches
from davylamp.adapters.libraries.torchattack.driver import run
from davylamp.adapters.libraries.torchattack.patches import transforms_of_any_size

from .direct import rows_of, second_likely, seed_everything

attack = rows_of("torchattack")


STEP = 0.01
UNCHANGED = {"ssa": {"spread": 0.0}}  # its transform is then the identity, with noise
COPIES = {"si-ni-fgsm": "scales", "ssa": "samples", "decowa": "samples"}


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
    result = attack(name, case, "linf", 0.5, step_size=STEP, decay=1.0, **parameters)
    return float((case.inputs - result.adv_inputs).mean()) / STEP


@pytest.mark.parametrize("name", ["ni-fgsm", "si-ni-fgsm", "ti-fgsm", "ssa", "decowa"])
def test_a_momentum_that_accumulates_goes_on_against_one_gradient(name):
    """momentum-dropped: after two steps down, a third gradient that points up turns those without a momentum."""
    a_step = 2 if name == "decowa" else 1
    words = {"steps": 3, **UNCHANGED.get(name, {})} | ({COPIES[name]: 1} if name in COPIES else {})
    shipped, mended = (mean_steps(n, lambda i: -1 if i >= 2 * a_step else 1, **words) for n in (name, f"{name}@fixed"))
    assert shipped == pytest.approx(1, abs=0.3)
    assert mended == pytest.approx(3, abs=0.5)


def test_the_first_copy_counts_more_than_the_last():
    """copies-counted-again: of two copies with gradients 1 and -3 / 2, the first counts twice."""
    shipped, mended = (
        mean_steps(n, lambda i: (1, -3)[i], steps=1, scales=2) for n in ("si-ni-fgsm", "si-ni-fgsm@fixed")
    )
    assert (shipped, mended) == (pytest.approx(1), pytest.approx(-1))


def test_the_gradient_that_tunes_a_warp_counts():
    """tuning-counted: against three times the gradient of the tuned warp, it wins."""
    shipped, mended = (mean_steps(n, lambda i: (-3, 1)[i], steps=1, samples=1) for n in ("decowa", "decowa@fixed"))
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

    shipped, mended = (each.gkern(41, 6) for each in (torchattack.TIFGSM, patches.TIFGSM))
    assert variance(shipped) / variance(mended) == pytest.approx(2, rel=0.1)
    assert mended.sum() == pytest.approx(1)


def test_mig_makes_the_model_surer(digits):
    """climbs-the-label."""
    words = {"steps": 8, "scales": 5}
    shipped, mended = (attack(name, digits, "linf", 0.1, **words) for name in ("mig", "mig@fixed"))
    rows = range(len(digits.labels))
    before, after = (logits.log_softmax(1)[rows, digits.labels] for logits in (shipped.logits, shipped.adv_logits))
    assert not shipped.success.any()
    assert (after >= before - 1e-4).all()
    assert (after > before).float().mean() > 0.7
    assert mended.success.float().mean() > 0.6


@pytest.mark.parametrize(("name", "steps"), [("gra", (1 - 0.94**20) / 0.06), ("gra@fixed", 20)])
def test_gra_takes_shorter_and_shorter_steps_along_one_gradient(name, steps):
    """every-step-shrinks: 20 equal gradients carry it less than 12 steps far."""
    moved = mean_steps(name, lambda _: 1, steps=20, samples=1)
    assert moved == pytest.approx(steps, rel=1e-3)


@pytest.mark.parametrize(("name", "steps"), [("gra", -3), ("gra@fixed", 3)])
def test_targeted_gra_flees_its_target(name, steps):
    """neighbours-flee: darker images are nearer to class 1."""
    case = scripted(lambda _: 1)
    targets = 1 - case.labels
    result = attack(name, case, "linf", 0.5, targets, steps=3, step_size=STEP, samples=1)
    moved = float((case.inputs - result.adv_inputs).mean()) / STEP
    assert moved == pytest.approx(steps, abs=0.3)


def test_an_image_alone_is_mixed_with_itself():
    """mixed-with-itself: the first copy is the image times 1 + portion."""
    case = scripted(lambda _: 1, count=1)
    attack("admix", case, "linf", 0.5, steps=1, samples=2, portion=0.3)
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


STRUCTURES = ("sgm", "bpa", "tgr", "pna-patchout", "vdc", "att")  # test_torchattack_networks.py

ROWS = [row for row in IMPLEMENTATIONS.values() if row.library == "torchattack" and row.attack not in STRUCTURES]

NAN = [row.name for row in ROWS if "nan-momentum" in row.findings]


@pytest.mark.parametrize("name", [*NAN, "torchattack:ni-fgsm@fixed", "torchattack:ssa@fixed"])
def test_a_flat_gradient_stops_an_image_for_good(name):
    """nan-momentum: flat in the first of three steps, the same slope ever after."""
    row = IMPLEMENTATIONS[name]
    words = {word: 2 for word in ("samples", "scales") if word in row.params} | {"step_size": STEP}
    torch.manual_seed(0)
    images = 0.4 + 0.2 * torch.rand(1, 3, 16, 16)

    def distance(slope: Callable[[int], float], steps: int) -> tuple[float, int]:
        case = scripted(slope, count=1)._replace(inputs=images)
        result = attack(name, case, "linf", 0.5, steps=steps, **words)
        return float((result.adv_inputs - images).abs().max()), case.module.calls

    moved, calls_of_a_step = distance(lambda _: 1, 1)
    assert moved > 0.9 * STEP
    stopped, _ = distance(lambda i: float(i >= calls_of_a_step), 3)
    assert (stopped == 0) == ("nan-momentum" in row.findings)


STEPS = {"steps": 6, "step_size": 0.03}


def images(name: str, case: Any, targets: Tensor | None = None, **parameters: Any) -> Tensor:
    return attack(name, case, "linf", 0.1, targets, **parameters).adv_inputs


@pytest.mark.parametrize(
    ("name", "parameters", "theirs"),
    [
        ("ni-fgsm", {}, {}),
        ("si-ni-fgsm", {"scales": 3}, {}),
        ("ti-fgsm", {"kernel_size": 5}, {"diversity_probability": 0.0}),
    ],
)
@pytest.mark.parametrize("targeted", [False, True])
def test_what_is_mended_is_what_torchattacks_does(digits, name, parameters, theirs, targeted):
    """momentum-dropped, copies-counted-again, wider-kernel."""
    targets = second_likely(digits) if targeted else None
    shipped, mended, other = (
        images(row, digits, targets, **STEPS, decay=0.9, **parameters, **more)
        for row, more in (
            (f"torchattack:{name}", {}),
            (f"torchattack:{name}@fixed", {}),
            (f"torchattacks:{name}", theirs),
        )
    )
    torch.testing.assert_close(mended, other, rtol=0, atol=1e-6)
    assert ((shipped - other).abs() > 1e-3).float().mean() > 0.05


def test_without_a_momentum_ssa_is_the_original(digits):
    """momentum-dropped, the only difference."""
    words = {**STEPS, "samples": 2}
    for decay in (0.0, 1.0):
        shipped, mended = (images(f"torchattack:{name}", digits, decay=decay, **words) for name in ("ssa", "ssa@fixed"))
        same = (shipped - mended).abs() < 1e-6
        assert (same.float().mean() > 0.999) == (decay == 0)


def test_a_mended_warp_is_the_gradient_behind_a_tuned_one(digits):
    """tuning-counted: one step by hand."""
    case = digits.first(3)
    moved = images("torchattack:decowa@fixed", case, steps=1, step_size=0.03, samples=1) - case.inputs
    attack = torchattack.DeCoWA(case.module, device="cpu")
    seed_everything(7)
    noise = (2 * (torch.rand(1, 1, 2) - 0.5)).requires_grad_()
    loss = nn.functional.cross_entropy(case.module(attack._vwt(case.inputs, noise)), case.labels)
    tuned = noise.detach() - 0.01 * torch.autograd.grad(loss, noise)[0]
    point = case.inputs.clone().requires_grad_()
    loss = nn.functional.cross_entropy(case.module(attack._vwt(point, tuned)), case.labels)
    expected = 0.03 * torch.autograd.grad(loss, point)[0].sign()
    torch.testing.assert_close(moved, (case.inputs + expected).clamp(0, 1) - case.inputs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("targeted", [False, True])
def test_gra_is_the_papers(digits, targeted):
    """every-step-shrinks, neighbours-flee: against the paper's algorithm, step by step."""
    case, targets = digits.first(3), second_likely(digits.first(3)) if targeted else None
    words = {"samples": 2, "neighbourhood": 0.5, "decay": 0.9, **STEPS}
    mended = images("torchattack:gra@fixed", case, targets, **words)
    sign, goal = (-1, targets) if targeted else (1, case.labels)

    def slope(points: Tensor) -> Tensor:
        points = points.detach().requires_grad_()
        return sign * torch.autograd.grad(nn.functional.cross_entropy(case.module(points), goal), points)[0]

    seed_everything(7)
    adv, momentum, damping = case.inputs, torch.zeros_like(case.inputs), torch.full_like(case.inputs, 1 / 0.94)
    for _ in range(STEPS["steps"]):
        here = slope(adv)
        near = sum(slope(adv + torch.empty_like(adv).uniform_(-0.05, 0.05)) for _ in range(2)) / 2
        relevance = torch.cosine_similarity(here.flatten(1), near.flatten(1)).view(-1, 1, 1, 1)
        mixed = relevance * here + (1 - relevance) * near
        before, momentum = momentum, 0.9 * momentum + mixed / mixed.abs().mean((1, 2, 3), keepdim=True)
        damping = damping * torch.where(before.sign() == momentum.sign(), 1.0, 0.94)
        moved = (adv + 0.03 * damping * momentum.sign() - case.inputs).clamp(-0.1, 0.1)
        adv = (case.inputs + moved).clamp(0, 1)
    torch.testing.assert_close(mended, adv, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["SSM", "Crop"])
def test_at_224_pixels_the_transforms_of_l2t_are_the_original_ones(monkeypatch, kind):
    monkeypatch.setattr(Tensor, "cuda", lambda self: self)
    module: Any = inspect.getmodule(torchattack.L2T)
    transform, photos = getattr(module, kind)(0.6), torch.rand(2, 3, 224, 224)
    transform.num_spectrum = 2
    seed_everything(1)
    original = transform(photos)
    seed_everything(1)
    with transforms_of_any_size():
        mended = transform(photos)
        assert len(transform(torch.rand(2, 3, 16, 16))) == len(mended)
    torch.testing.assert_close(mended, original)


def test_every_transform_of_l2t_takes_small_images():
    """Each of its hundred, where those of a given size would crash the model or need a GPU."""
    module: Any = inspect.getmodule(torchattack.L2T)
    small = torch.rand(2, 3, 16, 16)
    with transforms_of_any_size():
        shapes = [tuple(operation(small).shape) for operation in module.AUG_OPS]
    assert len(shapes) > 90
    assert {shape[1:] for shape in shapes} == {(3, 16, 16)}
    assert all(shape[0] % 2 == 0 for shape in shapes)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_with_its_basis_geoda_is_the_original(digits, norm):
    """Without davylamp's budget, which ends it: it asks a few more times than its plan says."""
    case, words = digits.first(1), {"max_queries": 400, "sub_dim": 4}
    original = torchattack.GeoDA(case.module, device="cpu", p=norm, input_shape=(3, 16, 16), **words)
    original.sub_basis = geoda.cosines(4, 16)
    seed_everything(7)
    expected = original(case.inputs, case.labels)
    seed_everything(7)
    assert torch.equal(run(geoda.GeoDA, case.module, *case[1:3], ThreatModel(norm), **words), expected)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_the_basis_of_geoda_is_the_original_one(monkeypatch):
    module: Any = inspect.getmodule(torchattack.GeoDA)
    written = []
    monkeypatch.setattr(module.np, "save", lambda *file: written.append(file))
    original = module.gen_2d_dct_sub_basis(6, 9, "a file")
    assert len(written) == 1
    assert np.array_equal(original.astype(np.float32), geoda.cosines(6, 9).numpy())

"""What davylamp mends in torchattack: against torchattacks, the original where its defect does not show, the paper."""

import inspect
from typing import Any

import numpy as np
import pytest
import torch
import torchattack
from torch import Tensor, nn

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.libraries.torchattack import geoda
from davylamp.adapters.libraries.torchattack.driver import run
from davylamp.adapters.libraries.torchattack.repairs import transforms_of_any_size

from .direct import second_likely, seed_everything

STEPS = {"steps": 6, "step_size": 0.03}


def images(name: str, case: Any, targets: Tensor | None = None, **parameters: Any) -> Tensor:
    rules = ThreatModel("linf", 0.1, targeted=targets is not None)
    words = (case.classifier, case.inputs, case.labels, rules)
    return run_attack(name, *words, targets=targets, seed=7, **parameters).adv_inputs


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
            (f"torchattack:{name}@repaired", {}),
            (f"torchattacks:{name}", theirs),
        )
    )
    torch.testing.assert_close(mended, other, rtol=0, atol=1e-6)
    assert ((shipped - other).abs() > 1e-3).float().mean() > 0.05


def test_without_a_momentum_ssa_is_the_original(digits):
    """momentum-dropped, the only difference."""
    words = {**STEPS, "samples": 2}
    for decay in (0.0, 1.0):
        shipped, mended = (
            images(f"torchattack:{name}", digits, decay=decay, **words) for name in ("ssa", "ssa@repaired")
        )
        same = (shipped - mended).abs() < 1e-6
        assert (same.float().mean() > 0.999) == (decay == 0)


def test_a_mended_warp_is_the_gradient_behind_a_tuned_one(digits):
    """tuning-counted: one step by hand."""
    case = digits.first(3)
    moved = images("torchattack:decowa@repaired", case, steps=1, step_size=0.03, samples=1) - case.inputs
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
    mended = images("torchattack:gra@repaired", case, targets, **words)
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


@pytest.mark.parametrize("queries", [1, 250, 280, 378, 454, 1000])
def test_geoda_has_a_plan_for_every_number_of_queries(digits, queries):
    case, rules = digits.first(1), ThreatModel("l2")
    words = {"max_queries": queries, "subspace": 4}
    assert run_attack("torchattack:geoda", case.classifier, *case[1:3], rules, **words).forwards <= queries


def test_geoda_ends_where_no_noise_fools_the_model(digits, monkeypatch):
    monkeypatch.setattr(geoda, "DRAWS", 20)
    constant = nn.Sequential(nn.Flatten(), nn.Linear(768, 10))
    constant[1].weight.data.zero_()
    constant[1].bias.data = torch.arange(10.0).flip(0)
    inputs, label = digits.inputs[:1], torch.tensor([0])
    words = {"max_queries": 400, "subspace": 4}
    result = run_attack("torchattack:geoda", Classifier(constant), inputs, label, ThreatModel("l2"), **words)
    assert (result.violations, result.success.tolist()) == ((("no-start",),), [False])

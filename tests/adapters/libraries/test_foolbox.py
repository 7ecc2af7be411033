"""What is wrong in Foolbox's attacks shows as shipped and is gone in the repaired row; and what each attack costs."""

import warnings
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from .direct import rows_of, sizes

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import eagerpy
    import foolbox
    import torchattacks
    from foolbox import attacks as fa

    from davylamp.adapters.libraries.foolbox.patches import L0FMN


attack = rows_of("foolbox")


def wrapped(case):
    return foolbox.PyTorchModel(case.module, bounds=(0, 1), device="cpu")


@pytest.fixture(scope="module")
def few(digits):
    return digits.first(4)


class Steep(nn.Module):
    """Two classes on images of 3 x 4 x 4; the first component alone decides, from 0.5 on for class 1."""

    def forward(self, inputs):
        score = 10 * inputs.flatten(1)[:, :1] - 5
        return torch.cat([-score, score], dim=1)


class Stubborn(nn.Module):
    """Never changes its mind, yet always has a gradient."""

    def forward(self, inputs):
        return torch.cat([inputs.flatten(1).sum(1, keepdim=True) + 100, inputs.flatten(1)[:, :1]], dim=1)


def small_images(value, count=1):
    return torch.full((count, 3, 4, 4), value)


def case_of(module, inputs):
    module.eval()
    return SimpleNamespace(module=module, inputs=inputs, labels=module(inputs).argmax(1))


@pytest.mark.parametrize(("norm", "epsilon", "order"), [("l2", 1.5, 2), ("l1", 20.0, 1)])
def test_adam_is_used_only_when_repaired(few, norm, epsilon, order):
    plain = attack("bim", few, norm, epsilon)
    assert torch.equal(attack("adam-bim", few, norm, epsilon).adv_inputs, plain.adv_inputs)
    adam = {"l2": fa.L2AdamProjectedGradientDescentAttack, "l1": fa.L1AdamProjectedGradientDescentAttack}[norm]
    direct = adam(rel_stepsize=0.2, steps=10, random_start=False)
    _, wanted, _ = direct(wrapped(few), few.inputs, few.labels, epsilons=epsilon)
    repaired = attack("adam-bim@fixed", few, norm, epsilon).adv_inputs
    assert torch.equal(repaired, wanted)
    assert not torch.equal(repaired, plain.adv_inputs)
    assert (sizes(few, repaired, order) <= epsilon * (1 + 1e-5)).all()


def test_a_step_of_adam_has_the_length_asked_for(few):
    grey = case_of(few.module, few.inputs * 0.2 + 0.4)
    for norm, order in (("linf", torch.inf), ("l2", 2), ("l1", 1)):
        given = {"steps": 1, "step_size": 0.1, "random_start": False}
        images = attack("adam-pgd", grey, norm, 1.0, **given).adv_inputs
        assert (sizes(grey, images, order) <= 0.1 * (1 + 1e-3)).all()
        assert (sizes(grey, images, order) >= 0.09).all()
    as_shipped = fa.L2AdamProjectedGradientDescentAttack(abs_stepsize=0.01, steps=1, random_start=False)
    _, images, _ = as_shipped(wrapped(grey), grey.inputs, grey.labels, epsilons=1.0)
    assert (sizes(grey, images, 2) > 0.2).all(), "finding step-per-component"


def test_momentum_of_the_gradient_and_of_its_sign(few):
    given = {"steps": 6, "step_size": 0.02, "decay": 0.8}
    repaired = attack("mi-fgsm@fixed", few, "linf", 0.1, **given).adv_inputs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = torchattacks.MIFGSM(few.module, eps=0.1, alpha=0.02, steps=6, decay=0.8)(few.inputs, few.labels)
    assert torch.allclose(repaired, other, atol=1e-6)
    images, momentum = few.inputs, torch.zeros_like(few.inputs)
    for _ in range(6):
        images = images.detach().requires_grad_()
        loss = nn.functional.cross_entropy(few.module(images), few.labels, reduction="sum")
        momentum = 0.8 * momentum + torch.autograd.grad(loss, images)[0].sign()
        images = few.inputs + (images.detach() + 0.02 * momentum.sign() - few.inputs).clamp(-0.1, 0.1)
        images = images.clamp(0, 1)
    as_shipped = attack("mi-fgsm", few, "linf", 0.1, **given).adv_inputs
    assert torch.equal(as_shipped, images), "finding sign-accumulated"
    assert not torch.equal(as_shipped, repaired)


def test_targeted_sparse_descent_on_saturated_pixels(few):
    case = case_of(few.module, (few.inputs > 0.5).float())
    targets = (case.labels + 1) % 10
    given = {"targets": targets, "steps": 20, "quantile": 0.9}
    stuck = attack("sparse-l1-descent", case, "l1", 60.0, **given)
    assert torch.equal(stuck.adv_inputs, case.inputs), "finding targeted-mask"
    moved = attack("sparse-l1-descent@fixed", case, "l1", 60.0, **given)
    assert moved.success.sum() >= 3
    untargeted = [attack(f"sparse-l1-descent{kind}", few, "l1", 20.0).adv_inputs for kind in ("", "@fixed")]
    assert torch.equal(*untargeted)


def test_virtual_adversarial_needs_a_visible_difference(few):
    def direction(difference):
        given = {"steps": 5, "finite_difference": difference}
        images = attack("virtual-adversarial", few, "l2", 0.1, **given).adv_inputs
        return nn.functional.normalize((images - few.inputs).flatten(1), dim=1)

    visible, other, vanished = direction(1e-2), direction(2e-2), direction(1e-6)
    assert ((visible * other).sum(1).abs() > 0.95).all()
    assert ((visible * vanished).sum(1).abs() < 0.9).any(), "finding small-difference"


@pytest.mark.parametrize(("name", "norm"), [("cw", "l2"), ("ead-en", "l1"), ("ead-l1", "l1")])
def test_a_failure_is_black_as_shipped_and_clean_when_repaired(few, name, norm):
    hopeless = {"steps": 5, "binary_search_steps": 1, "initial_const": 1e-6}
    black = attack(name, few, norm, **hopeless)
    assert all("black" in kinds for kinds in black.violations), "finding black-on-failure"
    assert not black.success.any()
    clean = attack(f"{name}@fixed", few, norm, **hopeless)
    assert torch.equal(clean.adv_inputs, few.inputs)
    # EAD's steps are shrunk to nothing: it has tried no other image, while C&W has tried some in vain.
    assert clean.violations == ((() if name == "cw" else ("unchanged",)),) * 4
    enough = {"steps": 30, "binary_search_steps": 2, "initial_const": 10.0, "learning_rate": 0.05}
    both = [attack(name + kind, few, norm, **enough) for kind in ("", "@fixed")]
    assert both[0].success.all()
    assert torch.equal(both[0].adv_inputs, both[1].adv_inputs)


def test_newtonfool_returns_nan(few):
    result = attack("newtonfool", few, "l2", steps=10)
    assert all("nan" in kinds for kinds in result.violations), "finding nan-power"
    assert not result.success.any()


def test_the_l2_projection_of_fmn(linear):
    given = {"steps": 60, "learning_rate": 0.01}
    as_shipped, repaired = (attack(f"fmn{kind}", linear, "l2", **given) for kind in ("", "@fixed"))
    assert as_shipped.success.all()
    assert repaired.success.all()
    assert (as_shipped.distance > 1.5 * linear.least["l2"]).all(), "finding projection-void"
    assert torch.allclose(repaired.distance.float(), linear.least["l2"], rtol=2e-3)


def test_fmn_crosses_the_boundary_in_l1(digits):
    """short-of-the-boundary."""
    as_shipped, repaired = (attack(f"fmn{kind}", digits, "l1", steps=100) for kind in ("", "@fixed"))
    assert not as_shipped.success.all()
    assert repaired.success.all()
    both = as_shipped.success
    torch.testing.assert_close(repaired.distance[both], as_shipped.distance[both], rtol=0.02, atol=0)


def test_the_l0_radius_of_fmn():
    case = case_of(Steep(), small_images(0.3) + 0.01 * torch.rand(1, 3, 4, 4, generator=torch.manual_seed(0)))
    delta = eagerpy.astensor(torch.rand(1, 3, 4, 4))
    radius = eagerpy.astensor(torch.tensor([5.0]))
    kept = [int((cls().project(delta, delta * 0, radius).raw != 0).sum()) for cls in (fa.L0FMNAttack, L0FMN)]
    assert kept == [6, 5], "finding one-too-many"
    assert attack("fmn@fixed", case, "l0", steps=30).distance.tolist() == [1.0]


def test_fmn_runs_where_its_l0_radius_reaches_every_component():
    case = case_of(Stubborn(), small_images(0.4))
    with pytest.raises(IndexError):
        fa.L0FMNAttack(steps=80)(wrapped(case), case.inputs, case.labels, epsilons=None)
    for kind in ("", "@fixed"):
        result = attack(f"fmn{kind}", case, "l0", steps=80)
        assert result.errors == ()
        assert result.robust.all()


def test_pointwise_returns_the_image_that_its_start_never_fools():
    case = case_of(Stubborn(), small_images(0.4))
    with pytest.raises(AssertionError):
        fa.PointwiseAttack()(wrapped(case), case.inputs, case.labels, epsilons=None)
    result = attack("pointwise", case, "l0")
    assert result.errors == ()
    assert result.robust.all()


def test_linf_noise_is_scaled_by_its_largest_signed_value():
    case = case_of(Steep(), small_images(0.4, 8))
    torch.manual_seed(0)
    raw, clipped, _ = fa.LinfAdditiveUniformNoiseAttack()(wrapped(case), case.inputs, case.labels, epsilons=0.1)
    assert sizes(case, raw, torch.inf).max() > 0.101, "finding signed-maximum"
    assert sizes(case, clipped, torch.inf).max() <= 0.1 + 1e-6


def test_genattack_depends_on_a_constant_added_to_all_logits(few):
    class Shifted(nn.Module):
        def forward(self, inputs):
            return few.module(inputs) + 20

    shifted = SimpleNamespace(module=Shifted(), inputs=few.inputs, labels=few.labels)
    given = {"steps": 6, "population": 6}
    images = [attack("genattack", case, "linf", 0.2, seed=0, **given).adv_inputs for case in (few, shifted)]
    assert not torch.equal(*images), "finding fitness-logit"

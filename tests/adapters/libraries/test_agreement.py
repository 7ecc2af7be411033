"""Where the libraries agree with matched parameters, and which of them differs where they do not."""

import pytest
import torch

from davylamp.adapters import ThreatModel, run_attack

LINF = ThreatModel("linf", 0.1)
L2 = ThreatModel("l2", 1.0)
L1 = ThreatModel("l1", 20.0)
STEPS = {"steps": 8, "step_size": 0.03}


def attack(case, name, threat_model, **parameters):
    return run_attack(name, case.classifier, case.inputs, case.labels, threat_model, **parameters).adv_inputs


@pytest.mark.parametrize(
    ("name", "parameters"), [("fgsm", {}), ("bim", STEPS), ("pgd", {**STEPS, "random_start": False})]
)
def test_matched_linf_attacks_agree_in_all_three(digits, name, parameters):
    ours = [attack(digits, f"{library}:{name}", LINF, **parameters) for library in ("art", "foolbox", "torchattacks")]
    assert (ours[0] - digits.inputs).abs().max() > 0.09
    for other in ours[1:]:
        torch.testing.assert_close(other, ours[0], rtol=0, atol=1e-6)


def reference_l2(case, *, project_first):
    """Plain PGD in l2 with either order of projection and clipping."""
    adv = case.inputs.clone()
    for _ in range(8):
        adv.requires_grad_()
        loss = torch.nn.functional.cross_entropy(case.module(adv), case.labels, reduction="sum")
        gradient = torch.autograd.grad(loss, adv)[0]
        moved = adv.detach() + 0.3 * gradient / gradient.flatten(1).norm(dim=1).clamp(min=1e-30).view(-1, 1, 1, 1)
        for step in ("project", "clip") if project_first else ("clip", "project"):
            if step == "clip":
                moved = moved.clamp(0, 1)
            else:
                delta = moved - case.inputs
                size = delta.flatten(1).norm(dim=1).clamp(min=1e-30).view(-1, 1, 1, 1)
                moved = case.inputs + delta * (L2.epsilon / size).clamp(max=1)
        adv = moved
    return adv


def test_l2_pgd_differs_by_the_order_of_clipping_and_an_absolute_constant(digits):
    parameters = {"steps": 8, "step_size": 0.3, "random_start": False}
    art, foolbox, shipped, repaired = (
        attack(digits, name, L2, **parameters)
        for name in ("art:pgd", "foolbox:pgd", "torchattacks:pgd", "torchattacks:pgd@fixed")
    )
    projected_first = reference_l2(digits, project_first=True)
    torch.testing.assert_close(foolbox, projected_first, rtol=0, atol=1e-5)
    torch.testing.assert_close(repaired, projected_first, rtol=0, atol=1e-5)
    torch.testing.assert_close(art, reference_l2(digits, project_first=False), rtol=0, atol=1e-5)
    assert (art - foolbox).abs().max() > 1e-4
    assert (shipped - repaired).abs().max() > (foolbox - repaired).abs().max()


def test_l1_pgd_moves_one_component_in_art_and_all_of_them_in_foolbox(digits):
    parameters = {"steps": 8, "step_size": 5.0, "random_start": False}
    art, foolbox = (attack(digits, f"{name}:pgd", L1, **parameters) - digits.inputs for name in ("art", "foolbox"))
    assert (art.flatten(1) != 0).sum(1).max() <= 8
    assert (foolbox.flatten(1) != 0).sum(1).double().mean() > 300


@pytest.mark.parametrize("rules", [LINF, L2], ids=["linf", "l2"])
def test_the_authors_apgd_is_that_of_torchattacks(digits, rules):
    """Bit by bit on the cross-entropy."""
    authors, copied = (
        attack(digits, f"{library}:apgd-ce", rules, steps=30) for library in ("pyautoattack", "torchattacks")
    )
    assert torch.equal(authors, copied)
    assert not torch.equal(authors, digits.inputs)

"""The judge against images made by hand: every rule that a library can break, and what is done about it."""

import pytest
import torch

from davylamp.adapters.attack import ThreatModel
from davylamp.adapters.judge import distances_of, fooled, judge_images, norm_of, project, quantise

CLEAN = torch.full((1, 1, 2, 2), 0.5)


def judge(image, threat_model=None, *, fixed=True, failure="last"):
    return judge_images(CLEAN, image, threat_model or ThreatModel("linf", 0.1), fixed_budget=fixed, failure=failure)


def changed(*values):
    return CLEAN + torch.tensor(values).view(1, 1, 2, 2)


def test_norms_by_hand():
    delta = torch.tensor([3.0, 0.0, -4.0, 0.0]).view(1, 1, 2, 2)
    assert [norm_of(delta, norm).item() for norm in ("l0", "l1", "l2", "linf", "unrestricted")] == [2, 7, 5, 4, 5]


def test_distances_are_measured_in_double_precision():
    tiny = CLEAN + torch.finfo(torch.float32).eps
    assert distances_of(CLEAN, tiny).l2.dtype == torch.float64
    assert distances_of(CLEAN, tiny).l0.item() == 4


def test_a_clean_example_inside_the_ball_passes_untouched():
    image = changed(0.1, -0.1, 0.05, 0.0)
    verdict = judge(image)
    assert verdict.violations == ((),)
    assert torch.equal(verdict.adv_inputs, image)


def test_out_of_ball_is_flagged_and_clamped():
    verdict = judge(changed(0.2, 0.0, 0.0, 0.0))
    assert verdict.violations == (("out-of-ball",),)
    assert verdict.adv_inputs.max().item() == pytest.approx(0.6)


def test_a_minimum_norm_attack_may_leave_the_radius():
    assert judge(changed(0.2, 0.0, 0.0, 0.0), fixed=False).violations == ((),)


def test_out_of_bounds_is_flagged_and_clipped():
    verdict = judge(changed(0.6, 0.0, 0.0, 0.0), ThreatModel("linf", 0.9))
    assert verdict.violations == (("out-of-bounds",),)
    assert verdict.adv_inputs.max() == 1


def test_nan_is_flagged_and_replaced_by_the_clean_image():
    verdict = judge(changed(float("nan"), 0.05, 0.0, 0.0))
    assert verdict.violations == (("nan",),)
    assert torch.equal(verdict.adv_inputs, CLEAN)


def test_a_black_image_is_flagged_and_a_black_clean_image_is_not():
    assert "black" in judge(torch.zeros_like(CLEAN), ThreatModel("linf", 1.0)).violations[0]
    zeros = torch.zeros_like(CLEAN)
    verdict = judge_images(zeros, zeros, ThreatModel("linf", 1.0), fixed_budget=True, failure="input")
    assert verdict.violations == ((),)


def test_the_clean_image_is_a_plain_failure_only_where_the_library_returns_it_then():
    assert judge(CLEAN.clone(), failure="input").violations == ((),)
    assert judge(CLEAN.clone(), failure="last").violations == (("unchanged",),)


@pytest.mark.parametrize(
    ("norm", "epsilon", "expected"),
    [("linf", 0.1, 0.1), ("l2", 0.1, 0.1), ("l1", 0.1, 0.1), ("l0", 2.0, 2.0)],
)
def test_projection_ends_on_the_ball(norm, epsilon, expected):
    projected = project(CLEAN, changed(0.3, -0.2, 0.1, 0.05), ThreatModel(norm, epsilon))
    assert norm_of((projected - CLEAN).double(), norm).item() == pytest.approx(expected, rel=1e-5)


def test_l0_projection_keeps_the_largest_changes():
    projected = project(CLEAN, changed(0.1, -0.3, 0.2, 0.05), ThreatModel("l0", 2.0)) - CLEAN
    assert projected.flatten().tolist() == pytest.approx([0.0, -0.3, 0.2, 0.0])


def test_rounding_noise_at_the_radius_is_no_violation():
    image = CLEAN + torch.tensor(0.1, dtype=torch.float32) + 5e-8
    assert judge(image).violations == ((),)


def test_success_is_not_the_label_or_the_target_and_never_nan():
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0], [float("nan"), 0.0, 0.0]])
    assert fooled(logits, torch.tensor([0, 0, 1])).tolist() == [False, True, False]
    assert fooled(logits, torch.tensor([1, 1, 1]), torch.tensor([0, 0, 0])).tolist() == [True, False, False]


def test_quantise_rounds_half_up_on_the_8_bit_grid():
    values = torch.tensor([0.0, 0.49 / 255, 0.51 / 255, 254.5 / 255, 1.0], dtype=torch.float64)
    assert (quantise(values) * 255).round().tolist() == [0, 0, 1, 255, 255]

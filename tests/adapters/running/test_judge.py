"""The judge against images made by hand: every rule that a library can break, and what is done about it."""

import pytest
import torch

from davylamp.adapters.criterion import is_fooled
from davylamp.adapters.result import usable_images
from davylamp.adapters.running.judge import (
    belongs_to_other_image,
    judge_images,
    judge_outcomes,
    perturbation_distances,
    perturbation_norm,
    project,
    quantise,
)
from davylamp.adapters.threat_model import ThreatModel

CLEAN = torch.full((1, 1, 2, 2), 0.5)


def judge(image, threat_model=None, *, bound=True, may_stay=False, clean=CLEAN):
    rules = threat_model or ThreatModel("linf", 0.1)
    return judge_images(clean, image, rules, bound=bound, may_stay=torch.full((len(image),), may_stay))


def changed(*values):
    return CLEAN + torch.tensor(values).view(1, 1, 2, 2)


def test_norms_by_hand():
    delta = torch.tensor([3.0, 0.0, -4.0, 0.0]).view(1, 1, 2, 2)
    assert [perturbation_norm(delta, norm).item() for norm in ("l0", "l1", "l2", "linf", "unrestricted")] == [
        2,
        7,
        5,
        4,
        5,
    ]


def test_distances_are_measured_in_double_precision():
    tiny = CLEAN + torch.finfo(torch.float32).eps
    assert perturbation_distances(CLEAN, tiny).l2.dtype == torch.float64
    assert perturbation_distances(CLEAN, tiny).l0.item() == 4


WIDE, NAN = ThreatModel("linf", 0.9), float("nan")


@pytest.mark.parametrize(
    ("first", "rules", "bound", "kinds", "scored"),
    [
        (0.1, None, True, (), 0.6),
        (0.1 + 5e-8, None, True, (), 0.6),  # rounding noise at the radius
        (0.2, None, True, ("out-of-ball",), 0.6),
        (0.2, None, False, (), 0.7),  # a minimum-norm attack may leave the radius
        (0.6, WIDE, True, ("out-of-bounds",), 1.0),
        (NAN, None, True, ("nan",), 0.5),  # the clean image takes its place
    ],
)
def test_what_a_library_returns_is_flagged_and_brought_back(first, rules, bound, kinds, scored):
    verdict = judge(changed(first, 0.05, 0.0, 0.0), rules, bound=bound)
    assert verdict.violations == (kinds,)
    assert verdict.adv_inputs[0, 0, 0, 0].item() == pytest.approx(scored)
    assert verdict.adv_inputs[0, 0, 0, 1].item() == pytest.approx(0.5 if kinds == ("nan",) else 0.55)


def test_a_black_image_is_flagged_and_a_black_clean_image_is_not():
    for image in (torch.zeros_like(CLEAN), torch.full_like(CLEAN, 1e-7), torch.full_like(CLEAN, 0.4 / 255)):
        assert "black" in judge(image, ThreatModel("linf", 1.0)).violations[0]
    assert judge(torch.full_like(CLEAN, 0.6 / 255), ThreatModel("linf", 1.0)).violations == ((),)
    zeros = torch.zeros_like(CLEAN)
    verdict = judge(zeros, ThreatModel("linf", 1.0), may_stay=True, clean=zeros)
    assert verdict.violations == ((),)


@pytest.mark.parametrize("noise", [0.0, 1e-8, 5e-7])
def test_the_clean_image_up_to_rounding_is_a_plain_failure_only_where_it_may_be_returned(noise):
    assert judge(CLEAN + noise, may_stay=True).violations == ((),)
    assert judge(CLEAN + noise).violations == (("unchanged",),)
    assert judge(CLEAN + 3e-6).violations == ((),)


def outcomes(image, *, hit, epsilon=0.1, may_stay=False):
    rules = ThreatModel("linf", epsilon)
    judged = judge_outcomes(CLEAN, image, torch.tensor([hit]), rules, may_stay=torch.tensor([may_stay]))
    return [kind for kind, flags in judged.items() if flags.item()]


def test_a_change_of_rounding_size_fools_nobody_and_one_that_cannot_be_seen_proves_no_robustness():
    clean = quantise(CLEAN)
    unseen, seen = 0.3 / 255, 0.7 / 255
    assert outcomes(CLEAN + 5e-7, hit=True, may_stay=True) == ["unchanged"]
    assert outcomes(clean + unseen, hit=True) == []  # an example: success_8bit says that it is lost on 8 bits
    assert outcomes(clean + unseen, hit=False) == ["barely-moved"]
    assert outcomes(clean + unseen, hit=False, epsilon=None) == ["barely-moved"]
    assert outcomes(clean + unseen, hit=False, may_stay=True) == []
    assert outcomes(clean + unseen, hit=False, epsilon=1 / 255) == []  # a third of the radius is no standing still
    assert outcomes(clean + seen, hit=False) == []


def test_an_example_of_another_image_is_noticed_and_one_that_is_merely_far_away_is_not():
    clean = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    near = clean + 0.01
    assert not belongs_to_other_image(clean, near).any()
    assert belongs_to_other_image(clean, near[[1, 0, 2, 3]]).tolist() == [True, True, False, False]
    assert belongs_to_other_image(clean, clean[[1, 2, 3, 0]]).all()
    assert belongs_to_other_image(clean, near[[0, 0, 0, 0]]).tolist() == [False, True, True, True]
    assert not belongs_to_other_image(clean, torch.full_like(clean, 0.5)).any()
    assert not belongs_to_other_image(clean, (clean + 0.55 * (clean.roll(1, 0) - clean)).clamp(0, 1)).any()
    twice = clean[[0, 0, 1, 2]]
    assert not belongs_to_other_image(twice, twice + 0.01).any()


def test_usable_is_attacked_without_violation_and_a_success_or_within_the_radius():
    attacked = torch.tensor([False, True, True, True, True])
    violated = torch.tensor([False, True, False, False, False])
    success = torch.tensor([False, False, True, False, False])
    distance = torch.tensor([0.0, 0.05, 0.3, 0.05, 0.2])
    usable = usable_images(attacked, violated, success, distance, ThreatModel("linf", 0.1))
    assert usable.tolist() == [False, False, True, True, False]
    assert (
        usable_images(attacked, violated, success, distance, ThreatModel("linf")).tolist()
        == [False, False] + [True] * 3
    )


@pytest.mark.parametrize(
    ("norm", "epsilon", "expected"),
    [("linf", 0.1, 0.1), ("l2", 0.1, 0.1), ("l1", 0.1, 0.1), ("l0", 2.0, 2.0)],
)
def test_projection_ends_on_the_ball(norm, epsilon, expected):
    projected = project(CLEAN, changed(0.3, -0.2, 0.1, 0.05), ThreatModel(norm, epsilon))
    assert perturbation_norm((projected - CLEAN).double(), norm).item() == pytest.approx(expected, rel=1e-5)


def test_l0_projection_keeps_the_largest_changes():
    projected = project(CLEAN, changed(0.1, -0.3, 0.2, 0.05), ThreatModel("l0", 2.0)) - CLEAN
    assert projected.flatten().tolist() == pytest.approx([0.0, -0.3, 0.2, 0.0])


def test_success_is_not_the_label_or_the_target_and_never_nan():
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0], [float("nan"), 0.0, 0.0]])
    assert is_fooled(logits, torch.tensor([0, 0, 1])).tolist() == [False, True, False]
    assert is_fooled(logits, torch.tensor([1, 1, 1]), torch.tensor([0, 0, 0])).tolist() == [True, False, False]


def test_quantise_rounds_half_up_on_the_8_bit_grid():
    values = torch.tensor([0.0, 0.49 / 255, 0.51 / 255, 254.5 / 255, 1.0], dtype=torch.float64)
    assert (quantise(values) * 255).round().tolist() == [0, 0, 1, 255, 255]

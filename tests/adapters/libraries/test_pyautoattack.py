"""Findings of pyautoattack's rows, each shown as shipped; and what davylamp mends, gone after it."""

import sys
from typing import Any

import pytest
import torch
from pyautoattack import AutoAttack
from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted
from pyautoattack.fab_pt import FABAttack_PT
from pyautoattack.square import SquareAttack
from torch import Tensor, nn

from davylamp.adapters.contract.linear_model import ContractCase
from davylamp.adapters.libraries.pyautoattack.patches import Standard

from .direct import rows_of

attack = rows_of("pyautoattack")


def test_square_never_reaches_the_last_row_and_column(digits):
    """last-row-and-column: 300 squares change nothing of them; without a square there are the stripes of the start."""
    case = digits.first(2)

    def ends_at(queries: int) -> Tensor:
        torch.manual_seed(0)
        square = SquareAttack(case.module, eps=0.01, n_queries=queries, resc_schedule=False)
        square.init_hyperparam(case.inputs)
        return square.attack_single_run(case.inputs, case.labels)[1]

    changed = (ends_at(300) != ends_at(0)).any(0).any(0)
    assert changed[:-1, :-1].float().mean() > 0.9
    assert not changed[-1].any()
    assert not changed[:, -1].any()


def test_fab_discards_what_lies_outside_its_radius(digits):
    """distance-discarded: the same example is kept within the ball that holds the box."""
    ends = [FABAttack_PT(digits.module, n_iter=5, eps=eps).perturb(digits.inputs, digits.labels) for eps in (0.03, 1.0)]
    sizes = [(end - digits.inputs).flatten(1).abs().amax(1) for end in ends]
    beyond = sizes[1] > 0.03
    assert 0 < beyond.sum() < len(beyond)
    assert (sizes[0][beyond] == 0).all()
    torch.testing.assert_close(sizes[0][~beyond], sizes[1][~beyond])


def test_fab_t_takes_the_first_class_that_it_reaches():
    """first-class-taken: the second likeliest class lies four times as far as the third; the repaired row finds it."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 4)).requires_grad_(False)
    module[1].weight.zero_()
    module[1].weight[1, 0], module[1].weight[2, 1] = 1.0, 8.0
    module[1].bias.copy_(torch.tensor([0.0, -0.2, -0.4, -5.0]))
    case = ContractCase(module, torch.zeros(1, 3, 2, 2), torch.tensor([0]))
    distances = [attack(row, case, "linf", steps=5).distance for row in ("fab-t", "fab-t@fixed")]
    assert distances[0].item() == pytest.approx(0.2, rel=0.06)
    assert distances[1].item() == pytest.approx(0.05, rel=0.06)


def test_a_trace_of_the_process_goes_on(digits):
    """Its check for defences that change during an attack sets a trace, and then none."""

    def trace(*_: Any) -> None:
        return None

    case, before = digits.first(2), sys.gettrace()
    try:
        sys.settrace(trace)
        AutoAttack(case.module, eps=0.5, seed=0).run_standard_evaluation(case.inputs, case.labels)
        ended = sys.gettrace()
        sys.settrace(trace)
        attack("autoattack", case, "linf", 0.3, steps=5)
        went_on = sys.gettrace()
    finally:
        sys.settrace(before)
    assert ended is None
    assert went_on is trace


@pytest.mark.parametrize("row", ["apgd-t", "fab-t", "fab-t@fixed", "autoattack"])
def test_there_are_no_more_target_classes_than_classes(row):
    """Nine by default, whatever the model has."""
    torch.manual_seed(0)
    inputs = torch.rand(3, 3, 4, 4)
    module = nn.Sequential(nn.Flatten(), nn.Linear(48, 5)).requires_grad_(False)
    labels = module(inputs).argmax(1)
    with pytest.raises(IndexError):
        APGDAttack_targeted(module, eps=1e-6, n_iter=1).perturb(inputs, labels)
    case, epsilon = ContractCase(module, inputs, labels), None if row.startswith("fab") else 0.5
    assert attack(row, case, "linf", epsilon, steps=5).success.all()


def test_the_ensemble_has_the_checkpoints_of_its_steps(digits):
    """APGD works out from its steps when to look back: as if it had been made with them."""
    standard = Standard(digits.module, n_iter=50, eps=0.1, seed=0)
    made = APGDAttack(digits.module, n_iter=50, eps=0.1)
    for inner in (standard.apgd, standard.apgd_targeted):
        for name in ("n_iter", "n_iter_orig", "n_iter_2", "n_iter_min", "size_decr"):
            assert getattr(inner, name) == getattr(made, name)
    assert standard.apgd.n_iter_2 == 11
    assert standard.fab.n_iter == 50
    as_shipped, ours = AutoAttack(digits.module, eps=0.1, seed=0), Standard(digits.module, eps=0.1, seed=0)
    for name in ("apgd", "apgd_targeted", "fab", "square"):
        settings = [
            {key: value for key, value in vars(getattr(made, name)).items() if isinstance(value, (int, float, str))}
            for made in (as_shipped, ours)
        ]
        assert settings[0] == settings[1]


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_fab_t_repaired_is_as_near_as_another_library_s(digits, norm):
    words = {"steps": 5, "candidates": 5}
    ours, other = (
        attack(name, digits, norm, **words).distance for name in ("pyautoattack:fab-t@fixed", "adv-lib:fab-t")
    )
    torch.testing.assert_close(ours, other, rtol=0.05, atol=0)

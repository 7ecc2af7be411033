"""What davylamp mends in pyautoattack: each defect shown as shipped, and gone after the repair."""

import sys
from typing import Any

import pytest
import torch
from pyautoattack import AutoAttack
from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted
from torch import nn

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.libraries.pyautoattack.repairs import Standard

RULES = ThreatModel("linf", 0.3)


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
        run_attack("pyautoattack:autoattack", case.classifier, case.inputs, case.labels, RULES, steps=5)
        went_on = sys.gettrace()
    finally:
        sys.settrace(before)
    assert ended is None
    assert went_on is trace


@pytest.mark.parametrize("row", ["apgd-t", "fab-t", "fab-t@repaired", "autoattack"])
def test_there_are_no_more_target_classes_than_classes(row):
    """Nine by default, whatever the model has."""
    torch.manual_seed(0)
    inputs = torch.rand(3, 3, 4, 4)
    module = nn.Sequential(nn.Flatten(), nn.Linear(48, 5)).requires_grad_(False)
    labels = module(inputs).argmax(1)
    with pytest.raises(IndexError):
        APGDAttack_targeted(module, eps=1e-6, n_iter=1).perturb(inputs, labels)
    rules = ThreatModel("linf", None if row.startswith("fab") else 0.5)
    assert run_attack(f"pyautoattack:{row}", Classifier(module), inputs, labels, rules, steps=5).success.all()


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
        run_attack(f"{name}", digits.classifier, digits.inputs, digits.labels, ThreatModel(norm), **words).distance
        for name in ("pyautoattack:fab-t@repaired", "adv-lib:fab-t")
    )
    torch.testing.assert_close(ours, other, rtol=0.05, atol=0)

"""A data set in parts: `first` gives every image the random numbers of its place, `spent` the queries that are left."""

import pytest
import torch

from davylamp.adapters import ThreatModel, run_attack
from davylamp.errors import InvalidInput

LINF = ThreatModel("linf", 0.1)
NOISY = {"steps": 2, "step_size": 0.05, "random_start": True, "seed": 5}


def attack(case, rows, name="foolbox:pgd", threat_model=LINF, **parameters):
    return run_attack(name, case.classifier, case.inputs[rows], case.labels[rows], threat_model, **parameters)


def test_shards_draw_the_random_numbers_of_the_whole_data_set(digits):
    whole = attack(digits, slice(0, 6), batch_size=1, **NOISY).adv_inputs
    parts = [attack(digits, slice(a, a + 2), batch_size=1, first=a, **NOISY).adv_inputs for a in (0, 2, 4)]
    assert torch.equal(torch.cat(parts), whole)
    assert not torch.equal(attack(digits, slice(2, 4), batch_size=1, **NOISY).adv_inputs, whole[2:4])


def test_every_image_may_be_given_its_own_place(digits):
    whole = attack(digits, slice(0, 6), batch_size=1, **NOISY).adv_inputs
    some = torch.tensor([5, 0, 3])
    assert torch.equal(attack(digits, some, batch_size=1, first=some, **NOISY).adv_inputs, whole[some])


def test_the_place_is_that_of_the_first_image_of_a_batch(digits):
    whole = attack(digits, slice(0, 8), batch_size=4, **NOISY).adv_inputs
    part = attack(digits, slice(4, 8), batch_size=4, first=4, **NOISY).adv_inputs
    assert torch.equal(part, whole[4:])


@pytest.mark.parametrize(
    ("name", "threat_model", "parameters"),
    [
        ("foolbox:pgd", LINF, {"steps": 4, "step_size": 0.02}),
        ("art:square", LINF, {"steps": 50, "restarts": 3}),  # asked one image at a time, restarted
        ("foolbox:deepfool", ThreatModel("l2"), {"steps": 5}),
    ],
)
def test_queries_spent_before_count_against_the_limit(digits, name, threat_model, parameters):
    spent = torch.tensor([0, 3, 6, 7, 9])
    result = attack(digits, slice(0, 5), name, threat_model, max_queries=7, spent=spent, **parameters)
    cost = result.forwards + result.backwards
    assert (cost + spent <= torch.tensor([7, 7, 7, 7, 9])).all()
    assert (cost[:3] > 0).all()
    assert cost[3:].tolist() == [0, 0]
    assert (result.seconds[3:] == 0).all()  # not even handed to the library
    assert torch.equal(result.adv_inputs[3:], digits.inputs[3:5])
    assert result.violations[3:] == ((), ())
    assert result.robust[3:].all()


def test_an_image_with_queries_left_is_not_held_back_by_one_without(digits):
    settings = {"steps": 4, "step_size": 0.02, "random_start": False, "max_queries": 9}
    some = attack(digits, slice(0, 4), **settings)
    spent = torch.tensor([9, 0, 9, 0])
    result = attack(digits, slice(0, 4), spent=spent, **settings)
    assert torch.equal(result.adv_inputs[1::2], some.adv_inputs[1::2])
    assert torch.equal(result.forwards[1::2], some.forwards[1::2])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"first": -2}, "expected first as 2 whole numbers >= 0, got .* of shape .* with 2 below 0"),
        ({"first": torch.tensor([1])}, r"expected first as 2 whole numbers >= 0, got .* shape \(1,\)"),
        ({"spent": torch.tensor([1, -2])}, "expected spent as 2 whole numbers >= 0, got .* with 1 below 0"),
        ({"spent": torch.tensor([0.5, 1.0])}, "expected spent as 2 whole numbers >= 0, got torch.float32"),
    ],
)
def test_places_and_spent_queries_that_make_no_sense_are_refused(digits, wrong, message):
    with pytest.raises(InvalidInput, match=message):
        attack(digits, slice(0, 2), steps=1, **wrong)

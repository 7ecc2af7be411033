"""Levels of time and queries per image."""

import math

import pytest
import torch

from davylamp.metrics import backward_queries, forward_queries, time_cost_levels


def test_levels_follow_the_order():
    seconds = torch.tensor([3.0, 100.0, 0.5, 7.0, 20.0])
    assert time_cost_levels(seconds).tolist() == [1, 4, 0, 2, 3]
    assert time_cost_levels(seconds.repeat(4)).tolist() == [1, 4, 0, 2, 3] * 4
    assert time_cost_levels(seconds).dtype == torch.int64


def test_equal_times_share_a_level():
    assert time_cost_levels(torch.tensor([1.0, 1.0, 1.0])).tolist() == [0, 0, 0]
    assert time_cost_levels(torch.zeros(0)).tolist() == []


def test_queries_of_successes():
    forwards, success = torch.tensor([10, 20, 90]), torch.tensor([True, True, False])
    assert forward_queries(forwards, success) == 15
    assert forward_queries(forwards, torch.ones(3, dtype=torch.bool)) == 40
    assert backward_queries(torch.zeros(3), success) == 0
    values = backward_queries(forwards, success, reduction="none")
    assert values.tolist() == pytest.approx([10, 20, math.nan], nan_ok=True)
    with pytest.raises(ValueError, match="expected forwards to hold values between 0 and inf"):
        forward_queries(-forwards, success)

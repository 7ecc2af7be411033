"""Corruption errors and flips by hand."""

import math

import pytest
import torch

from davylamp.metrics import (
    corruption_error,
    flip_probability,
    flip_rates,
    mean_corruption_error,
    mean_flip_rate,
    relative_corruption_error,
    summarise,
)

ERRORS = torch.tensor([[0.1, 0.2, 0.3], [0.5, 0.5, 1.0]], dtype=torch.float64)


def test_errors_by_hand():
    assert corruption_error(ERRORS).tolist() == pytest.approx([0.6, 2.0])
    assert mean_corruption_error(ERRORS) == pytest.approx(1.3)
    assert relative_corruption_error(ERRORS, 0.1) == pytest.approx((0.3 + 1.7) / 2)
    assert relative_corruption_error(ERRORS, 0.1, subtract="once") == pytest.approx((0.5 + 1.9) / 2)


def test_an_insensitive_model_loses_nothing():
    assert relative_corruption_error(torch.full((4, 5), 0.25), 0.25) == 0


def test_relative_to_a_reference():
    reference = torch.tensor([[0.2, 0.4, 0.6], [0.0, 0.0, 0.0]], dtype=torch.float64)
    ratios = corruption_error(ERRORS, baseline_errors=reference)
    assert ratios.tolist() == pytest.approx([0.5, math.nan], nan_ok=True)
    assert mean_corruption_error(ERRORS, baseline_errors=reference) == pytest.approx(0.5)
    assert summarise(ratios) == pytest.approx((0.5, 1, 1))
    assert mean_corruption_error(ERRORS, baseline_errors=torch.zeros_like(ERRORS)).isnan()
    assert mean_corruption_error(ERRORS[:0]).isnan()


def test_flips_by_hand():
    frames = torch.tensor([[1, 1, 2, 2, 1], [3, 3, 3, 3, 3]])
    assert flip_probability(frames) == 2 / 8
    assert flip_probability(frames, against="first") == 2 / 8
    assert flip_probability(torch.tensor([[1, 2, 2, 2]])) == pytest.approx(1 / 3)
    assert flip_probability(torch.tensor([[1, 2, 2, 2]]), against="first") == 1
    assert flip_probability(frames[:0]).isnan()
    with pytest.raises(ValueError, match="expected at least 2 frames, got 1"):
        flip_probability(frames[:, :1])


def test_flip_rates_by_hand():
    rates = flip_rates(torch.tensor([0.1, 0.3, 0.2]), torch.tensor([0.2, 0.1, 0.0]))
    assert rates.tolist() == pytest.approx([0.5, 3, math.nan], nan_ok=True)
    assert mean_flip_rate(torch.tensor([0.1, 0.3, 0.2]), torch.tensor([0.2, 0.1, 0.0])) == pytest.approx(1.75)
    assert summarise(rates)[1:] == (2, 1)
    assert mean_flip_rate(torch.tensor([0.1]), torch.tensor([0.0])).isnan()


def test_rates_are_fractions():
    with pytest.raises(ValueError, match="expected errors to hold values between 0 and 1, got 10 to 100"):
        corruption_error(ERRORS * 100)
    with pytest.raises(ValueError, match="expected clean_error from 0 to 1, got nan"):
        relative_corruption_error(ERRORS, math.nan)

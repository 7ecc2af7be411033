"""Curves of success by hand and against loops; exponentials are found again."""

import math

import numpy as np
import pytest
import torch

from davylamp.metrics import (
    accuracy_curve,
    best_distances,
    empirical_half_distortion,
    half_distortion,
    local_optimality,
    success_curve,
)

inf = math.inf
DISTANCES = torch.tensor([0.0, 1.0, 1.0, 3.0, inf], dtype=torch.float64)


def test_steps_are_closed_on_the_right():
    budgets = torch.tensor([0.0, 0.999, 1.0, 3.0, inf], dtype=torch.float64)
    assert success_curve(DISTANCES, budgets).tolist() == pytest.approx([0.2, 0.2, 0.6, 0.8, 0.8])
    assert accuracy_curve(DISTANCES, budgets).tolist() == pytest.approx([0.8, 0.8, 0.4, 0.2, 0.2])
    assert success_curve(DISTANCES[:0], budgets).isnan().all()


def test_curve_against_a_loop():
    generator = torch.Generator().manual_seed(0)
    distances = torch.rand(200, generator=generator)
    budgets = torch.rand(50, generator=generator)
    expected = [np.mean([d <= budget for d in distances.tolist()]) for budget in budgets.tolist()]
    assert success_curve(distances, budgets).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("rate", [1e-3, 0.3, 40.0])
@pytest.mark.parametrize("wrong", [0, 10])
def test_an_exponential_is_found_again(rate, wrong):
    images = 50
    steps = [-math.log((images - k) / images) / rate for k in range(1, images)]
    fit = half_distortion(torch.tensor([0.0] * wrong + [*steps, inf], dtype=torch.float64))
    assert fit.rate == pytest.approx(rate, rel=1e-9)
    assert fit.value == pytest.approx(math.log(2) / rate, rel=1e-9)
    assert fit.r_squared == pytest.approx(1)


def test_fit_minimises_the_squares():
    distances = torch.tensor([0.0, 0.5, 1.0, 1.0, 4.0, 9.0, inf], dtype=torch.float64)
    fit = half_distortion(distances)
    steps, accuracy = np.array([0, 0.5, 1, 4, 9]), np.array([6, 5, 3, 2, 1]) / 7

    def squares(rate):
        return np.sum((6 / 7 * np.exp(-rate * steps) - accuracy) ** 2)

    rates = np.linspace(0.01, 2, 20001)
    assert fit.rate == pytest.approx(rates[np.argmin([squares(rate) for rate in rates])], abs=1e-4)
    assert fit.r_squared == pytest.approx(1 - squares(fit.rate) / np.sum((accuracy - accuracy.mean()) ** 2))


def test_half_distortion_without_a_curve():
    assert half_distortion(torch.full((3,), inf))[:2] == (inf, 0)
    assert all(math.isnan(each) for each in half_distortion(torch.zeros(3)))
    assert all(math.isnan(each) for each in half_distortion(torch.ones(3)))
    assert all(math.isnan(each) for each in half_distortion(torch.zeros(0)))


@pytest.mark.parametrize(
    ("distances", "expected"),
    [([1, 2, 3, 4], 2), ([1, 2, 3], 2), ([0, 0, 5], 5), ([1, inf, inf], inf), ([1, inf], 1), ([0.0], math.nan)],
)
def test_empirical_half(distances, expected):
    value = empirical_half_distortion(torch.tensor(distances, dtype=torch.float64))
    assert value == pytest.approx(expected, nan_ok=True)
    if 0 < expected < inf:
        values = torch.tensor(distances, dtype=torch.float64)
        assert accuracy_curve(values, torch.tensor([expected])) <= accuracy_curve(values, torch.zeros(1)) / 2


def test_best_of_several_attacks():
    best = best_distances([torch.tensor([1.0, inf, 3.0]), torch.tensor([2.0, inf, 0.5])])
    assert best.tolist() == [1, inf, 0.5]
    with pytest.raises(ValueError, match="at least one attack"):
        best_distances([])
    with pytest.raises(ValueError, match=r"expected distances\[1\] of shape \(2\), got \(3,\)"):
        best_distances([torch.ones(2), torch.ones(3)])


def test_optimality_by_hand():
    best = torch.tensor([0.0, 1.0, 2.0, 4.0], dtype=torch.float64)
    attack = torch.tensor([0.0, 2.0, inf, 4.0], dtype=torch.float64)
    # areas up to 4: best 7/4, attack (2 + 4 + 4)/4, never 3/4 * 4
    assert local_optimality(attack, best) == pytest.approx(1 - (10 / 4 - 7 / 4) / (3 - 7 / 4))
    assert local_optimality(best, best) == 1
    assert local_optimality(torch.tensor([0, inf, inf, inf]).double(), best) == 0


def test_optimality_undefined_or_impossible():
    best = torch.tensor([1.0, inf])
    assert local_optimality(best, best).isnan()
    assert local_optimality(torch.ones(3), torch.ones(3)).isnan()
    with pytest.raises(ValueError, match="expected each distance to be at least the best distance"):
        local_optimality(torch.ones(2), torch.full((2,), 2.0))


@pytest.mark.parametrize("bad", [-1.0, math.nan])
def test_distances_are_not_negative(bad):
    for function in (half_distortion, empirical_half_distortion):
        with pytest.raises(ValueError, match="expected distances to hold values between 0 and inf"):
            function(torch.tensor([1.0, bad]))

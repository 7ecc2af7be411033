"""Diagnostics against Pyro's and against chains whose effective size is known."""

import numpy as np
import pytest
import torch
from pyro.ops.stats import effective_sample_size

from davylamp.scoring.diagnostics import bulk_ess, diagnose, effective_draws, rank_normalised_rhat, tail_ess


def autoregressive(correlation, chains=4, draws=2000, seed=0):
    generator = np.random.default_rng(seed)
    noise = generator.normal(size=(chains, draws)) * np.sqrt(1 - correlation**2)
    values = np.empty((chains, draws))
    values[:, 0] = generator.normal(size=chains)
    for step in range(1, draws):
        values[:, step] = correlation * values[:, step - 1] + noise[:, step]
    return values


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_effective_draws(correlation):
    draws = autoregressive(correlation)
    exact = draws.size * (1 - correlation) / (1 + correlation)
    theirs = effective_sample_size(torch.from_numpy(draws), chain_dim=0, sample_dim=1).item()
    assert effective_draws(draws) == pytest.approx(exact, rel=0.2)
    assert effective_draws(draws) == pytest.approx(theirs, rel=0.1)
    assert bulk_ess(draws) == pytest.approx(exact, rel=0.2)
    assert 0 < tail_ess(draws) < 1.3 * draws.size
    assert rank_normalised_rhat(draws) < 1.01 + 0.02 * (correlation > 0.8)


def test_chains_that_disagree_are_seen():
    draws = autoregressive(0.0)
    apart = draws + 0.5 * np.arange(4)[:, None]
    wider = draws * np.array([1, 1, 1, 3])[:, None]
    drifting = draws + np.linspace(0, 2, draws.shape[1])
    for wrong in (apart, wider, drifting):
        assert rank_normalised_rhat(wrong) > 1.05
        diagnostics = diagnose(wrong[:, :, None], "grid", 0, 0.0)
        assert "R-hat" in diagnostics.problem
    assert bulk_ess(apart) < 100


def test_a_good_fit_has_no_problem_and_divergences_are_one():
    draws = autoregressive(0.3)[:, :, None]
    assert diagnose(draws, "nuts", 0, 0.0).problem is None
    assert "3 divergent steps" in diagnose(draws, "nuts", 3, 0.0).problem
    assert "effective draws" in diagnose(draws[:, :20], "nuts", 0, 0.0).problem

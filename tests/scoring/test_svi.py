"""Variational inference against the sampler, an integral, and itself."""

import numpy as np
import pyro
import pytest
import torch

from davylamp.scoring import ResponseModel, fit_irt, irt, rank_responses, svi
from davylamp.scoring.response_model import observe
from davylamp.scoring.svi import fit_guide, integrate_items

from .simulation import simulate


@pytest.fixture
def few_steps(monkeypatch):
    """Newton's method ends where it ends, from a guide that is further off too; one optimisation instead of two."""
    monkeypatch.setattr(svi, "STEPS", 100)
    monkeypatch.setattr(svi, "RUNS", 1)


@pytest.mark.parametrize(
    ("model", "subjects", "items", "missing", "steps"),
    [
        (ResponseModel("1pl"), 8, 60, 0.3, 100),
        (ResponseModel("2pl"), 20, 100, 0.0, svi.STEPS),
        (ResponseModel("2pl", "beta"), 8, 24, 0.0, 100),
    ],
    ids=["1pl", "2pl", "beta"],
)
def test_agrees_with_the_sampler(model, subjects, items, missing, steps, monkeypatch):
    monkeypatch.setattr(svi, "STEPS", steps)
    if model.response == "beta":
        generator = np.random.default_rng(0)
        mean = 1 / (1 + np.exp(-(np.linspace(-2, 2, subjects)[:, None] - generator.normal(size=items))))
        responses = generator.beta(20 * mean, 20 * (1 - mean))
    else:
        responses = simulate(subjects, items, model=model.name, missing=missing, seed=1).responses
    exact = fit_irt(responses, model, method="fast", draws=500, warmup=100)
    close = fit_irt(responses, model, method="svi", draws=500)
    deviation = exact.ability.std((0, 1))
    assert close.diagnostics.problem is None
    assert close.diagnostics.sampler == "svi"
    # 2000 draws on either side leave errors of means of about 0.05 deviations, of deviations of about 3 %.
    assert np.abs(close.expected - exact.expected).max() < 0.35 * deviation.mean()
    assert close.ability.std((0, 1)) == pytest.approx(deviation, rel=0.2)
    assert np.mean(close.ability.std((0, 1)) / deviation) == pytest.approx(1, abs=0.06)
    assert close.ability.shape == exact.ability.shape
    assert {name: draws.shape for name, draws in close.items.items()} == {
        name: draws.shape for name, draws in exact.items.items()
    }
    assert np.median(close.difficulty_deviation / exact.difficulty_deviation) == pytest.approx(1, abs=0.1)
    assert np.abs(close.difficulty - exact.difficulty).mean() < 0.25 * exact.difficulty_deviation.mean()


def test_draws_of_items_go_with_those_of_the_abilities(few_steps):
    """Under 1PL only differences count: abilities that are high in a draw have items that are hard in it."""
    fit = fit_irt(simulate(6, 60, model="1pl", seed=3).responses, ResponseModel("1pl"), method="svi", draws=400)
    assert np.corrcoef(fit.items["ability"].mean(1), fit.items["difficulty"].mean(1))[0, 1] > 0.5


def test_the_guide_alone_is_too_sure_with_few_subjects(few_steps):
    responses = simulate(5, 80, model="1pl", seed=0).responses
    fit = fit_irt(responses, ResponseModel("1pl"), method="svi", draws=400)
    raw = fit.items["ability"].std(0).mean()
    guide = fit_guide(ResponseModel("1pl"), *observe(responses, "bernoulli"), 0)
    assert float(guide.deviation["ability"].mean()) < 0.9 * raw


def test_where_the_guide_was_left_does_not_matter(few_steps):
    responses = simulate(12, 150, model="2pl", seed=4).responses
    model, data = ResponseModel("2pl"), observe(responses, "bernoulli")
    guide = fit_guide(model, *data, 0)
    moved = {
        name: value + 0.3 * torch.randn(value.shape, generator=torch.manual_seed(0))
        for name, value in guide.mean.items()
    }
    moved["ability_spread"] = guide.mean["ability_spread"]
    first, second = integrate_items(model, *data, *guide), integrate_items(model, *data, moved, guide.deviation)
    deviation = first.covariance.diagonal().sqrt()
    assert first.step < 0.05
    assert float(((first.mean - second.mean).abs() / deviation).max()) < 0.1


def test_subsamples_of_the_items_and_the_seed(few_steps, monkeypatch):
    """More items than a step takes; the store and the generators are left alone."""
    monkeypatch.setattr(svi, "BATCH", 40)
    responses = simulate(6, 60, model="2pl", seed=5).responses
    pyro.clear_param_store()
    state = torch.get_rng_state()
    settings = {"method": "svi", "chains": 2, "draws": 100}
    first, second = (fit_irt(responses, ResponseModel("2pl"), seed=7, **settings) for _ in range(2))
    other = fit_irt(responses, ResponseModel("2pl"), seed=8, **settings)
    assert np.array_equal(first.ability, second.ability)
    assert np.array_equal(first.difficulty, second.difficulty)
    assert not np.array_equal(first.ability, other.ability)
    assert np.abs(first.expected - other.expected).max() < 0.3 * first.ability.std((0, 1)).mean()
    assert torch.equal(state, torch.get_rng_state())
    assert list(pyro.get_param_store()) == []


def test_responses_that_tell_nothing_are_finite(few_steps):
    """Items that all or none answered, and subjects that answered all or none."""
    responses = simulate(10, 30, model="2pl", seed=2).responses
    responses[:, :5], responses[:, 5:10] = 1, 0
    responses[0, 5:], responses[1] = 1, 0
    fit = fit_irt(responses, ResponseModel("2pl"), method="svi", draws=400)
    assert np.isfinite(fit.ability).all()
    assert fit.expected.argmin() == 1


def test_what_is_too_large_is_fitted_so_and_a_note_says_it(few_steps, few_draws, monkeypatch):
    responses = simulate(20, 60, model="2pl", seed=1).responses
    names = [str(place) for place in range(20)]
    assert not irt._too_large(ResponseModel("2pl"), 20, 1000)
    assert irt._too_large(ResponseModel("2pl"), 200, 10_000)
    assert not irt._too_large(ResponseModel("3pl"), 200, 10_000)  # intervals were not simulated
    small = rank_responses(responses, names)
    assert small.diagnostics is not None
    assert small.diagnostics.sampler == "grid"
    assert not any("variational" in note for note in small.notes)
    monkeypatch.setattr(irt, "TOO_LARGE", 1e3)
    large = rank_responses(responses, names)
    assert large.diagnostics is not None
    assert large.diagnostics.sampler == "svi"
    assert any("variational" in note for note in large.notes)
    assert np.corrcoef(large.score, small.score)[0, 1] > 0.999


def test_an_optimisation_that_did_not_end_is_a_problem(few_steps, monkeypatch):
    monkeypatch.setattr(svi, "PASSES", 1)
    fit = fit_irt(simulate(8, 60, seed=0).responses, ResponseModel("2pl"), method="svi", draws=300)
    assert "last step of the optimisation" in str(fit.diagnostics.problem)


def test_priors_of_a_fixed_scale_are_refused():
    with pytest.raises(ValueError, match="svi needs hierarchical priors"):
        fit_irt(np.eye(3), ResponseModel("2pl", hierarchical=False), method="svi")

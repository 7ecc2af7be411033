"""The sampler against an integral over everything, and the grid against a finer one."""

import numpy as np
import pytest
import torch
from scipy.stats import beta

from davylamp.scoring import ResponseModel, fit_irt
from davylamp.scoring import grid as module
from davylamp.scoring.grid import likelihood, make_tables
from davylamp.scoring.response_model import observe, statistics

from .simulation import simulate


def exact_means(table):
    """Posterior mean abilities of two subjects and one item of CANARY's model, by adding up a fine grid of all."""
    theta, log_a, b = np.linspace(-5, 5, 61), np.linspace(-4, 4, 41), np.linspace(-4.5, 4.5, 46)
    c = np.linspace(0.005, 0.8, 40)
    slope, intercept, guess = (part[..., None] for part in np.meshgrid(np.exp(log_a), b, c, indexing="ij"))
    weight = np.exp(-(log_a**2) / 2)[:, None, None] * np.exp(-(b**2) / 2)[:, None] * beta(5, 17).pdf(c)
    curve = guess + (1 - guess) / (1 + np.exp(-(slope * theta + intercept)))
    prior = np.exp(-(theta**2) / 2)
    likelihood = [(curve**x * (1 - curve) ** (1 - x) * prior) for x in table[:, 0]]
    evidence, moment = [part.sum(-1) for part in likelihood], [(part * theta).sum(-1) for part in likelihood]
    total = (weight * evidence[0] * evidence[1]).sum()
    return np.array([(weight * moment[0] * evidence[1]).sum(), (weight * evidence[0] * moment[1]).sum()]) / total


@pytest.mark.parametrize("table", [[[0.9], [0.2]], [[1.0], [0.0]]])
def test_published_model_against_the_integral(table):
    table = np.array(table)
    model = ResponseModel("3pl", "bernoulli", "intercept", hierarchical=False)
    fit = fit_irt(table, model, chains=32, draws=300)
    assert fit.expected == pytest.approx(exact_means(table), abs=0.01)


def test_nuts_against_the_integral():
    table = np.array([[0.9], [0.2]])
    model = ResponseModel("3pl", "bernoulli", "intercept", hierarchical=False)
    fit = fit_irt(table, model, method="nuts", chains=2, warmup=30, draws=120)
    assert fit.diagnostics.sampler == "nuts"
    assert fit.expected == pytest.approx(exact_means(table), abs=0.3)  # about three standard errors


def test_a_finer_grid_changes_nothing(monkeypatch):
    truth = simulate(12, 30, seed=3)
    coarse = fit_irt(truth.responses, ResponseModel("2pl"), method="fast", draws=300)
    line = module._line
    monkeypatch.setattr(module, "_line", lambda reach, step: line(reach, step / 1.7))
    fine = fit_irt(truth.responses, ResponseModel("2pl"), method="fast", draws=300)
    assert np.abs(coarse.expected - fine.expected).max() < 0.2 * fine.ability.std((0, 1)).max()
    assert coarse.ability.std((0, 1)) == pytest.approx(fine.ability.std((0, 1)), rel=0.15)


@pytest.mark.parametrize("response", ["bernoulli", "beta"])
def test_the_likelihood_is_that_of_the_distribution(response):
    generator = np.random.default_rng(0)
    values = generator.random((4, 3)) if response == "beta" else generator.integers(0, 2, (4, 3)).astype(float)
    values[0, 0] = np.nan
    model = ResponseModel("2pl", response)
    tables = make_tables(model, 4, 3)
    setting, ability = 17, 20
    observed = observe(values, response)
    known = torch.where(observed.seen, statistics(observed.values, response), 0.0)
    ours = (known * tables.likelihood[:, ability, setting, None, None]).sum(0)
    theta = tables.ability[ability]
    a = tables.discriminations[tables.discrimination[setting]].exp()
    mean = torch.sigmoid(a * (theta - tables.difficulties[tables.difficulty[setting]])).double()
    if response == "beta":
        precision = 10 * np.exp(-1.5 + setting % 5)
        inside = torch.from_numpy((values * 3 + 0.5) / 4)
        theirs = torch.distributions.Beta(mean * precision, (1 - mean) * precision, validate_args=False).log_prob(
            inside
        )
    else:
        theirs = torch.distributions.Bernoulli(mean, validate_args=False).log_prob(torch.from_numpy(values))
    seen = ~np.isnan(values)
    assert ours[seen].numpy() == pytest.approx(theirs[seen].numpy(), rel=1e-3)
    assert (ours[~seen] == 0).all()


@pytest.mark.parametrize(
    ("curve", "argument"), [("difficulty", 1.5 * 0.5), ("intercept", 1.5 * 0.9 + 0.4), ("paper", 1.702 * 1.5 * 0.5)]
)
def test_curves(curve, argument):
    """Ability 0.9, discrimination 1.5, difficulty (or intercept) 0.4, guessing 0.2."""
    values = {"ability": [[0.9]], "difficulty": [0.4], "log_discrimination": [np.log(1.5)], "guessing": [0.2]}
    sites = {name: torch.tensor(value, dtype=torch.double) for name, value in values.items()}
    table = likelihood(ResponseModel("3pl", curve=curve), sites)
    right = 0.2 + 0.8 / (1 + np.exp(-argument))
    assert table[:, 0, 0].tolist() == pytest.approx([np.log(right / (1 - right)), np.log1p(-right)], rel=1e-9)


def test_priors_are_those_of_the_program():
    """Normal distributions on the grid, for each mean and spread; weights are the half-normal density times spread."""
    tables = make_tables(ResponseModel("2pl"), 6, 20)
    prior = tables.discrimination_prior
    spread = prior.settings["discrimination_spread"].double()
    points = tables.discriminations.double()
    log = -0.5 * (points / spread[:, None]) ** 2
    assert torch.allclose(prior.points.double(), log.log_softmax(1), atol=1e-4)
    weight = spread.log() - 0.5 * (spread / 0.5) ** 2
    assert torch.allclose((prior.weight - prior.weight[0]).double(), weight - weight[0], atol=1e-4)

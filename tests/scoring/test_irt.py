"""The fit finds what was simulated, agrees with NUTS and with girth, and leaves no trace."""

import random
from concurrent.futures import ThreadPoolExecutor

import girth
import numpy as np
import pyro
import pytest
import torch
from pyro.infer import MCMC
from scipy.stats import spearmanr

from davylamp.scoring import ResponseModel, choose_model, fit_irt

from .simulation import simulate


@pytest.mark.parametrize(
    ("model", "missing", "ability", "difficulty"),
    [("1pl", 0.0, 0.95, 0.85), ("2pl", 0.0, 0.95, 0.85), ("2pl", 0.3, 0.93, 0.8), ("3pl", 0.0, 0.9, 0.75)],
)
def test_recovers_what_was_simulated(model, missing, ability, difficulty):
    truth = simulate(24, 100, model=model, missing=missing, seed=2)
    fit = fit_irt(truth.responses, ResponseModel(model), method="fast", draws=300, warmup=60)
    # 100 items know an ability to about 0.24: a correlation of 0.97 is what can be had.
    assert np.corrcoef(fit.expected, truth.ability)[0, 1] > ability
    assert spearmanr(fit.difficulty, truth.difficulty)[0] > difficulty
    low, high = np.quantile(fit.ability, (0.025, 0.975), axis=(0, 1))
    # 24 intervals of 95 %: fewer than 19 cover with a probability of 0.001
    assert np.count_nonzero((low < truth.ability) & (truth.ability < high)) >= 19
    assert np.polyfit(truth.ability, fit.expected, 1)[0] == pytest.approx(1, abs=0.25)  # the scale is the simulated one
    if model == "2pl" and not missing:
        assert np.corrcoef(np.log(fit.discrimination), np.log(truth.discrimination))[0, 1] > 0.5


def test_intervals_cover_as_often_as_they_say():
    hits = total = 0
    for seed in range(8):
        truth = simulate(8, 30, model="1pl", seed=seed)
        fit = fit_irt(truth.responses, ResponseModel("1pl"), method="fast", draws=200, warmup=60, seed=seed)
        low, high = np.quantile(fit.ability, (0.1, 0.9), axis=(0, 1))
        hits += np.count_nonzero((low < truth.ability) & (truth.ability < high))
        total += 8
    assert 0.66 < hits / total < 0.94  # 80 %, give or take three standard errors


def test_grid_and_nuts_agree():
    truth = simulate(4, 8, model="1pl", seed=3)
    fast = fit_irt(truth.responses, ResponseModel("1pl"))
    slow = fit_irt(truth.responses, ResponseModel("1pl"), method="nuts", chains=2, warmup=30, draws=50)
    assert slow.diagnostics.sampler == "nuts"
    deviation = slow.ability.std((0, 1))
    assert np.abs(fast.expected - slow.expected).max() < 0.35 * deviation.max()
    assert fast.ability.std((0, 1)) == pytest.approx(deviation, rel=0.3)
    assert np.abs(fast.difficulty - slow.difficulty).max() < 0.6
    assert fast.difficulty_deviation == pytest.approx(slow.difficulty_deviation, rel=0.4)


def test_agrees_with_girth():
    truth = simulate(50, 25, seed=5)
    theirs = girth.twopl_mml(truth.responses.T.astype(int))
    ability = girth.ability_eap(truth.responses.T.astype(int), theirs["Difficulty"], theirs["Discrimination"])
    fit = fit_irt(truth.responses, ResponseModel("2pl"), method="fast", draws=300, warmup=60)
    assert np.corrcoef(fit.expected, ability)[0, 1] > 0.96
    usual = np.abs(theirs["Difficulty"]) < 3
    assert np.corrcoef(fit.difficulty[usual], theirs["Difficulty"][usual])[0, 1] > 0.92
    assert spearmanr(fit.discrimination, theirs["Discrimination"])[0] > 0.8


def test_continuous_scores_get_a_beta_response():
    generator = np.random.default_rng(0)
    ability = np.linspace(-2, 2, 12)
    mean = 1 / (1 + np.exp(-(ability[:, None] - generator.normal(size=15))))
    scores = generator.beta(20 * mean, 20 * (1 - mean))
    scores[0, 0], scores[1, 1] = 0.0, 1.0  # the ends are finite
    model = choose_model(scores)
    assert model.response == "beta"
    fit = fit_irt(scores, model, method="fast", draws=300, warmup=100)
    assert np.corrcoef(fit.expected, ability)[0, 1] > 0.98
    coins = fit_irt(scores, ResponseModel("2pl", "bernoulli"), method="fast", draws=300, warmup=60)
    # Fractional coin flips throw away how exact the scores are.
    assert fit.ability.std((0, 1)).mean() < 0.6 * coins.ability.std((0, 1)).mean()


def test_extreme_subjects_are_finite():
    responses = simulate(8, 30, seed=2).responses
    responses[0], responses[1] = 1, 0
    fit = fit_irt(responses, ResponseModel("1pl"), method="fast", draws=200, warmup=60)
    assert np.isfinite(fit.ability).all()
    assert fit.expected.argmax() == 0
    assert fit.expected.argmin() == 1


def test_same_seed_same_fit_and_no_trace():
    responses = simulate(6, 10, seed=4).responses
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    pyro.clear_param_store()
    pyro.param("mine", torch.ones(1))
    for method, draws in (("fast", 50), ("nuts", 4)):
        settings = {"method": method, "chains": 2, "warmup": 2, "draws": draws}
        first, second = (fit_irt(responses, ResponseModel("1pl"), seed=7, **settings) for _ in range(2))
        other = fit_irt(responses, ResponseModel("1pl"), seed=8, **settings)
        assert np.array_equal(first.ability, second.ability)
        assert not np.array_equal(first.ability, other.ability)
    assert list(pyro.get_param_store()) == ["mine"]
    pyro.clear_param_store()
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])
    assert before[2] == random.getstate()


def test_the_order_of_subjects_and_items_does_not_matter():
    truth = simulate(10, 40, seed=6)
    rows, columns = np.random.default_rng(0).permutation(10), np.random.default_rng(1).permutation(40)
    fit = fit_irt(truth.responses, ResponseModel("2pl"), method="fast", draws=300)
    turned = fit_irt(truth.responses[rows][:, columns], ResponseModel("2pl"), method="fast", draws=300)
    assert np.abs(turned.expected - fit.expected[rows]).max() < 0.2 * fit.ability.std((0, 1)).max()
    assert np.corrcoef(turned.difficulty, fit.difficulty[columns])[0, 1] > 0.99


@pytest.mark.parametrize(
    ("responses", "message"),
    [
        (np.ones((1, 4)), "at least 2 subjects"),
        (np.ones(4), "at least 2 subjects"),
        (np.full((3, 4), 0.5), "do not differ on any item"),
        (np.array([[1.0, 0], [np.nan, np.nan]]), "1 rows and 0 columns have no response"),
        (np.array([[1.0, np.nan], [0, np.nan]]), "0 rows and 1 columns have no response"),
        (np.array([[1.0, 2], [0, 1]]), r"in \[0, 1\], got 0 to 2"),
    ],
)
def test_tables_that_cannot_be_fitted(responses, message):
    with pytest.raises(ValueError, match=message):
        fit_irt(responses, ResponseModel())


def test_wrong_options():
    responses = np.eye(3)
    with pytest.raises(ValueError, match="auto, fast, svi or nuts, got 'vi'"):
        fit_irt(responses, ResponseModel(), method="vi")
    with pytest.raises(ValueError, match="at least 2 chains and 4 draws, got 1 chains and 100 draws"):
        fit_irt(responses, ResponseModel(), chains=1, draws=100)
    with pytest.raises(ValueError, match="got '4pl'"):
        choose_model(responses, "4pl")
    with pytest.raises(ValueError, match="got scores in between"):
        choose_model(responses / 2, "3pl")
    assert choose_model(responses).name == "1pl"
    assert choose_model(np.eye(10)).name == "2pl"


def test_the_default_is_a_kernel_of_pyro_s_mcmc():
    truth = simulate(6, 20, model="2pl", seed=1)
    fit = fit_irt(truth.responses, ResponseModel("2pl"), method="fast", chains=3, warmup=20, draws=40)
    assert isinstance(fit.mcmc, MCMC)
    samples = fit.mcmc.get_samples(group_by_chain=True)
    assert {name: tuple(value.shape) for name, value in samples.items()} == {
        **dict.fromkeys(("ability", "ability_expected"), (3, 40, 6, 1)),
        **dict.fromkeys(("difficulty", "log_discrimination"), (3, 40, 20)),
        **dict.fromkeys(("ability_mean", "steepness"), (3, 40)),
        **{f"{name}_spread": (3, 40) for name in ("ability", "difficulty", "discrimination")},
    }
    centred = samples["ability"][..., 0] - samples["ability"].mean((2, 3))[..., None]
    scaled = centred * samples["log_discrimination"].mean(2).exp()[..., None]
    assert np.allclose(fit.ability, scaled.numpy(), atol=1e-5)
    assert fit.mcmc.diagnostics()["divergences"] == {"chain 0": [], "chain 1": [], "chain 2": []}
    assert fit.mcmc.diagnostics()["ability"]["r_hat"].shape == (6, 1)


@pytest.mark.parametrize("model", [ResponseModel("1pl"), ResponseModel("2pl", "beta"), ResponseModel("3pl")])
def test_the_items_of_a_fit_are_draws_of_the_program_s_sites(model):
    responses = simulate(5, 12, model="1pl", seed=2).responses
    fit = fit_irt(0.1 + 0.8 * responses if model.response == "beta" else responses, model, method="fast", draws=50)
    last = {"precision"} if model.response == "beta" else {"guessing"} if model.name == "3pl" else set()
    assert set(fit.items) == {"ability", "difficulty", *(["log_discrimination"] if model.name != "1pl" else []), *last}
    assert fit.items["difficulty"].shape == (200, 12)
    assert fit.items["ability"].shape == (200, 5)


def test_many_items_are_not_kept_by_pyro():
    responses = simulate(3, 6000, model="1pl", seed=0).responses
    fit = fit_irt(responses, ResponseModel("1pl"), method="fast", warmup=4, draws=8)
    assert "difficulty" not in fit.mcmc.get_samples()
    assert fit.difficulty.shape == (6000,)


def test_a_ranking_loads_pyro_and_importing_scoring_does_not(run_fresh):
    script = (
        "import sys, numpy as np, davylamp.scoring as s; before = 'pyro' in sys.modules;"
        "s.rank_responses(np.array([[1, 0, 1], [0, 0, 1.0]]), ['a', 'b']); print(before, 'pyro.infer' in sys.modules)"
    )
    assert run_fresh(script) == "False True\n"


def test_fits_of_two_threads_at_once_are_those_of_one():
    """Pyro's messengers are the process's: two at once would stand in each other's way."""
    responses = simulate(4, 30, seed=3).responses

    def fit(_):
        return fit_irt(responses, ResponseModel("1pl"), method="fast", draws=100, warmup=20)

    alone = fit(0)
    with ThreadPoolExecutor(4) as pool:
        for each in pool.map(fit, range(8)):
            assert np.array_equal(each.ability, alone.ability)

"""Items: found as hard as they were made, and unlike for a group only where they were made so."""

import numpy as np
import pytest

from davylamp.scoring import ResponseModel, describe_items, differential_items, fit_irt

from .simulation import simulate


def simulated_groups(shifted, subjects=24, images=60, items=1, seed=0):
    """Two groups of equal subjects; `shifted` images are easier for the first by two logits."""
    generator = np.random.default_rng(seed)
    ability, difficulty = generator.normal(size=subjects), generator.normal(size=images * items)
    image = np.repeat(np.arange(images), items)
    focal = np.arange(subjects) < subjects // 2
    ability[focal] += 0.5  # the groups differ in ability: that alone is no differential functioning
    linear = ability[:, None] - difficulty
    linear[np.ix_(focal, image < shifted)] += 2
    responses = (generator.random(linear.shape) < 1 / (1 + np.exp(-linear))).astype(float)
    return responses, focal, [f"image {place}" for place in image]


def test_differential_items_are_found():
    responses, focal, images = simulated_groups(shifted=6, items=5)
    fit = fit_irt(responses, ResponseModel("1pl"), method="fast", draws=200, warmup=60)
    table = differential_items(fit, responses, focal, images)
    differential = set(table.loc[table["p_adjusted"] < 0.05, "item"])
    assert len(differential & set(images[:30])) >= 5
    assert len(differential - set(images[:30])) <= 2
    assert (table.set_index("item").loc[images[:30], "effect"] > 0.5).all()


def test_nothing_is_found_where_nothing_is():
    responses, focal, images = simulated_groups(shifted=0, images=200)
    fit = fit_irt(responses, ResponseModel("1pl"), method="fast", draws=100, warmup=60)
    table = differential_items(fit, responses, focal, images)
    assert 0.01 < (table["p"] < 0.05).mean() < 0.1  # 5 %, give or take three standard errors
    assert (table["p_adjusted"] < 0.05).sum() <= 1


def test_items_of_an_image_are_put_together():
    truth = simulate(10, 40, model="1pl", seed=1)
    truth.responses[0, 0] = np.nan
    fit = fit_irt(truth.responses, ResponseModel("1pl"), method="fast", draws=100, warmup=60)
    images = np.repeat([f"image {place}" for place in range(20)], 2)
    table = describe_items(fit, truth.responses, images)
    assert list(table["difficulty"]) == sorted(table["difficulty"], reverse=True)
    first = table.set_index("item").loc["image 0"]
    assert first["difficulty"] == pytest.approx(fit.difficulty[:2].mean())
    assert first["mean"] == pytest.approx(np.nanmean(truth.responses[:, :2]))
    assert first["responses"] == 19
    assert np.corrcoef(table["difficulty"], table["mean"])[0, 1] < -0.9


def test_one_group_is_no_comparison():
    responses = simulate(4, 10, model="1pl", seed=1).responses
    fit = fit_irt(responses, ResponseModel("1pl"), method="fast", draws=20, warmup=10)
    with pytest.raises(ValueError, match="two groups, got bernoulli, 4 of 4"):
        differential_items(fit, responses, [True] * 4, list("abcdefghij"))

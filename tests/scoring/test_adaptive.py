"""Which images tell most: the information by brute force, and when to stop."""

import numpy as np
import pytest

from davylamp.scoring import ResponseModel
from davylamp.scoring.adaptive_selection import ImageSelector, choose_images, replay_selection
from davylamp.scoring.irt import fit_irt

from .simulation import simulate

IMAGES = [f"image {place // 2:02d}" for place in range(80)]


@pytest.fixture(scope="module")
def setting():
    truth = simulate(7, 80, model="1pl", seed=6)
    fit = fit_irt(truth.responses[1:], ResponseModel("1pl"), method="fast", draws=400)
    return truth.responses, ImageSelector(fit, truth.responses[1:], IMAGES)


def answers_of(responses):
    return lambda asked: np.where(np.isin(IMAGES, asked), responses[0], np.nan)


def slopes(values, grid):
    """Derivatives along equally spaced grids, a grid a row."""
    assert np.allclose(np.diff(grid, 2), 0, atol=1e-5)
    return np.gradient(values, axis=1) / np.gradient(grid, axis=1)


def test_information_is_the_expected_square_of_the_score(setting):
    responses, chooser = setting
    newcomer = answers_of(responses)(["image 03", "image 11"])
    log = chooser.log_likelihood(newcomer)
    assert log.numpy() == pytest.approx(chooser.anchor.log_likelihood(newcomer).numpy(), abs=1e-3)
    weight = chooser.anchor.posterior(log).numpy()
    expected = dict.fromkeys(IMAGES, 0.0)
    for item in range(80):
        chance = chooser.anchor.response_probabilities([item])[0].double().numpy()
        score = [slopes(np.log(p), chooser.anchor.ability) for p in (chance, 1 - chance)]  # of a 1, of a 0
        square = chance * score[0] ** 2 + (1 - chance) * score[1] ** 2
        expected[IMAGES[item]] += (weight * square).sum() / len(chance)
    information = dict(zip(chooser.images.tolist(), chooser.information(log).tolist(), strict=True))
    assert information == pytest.approx(expected, rel=0.02)
    asked = ["image 03", "image 11"]
    rest = sorted((value for name, value in expected.items() if name not in asked), reverse=True)
    chosen = chooser.next_images(newcomer, asked, 4)
    assert not set(chosen) & set(asked)
    assert [expected[name] for name in chosen] == pytest.approx(rest[:4], rel=0.02)


def test_it_stops_when_the_interval_is_narrow_enough_and_not_before(setting):
    responses, chooser = setting
    choice = choose_images(chooser, answers_of(responses), width=4, batch=3)
    assert choice.enough
    assert choice.steps[-1].width <= 4 < min([step.width for step in choice.steps[:-1]], default=9)
    assert len(set(choice.images)) == len(choice.images) == choice.steps[-1].images
    assert [step.images for step in choice.steps] == list(range(3, 3 * len(choice.steps) + 1, 3))
    assert choice.steps[-1] == chooser.current_rank(answers_of(responses)(list(choice.images)))
    again = choose_images(chooser, answers_of(responses), width=4, batch=3)
    assert again == choice


def test_not_enough_is_said_with_what_would_tell_most(setting):
    responses, chooser = setting
    some = [f"image {place:02d}" for place in range(6)]
    choice = choose_images(chooser, answers_of(responses), width=0, batch=4, among=some)
    assert not choice.enough
    assert sorted(choice.images) == some
    assert len(choice.further) == 4
    assert not set(choice.further) & set(some)
    whole = choose_images(chooser, answers_of(responses), width=-1)
    assert (whole.enough, len(whole.images), whole.further) == (False, 40, ())


def test_by_default_as_narrow_as_by_all(setting):
    responses, chooser = setting
    values = np.vstack([responses[1:], responses[:1]])
    choice = replay_selection(chooser.anchor.fit, values, IMAGES, None, 4)
    assert choice.enough
    assert choice.steps[-1].width <= chooser.current_rank(responses[0]).width


def test_chosen_images_tell_more_than_others():
    truth = simulate(7, 120, model="1pl", seed=8)
    hard = truth.difficulty * 3  # most items are far from any ability
    generator = np.random.default_rng(0)
    chance = 1 / (1 + np.exp(hard - truth.ability[:, None]))
    responses = (generator.random(chance.shape) < chance).astype(float)
    images = [f"{place:03d}" for place in range(120)]
    fit = fit_irt(responses[1:], ResponseModel("1pl"), method="fast", draws=400)
    chooser = ImageSelector(fit, responses[1:], images)

    def spread(asked):
        step = chooser.current_rank(np.where(np.isin(images, asked), responses[0], np.nan))
        return step.high - step.low

    chosen = choose_images(
        chooser, lambda asked: np.where(np.isin(images, asked), responses[0], np.nan), width=-1, batch=8
    )
    others = [spread(generator.permutation(images)[:24].tolist()) for _ in range(5)]
    assert spread(list(chosen.images[:24])) < 0.85 * np.mean(others)


def test_scores_between_have_no_such_information():
    responses = np.random.default_rng(1).beta(3, 3, (5, 12))
    fit = fit_irt(responses, ResponseModel("1pl", "beta"), method="fast", chains=2, draws=20)
    with pytest.raises(ValueError, match="only for responses 0 and 1"):
        ImageSelector(fit, responses, [str(place) for place in range(12)])

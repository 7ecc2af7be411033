"""Projected numbers of images against simulated ones, and rankings by a part of the images."""

import numpy as np
import pytest
from scipy.stats import norm

from davylamp.scoring import (
    Responses,
    describe_projections,
    project_pairs,
    rank_matrix,
    rank_responses,
    rank_subsamples,
)
from davylamp.scoring.ranking import make_ranking
from davylamp.tools.calibration.projection import check

from .simulation import simulate


def ranked(z, images=50):
    """A ranking of two subjects whose posterior difference is z deviations from 0."""
    draws = norm.ppf((np.arange(4000) + 0.5) / 4000)
    scores = np.stack([z + draws, np.zeros(4000)], 1)
    responses = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    return make_ranking("irt", ["a", "b"], scores.mean(0), scores, responses, scores)


@pytest.mark.parametrize("z", [0.9, 1.4, 1.9])
def test_the_chances_are_those_of_new_images(z):
    """Each new image brings a difference of the present mean: normal numbers, counted."""
    (pair,) = project_pairs(ranked(z), 50)
    assert (pair.better, pair.worse, pair.images) == ("a", "b", 50)
    generator = np.random.default_rng(0)
    # 50 images whose mean is z of its own deviations: the deviation of one image is 1.
    present = z / np.sqrt(50)
    for count, chance in ((pair.low, 0.1), (pair.more, 0.5), (pair.high, 0.9)):
        if count is None:
            continue
        least = count == 1  # one image is more than enough
        new = present + generator.normal(size=20_000) / np.sqrt(count)
        mean = (50 * present + count * new) / (50 + count)
        apart = (mean * np.sqrt(50 + count) > norm.ppf(0.975)).mean()
        assert apart > chance if least else apart == pytest.approx(chance, abs=0.03)
    assert pair.more == pytest.approx(50 * ((norm.ppf(0.975) / z) ** 2 - 1), abs=2)


def test_what_is_apart_is_not_projected_and_what_is_hopeless_is_said():
    assert project_pairs(ranked(2.1), 50) == []
    (pair,) = project_pairs(ranked(0.3), 50)
    assert pair.more is None
    assert pair.high is None
    words = "More than 10 times the 50 images would be needed to separate a from b"
    assert pair.sentence == f"{words}, if the observed difference is the true one."
    several = describe_projections([pair, pair._replace(better="c")])
    assert several == [f"{words}, c from b, if the observed differences are the true ones."]
    (pair,) = project_pairs(ranked(1.0), 50)
    assert "with probability 0.5, if the observed difference is the true one" in pair.sentence
    with pytest.raises(ValueError, match="at least 1 image, got 0"):
        project_pairs(ranked(1), 0)


def test_equal_subjects_are_hopeless():
    """Whichever is named first: nothing speaks for either."""
    (pair,) = project_pairs(ranked(0.0), 8)
    assert pair.more is None


def test_a_projection_is_right_within_a_factor(few_draws):
    """Few repeats here; tools/calibration has many."""
    result = check(0.5, 0.0, images=30, repeats=4)
    assert result.near >= 1
    assert 0.5 < result.projected / result.true < 2


def test_fewer_images_give_wider_intervals_by_the_root(few_draws):
    truth = simulate(4, 80, model="1pl", seed=3)
    images = tuple(str(place // 2) for place in range(80))
    names = ("a", "b", "c", "d")
    responses = Responses(truth.responses, names, tuple(map(str, range(80))), images)
    ranking = rank_matrix(responses, method="fast")
    quarter, whole = rank_subsamples(responses, ranking, shares=(0.25,), method="fast")
    assert (quarter.images, quarter.subsets, whole.images, whole.subsets) == (10, 4, 40, 1)
    assert whole.width == whole.projected == pytest.approx(np.mean(ranking.high - ranking.low))
    assert quarter.projected == pytest.approx(2 * whole.width)
    assert quarter.width == pytest.approx(quarter.projected, rel=0.25)
    assert quarter.apart <= whole.apart
    assert quarter.ranks >= whole.ranks


def test_a_part_in_which_nothing_differs_is_left_out(few_draws):
    values = np.zeros((2, 12))
    values[0, 0] = 1
    names = tuple(map(str, range(12)))
    responses = Responses(values, ("a", "b"), names, names)
    ranking = rank_responses(values, ["a", "b"], method="fast")
    quarter, *_ = rank_subsamples(responses, ranking, shares=(0.25,), method="fast")
    assert quarter.subsets == 1

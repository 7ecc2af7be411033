"""The sign-flip test against every sign, McNemar's exact test and simulated equals; letters that go by it."""

import itertools

import numpy as np
import pytest
from scipy.stats import binomtest

from davylamp.intervals import tail_probability
from davylamp.scoring import bootstrap, mean_response, project_pairs, rank_responses
from davylamp.scoring.baselines import borda, borda_parts
from davylamp.scoring.significance import flip_test, paired_p_values


def by_every_sign(differences):
    """P(|sum| is as large or larger), all 2^k sums written out."""
    sizes = np.abs(differences[differences != 0])
    sums = np.array([np.dot(signs, sizes) for signs in itertools.product((-1, 1), repeat=len(sizes))])
    return (np.abs(sums) >= abs(differences.sum()) - 1e-9).mean()


def test_few_differing_images_are_counted():
    generator = np.random.default_rng(0)
    for _ in range(25):
        size = int(generator.integers(1, 11))
        for differences in (
            generator.integers(-1, 2, size) / 1.0,
            generator.integers(-3, 4, size) / 3,
            generator.integers(-5, 6, size) * 0.1,
            generator.normal(size=size),
        ):
            assert flip_test(differences) == pytest.approx(by_every_sign(differences))
    assert flip_test(np.zeros(4)) == 1


def test_outcomes_of_one_item_an_image_are_mcnemars():
    for more, fewer in ((3, 0), (6, 0), (9, 2), (40, 25), (400, 300)):
        differences = np.concatenate([np.ones(more), -np.ones(fewer), np.zeros(5)])
        assert flip_test(differences) == pytest.approx(binomtest(more, more + fewer).pvalue)


def test_many_images_are_nearly_counted():
    """By the normal distribution, against the exact one of a common unit and against the signs of coins."""
    generator = np.random.default_rng(1)
    outcomes = generator.integers(-3, 5, 900).astype(float)
    signs = generator.choice([-1.0, 1.0], size=(20_000, 900))
    simulated = (np.abs(signs @ np.abs(outcomes)) >= abs(outcomes.sum())).mean()
    assert abs(outcomes).sum() > 1000
    assert flip_test(outcomes) == pytest.approx(simulated, abs=0.01)
    shares = generator.normal(0.4, 1, size=30)
    simulated = (np.abs(signs[:, :30] @ np.abs(shares)) >= abs(shares.sum())).mean()
    assert flip_test(shares) == pytest.approx(simulated, abs=0.01)


def test_images_are_flipped_as_a_whole_and_gaps_count_for_nobody():
    values = np.array([[1.0, 1, 0, 1, 1, np.nan], [0, 0, 1, 0, 0, 1]])
    (_, alone), _ = paired_p_values(values, list("abcdef"))
    assert alone == pytest.approx(binomtest(4, 5).pvalue)
    (_, whole), _ = paired_p_values(values, list("aabccc"))
    assert whole == pytest.approx(by_every_sign(np.array([2.0, -1, 2])))


def test_borda_counts_are_means_of_their_parts():
    responses = np.random.default_rng(2).integers(0, 3, (5, 30)) / 2
    assert borda_parts(responses).mean(1) == pytest.approx(borda(responses))


@pytest.mark.parametrize(("images", "differ"), [(8, 0.3), (100, 0.05)])
def test_equals_are_told_apart_in_at_most_5_percent(images, differ):
    """By the resampled means alone it was 9 to 11 % where few images differ."""
    generator, wrong, runs = np.random.default_rng(3), 0, 300
    for _ in range(runs):
        one = (generator.random(images) < 0.5).astype(float)
        other = np.where(generator.random(images) < differ, 1 - one, one)
        if (one != other).any():
            wrong += bool(rank_responses(np.stack([one, other]), ["a", "b"], scoring="mean").apart.any())
    assert wrong / runs < 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize("scoring", ["mean", "borda"])
def test_three_of_eight_images_tell_nobody_apart(scoring):
    """McNemar's p is 0.25; the resampled means are ordered alike in 98 of 100."""
    responses = np.zeros((2, 8))
    responses[0, :3] = 1
    ranking = rank_responses(responses, ["a", "b"], scoring=scoring)
    assert ranking.beats[0, 1] > 0.975
    assert ranking.p_values is not None
    assert ranking.p_values[0, 1] == pytest.approx(0.25)
    assert ranking.groups == ("a", "a")
    assert not ranking.apart.any()
    assert (ranking.rank_low.tolist(), ranking.rank_high.tolist()) == ([1, 1], [2, 2])
    (pair,) = project_pairs(ranking, 8)
    assert pair.more is not None
    assert pair.more > 8  # at the observed difference 6 images that differ are the least, so 16 in all
    several = np.tile(responses, 4)
    assert rank_responses(several, ["a", "b"], scoring=scoring).groups == ("a", "b")


def test_intervals_of_few_images_are_as_wide_as_students():
    responses = (np.random.default_rng(4).random((2, 8)) < [[0.3], [0.7]]).astype(float)
    ranking = rank_responses(responses, ["a", "b"], scoring="mean", seed=5)
    draws = bootstrap(mean_response, responses, [str(image) for image in range(8)], seed=5)
    tail = tail_probability(8)
    assert tail < 0.01
    assert ranking.low == pytest.approx(np.quantile(draws, tail, axis=0))
    assert ranking.high == pytest.approx(np.quantile(draws, 1 - tail, axis=0))

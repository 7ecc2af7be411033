"""Intervals of shares cover the truth, also at 0 and 1 and where the same images repeat."""

import math

import numpy as np
import pytest

from davylamp.intervals import clustered_interval, proportion_interval, whole_shares

COVER = 0.93
TRUTHS = (0.0, 0.02, 0.5, 0.98, 1.0)


def simulate(generator, truth, images, repeats, alike, trials):
    """Outcomes (images, repeats, trials), whose correlation within an image is `alike`."""
    if alike == 0 or truth in (0, 1):
        chance = np.full((images, trials), truth)
    elif alike == 1:
        chance = (generator.random((images, trials)) < truth).astype(float)
    else:
        size = (1 - alike) / alike
        chance = generator.beta(truth * size, (1 - truth) * size, (images, trials))
    return (generator.random((images, repeats, trials)) < chance[:, None]).astype(float)


@pytest.mark.parametrize("images", [3, 12, 100])
@pytest.mark.parametrize("alike", [0, 0.1, 0.5, 0.9, 1])
@pytest.mark.parametrize("repeats", [2, 6])
def test_the_clustered_interval_covers_every_share(images, alike, repeats):
    generator = np.random.default_rng((images, repeats))
    for truth in (*TRUTHS, 0.1, 0.7):
        estimates = clustered_interval(simulate(generator, truth, images, repeats, alike, 1500))
        assert ((estimates.low <= truth) & (truth <= estimates.high)).mean() >= COVER, truth


def test_the_clustered_interval_covers_where_the_repeats_differ():
    """Attacks of unlike strength, run on unlike parts of the images; the mean over attacks is what is estimated."""
    generator = np.random.default_rng(0)
    strengths, trials, images = np.array([0.02, 0.5, 0.95, 1.0]), 2000, 20
    ease = generator.random((images, 1, trials))  # an image that falls to one attack falls to the stronger ones
    values = (ease < strengths[None, :, None]).astype(float)
    values[:4, 1] = np.nan
    values[10:, 2] = np.nan
    estimates = clustered_interval(values)
    assert ((estimates.low <= strengths.mean()) & (strengths.mean() <= estimates.high)).mean() >= COVER


def test_equal_outcomes_of_an_image_are_worth_one():
    once = (np.arange(12) < 5).astype(float)[:, None]
    single, repeated = clustered_interval(once), clustered_interval(np.repeat(once, 7, 1))
    assert tuple(repeated) == pytest.approx(tuple(single))
    assert (single.low, single.high) == pytest.approx(proportion_interval(5, 12))


def test_all_equal_outcomes_are_worth_little_more_than_their_images():
    for value in (0.0, 1.0):
        estimate = clustered_interval(np.full((12, 7), value))
        assert estimate.value == value
        assert estimate.worth == pytest.approx(12)
        assert (estimate.low, estimate.high) == pytest.approx(proportion_interval(12 * value, 12))


def test_independent_outcomes_are_worth_more_than_their_images():
    values = (np.random.default_rng(0).random((100, 8)) < 0.5).astype(float)
    assert 300 < clustered_interval(values).worth <= 800


def test_the_share_is_the_weighted_mean_of_the_repeats():
    values = np.array([[1, 0], [1, 0], [0, np.nan], [np.nan, np.nan]])
    assert clustered_interval(values).value == pytest.approx((2 / 3 + 0) / 2)
    assert clustered_interval(values, [3, 1]).value == pytest.approx(0.5)
    assert clustered_interval(values, [3, 2]).value == pytest.approx(0.4)  # by images: their plain mean


def test_an_undefined_repeat_is_left_out_and_nothing_is_undefined():
    values = np.array([[1, np.nan], [0, np.nan], [1, np.nan]])
    assert tuple(clustered_interval(values)) == pytest.approx(tuple(clustered_interval(values[:, :1])))
    assert all(math.isnan(number) for number in clustered_interval(np.full((3, 2), np.nan)))
    assert all(math.isnan(number) for number in clustered_interval(np.zeros((0, 2))))


def test_many_shares_at_once_are_those_one_by_one():
    values = (np.random.default_rng(0).random((9, 3, 5)) < 0.3).astype(float)
    together = clustered_interval(values)
    for place in range(5):
        alone = clustered_interval(values[:, :, place])
        assert [float(part[place]) for part in together] == pytest.approx([float(part) for part in alone])


@pytest.mark.parametrize("values", [np.zeros(4), np.full((4, 2), 1.5), np.full((4, 2), -0.1)])
def test_what_is_no_share_is_refused(values):
    with pytest.raises(ValueError, match="expected"):
        clustered_interval(values)


@pytest.mark.parametrize("images", [1, 3, 12, 100])
def test_the_interval_of_counted_images_is_the_clustered_one_of_the_images(images):
    counts = np.arange(images + 1)
    together = whole_shares(counts, images)
    for count in counts:
        alone = clustered_interval((np.arange(images) < count)[:, None])
        assert tuple(each[count] for each in together) == pytest.approx(tuple(alone), rel=1e-9, abs=1e-12)
    assert all(np.isnan(whole_shares(np.zeros(1), 0)[part][0]) for part in range(3))

"""Intervals that hold at every number of images: closed forms, coverage under optional stopping, ranges of values."""

import math

import numpy as np
import pytest
from scipy.special import betaln
from scipy.stats import hypergeom

from davylamp.engine.statistics.anytime import GRID, AnytimeMean, rate_interval
from davylamp.intervals import proportion_interval
from davylamp.tools.calibration.stopping import correlated_attacks, decide, one_model, two_models


def interval_of(values, population=None, level=0.95):
    mean = AnytimeMean(population, level)
    mean.add(np.asarray(values, float))
    return mean.interval


@pytest.mark.parametrize("fooled", [3, 12, 37])
def test_it_is_close_to_the_prior_posterior_ratio_without_replacement(fooled):
    """The exact confidence sequence of Waudby-Smith and Ramdas (2020) for counts, from hypergeometric probabilities."""
    population, n, right = 200, 40, 40 - fooled
    values = np.random.default_rng(fooled).permutation([1.0] * right + [0.0] * fooled)
    totals = np.arange(population + 1)
    likelihood = hypergeom.pmf(right, population, totals, n)
    kept = totals[likelihood >= 0.05 * likelihood.mean()]  # a uniform prior on the number of images that are right
    interval = interval_of(values, population)
    # Ours has half of 5 % on each side, so it is somewhat wider; bets of two kinds cost a factor of 2 of wealth.
    assert kept[0] / population - 0.09 < interval.low <= kept[0] / population
    assert kept[-1] / population <= interval.high < kept[-1] / population + 0.09


def test_the_first_half_of_the_wealth_is_the_mixture_of_robbins():
    """For 0 and 1, betting by Laplace's rule against m has the wealth of a uniform mixture over all bets."""
    values = np.random.default_rng(1).permutation([1.0] * 30 + [0.0] * 10)
    mean = AnytimeMean()
    mean.add(values)
    wealth = mean._low.log_wealth[0]
    for place in (200, 600, 1000):
        m = place / 2000
        bets_above = betaln(31, 11) - 30 * math.log(m) - 10 * math.log(1 - m)
        # The mixture also bets on means below m; early values below it make a small difference.
        assert wealth[place] == pytest.approx(bets_above, abs=0.7)


@pytest.mark.parametrize(("chance", "population"), [(0.9, 400), (0.3, None)])
def test_the_mean_is_inside_at_all_times_together(chance, population):
    """Looked at after every 10 images, at most 5 % ever exclude the truth; a fixed interval does more often."""
    generator, missed, fixed = np.random.default_rng(0), 0, 0
    runs, images = 60, 200
    for _ in range(runs):
        if population:
            drawn = generator.permutation((np.arange(population) < chance * population).astype(float))[:images]
        else:
            drawn = (generator.random(images) < chance).astype(float)
        mean, out, out_fixed = AnytimeMean(population), False, False
        for place in range(0, images, 10):
            mean.add(drawn[place : place + 10])
            low, high = mean.interval[1:]
            out |= not low <= chance <= high
            low, high = proportion_interval(drawn[: place + 10].sum(), place + 10)
            out_fixed |= not low <= chance <= high
        missed, fixed = missed + out, fixed + out_fixed
    assert missed <= 0.05 * runs
    assert fixed > missed


def test_all_images_give_the_exact_mean():
    values = np.random.default_rng(2).random(50)
    interval = interval_of(values, 50)
    assert interval.low == pytest.approx(values.mean())
    assert interval.high == pytest.approx(values.mean())


@pytest.mark.parametrize("population", [10, 20, 30, 100])
def test_no_rounding_decides_what_the_last_image_decides(population):
    """All images but one are 0: the mean is 0 or 1 / population, which a bound of 1 - (1 - mean) misses by rounding."""
    mean = AnytimeMean(population)
    mean.add(np.zeros(population - 1))
    assert mean.interval.low < 1 / population <= mean.interval.high
    mean.add([1.0])
    assert mean.interval.low == mean.interval.high == 1 / population


def test_bounds_are_rounded_outwards_to_candidates_that_are_decimal_numbers():
    values = np.random.default_rng(4).permutation([1.0] * 45 + [0.0] * 15)
    for population in (None, 100):
        coarse, fine = AnytimeMean(population, grid=np.array([0, 0.25, 0.5, 0.75, 1])), AnytimeMean(population)
        for mean in (coarse, fine):
            mean.add(values)
        assert coarse.interval.low <= fine.interval.low < coarse.interval.low + 0.25
        assert coarse.interval.high - 0.25 < fine.interval.high <= coarse.interval.high
    assert list(GRID) == [float(f"{place / 20:.2f}e-2") for place in range(2001)]


def test_known_sums_bound_the_rest():
    """After 90 of 100 images that are all right, at least 90 % are; the bounds never leave [0, 1]."""
    assert interval_of([1.0] * 90, 100).low >= 0.9
    assert interval_of([0.0] * 90, 100).high <= 0.1
    assert interval_of([1.0] * 5)[2] == 1


def test_a_range_of_values_widens_each_side():
    low, high = np.array([1.0, 0.0, 1.0, 0.0] * 10), np.array([1.0, 0.0, 1.0, 1.0] * 10)
    mean = AnytimeMean()
    mean.add(low, high)
    assert mean.interval.value == 0.5
    assert mean.interval.low == interval_of(low).low
    assert mean.interval.high == interval_of(high).high


def test_values_close_together_have_a_narrow_interval():
    """Differences of paired outcomes, as 0, 0.5 and 1: their small variance is used."""
    paired = np.random.default_rng(3).choice([0.5, 1.0, 0.0], 1000, p=[0.9, 0.06, 0.04])
    ones = (np.random.default_rng(3).random(1000) < 0.5).astype(float)
    widths = [interval.high - interval.low for interval in map(interval_of, (paired, ones))]
    assert widths[0] < 0.5 * widths[1]


def test_wrong_values_are_refused():
    with pytest.raises(ValueError, match="0 to 1"):
        AnytimeMean().add([1.1])
    with pytest.raises(ValueError, match="0 to 1"):
        AnytimeMean().add([math.nan])
    with pytest.raises(ValueError, match="at most 3"):
        AnytimeMean(3).add([1.0] * 4)


def test_only_drawn_images_have_the_interval_that_allows_looking():
    low, high = np.array([1.0] * 12 + [0.0] * 8), np.array([1.0] * 14 + [0.0] * 6)
    ends = proportion_interval(12, 20)[0], proportion_interval(14, 20)[1]
    assert rate_interval(low, high, None) == pytest.approx(ends)
    mean = AnytimeMean(50)
    mean.add(low, high)
    assert rate_interval(low, high, 50) == tuple(mean.interval[1:])


@pytest.mark.parametrize("gap", [-0.1, 0.1])
@pytest.mark.parametrize("question", ["one model", "invalid results", "correlated attacks", "two models"])
def test_decisions_are_right_and_early(question, gap):
    """Looked at after every block, at most 5 % of the decisions are wrong."""
    threshold = 0.5 if question == "two models" else 0.6
    low, high = {
        "one model": lambda: one_model(gap, 0, 2000),
        "invalid results": lambda: one_model(gap, 0.02, 2000),
        "correlated attacks": lambda: correlated_attacks(gap, 2000),
        "two models": lambda: two_models(gap, 0, 2000),
    }[question]()
    exact = {"two models": 0.5 + gap / 2}.get(question, 0.6 + gap)
    assert low.mean() == pytest.approx(exact)
    done = decide(low, high, threshold, 40, shard=16)
    assert done.wrong <= 0.05 * 40
    assert done.open == 0
    assert np.median(done.images) < 1000


def test_decisions_near_the_bound_need_nearly_all_images_and_are_right():
    """A fixed interval, looked at as often, is wrong far more often."""
    low, _ = one_model(0.005, 0, 400)
    done = decide(low, low, 0.6, 40, shard=8)
    assert done.wrong <= 0.05 * 40
    generator, wrong = np.random.default_rng(0), 0
    for _ in range(40):
        sums = np.cumsum(generator.permutation(low))
        looks = np.arange(8, 400, 8)
        wrong += any(proportion_interval(sums[n - 1], n)[1] < 0.6 for n in looks)
    assert wrong > done.wrong


def test_the_quick_grid_of_the_simulation_decides_as_the_full_one():
    low, high = one_model(0.08, 0.02, 600)
    quick, full = (decide(low, high, 0.6, 4, shard=16, is_quick=is_quick) for is_quick in (True, False))
    assert np.array_equal(quick.images, full.images)

"""Resampled statistics are those of every replicate spelt out; intervals have a known distribution."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from davylamp import metrics
from davylamp.engine.statistics import bootstrap
from davylamp.engine.statistics.bootstrap import (
    bootstrap_means,
    draw_half_distortion,
    draw_levels,
    draw_macro_f1,
    draw_optimality,
    interval,
    interval_bands,
    resample,
    tail_probability,
)

INF = math.inf


def replicates(counts):
    """The images of every replicate, spelt out."""
    return [np.repeat(np.arange(counts.shape[1]), row) for row in counts]


def test_resampling_is_a_bootstrap():
    counts = resample(30, 4000, 5)
    assert counts.shape == (4001, 30)
    assert (counts[0] == 1).all()
    assert (counts.sum(1) == 30).all()
    assert (counts == resample(30, 4000, 5)).all()
    assert (counts != resample(30, 4000, 6)).any()
    # how often one image is drawn is binomial
    shares = np.bincount(counts[1:].ravel(), minlength=6)[:6] / (4000 * 30)
    np.testing.assert_allclose(shares, stats.binom.pmf(range(6), 30, 1 / 30), atol=0.005)


def test_the_interval_of_a_rate_is_that_of_the_binomial():
    n, successes = 200, 62
    values = (np.arange(n) < successes).astype(float)
    estimate = interval(bootstrap_means(resample(n, 20_000, 0), values[:, None])[0].ratio, n)
    low, high = stats.binom.ppf([0.025, 0.975], n, successes / n) / n
    assert estimate.value == successes / n
    assert abs(estimate.low - low) <= 1.01 / n
    assert abs(estimate.high - high) <= 1.01 / n


def test_the_interval_covers_the_truth():
    generator, hits = np.random.default_rng(0), 0
    for trial in range(300):
        values = (generator.random(120) < 0.4).astype(float)
        estimate = interval(bootstrap_means(resample(120, 400, trial), values[:, None])[0].ratio, 120)
        hits += estimate.low <= 0.4 <= estimate.high
    assert 0.90 < hits / 300 < 0.98


def test_the_tails_are_those_of_students_interval():
    """Of normal replicates with the spread that resampling sees, the ends are those of the t interval."""
    for n in (2, 5, 10, 40, 1000):
        seen = np.sqrt((n - 1) / n)  # of a standard deviation that is 1 with n - 1 below it
        assert stats.norm.ppf(tail_probability(n)) * seen == pytest.approx(stats.t.ppf(0.025, n - 1), rel=1e-9)
    assert tail_probability(0) == tail_probability(1) == 0.025
    assert tail_probability(10**6) == pytest.approx(0.025, abs=1e-6)


@pytest.mark.parametrize("n", [5, 10])
def test_an_interval_of_few_images_covers_the_mean(n):
    """Plain percentiles cover 85 % with 5 images, 90 % with 10."""
    generator, hits = np.random.default_rng(n), 0
    for trial in range(400):
        draws = bootstrap_means(resample(n, 1000, trial), generator.normal(size=(n, 1)))[0].ratio
        estimate = interval(draws, n)
        hits += estimate.low <= 0 <= estimate.high
    assert stats.binomtest(hits, 400, 0.92, "less").pvalue > 0.01


def test_means_are_over_the_defined_values():
    counts = resample(50, 20, 1)
    values = np.random.default_rng(0).normal(size=(50, 2))
    values[::3, 0] = np.nan
    first, second = bootstrap_means(counts, values)
    assert (first.n, second.n) == (33, 50)
    for row, images in enumerate(replicates(counts)):
        assert first.ratio[row] == pytest.approx(np.nanmean(values[images, 0]))
        assert second.ratio[row] == pytest.approx(values[images, 1].mean())


def test_columns_share_the_counts_of_the_images_that_they_are_defined_on():
    counts, values = resample(50, 20, 1), np.random.default_rng(0).normal(size=(50, 5))
    values[::3, [0, 3]] = np.nan
    values[::7, 1] = np.nan
    draws = bootstrap_means(counts, values)
    alike = [[np.shares_memory(first.count, second.count) for second in draws] for first in draws]
    assert alike == [[(a in (0, 3)) == (b in (0, 3)) and (a == 1) == (b == 1) for b in range(5)] for a in range(5)]
    for place, column in enumerate(draws):
        for row, images in enumerate(replicates(counts)):
            drawn = values[images, place]
            assert column.count[row] == (~np.isnan(drawn)).sum()
            assert column.total[row] == pytest.approx(np.nansum(drawn))


def test_nothing_defined_is_undefined_without_a_warning():
    (draws,) = bootstrap_means(resample(4, 10, 0), np.full((4, 1), np.nan))
    assert all(math.isnan(number) for number in interval(draws.ratio, 0)[:3])


def test_bands_are_order_statistics_and_leave_out_what_is_undefined():
    draws = np.concatenate([[[7.0]], np.arange(1, 1001.0)[:, None], np.full((500, 1), np.nan)])
    low, high = interval_bands(draws)
    assert (low[0], high[0]) == (25, 975)
    low, high = interval_bands(np.array([[1.0], [2.0], [INF], [INF]]))
    assert (low[0], high[0]) == (2, INF)


def distances_of(seed, n=60):
    generator = np.random.default_rng(seed)
    distances = generator.exponential(0.3, n).round(2)
    distances[generator.random(n) < 0.15] = 0
    distances[generator.random(n) < 0.1] = INF
    return distances


def test_rounding_is_no_width():
    """Ten equal times: their resampled means differ in the last digit, which is no interval."""
    values = np.full((10, 1), 0.117666066399999630)
    (draws,) = bootstrap_means(resample(10, 200, 0), values)
    assert len(set(draws.ratio.tolist())) > 1
    estimate = interval(draws.ratio, 10)
    assert math.isnan(estimate.low)
    assert estimate.value == pytest.approx(values[0, 0])


@pytest.mark.parametrize("seed", range(3))
def test_resampled_statistics_are_the_metrics_of_every_replicate(seed):
    distances, counts = distances_of(seed), resample(60, 25, seed)
    best = np.minimum(distances, distances_of(seed + 100))
    finite = np.where(np.isinf(best), 0.5, best)
    labels, predicted = np.random.default_rng(seed).integers(0, 5, (2, 60))
    half = draw_half_distortion(counts, distances)
    optimality = draw_optimality(counts, np.maximum(distances, finite), finite)
    f1 = draw_macro_f1(counts, labels, predicted)
    for row, images in enumerate(replicates(counts)):
        drawn, least = torch.tensor(distances[images]), torch.tensor(finite[images])
        assert half[row] == pytest.approx(metrics.half_distortion(drawn).value, rel=1e-6)
        truth = metrics.local_optimality(drawn.maximum(least), least)
        assert optimality[row] == pytest.approx(float(truth), abs=1e-9)
        logits = torch.eye(5)[torch.tensor(predicted[images])]
        assert f1[row] == pytest.approx(float(metrics.macro_f1(logits, torch.tensor(labels[images]))), abs=1e-6)


@pytest.mark.parametrize("most", [60, 61 * 7, 2**19])
@pytest.mark.parametrize("digits", [2, 9])  # several images at a distance, or one
def test_half_distortions_do_not_depend_on_how_many_replicates_are_held_at_once(most, digits, monkeypatch):
    generator, counts = np.random.default_rng(5), resample(60, 25, 0)
    distances = generator.exponential(0.3, 60).round(digits)
    distances[:6], distances[6:9] = 0, INF
    monkeypatch.setattr(bootstrap, "_IN_CACHE", most)
    half = draw_half_distortion(counts, distances)
    assert len(half) == 26
    for row, images in enumerate(replicates(counts)):
        assert half[row] == pytest.approx(metrics.half_distortion(torch.tensor(distances[images])).value, rel=1e-6)


def test_half_distortions_of_many_images_are_those_of_a_search_without_polynomials():
    generator, counts = np.random.default_rng(7), resample(3000, 6, 0)
    for spread in (0.1, 0.5, 2):
        distances = np.exp(spread * generator.normal(size=3000))
        half = draw_half_distortion(counts, distances)
        for row, images in enumerate(replicates(counts)):
            steps, fallen = np.unique(distances[images], return_counts=True)
            left = 1 - fallen.cumsum() / 3000
            fit = optimize.minimize_scalar(
                lambda rate, steps=steps, left=left: ((np.exp(-np.exp(rate) * steps) - left) ** 2).sum(),
                bounds=(-3, 3),
                method="bounded",
                options={"xatol": 1e-10},
            )
            assert half[row] == pytest.approx(math.log(2) / math.exp(fit.x), rel=1e-6)


def test_optimality_where_a_replicate_misses_many_of_the_largest():
    """The largest best distance that is drawn is the fortieth largest, or the least."""
    best = np.linspace(1, 2, 60)
    counts = np.zeros((3, 60), np.uint8)
    counts[0], counts[1, :20], counts[2, [0, 20]] = 1, 3, 30
    drawn = draw_optimality(counts, best * 1.2, best)
    for row, images in enumerate(replicates(counts)):
        truth = metrics.local_optimality(torch.tensor(1.2 * best[images]), torch.tensor(best[images]))
        assert drawn[row] == pytest.approx(float(truth), abs=1e-9)


def test_half_distortions_that_do_not_exist():
    counts = resample(3, 50, 0)
    assert np.isinf(draw_half_distortion(counts, np.full(3, INF))).all()
    assert np.isnan(draw_half_distortion(counts, np.zeros(3))).all()
    assert np.isnan(draw_half_distortion(counts, np.full(3, 0.5))).all()  # all fall at one distance


def test_optimality_is_undefined_in_every_replicate_if_an_image_never_falls():
    best, counts = np.array([0.1, 0.2, 0.3, INF]), resample(4, 200, 0)
    assert (counts[:, 3] == 0).any()
    assert np.isnan(draw_optimality(counts, best, best)).all()
    # else it is defined wherever two different distances are drawn, and 1 for the best attack
    finite = np.array([0.1, 0.2, 0.3, 0.3])
    drawn = draw_optimality(counts, finite, finite)
    apart = [len(set(finite[images])) > 1 for images in replicates(counts)]
    assert (np.isnan(drawn) != apart).all()
    assert drawn[apart] == pytest.approx(1)


@pytest.mark.parametrize("images", [5, 40, 333])
def test_the_best_attack_is_optimal_exactly(images):
    best = np.random.default_rng(images).random(images)
    assert set(draw_optimality(resample(images, 200, 0), best, best)) == {1.0}  # not 1.0000000000000002


def test_time_levels_are_the_metric_of_every_replicate():
    seconds = np.random.default_rng(0).integers(1, 6, (20, 7)).astype(float)
    truth = [metrics.time_cost_levels(torch.tensor(row)).tolist() for row in seconds]
    assert draw_levels(seconds).tolist() == truth


def test_a_replicate_without_an_image_has_no_optimality_and_what_finds_nothing_has_none_at_all():
    counts, best = np.array([[1, 1], [0, 0], [2, 1]], np.uint8), np.array([0.3, 0.7])
    drawn = draw_optimality(counts, np.full(2, math.inf), best)
    assert drawn[[0, 2]].tolist() == [0.0, 0.0]  # exactly: no 4e-16
    assert np.isnan(drawn[1])

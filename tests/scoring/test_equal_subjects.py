"""Rankings of equal subjects: how many tell any two apart, and that real differences are still found."""

import numpy as np
import pytest

from davylamp.scoring import rank_responses
from davylamp.scoring.ranking import make_ranking
from davylamp.scoring.significance import pair_deviations, tell_apart, tie_groups
from davylamp.tools.calibration.equal_models import COUNTS, count_wrong_tables, limit_of


def decided(draws):
    """Deviations of the pairs of normal draws, who is told apart, and what the others would need."""
    count = draws.shape[1]
    beats = np.stack([(one[:, None] > draws).mean(0) for one in draws.T]) + 0.5 * np.eye(count)
    above = pair_deviations(draws, beats)
    return above, *tell_apart(above, draws)


@pytest.mark.parametrize("count", COUNTS)
def test_at_most_5_percent_of_tables_of_equal_models_show_a_pair(count):
    """Uncorrected it was 3, 8, 16, 45 and 86 % with 2, 3, 5, 10 and 20 models."""
    tables = 60 if count < 20 else 30
    wrong = count_wrong_tables(count, 50, 1, scoring="mean", tables=tables)
    assert wrong.pairs <= limit_of(tables)
    assert wrong.uncorrected >= wrong.pairs
    assert count < 10 or wrong.uncorrected > limit_of(tables)


@pytest.mark.parametrize("count", COUNTS)
def test_joint_draws_of_equals_show_a_pair_in_5_percent(count):
    """As of an item response model whose posterior is normal and has the right width."""
    generator, wrong, tables = np.random.default_rng(count), 0, 200
    for _ in range(tables):
        covariance = np.cov(generator.normal(size=(count, 3 * count)))
        estimate = generator.multivariate_normal(np.zeros(count), covariance)
        draws = generator.multivariate_normal(estimate, covariance, 1000)
        wrong += bool(decided(draws)[1].any())
    assert 0.01 * tables < wrong <= limit_of(tables)


def test_one_pair_is_not_corrected_and_a_rank_needs_more_the_more_there_are():
    generator = np.random.default_rng(0)
    needed = [tell_apart(np.zeros((count, count)), generator.normal(size=(4000, count)))[1] for count in COUNTS]
    tukey = [1.960, 2.344, 2.728, 3.164, 3.545]  # studentised range, 5 %, over the root of 2
    assert needed == pytest.approx(tukey, abs=0.06)


def test_what_is_told_apart_leaves_more_for_the_rest():
    """Step-down: far from the others, c no longer counts; a and b alone need 1.96 deviations and have 2.1."""
    draws = np.random.default_rng(1).normal(size=(4000, 3)) / np.sqrt(2)
    draws += [2.1, 0, 50]
    above, apart, critical = decided(draws)
    assert 1.96 < above[0, 1] < 2.34
    assert apart.tolist() == (~np.eye(3, dtype=bool)).tolist()
    assert critical == pytest.approx(1.96, abs=0.001)
    _, apart, critical = decided(draws - [0, 0, 49])
    assert not apart.any()
    assert critical == pytest.approx(2.344, abs=0.06)


def test_a_real_difference_is_found_among_many():
    """Ten models, two of them far better: they differ from all others, and nobody else does."""
    generator = np.random.default_rng(2)
    responses = (generator.random((10, 100)) < np.array([0.9, 0.9, *[0.4] * 8])[:, None]).astype(float)
    ranking = rank_responses(responses, list("abcdefghij"), scoring="mean")
    better = np.arange(10) < 2
    assert ranking.apart.tolist() == (better[:, None] != better).tolist()
    assert ranking.groups == ("a", "a", *["b"] * 8)


def test_letters_bars_json_and_projections_are_one_decision():
    generator = np.random.default_rng(3)
    responses = (generator.random((6, 60)) < np.linspace(0.3, 0.7, 6)[:, None]).astype(float)
    ranking = rank_responses(responses, list("abcdef"), scoring="mean")
    assert ranking.p_values is not None
    assert ranking.apart.tolist() == ranking.to_dict()["apart"] == ranking.apart.T.tolist()
    assert ranking.groups == tie_groups(ranking.score, ranking.apart)
    uncorrected = ranking.p_values < 0.05
    assert 0 < ranking.apart.sum() < uncorrected.sum()
    assert not (ranking.apart & ~uncorrected).any()


def test_unknown_scores_are_told_from_nobody():
    draws = np.full((100, 3), np.nan)
    draws[:, 0] = 1.0
    ranking = make_ranking("mean", list("abc"), np.array([1.0, 0, 0]), draws, np.eye(3), draws)
    assert not ranking.apart.any()

"""What a fit takes for granted: by brute force."""

import numpy as np
import pytest

from davylamp.scoring import ResponseModel, fit_irt, rank_responses
from davylamp.scoring.significance import design_effect, missing_by_subject
from davylamp.tools.calibration.intervals import Scenario, cover, in_exact_set, simulate


def test_cochrans_q_by_permutation():
    """The names of the subjects are exchanged on each image, its responses together."""
    generator = np.random.default_rng(0)
    missing = generator.binomial(5, 0.2, size=(4, 40)).astype(float)
    missing[0] += generator.binomial(2, 0.15, size=40)

    def spread(counts):
        return counts.sum(1).var()

    shuffled = [spread(generator.permuted(missing, axis=0)) for _ in range(4000)]
    expected = np.mean(np.array(shuffled) >= spread(missing) - 1e-9)
    assert missing_by_subject(missing) == pytest.approx(expected, abs=0.02)


def test_nothing_to_test():
    assert missing_by_subject(np.ones((3, 5))) == 1
    assert missing_by_subject(np.ones((1, 5))) == 1


def test_one_image_proves_nothing_however_many_responses_it_has():
    missing = np.zeros((3, 20))
    missing[0, 0] = 100
    assert missing_by_subject(missing) > 0.3


def effect_of(truth, clusters=None):
    fit = fit_irt(truth.responses, ResponseModel("1pl"), method="fast", chains=2, warmup=50, draws=200)
    return design_effect(fit, truth.responses, truth.images if clusters is None else clusters)


def test_a_response_told_five_times_is_worth_one():
    once = simulate(Scenario(4, "1pl", 0.0, 0.0, 1), images=60, attacks=1)
    five = once._replace(responses=np.repeat(once.responses, 5, axis=1), images=list(np.repeat(once.images, 5)))
    assert effect_of(five) == pytest.approx(5 * 60 / 59, rel=1e-3)
    assert effect_of(five, [str(place) for place in range(300)]) == 1
    assert effect_of(five, ["the only one"] * 300) == 1


def test_independent_responses_keep_their_intervals():
    effects = [effect_of(simulate(Scenario(4, "1pl", 0.0, 0.2, 1), seed=seed)) for seed in range(4)]
    assert np.mean(effects) < 1.12


def test_intervals_are_as_wide_as_the_note_says(few_draws):
    truth = simulate(Scenario(3, "1pl", 1.5, 0.0, 1), seed=3)
    names = ["a", "b", "c"]
    ranking = rank_responses(truth.responses, names, truth.images, method="fast")
    alone = rank_responses(truth.responses, names, method="fast")
    effect = design_effect(ranking.fit, truth.responses, truth.images)
    assert 1.5 < effect < 3
    assert (ranking.high - ranking.low) == pytest.approx(np.sqrt(effect) * (alone.high - alone.low), rel=1e-6)
    assert ranking.score == pytest.approx(alone.score)
    assert ranking.notes[-1].startswith(
        f"responses to one image are correlated: intervals and rank intervals are {effect**0.5:.2g} "
    )
    assert not [note for note in alone.notes if "are correlated" in note]


def test_intervals_cover_where_five_attacks_share_the_images(few_draws):
    """Few repeats here; tools/calibration has many."""
    shares = cover(Scenario(6, "1pl", 2.0, 0.1, 8, method="fast"), images=20)
    assert shares.abilities >= 0.9
    assert shares.alone < 0.88
    assert shares.ranks >= 0.95
    assert shares.ranks_exact == pytest.approx(0.95, abs=0.05)
    assert shares.orders_exact == pytest.approx(0.95, abs=0.05)
    assert shares.orders == pytest.approx(shares.believed, abs=0.08)


def test_an_exact_set_is_worth_what_it_says():
    """Its expected cover under its own probabilities is the level, whatever they are; certain outcomes are in it."""
    probability = np.random.default_rng(3).dirichlet(np.full(6, 0.4), size=50)
    inside = np.stack([in_exact_set(probability, np.full(50, outcome)) for outcome in range(6)], 1)
    assert (probability * inside).sum(1) == pytest.approx(np.full(50, 0.95))
    assert in_exact_set(np.array([[0.5, 0.46, 0.04]]), np.array([1])) == pytest.approx([0.45 / 0.46])

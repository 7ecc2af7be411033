"""Ranks, their probabilities, letters, the companions without a model, and what is said first."""

import itertools
import json
from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau

from davylamp.scoring import (
    ResponseModel,
    agreement,
    bootstrap,
    borda,
    leave_one_out,
    mean_response,
    project_pairs,
    rank_responses,
)
from davylamp.scoring.diagnostics import Diagnostics
from davylamp.scoring.irt import fit_irt
from davylamp.scoring.ranking import make_ranking
from davylamp.scoring.significance import tie_groups

from .simulation import simulate

NAMES = [f"model {place}" for place in range(8)]


@pytest.fixture(scope="module")
def ranked():
    truth = simulate(8, 60, model="1pl", seed=1)
    return truth, rank_responses(truth.responses, NAMES, method="fast")


def test_a_ranking_is_consistent(ranked):
    _, ranking = ranked
    probability = ranking.rank_probability
    assert probability.sum(0) == pytest.approx(np.ones(8))
    assert probability.sum(1) == pytest.approx(np.ones(8))
    assert ranking.beats + ranking.beats.T == pytest.approx(np.ones((8, 8)))
    draws = ranking.fit.ability.reshape(-1, 8)
    order = (-draws).argsort(1).argsort(1) + 1
    assert probability[:, 0] == pytest.approx((order == 1).mean(0))
    assert ranking.beats[0, 1] == pytest.approx((draws[:, 0] > draws[:, 1]).mean())
    for place in range(8):
        assert ranking.rank_low[place] <= ranking.rank[place] <= ranking.rank_high[place]
        inside = probability[place, ranking.rank_low[place] - 1 : ranking.rank_high[place]].sum()
        assert inside >= 0.95
        assert ranking.low[place] < ranking.score[place] < ranking.high[place]
    assert sorted(ranking.rank) == list(range(1, 9))


def test_rank_intervals_cover_the_truth(ranked):
    truth, ranking = ranked
    true_rank = (-truth.ability).argsort().argsort() + 1
    assert np.count_nonzero((ranking.rank_low <= true_rank) & (true_rank <= ranking.rank_high)) >= 7
    assert np.count_nonzero((ranking.bootstrap_low <= true_rank) & (true_rank <= ranking.bootstrap_high)) >= 6


def test_complete_1pl_changes_nothing_and_says_so(ranked):
    _, ranking = ranked
    assert ranking.agreement["mean"] > 0.9  # ties of the mean are none of the model
    assert "IRT and the plain mean give the same order" in ranking.notes[-1]
    frame, document = ranking.to_frame(), ranking.to_dict()
    assert list(frame["rank"]) == sorted(ranking.rank)
    assert json.loads(json.dumps(document, allow_nan=False))["rows"][0]["subject"] == frame["subject"][0]


def test_a_fit_that_failed_is_said_first():
    truth = simulate(4, 20, model="1pl", seed=2)
    fit = fit_irt(truth.responses, ResponseModel("1pl"), method="fast", chains=2, draws=6, warmup=0)
    draws = fit.ability.reshape(-1, 4)
    mean = mean_response(truth.responses)
    ranking = make_ranking("1pl", NAMES[:4], fit.expected, draws, truth.responses, mean[None], fit)
    assert ranking.notes[0].startswith("the fit has not converged: ")
    assert Diagnostics("nuts", 4, 100, 1.0, 999, 999, 1, 0.0).problem


def test_letters():
    score = np.array([1.0, 3.0, 2.0])
    apart = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]], bool)
    assert tie_groups(score, apart) == ("b", "a", "ab")
    assert tie_groups(score, np.zeros((3, 3), bool)) == ("a", "a", "a")
    assert tie_groups(score, ~np.eye(3, dtype=bool)) == ("c", "a", "b")


def test_borda_and_mean_by_brute_force():
    generator = np.random.default_rng(0)
    responses = generator.integers(0, 3, (5, 9)) / 2
    responses[0, 1] = responses[3, :4] = np.nan
    expected = []
    for one in range(5):
        shares = []
        for other in set(range(5)) - {one}:
            both = ~np.isnan(responses[[one, other]]).any(0)
            pairs = zip(responses[one, both], responses[other, both], strict=True)
            shares.append(np.mean([(a > b) + 0.5 * (a == b) for a, b in pairs]))
        expected.append(np.mean(shares))
    assert borda(responses) == pytest.approx(expected)
    assert mean_response(responses) == pytest.approx(np.nanmean(responses, axis=1))


def test_bootstrap_resamples_whole_images():
    generator = np.random.default_rng(1)
    of_image = generator.random((2, 50))
    repeated = np.repeat(of_image, 8, axis=1)  # eight items of an image say the same
    images = np.repeat([str(place) for place in range(50)], 8)
    spread = bootstrap(mean_response, repeated, images, seed=0).std(0)  # type: ignore[arg-type]
    assert spread == pytest.approx(of_image.std(1) / np.sqrt(50), rel=0.15)
    alone = bootstrap(mean_response, repeated, [str(place) for place in range(400)], seed=0).std(0)
    assert (alone < 0.5 * spread).all()


def test_agreement_is_kendalls_tau():
    score, other = np.array([1.0, 2, 3, 4, 5]), np.array([2.0, 1, 3, np.nan, 5])
    taus = agreement(score, {"other": other, "flat": np.ones(5)})
    pairs = list(itertools.combinations((0, 1, 2, 4), 2))
    signs = [np.sign((score[a] - score[b]) * (other[a] - other[b])) for a, b in pairs]
    assert taus["other"] == pytest.approx(np.mean(signs))
    assert taus["other"] == pytest.approx(kendalltau(score[[0, 1, 2, 4]], other[[0, 1, 2, 4]])[0])
    assert np.isnan(taus["flat"])


def test_dropping_what_decides_moves_the_most():
    table = np.array([[0.9, 0.1, 0.1], [0.5, 0.4, 0.2], [0.1, 0.6, 0.3]])
    dropped = leave_one_out(
        lambda kept: table[:, kept].mean(1) + table[:, kept].max(1), ["big", "b", "c"], axis="items"
    )
    assert dropped[0].name == "big"
    assert dropped[0].tau == pytest.approx(-1 / 3)
    assert dropped[0].moved == 2
    same = leave_one_out(lambda kept: table[kept].mean(1), ["x", "y", "z"], axis="subjects")
    assert all(record.moved == 0 for record in same)


@pytest.mark.parametrize("scoring", ["mean", "borda"])
def test_scores_without_a_model(scoring):
    truth = simulate(8, 60, seed=4)
    ranking = rank_responses(truth.responses, NAMES, scoring=scoring)
    assert ranking.fit is None
    assert ranking.diagnostics is None
    assert (ranking.low <= ranking.score).all()
    assert (ranking.score <= ranking.high).all()
    assert ranking.agreement[scoring] == pytest.approx(1)


def test_names_must_fit():
    with pytest.raises(ValueError, match="expected a name for each of 3 subjects, got 2 names"):
        rank_responses(np.eye(3, 4), ["a", "b"])
    with pytest.raises(ValueError, match="expected different names of subjects, got 'a' twice"):
        rank_responses(np.eye(3, 4), ["a", "a", "b"])
    with pytest.raises(ValueError, match="expected an image for each of 4 items, got 1 images"):
        rank_responses(np.eye(3, 4), ["a", "b", "c"], ["x"])
    with pytest.raises(ValueError, match="got 'elo'"):
        rank_responses(np.eye(3), ["a", "b", "c"], scoring="elo")  # type: ignore[arg-type]


@pytest.mark.parametrize("scoring", ["mean", "borda"])
def test_a_tie_has_all_of_its_ranks(scoring):
    """Two subjects that answer alike are tied in every draw: neither is first more often than the other."""
    responses = np.array([[1.0, 1, 1, 0, 1, 1], [1, 1, 1, 0, 1, 1], [0, 0, 0, 0, 1, 0]])
    ranking = rank_responses(responses, list("abc"), scoring=scoring)
    assert ranking.rank.tolist() == [1, 1, 3]
    assert list(zip(ranking.rank_low, ranking.rank_high, strict=True))[:2] == [(1, 2), (1, 2)]
    assert list(zip(ranking.bootstrap_low, ranking.bootstrap_high, strict=True))[:2] == [(1, 2), (1, 2)]
    assert ranking.rank_probability.sum(0) == pytest.approx(np.ones(3))
    assert ranking.rank_probability.sum(1) == pytest.approx(np.ones(3))
    assert ranking.rank_probability[0] == pytest.approx(ranking.rank_probability[1])
    assert ranking.beats[0, 1] == 0.5


def test_a_subject_without_a_response_in_a_resample_may_have_any_rank():
    """Five of a hundred images: now and then none of them is drawn, which must not make the subject the best."""
    generator = np.random.default_rng(0)
    responses = (generator.random((3, 40)) < [[0.1], [0.5], [0.9]]).astype(float)
    responses[0, 3:] = np.nan
    responses[0, :3] = 0
    ranking = rank_responses(responses, list("abc"), method="fast")
    draws = bootstrap(mean_response, responses, [str(item) for item in range(40)])
    unknown = np.isnan(draws[:, 0]).mean()
    assert 0.025 < unknown < 0.1
    assert (ranking.bootstrap_low[0], ranking.bootstrap_high[0]) == (1, 3)  # nothing is known of it in 5 % of them
    assert ranking.bootstrap_high[2] == 2  # nor is it behind all others there
    drawn = make_ranking("mean", list("abc"), mean_response(responses), draws, responses, draws)
    assert drawn.beats + drawn.beats.T == pytest.approx(np.ones((3, 3)))
    assert drawn.beats[0, 2] == pytest.approx(unknown / 2)


@pytest.mark.parametrize("scoring", ["mean", "borda", "irt"])
def test_few_images_tell_nobody_apart(scoring):
    responses = np.repeat([[1.0, 1], [0, 0], [1, 0]], 6, axis=1)
    images = ["x"] * 6 + ["y"] * 6
    ranking = rank_responses(responses, list("abc"), images, scoring=scoring)
    assert ranking.bootstrap_low.tolist() == [1] * 3
    assert ranking.bootstrap_high.tolist() == [3] * 3
    if scoring == "irt":
        assert any(note.startswith("2 images: too few to estimate") for note in ranking.notes)
    else:
        assert set(ranking.groups) == {"a"}
        assert np.isnan(ranking.low).all()
        assert ranking.rank_probability == pytest.approx(np.full((3, 3), 1 / 3))
        (note,) = ranking.notes
        assert note.startswith(
            "2 images: too few to resample (minimum 5); no difference is significant, and the number of"
        )
        assert project_pairs(ranking, 2) == []  # "more than 10 times the images" was of draws that nobody had made
    assert json.dumps(ranking.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("responses", "options", "message"),
    [
        ([["a", "b"], ["c", "d"]], {}, "expected numbers in"),
        (np.array([[1, {}], [0, 1]], object), {}, "expected numbers in"),
        (np.eye(2) + 0j, {}, "got complex numbers"),
        (np.eye(2), {"seed": -1}, "expected a seed from 0 to 4294967295, got -1"),
        (np.eye(2), {"seed": 1.5}, "expected a seed"),
        (np.eye(2), {"seed": None}, "expected a seed"),
    ],
)
def test_wrong_types_are_one_line(responses, options, message):
    with pytest.raises(ValueError, match=message):
        rank_responses(responses, ["a", "b"], **options)


def test_masked_responses_are_missing_and_images_may_be_named_by_anything():
    responses: Any = np.ma.masked_array([[1.0, 0, 0], [0, 1, 1]], mask=np.array([[0, 1, 1], [0, 0, 0]], bool))
    images: Any = [("x", 1), None, 3]
    assert rank_responses(responses, ["a", "b"]).mean == pytest.approx([1, 2 / 3])
    assert rank_responses(np.eye(3), list("abc"), images).subjects == ("a", "b", "c")


def test_leaving_one_out_may_leave_nothing_to_rank_by():
    def score(kept):
        if 0 not in kept:
            raise ValueError("do not differ on any item")
        return np.arange(3.0)[kept]

    records = leave_one_out(score, list("abc"), axis="subjects")
    assert [record.name for record in records] == ["b", "c", "a"]
    assert np.isnan(records[-1].tau)
    assert np.isnan(records[-1].moved)

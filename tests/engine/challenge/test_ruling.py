"""The verdict over attempts whose outcomes are made by hand."""

import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from davylamp.engine.challenge.attempts import (
    Accuracy,
    AttackOutcome,
    accuracy_under_attack,
    outcome_from_record,
    worst_case,
)
from davylamp.engine.challenge.challenge_verdict import cumulative_accuracy, decide_verdict, gradient_masking_signs
from davylamp.engine.challenge.gradient_variants import OF_PROBABILITIES
from davylamp.engine.checks.indicators import Judged, find
from davylamp.engine.store.image_results import results_of
from davylamp.intervals import proportion_interval

N = 40
OUTCOME: Any = SimpleNamespace()


def attempt(part, count, *, first=0, gradients="", epsilon=0.1, failed=False, **kinds):
    """An attack that fools `count` of 40 images, from the place `first` on; the last two are wrong when clean."""
    fooled, attacked = np.zeros(N), np.ones(N, bool)
    fooled[first : first + count] = 1
    attacked[-2:] = False
    outcome = None if failed else OUTCOME
    named = (part, f"library:{part}", "model", gradients, epsilon)
    return AttackOutcome(*named, attacked, fooled * attacked, Counter(kinds), outcome=outcome)


def share(count):
    return Accuracy(count / N, *proportion_interval(count, N), N)


def judged(attempts, undefended=0, checks=(), draws=None):
    attacked = attempts[0].attacked
    worst = accuracy_under_attack(attacked, worst_case([each for each in attempts if each.part != "larger radius"]))
    return decide_verdict(
        share(38), worst, None if undefended is None else share(undefended), attempts, checks, draws=draws
    )


def broken(part, count, kept=0, **more):
    """An attack that ran and broke a rule on all but the first `kept` images, of which it fools `count`."""
    return replace(attempt(part, count, **more), judged=np.arange(N) < kept, error="" if kept else "no example")


def test_the_worst_case_is_over_the_images_not_the_attacks():
    halves = attempt("white-box", 10), attempt("scores", 10, first=15)
    assert accuracy_under_attack(halves[0].attacked, worst_case(halves)) == share(18)
    assert halves[0].accuracy == share(28)


def test_what_is_near_the_undefended_falls():
    attempts = [attempt("white-box", 30), attempt("decisions", 36)]
    assert judged(attempts, 0).verdict == "falls"
    assert judged(attempts[:1], 6).verdict == "falls"  # 8 of 40 against 6: five points
    assert judged(attempts[:1], 5).verdict != "falls"
    assert judged(attempts, None).verdict == "falls"
    assert "falls to 5.0% [0.6, 16.9] of 40 from 95.0%, compared with" in judged(attempts, 0).sentence


def test_where_the_undefended_keeps_all_too_nothing_fell():
    """Every model would be within five points of what attacks leave of the undefended: that is no fall."""
    complete = [attempt(part, 0) for part in ("white-box", "scores", "decisions")]
    kept = judged(complete, 38)
    assert kept.verdict == "unknown"
    assert "hardly lower the accuracy of either model" in kept.sentence
    assert judged([attempt("white-box", 2), *complete[1:]], 36).verdict == "unknown"  # five points of both
    assert judged([attempt("white-box", 30), *complete[1:]], 38).verdict == "falls"  # the defence makes it worse
    assert judged([attempt("white-box", 3), *complete[1:]], 34).verdict == "falls"  # something was to be defended


def test_what_stands_without_a_sign_of_masking_holds_against_these_attacks():
    attempts = [attempt("white-box", 8), attempt("scores", 5), attempt("transfer", 2, first=9)]
    attempts += [attempt("larger radius", 38, epsilon=0.5), attempt("single step", 6)]
    ruling = judged(attempts)
    assert (ruling.verdict, ruling.masking) == ("holds", ())
    assert ruling.sentence.startswith("holds against these 4 attacks: 70.0%")


def test_a_black_box_has_to_beat_the_gradients_by_more_than_chance():
    white = attempt("white-box", 4)
    for extra, fires in ((5, False), (6, True), (20, True)):  # (1/2) ** 5 > 0.05 / 2 > (1/2) ** 6
        rivals = [attempt("scores", 4 + extra), attempt("transfer", 4)]
        assert bool(gradient_masking_signs([white, *rivals], ())) == fires
    (line,) = gradient_masking_signs([white, attempt("scores", 20)], ())
    assert line == "library:scores fools images that no gradient attack fools (16 images against 0)"
    assert judged([white, attempt("scores", 20)]).verdict == "masks"
    assert not gradient_masking_signs([white, attempt("scores", 20, failed=True)], ())


def test_a_stand_in_that_finds_more_tells_of_misleading_gradients():
    attempts = [attempt("white-box", 2), attempt("white-box", 30, gradients="straight-through")]
    (line,) = gradient_masking_signs(attempts, ())
    assert (
        "attacks that use the defence's default gradients miss images that library:white-box, gradients straight-th"
        in line
    )
    assert not gradient_masking_signs(attempts[1:], ())


def test_zero_gradients_and_a_radius_that_does_not_suffice():
    lines = gradient_masking_signs([attempt("white-box", 0, **{"no-gradient": 38})], ())
    assert lines == ["its gradients are zero on 38 of 38 images"]
    assert not gradient_masking_signs([attempt("white-box", 0, **{"no-gradient": 19})], ())
    left = [attempt("larger radius", count, epsilon=radius) for count, radius in ((2, 0.2), (30, 0.5))]
    (line,) = gradient_masking_signs(left, ())
    assert line.startswith(
        "at radius 0.5, where any image can be turned grey, 20.0% [9.1, 35.6] of 40 is still correct"
    )
    assert not gradient_masking_signs(
        [attempt("larger radius", 37, epsilon=0.5)], ()
    )  # one of 40: the attack's, perhaps


def test_an_indicator_counts_where_it_is_about_gradients():
    white = attempt("white-box", 4)
    fail, other = (find(name, Judged("fail", "it is so"), "model") for name in ("gradients", "normalisation"))
    assert gradient_masking_signs([white], (fail, other)) == ["the indicator fired: unavailable gradients"]
    assert judged([white], 0, (other,)).verdict == "holds"


def test_without_a_result_nothing_is_known():
    assert judged([attempt("white-box", 0, failed=True)]).verdict == "unknown"


STANDING = [attempt("white-box", 8), attempt("transfer", 3), attempt("scores", 5), attempt("decisions", 1)]


@pytest.mark.parametrize("part", ["white-box", "transfer", "scores", "decisions", "larger radius"])
@pytest.mark.parametrize("without", [lambda part: attempt(part, 0, failed=True), lambda part: broken(part, 0)])
def test_a_kind_of_attacker_without_a_result_judges_nothing(part, without):
    """What is left standing holds only if each of them has a result; one other of its kind is enough."""
    others = [each for each in STANDING if each.part != part]
    ruling = judged([*others, without(part)])
    assert ruling.verdict == "unknown"
    assert ruling.sentence.startswith("not judged: no result ")
    assert "holds" not in ruling.sentence
    more = attempt(part, 38 if part == "larger radius" else 2, epsilon=0.5)
    ruling = judged([*others, without(part), more])
    assert ruling.verdict == "holds"
    assert part == "larger radius" or f"without a result: library:{part}" in ruling.sentence


def test_each_way_of_gradients_has_to_have_a_result():
    way = replace(attempt("white-box", 0, gradients="exact", failed=True), made_on="stand-in", error="it crashed")
    ruling = judged([*STANDING, way])
    assert ruling.verdict == "unknown"
    assert "no result by gradients, adapted to the defence through stand-in (it crashed)" in ruling.sentence


def test_the_mean_of_probabilities_is_another_loss_not_another_way():
    """It may find more without misleading gradients; where a softmax saturates it has none, which says nothing."""
    complete = [attempt(part, 0) for part in ("single step", "transfer", "scores", "decisions", "larger radius")]
    complete[-1] = replace(complete[-1], fooled=np.ones(N))
    better = attempt("white-box", 20, gradients=OF_PROBABILITIES)
    assert gradient_masking_signs([attempt("white-box", 1), better, *complete], ()) == []
    assert judged([attempt("white-box", 1), better, *complete]).verdict == "holds"
    saturated = replace(broken("white-box", 0, gradients=OF_PROBABILITIES), violations=Counter({"no-gradient": 38}))
    saturated = replace(saturated, made_on="model (probabilities)")
    assert judged([attempt("white-box", 1), saturated, *complete]).verdict == "holds"
    nowhere = replace(broken("larger radius", 0, gradients=OF_PROBABILITIES), epsilon=0.2)
    assert judged([attempt("white-box", 1), saturated, *complete[:-1], nowhere]).verdict == "unknown"
    assert judged([attempt("white-box", 1), replace(better, fooled=np.ones(N)), *complete]).verdict == "falls"


def test_what_falls_falls_whatever_else_failed():
    assert judged([attempt("decisions", 37), attempt("white-box", 0, failed=True)]).verdict == "falls"


def test_images_that_nothing_was_said_of_are_taken_for_fooled():
    """Of 38 the first 8 are fooled; 30 stand, of which rules were kept on some: two points decide."""

    def ruling(kept):
        return judged([broken("white-box", 8, kept), attempt("scores", 5), attempt("decisions", 1)])

    assert ruling(38).verdict == ruling(11).verdict == "holds"  # 3 of 40 known to stand: above five points
    assert ruling(10).verdict == "unknown"  # 2 of 40
    assert "no gradient attack produced a valid example for 28 of 40 images" in ruling(10).sentence


@pytest.mark.parametrize(("draws", "verdict"), [((10, 2), "holds"), ((9, 10), "unknown"), ((20, 1), "unknown")])
def test_few_draws_judge_nothing(draws, verdict):
    assert judged(STANDING, draws=draws).verdict == verdict


def test_attacks_that_broke_rules_are_no_sign_of_masking():
    assert gradient_masking_signs([broken("white-box", 0), attempt("scores", 20)], ()) == []
    assert gradient_masking_signs([attempt("white-box", 4), broken("larger radius", 0, epsilon=0.5)], ()) == []


def test_a_larger_radius_counts_what_a_smaller_one_fooled():
    larger = [attempt("larger radius", 5, epsilon=0.4), attempt("larger radius", 9, epsilon=0.2)]
    assert cumulative_accuracy(larger, larger[0].attacked, np.zeros(N)) == [(0.2, share(29)), (0.4, share(29))]


def test_there_is_no_accuracy_at_a_radius_where_no_attack_proves_anything():
    failed = attempt("larger radius", 0, epsilon=0.5, failed=True)
    larger = [attempt("larger radius", 9, epsilon=0.2), broken("larger radius", 0, epsilon=0.4), failed]
    curve = cumulative_accuracy(larger, failed.attacked, np.zeros(N))
    assert curve[0] == (0.2, share(29))
    assert [(radius, math.isnan(left.value), left.n) for radius, left in curve[1:]] == [(0.4, True, N), (0.5, True, N)]
    beside = [*larger, broken("larger radius", 1, kept=2, epsilon=0.4, first=20)]  # one that proves something there
    assert cumulative_accuracy(beside, failed.attacked, np.zeros(N))[1] == (0.4, share(28))


def test_where_nothing_is_right_nothing_is_left_whatever_the_attacks_prove():
    failed = attempt("larger radius", 0, epsilon=0.2, failed=True)
    assert cumulative_accuracy([failed], np.zeros(N, bool), np.zeros(N)) == [(0.2, share(0))]


@pytest.mark.parametrize("draws", [False, True])
def test_a_violation_fools_nobody(draws):
    flags = np.array([True, True, False])
    columns = {
        "attacked": np.ones(3, bool),
        "violated": np.array([False, True, False]),
        "success": flags,
        "violations": np.array(["", "nan", ""]),
        "forwards": np.array([2, 2, 2]),
        "backwards": np.array([1, 1, 1]),
        **({"draws_fooled": np.array([0.75, 1.0, 0.25])} if draws else {}),
    }
    threat = SimpleNamespace(epsilon=0.1)
    cell: Any = SimpleNamespace(attack="a:b", threat_model=threat)
    outcome: Any = SimpleNamespace(columns=columns, cell=cell, results=results_of(columns))
    made = outcome_from_record("white-box", outcome, "m")
    assert made.fooled.tolist() == ([0.75, 0.0, 0.25] if draws else [1.0, 0.0, 0.0])
    assert (made.passes, made.violations) == (3.0, Counter(nan=1))

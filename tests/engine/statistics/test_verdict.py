"""The rule of the verdicts, on outcomes made by hand; the size of its tests is computed, not believed."""

import functools
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from davylamp.adapters.result import OF_THE_MODEL
from davylamp.engine.statistics.paired_tests import (
    mcnemar,
    min_images_for_equivalence,
    min_images_for_significance,
)
from davylamp.engine.statistics.verdict import MARGIN, PairedOutcomes, decide_verdict, not_compared
from davylamp.intervals import difference_interval, ratio_interval

ROOM = np.random.default_rng(0)
BINOMIAL = functools.cache(lambda hits, trials: float(stats.binomtest(hits, trials).pvalue))


def side(name, success, distance=None, violations=None):
    success = np.array(success, bool)
    count = len(success)
    distance = np.arange(1, count + 1) / 10 if distance is None else np.array(distance, float)
    return PairedOutcomes(name, np.ones(count, bool), success, distance, tuple(violations or [()] * count))


def verdict(first, second, *, minimum_norm=False, same=False, near=None, far=None, pairs=1, **violations):
    a = side("a", first, near, violations.get("a"))
    b = side("b", second, far, violations.get("b"))
    return decide_verdict(a, b, minimum_norm=minimum_norm, same=np.full(len(first), same), pairs=pairs)


@pytest.mark.parametrize("count", [1, 3, 5])
def test_too_few_images_decide_nothing(count):
    for second in ([0] * count, [1] * count):
        judgement = verdict([1] * count, second)
        assert judgement.verdict == "undecided"
        assert judgement.needed == 6


def test_the_least_number_of_images_is_the_exact_one():
    for tests in (1, 2):
        least = min_images_for_significance(0.05 / tests)
        assert mcnemar([1] * least, [0] * least) * tests < 0.05
        assert mcnemar([1] * (least - 1), [0] * (least - 1)) * tests >= 0.05
        assert verdict([1] * least, [0] * least, minimum_norm=tests == 2).verdict == "weaker"
        assert verdict([1] * (least - 1), [0] * (least - 1), minimum_norm=tests == 2).verdict == "undecided"


def mcnemar_by_scipy(first, second):
    """McNemar's exact p."""
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    return BINOMIAL(only_first, only_first + only_second) if only_first != only_second else 1.0


def test_all_pairs_of_a_comparison_together_err_in_a_twentieth_of_all_cases_at_most():
    """Eight attacks that fool each of 40 images with the same chance: no pair differs, and SciPy counts the errors."""
    repeats, pairs, generator = 150, list(itertools.combinations(range(8), 2)), np.random.default_rng(1)
    wrong, uncorrected = 0, 0
    for _ in range(repeats):
        hits = generator.random((8, 40)) < 0.5
        smallest, a, b = min((mcnemar_by_scipy(hits[a], hits[b]), a, b) for a, b in pairs)
        together = verdict(hits[a], hits[b], pairs=len(pairs))
        assert together.p_success == pytest.approx(smallest)
        assert (together.verdict == "weaker") == (smallest < 0.05 / 28)
        uncorrected += verdict(hits[a], hits[b]).verdict == "weaker"
        wrong += smallest < 0.05 / 28
    assert stats.binomtest(uncorrected, repeats, 0.05, "greater").pvalue < 1e-6
    assert stats.binomtest(wrong, repeats, 0.05, "greater").pvalue > 0.01


def test_what_is_needed_and_said_follows_the_number_of_pairs():
    for minimum_norm, tests in ((False, 1), (True, 2)):
        least = min_images_for_significance(0.05 / 6 / tests)
        judgement = verdict([1] * least, [0] * least, minimum_norm=minimum_norm, pairs=6)
        assert (judgement.verdict, judgement.needed, judgement.detectable) == ("weaker", least, least)
        assert judgement.level == pytest.approx(0.05 / 6 / tests)
        fewer = verdict([1] * (least - 1), [0] * (least - 1), minimum_norm=minimum_norm, pairs=6)
        assert fewer.verdict == "undecided"


def test_no_difference_is_not_equivalence():
    for first in ([0] * 8, [1] * 8):
        judgement = verdict(first, first)
        assert (judgement.verdict, judgement.detectable) == ("no difference found", 6)
    assert verdict([1] * 8, [1] * 3 + [0] * 5).verdict == "no difference found"
    assert verdict([1] * 8, [1] * 2 + [0] * 6).weaker == "b"


def test_equivalence_takes_an_interval_inside_the_margin():
    assert min_images_for_equivalence(MARGIN) == 59  # of two one-sided tests at 5 %
    least = min_images_for_equivalence(MARGIN, 0.95)
    assert verdict([1] * least, [1] * least).verdict == "equivalent"
    assert verdict([1] * (least - 1), [1] * (least - 1)).verdict == "no difference found"
    first, second = np.ones(300, bool), np.ones(300, bool)
    second[:3] = False
    assert verdict(first, second).verdict == "equivalent"
    second[:4], first[4:8] = False, False
    assert verdict(first, second).verdict == "equivalent"
    second[10:65], first[65:120] = False, False  # as often the one as the other, but too often
    judgement = verdict(first, second)
    assert judgement.p_success > 0.5
    assert judgement.verdict == "no difference found"


def test_equivalence_of_smallest_changes_is_about_distances_too():
    count, distance = 120, np.linspace(1, 2, 120)
    noise = 1 + 0.01 * ROOM.standard_normal(count)
    fooled = [1] * count
    assert verdict(fooled, fooled, minimum_norm=True, near=distance, far=distance * noise).verdict == "equivalent"
    rough = distance * np.exp(0.8 * ROOM.standard_normal(count))
    judgement = verdict(fooled, fooled, minimum_norm=True, near=distance, far=rough)
    assert judgement.verdict == "no difference found"
    assert judgement.ratio.low < 1 < judgement.ratio.high
    farther = verdict(fooled, fooled, minimum_norm=True, near=distance, far=distance * 1.2)
    assert (farther.verdict, farther.weaker) == ("weaker", "b")


@pytest.mark.parametrize("count", [59, 100, 200])
@pytest.mark.parametrize("less", [0.0, 0.005, 0.03, 0.2])
def test_the_equivalence_test_keeps_its_size(count, less):
    """Two rates exactly a margin apart are called equivalent in at most 5 % of all samples; enumerated."""
    more = less + MARGIN
    chance = 0.0
    for only_a in range(int(stats.binom.ppf(1 - 1e-7, count, more)) + 1):
        rest = stats.binom.pmf(np.arange(count - only_a + 1), count - only_a, less / (1 - more))
        for only_b in np.flatnonzero(rest > 1e-7):
            difference = difference_interval(only_a, int(only_b), count)
            inside = difference.low > -MARGIN and difference.high < MARGIN
            chance += stats.binom.pmf(only_a, count, more) * rest[only_b] * inside
    assert chance <= 0.05


def test_the_interval_of_the_median_covers_it():
    for count in (5, 12, 40):
        ratios = np.exp(ROOM.standard_normal((2000, count)))
        intervals = [ratio_interval(row, np.ones(count)) for row in ratios]
        assert np.mean([each.low <= 1 <= each.high for each in intervals]) >= 0.88
    assert math.isnan(ratio_interval([1.0] * 4, [2.0] * 4).low)
    assert ratio_interval([0.0] * 9, [0.0] * 9) == (1, 1, 1)


def test_violations_are_left_out_of_the_pairs_and_counted():
    count = 40
    broken = [("no-start",)] * 2 + [()] * (count - 2)
    judgement = verdict([0] * 2 + [1] * 38, [1] * 40, a=broken)
    assert (judgement.images, judgement.left_out, judgement.only_b) == (38, 2, 0)
    assert judgement.verdict == "no difference found"
    bounds = difference_interval(0, 2, 40, 0.95).low, difference_interval(2, 0, 40, 0.95).high
    assert (judgement.difference.low, judgement.difference.high) == pytest.approx(bounds)
    hidden = verdict([1] * 40, [1] * 40, a=[("out-of-bounds",)] * 5 + [()] * 35)  # they "succeed"
    assert (hidden.verdict, hidden.weaker) == ("broken", "a")


@pytest.mark.parametrize("kind", ["nan-logits", "no-gradient", "no-signal", "no-start", "unstable"])
def test_a_library_is_not_broken_by_the_model(kind):
    judgement = verdict([0] * 9, [1] * 9, a=[(kind,)] * 9)
    assert (judgement.verdict, judgement.weaker, judgement.images) == ("undecided", "", 0)
    both = verdict([0] * 9, [1] * 9, a=[(kind, "out-of-ball")] * 9)
    assert both.verdict == ("undecided" if kind in OF_THE_MODEL else "broken")


def test_what_the_library_failed_on_it_did_not_fool():
    """3 of 40 results are the library's failure: compared, and not fooled; 9 to none are significant, whoever fails."""
    few = verdict([1] * 40, [1] * 40, a=[("nan-query",)] * 3 + [()] * 37)
    assert (few.images, few.left_out, few.only_b, few.verdict) == (40, 0, 3, "no difference found")
    failed = [("out-of-ball",)] * 4 + [()] * 36
    more = verdict([1] * 35 + [0] * 5, [1] * 40, a=failed)
    assert (more.only_b, more.text) == (9, "weaker: a")


def test_images_left_out_may_turn_a_difference_round():
    """10 images to none of 50 are significant; 7 that the model failed on may have been the other way."""
    a, b = [1] * 50, [0] * 10 + [1] * 40
    assert verdict(a, b).text == "weaker: b"
    judgement = verdict(a + [0] * 7, b + [0] * 7, a=[()] * 50 + [("nan-gradient",)] * 7)
    assert (judgement.verdict, judgement.left_out, judgement.p_success < 0.05) == ("undecided", 7, True)
    assert judgement.difference.low < 0 < judgement.difference.high


def test_an_interval_excludes_0_if_and_only_if_the_test_says_so():
    for pairs in (1, 3, 21):
        for only_b in range(16):
            judgement = verdict([0] * only_b + [1] * (40 - only_b), [1] * 40, pairs=pairs)
            p = stats.binomtest(0, only_b).pvalue if only_b else 1.0
            assert (judgement.difference.high < 0) == (p < 0.05 / pairs) == (judgement.verdict == "weaker")


def test_a_verdict_says_what_the_weaker_one_had_less_of():
    """The weaker had a fifth of the queries; 8 of the other's 10 further successes are lost on 8 bits."""
    a, b = (side(name, fooled) for name, fooled in (("a", [0] * 10 + [1] * 10), ("b", [1] * 20)))
    grid = np.array([0] * 8 + [1] * 12, bool)
    a = a._replace(queries=np.full(20, 20), success_8bit=a.success)
    b = b._replace(queries=np.full(20, 100), success_8bit=b.success & grid)
    judgement = decide_verdict(a, b, minimum_norm=False, same=~np.ones(20, bool))
    assert (judgement.weaker, judgement.queries, judgement.fades) == ("a", 0.2, True)
    assert judgement.text == f"weaker: a ({judgement.costs})"
    swapped = decide_verdict(b, a, minimum_norm=False, same=~np.ones(20, bool))
    assert (swapped.weaker, swapped.queries, swapped.fades) == ("a", 0.2, True)
    fair = decide_verdict(a._replace(queries=np.full(20, 51)), b._replace(success_8bit=b.success), minimum_norm=False,
                 same=~np.ones(20, bool))  # fmt: skip
    assert (fair.weaker, fair.costs, fair.text) == ("a", "", "weaker: a")


def test_smallest_changes_that_8_bits_undo_are_said_to_be_so():
    """All of 20 are fooled by both; the nearer examples of b lose 15 on 8 bits, those of a lose none."""
    far, near = np.linspace(1, 2, 20), np.linspace(0.1, 0.2, 20)
    a, b = side("a", [1] * 20, far), side("b", [1] * 20, near)
    a = a._replace(success_8bit=a.success)
    for kept, fades in ((5, True), (20, False)):
        b = b._replace(success_8bit=np.arange(20) < kept)
        for pair in ((a, b), (b, a)):
            judgement = decide_verdict(*pair, minimum_norm=True, same=np.zeros(20, bool))
            assert (judgement.weaker, judgement.fades) == ("a", fades)


def test_identical_needs_an_image_that_was_moved():
    a, b = side("a", [0] * 8), side("b", [0] * 8)
    alike, still = np.ones(8, bool), np.zeros(8, bool)
    assert decide_verdict(a, b, minimum_norm=False, same=alike, moved=~still).verdict == "identical"
    assert decide_verdict(a, b, minimum_norm=False, same=alike, moved=still).verdict == "no difference found"


def test_without_a_result_the_guilty_one_is_broken():
    assert not_compared("foolbox:pgd", "crashed").text == "broken: foolbox:pgd"
    judgement = not_compared("", "the model gives no gradients")
    assert (judgement.verdict, judgement.text) == ("undecided", "undecided")


def test_distances_that_agree_up_to_rounding_are_ties():
    """Each of 120 distances is larger by a millionth, as after a sum of float32 in a different order."""
    fooled, distance = [1] * 120, np.linspace(1, 2, 120)
    judgement = verdict(fooled, fooled, minimum_norm=True, near=distance, far=distance * (1 + 1e-6))
    assert judgement.p_distance == 1
    assert (judgement.verdict, judgement.weaker) == ("equivalent", "")
    larger = verdict(fooled, fooled, minimum_norm=True, near=distance, far=distance * 1.0001)
    assert (larger.verdict, larger.weaker) == ("weaker", "b")


def test_a_pair_that_is_significant_among_all_or_identical_has_no_p_of_its_own():
    fooled, distance = [1] * 60, np.linspace(1, 2, 60)
    same = verdict(fooled, fooled, minimum_norm=True, same=True, near=distance, far=distance * 1.0001, pairs=3)
    assert same.verdict == "identical"
    assert np.isnan(same.p_alone)


def test_the_weaker_one_has_the_larger_distances_whatever_the_number_of_ties():
    """29 distances of b are a tenth larger and 31 a ten-thousandth smaller. 600 are equal."""
    near = np.linspace(1, 2, 660)
    far = near.copy()
    far[:29] *= 1.1
    far[29:60] *= 0.9999
    judgement = verdict([1] * 660, [1] * 660, minimum_norm=True, near=near, far=far)
    assert judgement.p_distance == pytest.approx(stats.wilcoxon(near[:60], far[:60]).pvalue, rel=0.2)
    assert (judgement.verdict, judgement.weaker) == ("weaker", "b")


def test_only_a_p_value_that_would_be_significant_alone_is_named():
    first, second = np.repeat([1, 0], [6, 94]), np.zeros(100)
    assert 0.05 / 3 <= verdict(first, second, pairs=3).p_alone < 0.05
    unknown = [()] * 6 + [("nan-gradient",)] * 5 + [()] * 89  # 5 images omitted: alone, the verdict is "undecided"
    omitted = verdict(first, second, pairs=3, a=unknown, b=unknown)
    assert (omitted.left_out, omitted.only_a) == (5, 6)
    assert np.isnan(omitted.p_alone)
    assert verdict(first, second, a=unknown, b=unknown).verdict == "undecided"
    # Alone, a minimum-norm pair has two tests: 0.05 / 2.
    assert verdict(first, second, pairs=3).p_alone > 0.025
    assert np.isnan(verdict(first, second, minimum_norm=True, pairs=3).p_alone)


def test_larger_distances_are_given_as_the_ratio_of_the_weaker_one():
    near = np.linspace(1, 2, 40)
    for far, words in ((near * 1.3, "1.3"), (near * 1.001, "larger distances")):
        for one, other in ((near, far), (far, near)):
            judgement = verdict([1] * 40, [1] * 40, minimum_norm=True, near=one, far=other)
            assert judgement.weaker == ("b" if one is near else "a")
            assert judgement.farther == pytest.approx(far[0] / near[0])
            assert words in judgement.text
    assert np.isnan(verdict([1] * 40, [0] * 40, minimum_norm=True, near=near, far=near * 2).farther)

"""The interval of a proportion covers the truth, is Clopper and Pearson's, and is the one that a result prints."""

import math
import re

import numpy as np
import pytest
from scipy import stats

import davylamp
from davylamp.intervals import proportion_interval

TRUTHS = (0.0, 0.02, 0.5, 0.98, 1.0)


def coverage(count, truth):
    """Exact: the chance of every number of successes whose interval holds the truth."""
    ends = [proportion_interval(k, count) for k in range(count + 1)]
    held = [low - 1e-12 <= truth <= high + 1e-12 for low, high in ends]
    return float(stats.binom.pmf(np.arange(count + 1), count, truth)[held].sum())


@pytest.mark.parametrize("count", [3, 12, 100])
def test_the_interval_covers_every_share(count):
    truths = (*TRUTHS, *np.linspace(0.001, 0.999, 97))
    assert min(coverage(count, truth) for truth in truths) >= 0.95 - 1e-9


def test_the_interval_is_that_of_clopper_and_pearson():
    for successes, count in ((0, 12), (12, 12), (3, 12), (1, 1), (40, 100)):
        truth = stats.binomtest(successes, count).proportion_ci(0.95, method="exact")
        assert proportion_interval(successes, count) == pytest.approx((truth.low, truth.high), abs=1e-12)
    assert proportion_interval(0, 12)[0] == 0
    assert proportion_interval(12, 12)[1] == 1
    assert all(math.isnan(end) for end in proportion_interval(0, 0))


def test_a_result_prints_its_images_and_the_interval_that_a_comparison_has(digits):
    case = (digits.module, digits.inputs, digits.labels)
    result = davylamp.run_attack("foolbox:fgsm", *case, epsilon=0.05)
    fooled, count = int(result.success.sum()), int(result.attacked.sum())
    assert 0 < fooled < count
    truth = stats.binomtest(fooled, count).proportion_ci(0.95, method="exact")
    shown = re.search(r"(\d+) of (\d+) attacked images fooled \(MR (.*), 95 % interval \[(.*), (.*)\]\)", repr(result))
    assert shown is not None
    assert tuple(map(int, shown.groups()[:2])) == (fooled, count)
    assert tuple(map(float, shown.groups()[2:])) == pytest.approx((fooled / count, truth.low, truth.high), abs=6e-4)
    compared = davylamp.compare("foolbox:fgsm", *case, norm="linf", epsilon=0.05).rows[0].metrics["MR_interval"]
    assert compared == pytest.approx((truth.low, truth.high), abs=1e-12)


def test_a_result_without_attacked_images_states_no_rate(digits):
    wrong = (digits.labels + 1) % 10
    text = repr(davylamp.run_attack("foolbox:fgsm", digits.module, digits.inputs, wrong, epsilon=0.05))
    assert "0 of 0 attacked images fooled, 0 robust" in text
    assert "nan" not in text

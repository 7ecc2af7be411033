"""The statistics against values worked by hand."""

import math

import numpy as np
import pytest

from davylamp.engine import mcnemar, wilcoxon, wilson_interval
from davylamp.engine.paired import signed_rank_sum


def test_wilson_interval_is_the_closed_form():
    z, n, p = 1.959963984540054, 10, 0.8
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    assert wilson_interval(8, 10) == pytest.approx((centre - half, centre + half))


def test_wilson_interval_at_the_ends_and_of_nothing():
    low, high = wilson_interval(17, 17)
    assert high == 1
    assert low == pytest.approx(1 / (1 + 1.959963984540054**2 / 17))
    assert all(math.isnan(value) for value in wilson_interval(0, 0))


def test_mcnemar_is_the_binomial_tail_of_the_discordant_images():
    first = np.array([1] * 5 + [0] + [1] * 10 + [0] * 4, bool)
    second = np.array([0] * 5 + [1] + [1] * 10 + [0] * 4, bool)
    assert mcnemar(first, second) == pytest.approx(2 * (1 + 6) / 2**6)
    assert mcnemar(first, first) == 1


def test_wilcoxon_exact_on_five_pairs():
    near, far = [1.0, 2.0, 3.0, 4.0, 5.0], [1.1, 2.2, 3.3, 4.4, 5.5]
    assert wilcoxon(near, far) == pytest.approx(2 / 2**5)
    assert signed_rank_sum(near, far) == -15
    assert signed_rank_sum(far, near) == 15


def test_wilcoxon_of_equal_and_of_no_pairs():
    assert wilcoxon([1.0, 2.0], [1.0, 2.0]) == 1
    assert math.isnan(wilcoxon([], []))

"""The statistics against values worked by hand."""

import math

import numpy as np
import pytest
import scipy

from davylamp.engine import mcnemar, wilcoxon
from davylamp.engine.statistics.paired_tests import signed_rank_sum


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


@pytest.mark.parametrize("seed", range(3))
def test_wilcoxon_with_ties_and_zeros_is_scipys_permutation_test(seed):
    difference = np.random.default_rng(seed).integers(-2, 4, 6).astype(float)
    assert wilcoxon(difference, np.zeros(6)) == pytest.approx(scipy.stats.wilcoxon(difference).pvalue)


def test_wilcoxon_of_equal_and_of_no_pairs():
    assert wilcoxon([1.0, 2.0], [1.0, 2.0]) == 1
    assert math.isnan(wilcoxon([], []))

"""What the page says of pairs of implementations is the same whatever order the process has for a set of texts."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binomtest

from davylamp.engine.checks.verdicts import verdicts_of
from davylamp.engine.store.image_results import results_of
from davylamp.engine.store.results import read_outcomes
from davylamp.report.sections.agreement import _note, _rate


def test_the_powers_named_do_not_depend_on_the_seed_of_hashes():
    powers = [f"with {images} images" for images in range(880, 920)]
    pairs = [SimpleNamespace(judgement=SimpleNamespace(power=power, correction="0.05")) for power in reversed(powers)]
    said = _note(pairs)  # pyright: ignore[reportArgumentType]
    assert said.endswith(
        "Here, p is significant below 0.05; with 880 images; with 881 images; and 38 other numbers of images."
    )


def test_every_pair_is_corrected_for_its_comparison(folder):
    """Recomputed from the records with SciPy: 5 % over the pairs of one attack, half of it for each of two tests."""
    judged = verdicts_of(read_outcomes(folder))
    assert len(judged) > 4
    for pair in judged:
        attack = pair.cell.row.attack
        pairs, tests = (1, 2) if attack == "deepfool" else (3, 1)
        assert pair.judgement.level == 0.05 / (pairs * tests)
        first, second = (each.columns["success"][each.columns["attacked"]] for each in pair.outcomes)
        only = int((first & ~second).sum()), int((second & ~first).sum())
        p = binomtest(only[0], sum(only)).pvalue if sum(only) else 1.0
        assert pair.judgement.p_success == pytest.approx(p)
        if tests == 1 and pair.judgement.verdict != "broken":
            assert (pair.judgement.verdict == "weaker") == (p * pairs < 0.05)


def test_the_rate_of_a_random_model_is_that_of_its_draws():
    flags = {name: np.array([each == "1" for each in values]) for name, values in (
        ("attacked", "1110"), ("violated", "0010"), ("success", "1000"))}  # fmt: skip
    np.testing.assert_array_equal(results_of(flags).fooled, [1, 0, 0, np.nan])
    np.testing.assert_array_equal(results_of(flags).fooled_at_most, [1, 0, 1, np.nan])
    shares = flags | {"draws_fooled": np.array([0.7, 0.4, 0.9, 0.9])}
    np.testing.assert_array_equal(results_of(shares).fooled, [0.7, 0.4, 0, np.nan])


def test_the_interval_beside_a_rate_reaches_to_what_violations_may_hide(folder):
    """40 images, 3 fooled, 6 violated: from 3 to 9 are fooled, as in tables."""
    known, places = read_outcomes(folder).done[0], np.arange(40)
    flags = {"attacked": places >= 0, "success": places < 3, "violated": places >= 34}
    columns = {name: known.columns[name] for name in known.columns} | flags
    outcome = replace(known, columns=columns)
    rate = _rate(outcome)
    low, high = binomtest(3, 40).proportion_ci(), binomtest(9, 40).proportion_ci()
    assert (rate.value, rate.low, rate.high) == pytest.approx((3 / 40, low.low, high.high))

"""Areas, lines and counts against scikit-learn and counting by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from davylamp.engine.detection.detection_rates import evaluate_scores
from davylamp.engine.detection.roc import REPLICATES, area_of_images, area_under_curve
from davylamp.engine.statistics.bootstrap import resample
from davylamp.engine.store.other_records import DetectorScores
from davylamp.intervals import proportion_interval


@pytest.mark.parametrize("seed", range(4))
def test_the_area_is_scikit_learns_with_ties(seed):
    generator = np.random.default_rng(seed)
    clean, strange = generator.integers(0, 8, 60) / 4.0, generator.integers(2, 10, 25) / 4.0
    truth = np.repeat([0, 1], [60, 25])
    assert area_under_curve(clean, strange) == pytest.approx(roc_auc_score(truth, np.concatenate([clean, strange])))


def test_the_interval_draws_an_image_with_what_was_made_of_it():
    generator = np.random.default_rng(0)
    clean = generator.normal(size=40)
    strange, fooled = clean + generator.normal(1, 1, size=40), generator.random(40) < 0.7
    area = area_of_images(clean, strange, fooled, seed=3)
    areas = []
    for counts in resample(40, REPLICATES, 3)[1:]:
        drawn = np.repeat(np.arange(40), counts)
        areas.append(area_under_curve(clean[drawn], strange[drawn][fooled[drawn]]))
    assert area.value == pytest.approx(area_under_curve(clean, strange[fooled]))
    count = int(fooled.sum())
    tail = stats.norm.cdf(stats.t.ppf(0.025, count - 1) * np.sqrt(count / (count - 1)))
    assert (area.low, area.high) == pytest.approx(tuple(np.nanquantile(areas, (tail, 1 - tail))))
    assert area.low < area.value < area.high


def test_no_interval_where_resampling_knows_nothing():
    clean = np.arange(20.0)
    assert np.isnan(area_of_images(clean, clean + 100, np.ones(20, bool)).low)  # all above
    assert np.isnan(area_of_images(clean, clean + 3, np.arange(20) < 4).low)  # four images
    assert np.isnan(area_of_images(clean, clean, np.zeros(20, bool)).value)


def scored(calibration, clean, strange, fresh):
    return DetectorScores("f.pt", "0" * 64, "d", np.array(calibration, float), clean, strange, ~fresh)


def test_what_fools_and_is_not_detected_is_counted_among_what_was_attacked():
    """Ten images: two wrong when clean, one violation, one seen by the detector; of the others four fooled."""
    attacked = np.array([1, 1, 1, 1, 1, 1, 1, 1, 0, 0], bool)
    usable = attacked & (np.arange(10) != 7)
    success = np.array([1, 1, 1, 1, 1, 0, 0, 1, 0, 0], bool)
    fresh = np.arange(10) != 4
    columns = {"attacked": attacked, "usable": usable, "success": success}
    outcome = SimpleNamespace(columns=columns, usable=usable, cell=None)
    clean = np.array([0, 1, 2, 3, 9, 9, 0, 0, 0, 9], float)
    strange = np.array([9, 9, 9, 1, 0, 9, 9, 0, 0, 0], float)
    line = [0, 1, 2, 3, 4, 5, 6, 7, 8, 8.5]  # at 8 for one in ten, at 8.5 for one in a hundred
    row = evaluate_scores(scored(line, clean, strange, fresh), outcome, (0.01, 0.1))
    strict, loose = row.rates
    assert (strict.threshold, loose.threshold) == (8.5, 8.0)
    for at in (strict, loose):
        assert (at.detected.count, at.detected.n) == (3, 4)  # images 0, 1 and 2 of 0, 1, 2, 3
        assert (at.missed.count, at.missed.n) == (1, 6)  # image 3 of 0, 1, 2, 3, 5, 6
        assert (at.false_alarms.count, at.false_alarms.n) == (2, 9)  # images 5 and 9
        assert (at.missed.low, at.missed.high) == proportion_interval(1, 6)
    assert (row.fooled, row.clean, row.left_out) == (4, 9, 1)
    assert row.area.value == pytest.approx(area_under_curve(clean[fresh], strange[[0, 1, 2, 3]]))
    assert any(
        "with 10 calibration images, a false-positive rate of 0.01 allows no alarm" in note for note in row.notes
    )
    assert any("1 of 10 test images omitted" in note for note in row.notes)


def test_images_that_a_detector_gives_no_number_are_left_out_and_named():
    """Five images that all fool; of one the example has no score, of one the clean image has none."""
    yes = np.ones(5, bool)
    outcome = SimpleNamespace(columns={"attacked": yes, "usable": yes, "success": yes}, usable=yes, cell=None)
    clean, strange = np.array([0, 0, np.nan, 9, 0]), np.array([9, np.nan, 9, 9, 0])
    row = evaluate_scores(scored([0, 1, 2, 3, 4, 5, 6, 7, 8, 8.5], clean, strange, yes), outcome, (0.1,))
    (at,) = row.rates
    assert (row.fooled, row.clean, row.left_out) == (3, 3, 0)
    assert (at.detected.count, at.detected.n, at.missed.count, at.missed.n) == (2, 3, 1, 3)
    assert (at.false_alarms.count, at.false_alarms.n) == (1, 3)
    assert any("2 of 5 images omitted, because their scores are NaN or infinite" in note for note in row.notes)

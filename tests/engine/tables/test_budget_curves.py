"""Curves against the metrics on the distances that they were made of."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from davylamp import metrics
from davylamp.adapters.display_text import format_radius
from davylamp.engine.statistics.bootstrap import resample
from davylamp.engine.tables.budget_curves import build_curves, round_budgets
from davylamp.engine.tables.table import build_table
from davylamp.errors import InvalidInput, Unavailable, UnknownName, Unsupported

N = 50
LABELS = torch.zeros(N, dtype=torch.int64)
RIGHT = torch.tensor([[5.0, 0]]).repeat(N, 1)
CLEAN = torch.where((torch.arange(N) < 4)[:, None], RIGHT.flip(1), RIGHT)  # four are wrong when clean
SMALLEST = {"norm": "l2", "epsilon": None}


def fool(share):
    """Logits after an attack that fools the images up to a share of all."""
    return torch.where((torch.arange(N) < share * N)[:, None], RIGHT.flip(1), CLEAN)


def sizes(seed):
    return torch.rand(N, generator=torch.Generator().manual_seed(seed), dtype=torch.double) + 0.01


@pytest.fixture
def subject(writer):
    return writer.clean("a", CLEAN, LABELS)


def falls(outcome, share):
    """The distance of a success, inf without, 0 if wrong when clean."""
    index = torch.arange(N)
    return torch.where(index < 4, 0.0, torch.where(index < share * N, outcome, math.inf))


def test_a_curve_of_distances_is_the_metric(writer, subject):
    writer.cell(subject, "foolbox:ddn", CLEAN, fool(0.8), LABELS, sizes=sizes(0), **SMALLEST)
    writer.cell(subject, "foolbox:cw", CLEAN, fool(1), LABELS, sizes=sizes(1), **SMALLEST)
    curves = build_curves(writer.store.folder)
    curve_of = {curve.labels["implementation"]: curve for curve in curves.curves}
    first, second = falls(sizes(0), 0.8), falls(sizes(1), 1)
    best = metrics.best_distances([first, second])
    for name, distances in (("foolbox:ddn", first), ("foolbox:cw", second)):
        drawn, half = curve_of[name], metrics.half_distortion(distances)
        truth = metrics.accuracy_curve(distances, torch.tensor(drawn.budgets))
        np.testing.assert_allclose(drawn.accuracy, truth, atol=1e-12)
        assert (drawn.low <= drawn.accuracy).all()
        assert (drawn.accuracy <= drawn.high).all()
        assert (drawn.half_distortion.value, drawn.r_squared) == (half.value, half.r_squared)
        assert drawn.half_distortion.low < half.value < drawn.half_distortion.high
        assert drawn.empirical_half == metrics.empirical_half_distortion(distances)
        assert drawn.optimality.value == pytest.approx(float(metrics.local_optimality(distances, best)))
        assert (drawn.kind, drawn.n, drawn.labels["images"]) == ("distances", N, 46)
    assert curve_of["foolbox:ddn"].budgets[-1] == pytest.approx(float(second[second.isfinite()].max()))
    assert curves.unit == {"l2": "pixel range"}
    assert set(curves.shown["l2"]) <= set(curve_of["foolbox:cw"].budgets)


def test_the_band_is_that_of_the_binomial(writer, subject):
    writer.cell(subject, "foolbox:ddn", CLEAN, fool(1), LABELS, sizes=sizes(0), **SMALLEST)
    (curve,) = build_curves(writer.store.folder).curves
    for place in range(0, len(curve.budgets), 20):
        truth = stats.binomtest(round(curve.accuracy[place] * N), N).proportion_ci(method="exact")
        assert (curve.low[place], curve.high[place]) == pytest.approx((truth.low, truth.high))
    (bare,) = build_curves(writer.store.folder, bootstrap=0).curves
    assert np.isnan(bare.low).all()


def test_fixed_budgets_are_points(writer, subject):
    for epsilon, share in ((0.2, 0.9), (0.1, 0.5), (0.05, 0.2)):
        spec = {"epsilon": epsilon, "parameters": {"steps": 5, "step_size": epsilon / 2}}
        writer.cell(subject, "foolbox:pgd", CLEAN, fool(share), LABELS, **spec)
    curves = build_curves(writer.store.folder)
    (curve,) = curves.curves
    assert curve.kind == "points"
    assert repr(curves).splitlines()[1].split() == ["implementation", "model", "norm", "0", "0.05", "0.1", "0.2"]
    assert repr(curves).splitlines()[2].split()[-4:] == ["0.92", "0.8", "0.5", "0.1"]
    assert curve.budgets.tolist() == [0, 0.05, 0.1, 0.2]
    np.testing.assert_allclose(curve.accuracy, [0.92, 0.8, 0.5, 0.1])
    assert math.isnan(curve.half_distortion.value)
    assert curve.labels["images"] == 46
    assert math.isnan(curve.labels["epsilon"])


def test_two_relative_step_sizes_are_two_curves(writer, subject):
    for ratio in (0.5, 0.25):
        for epsilon in (0.1, 0.2):
            spec = {"epsilon": epsilon, "parameters": {"step_size": epsilon * ratio}}
            writer.cell(subject, "foolbox:pgd", CLEAN, fool(ratio), LABELS, **spec)
    curves = build_curves(writer.store.folder).curves
    assert sorted(curve.accuracy.tolist() for curve in curves) == [[0.92, 0.5, 0.5], [0.92, 0.74, 0.74]]
    assert len({curve.labels["setting"] for curve in curves}) == 2
    for epsilon in (0.1, 0.2):  # one step size at several radii is one curve
        spec = {"epsilon": epsilon, "parameters": {"step_size": 0.01}}
        writer.cell(subject, "art:pgd", CLEAN, fool(0.5), LABELS, **spec)
    assert len(build_curves(writer.store.folder).curves) == 3


def test_a_violation_is_no_success_at_any_budget(writer, subject):
    bad = torch.arange(N) >= 45
    writer.cell(subject, "foolbox:ddn", CLEAN, fool(1), LABELS, sizes=sizes(0), violated=bad, **SMALLEST)
    (curve,) = build_curves(writer.store.folder).curves
    assert curve.accuracy[0] == pytest.approx(0.92)
    assert curve.accuracy[-1] == 0  # the five are not fooled, and not robust either
    assert curve.labels["violations"] == 5
    assert (curve.half_distortion.n, curve.optimality.n) == (45, 45)


def test_queries_are_those_spent_on_a_success(writer, subject):
    forwards = torch.arange(N)
    writer.cell(subject, "foolbox:pgd", CLEAN, fool(0.5), LABELS, forwards=forwards, backwards=2 * forwards)
    curves = build_curves(writer.store.folder, against="queries", budgets=[12, 14.5, 30])
    (curve,) = curves.curves
    truth = metrics.accuracy_curve(falls(3.0 * forwards.double(), 0.5), torch.tensor(curve.budgets))
    np.testing.assert_allclose(curve.accuracy, truth, atol=1e-12)
    assert curves.shown["linf"] == (0, 12, 14.5, 30)
    accuracy_at = dict(zip(curve.budgets, curve.accuracy, strict=True))
    assert [accuracy_at[budget] for budget in (0, 12, 14.5, 30)] == pytest.approx([0.92, 0.9, 0.9, 0.78])
    assert math.isnan(curve.half_distortion.value)


def test_grey_levels_are_255ths_and_root_mean_squares(writer, subject):
    l2 = sizes(0)
    writer.cell(subject, "foolbox:ddn", CLEAN, fool(1), LABELS, sizes=l2, AED=l2 / math.sqrt(192), **SMALLEST)
    writer.cell(subject, "foolbox:pgd", CLEAN, fool(1), LABELS, epsilon=8 / 255)
    curves = build_curves(writer.store.folder, against="grey-levels")
    points, steps = curves.curves
    assert points.budgets.tolist() == pytest.approx([0, 8])
    assert [curves.budget_text(norm, 128.0) for norm in ("linf", "l2")] == ["128", "128"]
    assert steps.half_distortion.value == pytest.approx(
        metrics.half_distortion(255 * falls(l2, 1) / math.sqrt(192)).value
    )
    assert steps.optimality.value == pytest.approx(1)
    assert curves.unit == {"linf": "grey levels", "l2": "grey levels, root mean square"}
    writer.cell(subject, "foolbox:pgd", CLEAN, fool(1), LABELS, norm="l1", epsilon=3.0)
    with pytest.raises(Unsupported, match="no grey levels for distances in l1"):
        build_curves(writer.store.folder, against="grey-levels")


def test_optimality_is_against_attacks_of_the_same_kind_only(writer, subject):
    near, far = sizes(0), sizes(0) * 3
    writer.cell(subject, "foolbox:ddn", CLEAN, fool(1), LABELS, sizes=far, **SMALLEST)
    writer.cell(subject, "foolbox:cw", CLEAN, fool(1), LABELS, sizes=near, norm="linf", epsilon=None)
    writer.cell(subject, "foolbox:cw", CLEAN, fool(1), LABELS, sizes=near, target="random", **SMALLEST)
    other = writer.clean("b", CLEAN, LABELS)
    writer.cell(other, "foolbox:cw", CLEAN, fool(1), LABELS, sizes=near, **SMALLEST)
    curves = build_curves(writer.store.folder, bootstrap=0).curves
    assert [curve.optimality.value for curve in curves] == pytest.approx([1] * 4)


def test_only_one_norm_or_model(writer, subject):
    writer.cell(subject, "foolbox:ddn", CLEAN, fool(1), LABELS, sizes=sizes(0), **SMALLEST)
    other = writer.clean("b", CLEAN, LABELS)
    writer.cell(other, "foolbox:pgd", CLEAN, fool(1), LABELS)
    folder = writer.store.folder
    assert [curve.labels["model"] for curve in build_curves(folder, norm="linf").curves] == ["b"]
    assert [curve.labels["norm"] for curve in build_curves(folder, models=["a"]).curves] == ["l2"]
    for error, named, given in (
        (UnknownName, "norm 'l3'", {"norm": "l3"}),
        (UnknownName, "model 'c'", {"models": ["c"]}),
        (Unsupported, "in the folder: l2, linf", {"norm": "l1"}),
        (InvalidInput, "budgets >= 0", {"budgets": [-1]}),
        (InvalidInput, "epsilon, grey-levels, queries", {"against": "time"}),
    ):
        with pytest.raises(error, match=named):
            build_curves(folder, **given)


def test_failed_cells_are_named_and_an_empty_folder_is_refused(writer, subject):
    with pytest.raises(Unavailable, match="it is empty"):
        build_curves(writer.store.folder)
    writer.failed(subject, "art:pgd", "AttackFailed: boom")
    with pytest.raises(Unsupported, match="in the folder: none"):
        build_curves(writer.store.folder)
    writer.cell(subject, "foolbox:ddn", CLEAN, fool(1), LABELS, sizes=sizes(0), **SMALLEST)
    assert build_curves(writer.store.folder).notes == ("failed: art:pgd on a: AttackFailed: boom",)


def test_an_attack_that_never_succeeds(writer, subject):
    writer.cell(subject, "foolbox:ddn", CLEAN, CLEAN, LABELS, sizes=sizes(0), **SMALLEST)
    curves = build_curves(writer.store.folder)
    (curve,) = curves.curves
    assert curves.shown == {"l2": (0.0,)}
    assert curve.accuracy.tolist() == [0.92]
    assert curve.half_distortion.value == math.inf
    assert math.isnan(curve.optimality.value)


def test_repeats_are_averaged(writer, subject):
    for seed, share in enumerate((0.4, 0.8)):
        writer.cell(subject, "foolbox:ddn", CLEAN, fool(share), LABELS, sizes=sizes(0), seed=seed, **SMALLEST)
    (curve,) = build_curves(writer.store.folder).curves
    assert curve.accuracy[-1] == pytest.approx(1 - (0.4 + 0.8) / 2)


@pytest.mark.parametrize(("epsilon", "written"), [(8 / 255, True), (None, True), (0.03, False)])
def test_budgets_are_written_as_the_radii_are(writer, subject, epsilon, written):
    options = {**SMALLEST, "norm": "linf"} if epsilon is None else {"norm": "linf", "epsilon": epsilon}
    writer.cell(subject, "foolbox:fmn", CLEAN, fool(0.4), LABELS, sizes=sizes(0), **options)
    curves = build_curves(writer.store.folder)
    shown = [format_radius("linf", budget) for budget in curves.shown["linf"]]
    assert len(shown) > 2
    assert all(text.endswith("/255") == written for text in shown[1:])


@pytest.mark.parametrize(
    ("top", "log", "budgets"),
    [
        (0.176, False, [0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.14, 0.16]),
        (1.0, False, [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]),
        (30.0, False, [0, 5, 10, 15, 20, 25, 30]),
        (99.0, True, [0, 1, 2, 5, 10, 20, 50, 99]),
        (0.0, False, [0]),
        (0.0, True, [0]),
    ],
)
def test_round_budgets(top, log, budgets):
    assert round_budgets(top, log=log) == pytest.approx(budgets)


def test_large_folders_are_resampled_in_groups():
    """More numbers than are held at once."""
    counts = resample(30_000, 150, 0)
    assert counts.shape == (151, 30_000)
    assert (counts.sum(1) == 30_000).all()


def test_a_table_has_the_half_distortion_in_grey_levels_too(writer, subject):
    l2, linf = sizes(0), sizes(1)
    writer.cell(subject, "foolbox:ddn", CLEAN, fool(1), LABELS, sizes=l2, AED=l2 / math.sqrt(192), **SMALLEST)
    writer.cell(subject, "foolbox:cw", CLEAN, fool(1), LABELS, sizes=linf, norm="linf", epsilon=None)
    writer.cell(subject, "foolbox:ead-l1", CLEAN, fool(1), LABELS, sizes=l2, norm="l1", epsilon=None)
    rows = build_table(writer.store.folder, by="pairs", metrics=["D_half", "D_half@grey"], bootstrap=50).rows
    got = {row.labels["norm"]: row.metrics for row in rows}
    for norm, distances, scale in (("l2", l2, 255 / math.sqrt(192)), ("linf", linf, 255)):
        expected = metrics.half_distortion(falls(distances, 1)).value
        assert got[norm]["D_half"].value == pytest.approx(expected)
        assert got[norm]["D_half@grey"].value == pytest.approx(scale * expected)
        assert got[norm]["D_half@grey"].low == pytest.approx(scale * got[norm]["D_half"].low)
    assert math.isnan(got["l1"]["D_half@grey"].value)
    assert got["l1"]["D_half"].value > 0

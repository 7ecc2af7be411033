"""Tables of folders whose truth is known."""

import json
import math

import numpy as np
import pytest
import torch

from davylamp import metrics
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.store.results import read_outcomes
from davylamp.engine.tables.budget_curves import build_curves
from davylamp.engine.tables.defence_table import build_defence
from davylamp.engine.tables.estimates import EXTRAPOLATED
from davylamp.engine.tables.table import build_table
from davylamp.errors import InvalidInput, Unavailable, UnknownName, Unsupported
from davylamp.intervals import clustered_interval, difference_interval, proportion_interval
from davylamp.report.text.tables import table_json

INF = math.inf


@pytest.fixture
def case():
    """Logits of two models on 40 images of 6 classes, before and after an attack, and the labels."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(6, (40,), generator=generator)
    logits = [3 * torch.randn(40, 6, generator=generator) for _ in range(4)]
    for each in logits[:2]:
        each[range(34), labels[:34]] += 9
    return labels, *logits


def write_two(writer, case, **spec):
    labels, clean, other, adv, other_adv = case
    a, b = writer.clean("a", clean, labels), writer.clean("b", other, labels)
    writer.cell(a, "foolbox:pgd", clean, adv, labels, **spec)
    writer.cell(b, "foolbox:pgd", other, other_adv, labels, **spec)
    return a, b


def test_rows_by_knowledge_and_over_all_threat_models(writer, case):
    labels, clean, other, adv, other_adv = case
    a, b = write_two(writer, case)
    writer.cell(a, "foolbox:boundary", clean, other_adv, labels, norm="l2", epsilon=None)
    writer.cell(b, "foolbox:boundary", other, adv, labels, norm="l2", epsilon=None)
    writer.cell(a, "art:square", clean, adv, labels)
    folder, rates = writer.store.folder, {"metrics": ["MR"], "bootstrap": 0}
    of_pairs = {
        (row.labels["model"], row.labels["implementation"]): row.metrics["MR"].value
        for row in build_table(folder, by="pairs", **rates).rows
    }
    kinds = {
        "white-box": {"foolbox:pgd"},
        "black-box": {"foolbox:boundary", "art:square"},
        "score": {"art:square"},
        "decision": {"foolbox:boundary"},
    }
    for knowledge, names in kinds.items():
        table = build_table(folder, by="attacks", knowledge=knowledge, **rates)
        assert {row.labels["implementation"] for row in table.rows} == names
    mixed = build_table(folder, by="models", all_threat_models=True, knowledge="black-box", **rates)
    first, second = mixed.rows
    black = [of_pairs["a", name] for name in ("foolbox:boundary", "art:square")]
    assert first.metrics["MR"].value == pytest.approx(np.mean(black))
    assert second.metrics["MR"].value == of_pairs["b", "foolbox:boundary"]
    assert mixed.labels[:2] == ("model", "setting")
    for table in (mixed, build_table(folder, by="models", **rates)):
        assert [note for note in table.notes if note.startswith("b") and "no result for art:square" in note]
    with pytest.raises(InvalidInput, match=r"all_threat_models.* got by='pairs'"):
        build_table(folder, by="pairs", all_threat_models=True)
    with pytest.raises(Unsupported, match="transfer attacks, got decision-based, score-based, white-box only"):
        build_table(folder, knowledge="transfer")


def test_an_attack_row_is_the_mean_over_models_of_the_metric(writer, case):
    labels, clean, other, adv, other_adv = case
    write_two(writer, case)
    table = build_table(writer.store.folder, metrics=["MR", "AIAC", "FR@2", "FR@K", "FR@10", "CA", "CC", "CF", "RA"])
    (row,) = table.rows
    assert {name: row.labels[name] for name in ("implementation", "models", "cells", "failed", "setting")} == {
        "implementation": "foolbox:pgd", "models": 2, "cells": 2, "failed": 0, "setting": ""
    }  # fmt: skip
    pairs = [(clean, adv), (other, other_adv)]

    def mean(function):
        return pytest.approx(np.mean([float(function(*pair)) for pair in pairs]), abs=1e-6)

    def rate(k):
        def function(before, after):
            right = before.argmax(1) == labels
            return metrics.fooling_rate_at_k(before[right], after[right], k)

        return function

    estimates = row.metrics
    assert estimates["MR"].value == mean(lambda x, y: metrics.misclassification_ratio(x, y, labels))
    assert estimates["AIAC"].value == mean(lambda x, y: metrics.adversarial_confidence_increase(x, y, labels))
    assert [estimates[s].value for s in ("FR@2", "FR@5")] == [mean(rate(2)), mean(rate(5))]
    assert np.isnan(estimates["FR@10"].value)  # of 6 classes
    assert estimates["CA"].value == mean(lambda x, _: metrics.clean_accuracy(x, labels))
    assert estimates["CC"].value == mean(lambda x, _: metrics.true_class_confidence(x, labels))
    assert estimates["CF"].value == mean(lambda x, _: metrics.macro_f1(x, labels))
    robust = mean(lambda x, y: ((x.argmax(1) == labels) & (y.argmax(1) == labels)).double().mean())
    assert estimates["RA"].value == robust
    assert estimates["MR"].n == sum(int((x.argmax(1) == labels).sum()) for x, _ in pairs)
    assert estimates["CA"].n == estimates["CF"].n == estimates["RA"].n == 80
    del estimates["FR@10"]
    assert all(estimate.low <= estimate.value <= estimate.high for estimate in estimates.values())


def test_shares_have_intervals_where_nothing_or_all_counts(writer):
    """12 of 12 fooled is not "1 [1, 1]"; the same images under two attacks are not 24."""
    labels = torch.zeros(12, dtype=torch.int64)
    clean = torch.tensor([[5.0, 0]]).repeat(12, 1)
    subject = writer.clean("a", clean, labels)
    for attack in ("foolbox:pgd", "art:pgd"):
        writer.cell(subject, attack, clean, clean.flip(1), labels)
    folder = writer.store.folder
    for pair_row in build_table(folder, by="pairs", metrics=["MR", "RA"]).rows:
        assert pair_row.metrics["MR"][:3] == pytest.approx((1, *proportion_interval(12, 12)))
        assert pair_row.metrics["RA"][:3] == pytest.approx((0, *proportion_interval(0, 12)))
    (row,) = build_table(folder, by="models", metrics=["MR", "RA_mean", "RA", "CA", "FR@1"]).rows
    for symbol, value in (("MR", 1), ("RA_mean", 0), ("RA", 0), ("CA", 1)):
        assert row.metrics[symbol][:3] == pytest.approx((value, *proportion_interval(12 * value, 12))), symbol


def test_the_interval_of_a_share_is_the_clustered_one(writer, case):
    write_two(writer, case)
    outcomes = read_outcomes(writer.store.folder)
    columns = np.stack([outcome.columns["MR"] for outcome in outcomes.done], axis=1)
    for pooled in (False, True):
        (row,) = build_table(outcomes, metrics=["MR"], pool_images=pooled).rows
        expected = clustered_interval(columns, (~np.isnan(columns)).sum(0) if pooled else None)
        assert row.metrics["MR"][:3] == pytest.approx(
            (float(expected.value), float(expected.low), float(expected.high))
        )


def test_no_interval_claims_certainty(writer):
    labels = torch.zeros(4, dtype=torch.int64)
    clean = torch.tensor([[5.0, 0]]).repeat(4, 1)
    spread = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.double)
    subject = writer.clean("few", clean, labels)
    writer.cell(subject, "foolbox:pgd", clean, clean.flip(1), labels, sizes=spread)
    table = build_table(writer.store.folder, metrics=["l2", "forwards", "MR"])
    (row,) = table.rows
    assert row.metrics["l2"].value == pytest.approx(0.25)
    assert math.isnan(row.metrics["l2"].low)  # 4 images
    assert math.isnan(row.metrics["forwards"].low)
    assert not math.isnan(row.metrics["MR"].low)
    (said,) = [each for each in table.findings if each.name == "no-interval"]
    assert said.numbers["symbols"] == "l2, forwards"
    many = writer.clean("many", clean.repeat(3, 1), labels.repeat(3))
    again = clean.repeat(3, 1)
    writer.cell(many, "foolbox:pgd", again, again.flip(1), labels.repeat(3), sizes=spread.repeat(3))
    row = build_table(writer.store.folder, by="pairs", metrics=["l2", "forwards"]).rows[1]
    assert row.metrics["l2"].low < 0.25 < row.metrics["l2"].high
    assert math.isnan(row.metrics["forwards"].low)  # 3 on every image


def test_pooled_is_the_mean_over_images(writer, case):
    labels, clean, other, adv, other_adv = case
    write_two(writer, case)
    (row,) = build_table(writer.store.folder, metrics=["MR"], pool_images=True).rows
    truth = metrics.misclassification_ratio(torch.cat([clean, other]), torch.cat([adv, other_adv]), labels.repeat(2))
    assert row.metrics["MR"].value == pytest.approx(float(truth))


def test_images_stay_paired_across_cells(writer, case):
    """Two models that fall on complementary images: their mean never varies, which is worth no more than 80 images."""
    labels = torch.zeros(40, dtype=torch.int64)
    clean = torch.tensor([[5.0, 0]]).repeat(40, 1)
    even = torch.arange(40) % 2 == 0
    for model, fooled in (("a", even), ("b", ~even)):
        subject = writer.clean(model, clean, labels)
        writer.cell(subject, "foolbox:pgd", clean, torch.where(fooled[:, None], clean.flip(1), clean), labels)
    (row,) = build_table(writer.store.folder, metrics=["MR"]).rows
    assert row.metrics["MR"][:3] == pytest.approx((0.5, *proportion_interval(40, 80)))


def test_repeats_are_averaged_before_models(writer, case):
    labels, clean, other, adv, other_adv = case
    a, _ = write_two(writer, case)
    writer.cell(a, "foolbox:pgd", clean, clean, labels, seed=1)  # never fooled
    row = build_table(writer.store.folder, metrics=["MR"]).rows[0]
    first, second = (
        float(metrics.misclassification_ratio(x, y, labels)) for x, y in ((clean, adv), (other, other_adv))
    )
    assert row.labels["cells"] == 3
    assert row.metrics["MR"].value == pytest.approx((first / 2 + second) / 2)


def test_worst_case_is_over_every_attack_of_one_threat_model(writer):
    labels = torch.zeros(4, dtype=torch.int64)
    clean = torch.tensor([[5.0, 0]]).repeat(4, 1)
    clean[3] = clean[3].flip(0)  # wrong when clean
    subject = writer.clean("a", clean, labels)

    def attack(name, fooled, **spec):
        adv = torch.where(torch.tensor(fooled)[:, None], torch.tensor([[0.0, 5]]), clean)
        writer.cell(subject, name, clean, adv, labels, **spec)

    attack("foolbox:pgd", [True, False, False, False])
    attack("art:pgd", [False, True, False, False])
    attack("foolbox:pgd", [True, True, True, False], epsilon=0.2)
    violated = torch.tensor([False, True, False, False])
    attack("foolbox:pgd", [False] * 4, norm="l2", epsilon=1.0, violated=violated)
    rows = build_table(writer.store.folder, by="models", metrics=["RA_mean", "RA", "MR"]).rows
    row_of = {(row.labels["norm"], row.labels["epsilon"]): row for row in rows}
    assert len(row_of) == 3
    small, large, round_ball = row_of["linf", 0.1], row_of["linf", 0.2], row_of["l2", 1.0]
    assert [row.metrics["RA"].value for row in (small, large, round_ball)] == [0.25, 0.0, 0.5]
    assert [row.metrics["RA_mean"].value for row in (small, large, round_ball)] == [0.5, 0.0, 0.5]
    assert (small.metrics["RA"].n, small.metrics["RA_mean"].n) == (4, 8)  # images, and images in both cells
    by_attack = build_table(writer.store.folder, metrics=["RA"], bootstrap=0).rows
    alone = sorted(row.metrics["RA"].value for row in by_attack)
    assert alone == [0.0, 0.5, 0.5, 0.5]  # under each attack alone
    old = build_table(writer.store.folder, by="models", metrics=["RA_worst"]).rows
    assert [row.metrics["RA"] for row in old] == [row.metrics["RA"] for row in rows]
    (shown,) = (row for row in json.loads(table_json(build_table(writer.store.folder, by="models")))["rows"][:1])
    assert shown["metrics"]["RA_worst"] == shown["metrics"]["RA"]
    assert "RA_worst" not in json.loads(table_json(build_table(writer.store.folder)))["rows"][0]["metrics"]
    assert small.metrics["MR"].value == pytest.approx(1 / 3)
    assert round_ball.metrics["MR"].value == 0  # a violation is neither fooled nor robust
    assert [row.labels["violations"] for row in (small, large, round_ball)] == [0, 0, 1]


def test_intervals_reach_to_what_violations_may_hide(writer):
    """20 images, one fooled, 8 violated: between 1 and 9 are fooled, and of two attacks the other one may tell."""
    labels, clean = torch.zeros(20, dtype=torch.int64), torch.tensor([[5.0, 0]]).repeat(20, 1)
    subject, places = writer.clean("a", clean, labels), torch.arange(20)

    def attack(name, fooled, **spec):
        writer.cell(subject, name, clean, torch.where(fooled[:, None], clean.flip(1), clean), labels, **spec)

    kept = ((places > 0) & (places < 12)).double()
    attack("foolbox:pgd", places == 0, violated=places >= 12, AAW=kept)
    (row,) = build_table(writer.store.folder, by="pairs", metrics=["MR", "RA"]).rows
    assert row.metrics["MR"][:3] == pytest.approx((0.05, proportion_interval(1, 20)[0], proportion_interval(9, 20)[1]))
    assert row.metrics["RA"][:3] == pytest.approx(
        (0.55, proportion_interval(11, 20)[0], proportion_interval(19, 20)[1])
    )
    (white,) = build_table(writer.store.folder, by="models", metrics=["AAW"]).rows
    assert white.metrics["AAW"] == row.metrics["RA"]
    (curve,) = build_curves(writer.store.folder).curves
    assert (curve.accuracy[1], curve.low[1], curve.high[1]) == pytest.approx(row.metrics["RA"][:3])
    attack("art:pgd", places >= 16)  # which fools 4 of those that prove nothing under the first
    table = build_table(writer.store.folder, by="models", metrics=["RA"])
    worst = table.rows[0].metrics["RA"]
    bare = build_table(writer.store.folder, by="models", metrics=["RA"], bootstrap=0)
    assert bare.notes == ("invalid results count as 0 in RA",)
    assert worst[:3] == pytest.approx((0.55, proportion_interval(11, 20)[0], proportion_interval(15, 20)[1]))
    assert table.notes == ("invalid results count as 0 in RA, and as 1 in the upper bounds of the intervals",)


def test_bands_of_a_curve_reach_to_what_violations_may_hide(writer):
    """20 images: 5 fall at 0.1, 5 at 0.3, 6 violated, of which nothing is known above 0."""
    labels, clean = torch.zeros(20, dtype=torch.int64), torch.tensor([[5.0, 0]]).repeat(20, 1)
    places = torch.arange(20)
    fooled = torch.where((places < 10)[:, None], clean.flip(1), clean)
    spec = {"sizes": torch.where(places < 5, 0.1, 0.3).double(), "violated": places >= 14}
    for seed in (0, 1):
        subject = writer.clean("a", clean, labels)
        writer.cell(subject, "foolbox:ddn", clean, fooled, labels, norm="l2", epsilon=None, seed=seed, **spec)
        (curve,) = build_curves(writer.store.folder).curves
        ends = {
            float(budget): (curve.accuracy[place], curve.low[place], curve.high[place])
            for place, budget in enumerate(curve.budgets)
        }
        between = max(budget for budget in ends if 0.1 < budget < 0.3)
        assert ends[0.0] == pytest.approx((1, *proportion_interval(20, 20)))
        assert ends[between] == pytest.approx((9 / 20, proportion_interval(9, 20)[0], proportion_interval(15, 20)[1]))


def test_a_row_of_models_says_what_its_means_lack(writer, case):
    labels, clean, _, adv, _ = case
    a, b = write_two(writer, case)
    writer.cell(b, "art:pgd", clean, adv, labels)
    writer.failed(a, "art:pgd", "AttackFailed: boom")
    writer.cell(a, "art:pgd", clean, adv, labels, epsilon=0.2)  # of another threat model: nothing stands beside it
    table = build_table(writer.store.folder, by="models", metrics=["RA"])
    said = "a, linf 0.1: no result for art:pgd, so its means are not comparable with the other rows"
    assert [note for note in table.notes if "comparable" in note] == [said]


def test_the_accuracy_on_clean_images_rests_on_these_however_many_attacks_ran(writer, case):
    labels, clean, _, adv, _ = case
    subject = writer.clean("a", clean, labels)
    right = int((clean.argmax(1) == labels).sum())
    for attack in ("foolbox:pgd", "art:pgd", "torchattacks:pgd"):
        writer.cell(subject, attack, clean, adv, labels)
        (row,) = build_table(writer.store.folder, by="models", metrics=["CA"]).rows
        assert row.metrics["CA"] == pytest.approx((right / 40, *proportion_interval(right, 40), 40))


def test_rows_never_mix_settings_and_say_what_tells_them_apart(writer, case):
    labels, clean, _, adv, _ = case
    subject = writer.clean("a", clean, labels)
    for steps in (5, 10):
        writer.cell(subject, "foolbox:pgd", clean, adv, labels, parameters={"steps": steps, "restarts": 1})
    writer.cell(subject, "foolbox:pgd", clean, adv, labels, epsilon=0.2)
    writer.cell(subject, "foolbox:pgd", clean, adv, labels, target="random")
    rows = build_table(writer.store.folder, metrics=["MR"]).rows
    settings = [(row.labels["epsilon"], row.labels["targeted"], row.labels["setting"]) for row in rows]
    assert settings == [(0.1, False, "steps=10"), (0.1, False, "steps=5"), (0.1, True, ""), (0.2, False, "")]
    writer.cell(subject, "foolbox:pgd", clean, adv, labels, target="least-likely")
    rows = build_table(writer.store.folder, by="models", metrics=["MR"]).rows
    settings = [(row.labels["epsilon"], row.labels["attacks"], row.labels["setting"]) for row in rows]
    assert sorted(settings) == [(0.1, 1, "target=least-likely"), (0.1, 1, "target=random"), (0.1, 2, ""), (0.2, 1, "")]


def test_two_weights_of_one_name_stay_apart(writer, case):
    labels, clean, other, adv, other_adv = case
    for digest, logits, after in (("111111x", clean, adv), ("222222x", other, other_adv)):
        subject = writer.clean("a", logits, labels)
        renamed = type(subject)("a", digest, subject.data, subject.data_digest, subject.images)
        writer.cell(renamed, "foolbox:pgd", logits, after, labels)
    rows = build_table(writer.store.folder, by="pairs", metrics=["MR"]).rows
    assert {row.labels["model"] for row in rows} == {"a [111111]", "a [222222]"}
    assert {row.labels["models"] for row in build_table(writer.store.folder, metrics=["MR"]).rows} == {2}


def test_statistics_of_distances_are_the_metrics(writer, case):
    labels, clean, _, adv, _ = case
    adv = torch.where((torch.arange(40) % 5 > 0)[:, None], adv.scatter(1, labels[:, None], -50.0), clean)
    subject = writer.clean("a", clean, labels)
    near, far = (torch.rand(40, generator=torch.Generator().manual_seed(s), dtype=torch.double) for s in (1, 2))
    every = adv.scatter(1, labels[:, None], -50.0)
    minimum = {"norm": "l2", "epsilon": None}
    writer.cell(subject, "foolbox:ddn", clean, every, labels, sizes=near, **minimum)
    writer.cell(subject, "foolbox:cw", clean, adv, labels, sizes=far, seconds=torch.full((40,), 9.0), **minimum)
    writer.cell(subject, "foolbox:pgd", clean, every, labels, sizes=near / 10, norm="linf")
    table = build_table(writer.store.folder, by="pairs", metrics=["D_half", "OPT", "CTC", "l2", "seconds"])
    estimates = {row.labels["implementation"]: row.metrics for row in table.rows}
    right = clean.argmax(1) == labels
    success = right & (adv.argmax(1) != labels)
    distances = torch.where(right, torch.where(success, far, INF), 0.0)
    best = torch.where(right, near, 0.0).minimum(distances)
    assert estimates["foolbox:cw"]["D_half"].value == metrics.half_distortion(distances).value
    assert estimates["foolbox:cw"]["OPT"].value == pytest.approx(float(metrics.local_optimality(distances, best)))
    assert estimates["foolbox:cw"]["l2"].value == pytest.approx(float(far[success].mean()))
    assert estimates["foolbox:cw"]["CTC"].value == 3  # two of three are faster
    assert estimates["foolbox:ddn"]["CTC"].value == estimates["foolbox:pgd"]["CTC"].value == 0
    assert estimates["foolbox:cw"]["seconds"].value == 9
    assert math.isnan(estimates["foolbox:pgd"]["D_half"].value)  # a fixed budget has no smallest distance
    assert estimates["foolbox:pgd"]["OPT"].value == 1


def test_distances_summed_up_leave_violations_out_as_curves_do(writer):
    """Half of the images broke a rule: counted as never falling they would push D_half far beyond all distances."""
    generator, n = torch.Generator().manual_seed(5), 30
    labels = torch.zeros(n, dtype=torch.long)
    right, wrong = (torch.tensor([pair]).repeat(n, 1) for pair in ([5.0, 0], [0, 5.0]))
    near, far = (torch.rand(n, generator=generator).double() + 0.05 for _ in range(2))
    bad = torch.arange(n) % 2 == 0
    subject = writer.clean("a", right, labels)
    spec = {"norm": "l2", "epsilon": None}
    writer.cell(subject, "foolbox:ddn", right, wrong, labels, sizes=near, violated=bad, **spec)
    writer.cell(subject, "foolbox:fmn", right, wrong, labels, sizes=far, **spec)
    lost = torch.ones(n, dtype=torch.bool)
    writer.cell(subject, "foolbox:deepfool", right, wrong, labels, violated=lost, **spec)
    table = build_table(writer.store.folder, by="pairs", metrics=["D_half", "OPT"])
    rows = {row.labels["implementation"]: row.metrics for row in table.rows}
    best = torch.where(bad, far, torch.minimum(near, far))
    kept = rows["foolbox:ddn"]
    assert kept["D_half"].value == metrics.half_distortion(near[~bad]).value
    assert kept["OPT"].value == pytest.approx(float(metrics.local_optimality(near[~bad], best[~bad])))
    assert kept["D_half"].n == kept["OPT"].n == 15
    assert rows["foolbox:fmn"]["OPT"].value == pytest.approx(float(metrics.local_optimality(far, best)))
    assert all(math.isnan(each.value) and each.n == 0 for each in rows["foolbox:deepfool"].values())
    for curve in build_curves(writer.store.folder).curves:
        row = rows[curve.labels["implementation"]]
        for ours, theirs in ((row["D_half"], curve.half_distortion), (row["OPT"], curve.optimality)):
            assert ours == pytest.approx(theirs, nan_ok=True)
    assert "invalid results are omitted from D_half, OPT" in table.notes
    clean = build_table(writer.store.folder, by="pairs", metrics=["seconds"])
    assert not any("violations" in note for note in clean.notes)


@pytest.mark.parametrize("by", ["attacks", "models", "pairs"])
def test_a_half_distortion_beyond_what_was_measured_is_called_extrapolated(writer, by):
    labels = torch.zeros(9, dtype=torch.long)
    right, wrong = (torch.tensor([pair]).repeat(9, 1) for pair in ([5.0, 0], [0, 5.0]))
    subject = writer.clean("a", right, labels)
    sizes = torch.linspace(0.1, 0.9, 9).double()
    proven = torch.arange(9) < 8
    spec = {"norm": "l2", "epsilon": None, "sizes": sizes, "violated": ~proven}
    expected = []
    for fooled, attack in enumerate(("cw", "ddn", "fmn", "deepfool", "newtonfool", "ead")):
        hit = (torch.arange(9) < fooled)[:, None]
        writer.cell(subject, f"{'art' if attack == 'newtonfool' else 'foolbox'}:{attack}", right,
                    torch.where(hit, wrong, right), labels, **spec)  # fmt: skip
        distances = torch.where(hit[:, 0], sizes, INF)[proven]
        half, reached = metrics.half_distortion(distances).value, metrics.empirical_half_distortion(distances)
        expected += [attack] if math.isfinite(half) and not math.isfinite(reached) else []
    assert expected == ["ddn", "fmn", "deepfool"]  # 1 to 3 of the 8; 4 of them are half
    writer.cell(subject, "foolbox:pgd", right, torch.where(hit, right, wrong), labels)  # one radius: no D_half
    notes = build_table(writer.store.folder, by=by, metrics=["D_half"], bootstrap=0).notes
    (note,) = (note for note in notes if "extrapolated" in note)
    assert note.startswith(f"{EXTRAPOLATED}: ")
    named = note.removeprefix(f"{EXTRAPOLATED}: ").split("; ")
    assert sorted(named) == sorted(f"foolbox:{name} on a" for name in expected)
    without = build_table(writer.store.folder, by=by, metrics=["MR"], bootstrap=0).notes
    assert not any("extrapolated" in note for note in without)


def test_a_half_distortion_beyond_the_radius_is_extrapolated_though_half_of_the_images_were_fooled(writer):
    """4 of 8 fall shortly before the radius: the exponential through them halves far beyond it."""
    labels, hit = torch.zeros(8, dtype=torch.long), torch.arange(8) < 4
    right, wrong = (torch.tensor([pair]).repeat(8, 1) for pair in ([5.0, 0], [0, 5.0]))
    sizes = torch.linspace(0.390, 0.397, 8).double()
    distances = torch.where(hit, sizes, INF)
    assert metrics.empirical_half_distortion(distances) < 0.4 < metrics.half_distortion(distances).value
    adv = torch.where(hit[:, None], wrong, right)
    subject = writer.clean("a", right, labels)
    for epsilon in (0.4, None):  # without a radius nothing is beyond it
        writer.cell(subject, "foolbox:deepfool", right, adv, labels, norm="l2", epsilon=epsilon, sizes=sizes)
    curves = build_curves(writer.store.folder, bootstrap=0).curves
    assert {curve.labels["epsilon"]: curve.is_extrapolated for curve in curves if curve.labels["epsilon"] == 0.4} == {
        0.4: True
    }
    assert [curve.is_extrapolated for curve in curves if math.isnan(curve.labels["epsilon"])] == [False]
    notes = build_table(writer.store.folder, by="pairs", metrics=["D_half"], bootstrap=0).notes
    assert sum("extrapolated" in note for note in notes) == 1


UNSUPPORTED = {  # symbol -> rows, and what the reason names
    "KMNCov": ("attacks", "neuron_profile"), "mCE": ("attacks", "corruptions run"), "CAV": ("attacks", "--defence"),
    "CTC": ("models", "by='attacks'"), "RA_mean": ("pairs", "by='models'"), "AED": ("attacks", "--metric distance"),
    "OTR": ("attacks", "transfer='full'"), "TAS": ("attacks", "target"), "D_half": ("attacks", "minimum-norm"),
    "ACTC": ("attacks", "missing"),
}  # fmt: skip


def test_what_cannot_be_had_says_why(writer, case):
    write_two(writer, case)
    folder = writer.store.folder
    for symbol, (by, named) in UNSUPPORTED.items():
        with pytest.raises(Unsupported, match=named):
            build_table(folder, by=by, metrics=[symbol])
    for symbol in ("AMB", "FR@0", "FR@x", "FR@", "distance"):
        with pytest.raises(UnknownName, match="metric"):
            build_table(folder, metrics=[symbol])
    for wrong, named in (({"by": "images"}, "attacks, models, pairs"), ({"bootstrap": -1}, "replicates >= 0")):
        with pytest.raises(InvalidInput, match=named):
            build_table(folder, **wrong)
    for by, symbols in {
        "attacks": ("MR", "RA", "AIAC", "CTC"),
        "models": ("CA", "RA", "RA_mean", "CF", "CC", "MR", "AIAC"),
        "pairs": ("MR", "RA", "seconds"),
    }.items():
        table = build_table(folder, by=by, bootstrap=0)
        assert table.symbols == symbols  # what the folder has
        assert math.isnan(table.rows[0].metrics["MR"].low)
        assert {"MR", "MR low", "MR high", "MR n"} <= set(table.frame())


def test_failed_and_damaged_cells_are_counted_and_named(writer, case):
    labels, clean, _, adv, _ = case
    a, b = write_two(writer, case)
    writer.failed(a, "art:pgd", "AttackFailed: boom")
    cell = writer.cell(b, "art:fgsm", clean, adv, labels)
    path = writer.store.path("cells", cell.key)
    path.write_bytes(path.read_bytes()[:-20])
    table = build_table(writer.store.folder, metrics=["MR"])
    row_of = {row.labels["implementation"]: row for row in table.rows}
    assert set(row_of) == {"foolbox:pgd", "art:pgd"}
    assert (row_of["art:pgd"].labels["cells"], row_of["art:pgd"].labels["failed"]) == (0, 1)
    assert math.isnan(row_of["art:pgd"].metrics["MR"].value)
    assert row_of["art:pgd"].metrics["MR"].n == 0
    assert table.notes[0] == "failed: art:pgd on a: AttackFailed: boom"
    assert cell.key in table.notes[1]
    assert "damaged" in table.notes[1]


def test_a_folder_without_cells(writer, case, tmp_path):
    (tmp_path / "davylamp.json").write_text('{"format": 1}')
    with pytest.raises(Unavailable, match="it is empty"):
        build_table(tmp_path)
    with pytest.raises(Unavailable, match="expected a results folder"):
        build_table(tmp_path / "nothing")
    labels, clean, *_ = case
    writer.failed(writer.clean("a", clean, labels), "art:pgd", "AttackFailed: boom")
    (row,) = build_table(writer.store.folder).rows
    assert row.labels["failed"] == 1


def test_an_unreadable_clean_file_leaves_its_metrics_undefined(writer, case):
    a, _ = write_two(writer, case)
    writer.store.path("clean", a.key).write_bytes(b"x")
    table = build_table(writer.store.folder, by="models", metrics=["CA", "CF", "MR", "FR@2"])
    estimates = {row.labels["model"]: row.metrics for row in table.rows}
    assert all(math.isnan(estimates["a"][symbol].value) for symbol in ("CA", "CF", "FR@2"))
    assert estimates["a"]["MR"].value > 0
    assert estimates["b"]["CA"].value > 0
    assert "is damaged" in table.notes[0]
    assert "no clean predictions for a on demo" in table.notes[1]
    assert len(table.notes) == 2


def test_violations_and_examples_outside_of_the_radius_are_not_usable(writer):
    labels, clean = torch.zeros(3, dtype=torch.int64), torch.tensor([[5.0, 0]]).repeat(3, 1)
    subject = writer.clean("a", clean, labels)
    flags = torch.tensor([True, False, False])
    sizes, never = torch.tensor([0.1, 0.3, 0.1]).double(), torch.zeros(3, dtype=torch.bool)
    spec = {"sizes": sizes, "success": never, "violated": flags}
    writer.cell(subject, "foolbox:ddn", clean, clean, labels, norm="l2", epsilon=0.2, **spec)
    (outcome,) = read_outcomes(writer.store.folder).done
    assert outcome.usable.tolist() == [False, False, True]


def test_on_8_bit_images_what_rounding_left_outside_of_the_ball_counts_as_not_fooled(digits, images, tmp_path):
    attack = AttackChoice("torchattacks:pgd", "linf", 25.5 / 255, parameters={"steps": 3})
    config = Config(attacks=(attack,), eight_bit=True, measures=("effect",))
    evaluate(make_plan(config, models={"cnn": digits.classifier}, data=images), ResultsStore(tmp_path))
    (outcome,) = read_outcomes(tmp_path).done
    columns, (row,) = outcome.columns, build_table(tmp_path, metrics=["MR"]).rows
    assert (columns["linf"] > 25.9 / 255).any()  # of clean images that are not of 8 bits themselves
    assert columns["linf"][columns["success"]].max() <= 25.5 / 255 + 1e-6
    assert row.metrics["MR"].value == columns["success"].sum() / columns["attacked"].sum() > 0.2


def test_a_defence_against_the_metrics(writer, case):
    labels, clean, other, adv, other_adv = case
    write_two(writer, case)
    table = build_defence(writer.store.folder, "a", "b")
    before, under = (row.metrics for row in table.rows)
    assert [row.labels["examples"] for row in table.rows] == ["clean", "foolbox:pgd"]
    for symbol in ("CAV", "FV", "CV", "CRR", "CSR", "CCV", "COS"):
        function = metrics.METRICS[symbol].function
        assert before[symbol].value == pytest.approx(float(function(clean, other, labels)), abs=1e-6), symbol
        assert under[symbol].value == pytest.approx(float(function(adv, other_adv, labels)), abs=1e-6), symbol
    truth = metrics.misclassification_variance(clean, adv, other, other_adv, labels)
    assert under["MRV"].value == pytest.approx(float(truth), abs=1e-6)
    assert under["ARAC"].value == pytest.approx(float(metrics.adversarial_confidence_drop(adv, other_adv)), abs=1e-6)
    assert under["AITC"].value == pytest.approx(float(metrics.true_confidence_gain(adv, other_adv, labels)), abs=1e-6)
    assert math.isnan(before["MRV"].value)
    assert "AMDV" not in table.symbols  # distances were not measured
    assert under["CAV"].value == pytest.approx(under["CRR"].value - under["CSR"].value)


def test_a_random_defence_has_one_robust_accuracy_and_a_line_on_what_goes_by_majority(writer, case):
    write_two(writer, case)
    labels, _, other, _, other_adv = case
    right, shares = other.argmax(1) == labels, torch.linspace(0.1, 0.9, 40).double()
    drawn = {"draws_fooled": torch.where(right, shares, 0.0), "success": right & (shares > 0.5)}
    defended = writer.clean("b+noise", other, labels)
    writer.cell(defended, "foolbox:pgd", other, other_adv, labels, **drawn)
    folder = writer.store.folder
    (row,) = (row for row in build_table(folder, by="pairs", metrics=["RA"]).rows if row.labels["model"] == "b+noise")
    expected = float((1 - shares)[right].sum()) / 40
    (curve,) = (curve for curve in build_curves(folder).curves if curve.labels["model"] == "b+noise")
    assert row.metrics["RA"].value == pytest.approx(expected)
    assert (curve.accuracy[1], curve.low[1], curve.high[1]) == pytest.approx(row.metrics["RA"][:3])
    said = (
        "b+noise: CAV and similar metrics use the majority of the model's samples; "
        "MRV, MR and RA use the rate over its samples"
    )
    assert said in build_defence(folder, "a", "b+noise").notes
    assert not any("majority" in note for note in build_defence(folder, "a", "b").notes)


def test_a_defence_that_changes_nothing_has_intervals_all_the_same(writer, case):
    labels, clean, _, adv, _ = case
    for model in ("a", "b"):
        writer.cell(writer.clean(model, clean, labels), "foolbox:pgd", clean, adv, labels)
    before, under = (row.metrics for row in build_defence(writer.store.folder, "a", "b").rows)
    assert before["CRR"][:3] == pytest.approx((0, *proportion_interval(0, 40)))
    least = difference_interval(0, 0, 40, level=0.95)
    assert before["CAV"][:3] == pytest.approx(least)
    assert under["MRV"].value == 0
    assert -0.3 < under["MRV"].low < -0.05
    assert 0.05 < under["MRV"].high < 0.3
    for symbol in ("CV", "CCV", "COS"):  # of numbers that do not differ there is none
        assert math.isnan(before[symbol].low)


def test_a_defence_leaves_out_violations_on_either_model(writer, case):
    labels, clean, other, adv, other_adv = case
    a, b = writer.clean("a", clean, labels), writer.clean("b", other, labels)
    first, second = ((clean.argmax(1) == labels) & (other.argmax(1) == labels)).nonzero()[:2, 0]
    bad, worse = torch.arange(40) == first, torch.arange(40) == second
    writer.cell(a, "foolbox:pgd", clean, adv, labels, violated=bad)
    writer.cell(b, "foolbox:pgd", other, other_adv, labels, violated=worse)
    row = build_defence(writer.store.folder, "a", "b", metrics=["CRR"]).rows[1]
    kept = ~(bad | worse)
    truth = metrics.rectify_ratio(adv[kept], other_adv[kept], labels[kept])
    assert row.metrics["CRR"].value == pytest.approx(float(truth))
    assert (row.labels["violations"], row.metrics["CRR"].n) == (2, 38)


def test_a_defence_on_two_sets_of_images_has_rows_of_each(writer, case):
    labels, clean, other, adv, other_adv = case
    for count in (40, 25):
        for name, logits, after in (("a", clean, adv), ("b", other, other_adv)):
            subject = writer.clean(name, logits[:count], labels[:count], data=f"set{count}", digest=f"{count}")
            writer.cell(subject, "foolbox:pgd", logits[:count], after[:count], labels[:count])
    rows = build_defence(writer.store.folder, "a", "b", metrics=["CAV"]).rows
    settings = {(row.labels["examples"], row.labels["setting"]): row.metrics["CAV"] for row in rows}
    assert len(settings) == len(rows) == 4
    for count in (40, 25):
        (data,) = {setting for _, setting in settings if f"({count})" in setting}
        assert data.startswith("data=")
        for examples, before, after in (("clean", clean, other), ("foolbox:pgd", adv, other_adv)):
            got, truth = settings[examples, data], labels[:count]
            right = [(each[:count].argmax(1) == truth).double().mean() for each in (before, after)]
            assert (got.value, got.n) == (pytest.approx(float(right[1] - right[0])), count)


@pytest.mark.parametrize(("data", "digest", "alike"), [("npz", "d", True), ("demo", "e", True), ("npz", "e", False)])
def test_a_defence_saw_the_same_images_by_their_digest_or_by_their_names(writer, case, data, digest, alike):
    labels, clean, other, adv, _ = case
    writer.cell(writer.clean("a", clean, labels), "foolbox:pgd", clean, adv, labels)
    writer.clean("b", other, labels, data=data, digest=digest)
    if alike:
        (row,) = build_defence(writer.store.folder, "a", "b", metrics=["CAV"]).rows
        assert row.metrics["CAV"].n == 40
    else:
        with pytest.raises(InvalidInput, match=r"no images in common \(demo \(40\) and npz \(40\)\)"):
            build_defence(writer.store.folder, "a", "b")


def test_defences_that_cannot_be_compared(writer, case):
    labels, clean, *_ = case
    write_two(writer, case)
    writer.clean("short", clean[:9], labels[:9])
    writer.clean("wide", torch.cat([clean, clean[:, :1] - 9], 1), labels)
    for other, error, named in (
        ("c", UnknownName, "model 'c'"), ("short", InvalidInput, "in common"), ("wide", InvalidInput, "same classes")
    ):  # fmt: skip
        with pytest.raises(error, match=named):
            build_defence(writer.store.folder, "a", other)
    with pytest.raises(Unsupported, match="one model"):
        build_defence(writer.store.folder, "a", "b", metrics=["MR"])


def test_violations_that_a_record_of_0_1_0_calls_successes_are_shown(writer):
    labels = torch.zeros(12, dtype=torch.int64)
    clean = torch.tensor([[5.0, 0]]).repeat(12, 1)
    subject = writer.clean("a", clean, labels)
    writer.cell(subject, "foolbox:pgd", clean, clean.flip(1), labels, violations=np.array(["out-of-bounds"] * 12))
    (row,) = build_table(writer.store.folder, metrics=["MR"]).rows
    assert row.labels["violations"] == 12

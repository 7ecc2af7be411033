"""What the first sentences may claim: every number is worked out again from the columns, by SciPy and by hand."""

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from davylamp.adapters import ThreatModel
from davylamp.engine import ResultsStore
from davylamp.engine.attack_run import AttackRun, ModelOnData
from davylamp.engine.checks.standings import rank_attacks, rank_models
from davylamp.engine.store.data_frames import load_outcomes
from davylamp.engine.store.results import CleanResult, Results, RunResult
from davylamp.engine.tables.table import build_table
from davylamp.report.parts.sentences import say_best_models, say_strongest_attacks
from davylamp.report.sections.ranking import _rank
from davylamp.report.sections.verdict import draw_standing
from davylamp.scoring import build_responses

IMAGES = 20
BALL, AIMED, SMALLEST = ThreatModel("linf", 4 / 255), ThreatModel("linf", 4 / 255, targeted=True), ThreatModel("l2")
NONE, ALL = np.zeros(IMAGES, bool), np.ones(IMAGES, bool)
PGD, OTHER_PGD, FGSM, DEEPFOOL = "foolbox:pgd", "torchattacks:pgd", "torchattacks:fgsm", "foolbox:deepfool"


def cell(model, attack, threat_model=BALL, **settings):
    subject = ModelOnData(model, f"digest-{model}", "synthetic", "pixels", IMAGES)
    return AttackRun(
        subject, attack, threat_model, {"steps": 10}, target="random" if threat_model.targeted else "", **settings
    )


def outcome(of, success, *, violated=NONE, right=ALL, shares=None, distance=None):
    """A finished cell, with the columns that the engine writes."""
    violated = violated & right
    success = success & right & ~violated
    rate = np.where(right, np.where(violated, 0.0, success if shares is None else shares), np.nan)
    columns = {
        "label": np.arange(IMAGES) % 10,
        "image": np.array([f"{place:02d}.png" for place in range(IMAGES)]),
        "attacked": right,
        "success": success,
        "violated": violated,
        "robust": right & ~success & ~violated,
        "violations": np.where(violated, "no-start", ""),
        "distance": np.where(right, np.where(success, distance if distance is not None else 0.01, np.inf), 0.0),
        "linf": np.zeros(IMAGES),
        "l2": np.zeros(IMAGES),
        "TAS" if of.threat_model.targeted else "MR": rate,
    }
    if shares is not None:
        columns["draws_fooled"] = np.where(right & ~violated, shares, 0.0)
    return RunResult(of, columns)


def folder(tmp_path, *done, failed=(), accuracy=None):
    clean = {}
    for each in done:
        label, right = each.columns["label"], each.columns["attacked"]
        columns = {"label": label, "predicted": np.where(right, label, label + 1)}
        columns["CA"] = right.astype(float) if accuracy is None else accuracy
        clean[each.cell.subject.key] = CleanResult(each.cell.subject, columns, torch.zeros(IMAGES, 10))
    reasons = tuple((each, "boom") for each in failed)
    return Results(ResultsStore(tmp_path), done, reasons, (), clean, (), None)


def answers(outcomes):
    standings = rank_models(outcomes, ())
    said = say_best_models(outcomes, standings)
    return standings, [" ".join(part for part in (line.lead, line.text, line.proof) if part) for line in said]


def strongest(outcomes):
    return [
        " ".join(part for part in (line.lead, line.text, line.proof) if part)
        for line in say_strongest_attacks(rank_attacks(outcomes))
    ]


def exact_ends(count):
    """Clopper and Pearson's interval of a count of the images, by SciPy."""
    return stats.binomtest(count, IMAGES).proportion_ci(method="exact")


def first(count):
    return np.arange(IMAGES) < count


def test_an_attack_that_failed_on_one_model_tells_no_models_apart(tmp_path):
    done = [outcome(cell(model, FGSM), first(2)) for model in "AB"] + [outcome(cell("B", PGD), ALL)]
    outcomes = folder(tmp_path, *done, failed=[cell("A", PGD)])
    (standing,), (line,) = answers(outcomes)
    robust = [~each.columns["success"] for each in done[:2]]
    assert (robust[0] == robust[1]).all()  # of what both met
    assert line.startswith(
        "A and B tie: each classifies 90 % of its 20 images correctly under the 1 attack that ran on both"
    )
    assert "Significantly" not in line
    assert "under every attack" not in line
    assert "Omitted: foolbox:pgd (no result on A)." in line
    bars = draw_standing(standing, 0)
    assert [bar.value for bar in bars.bars] == [each.mean() for each in robust]
    assert "under the 1 attack that ran on both" in bars.caption
    assert not any("every attack" in text for _, text in bars.legend)


def test_a_random_model_is_ranked_on_the_page_by_its_draws(tmp_path):
    """By majority it would withstand all 20 images; by its draws 12, less than the other's 16."""
    shares = np.full(IMAGES, 0.4)
    done = [outcome(cell("A", FGSM), first(4)), outcome(cell("B", FGSM), ~ALL, shares=shares)]
    read: Any = SimpleNamespace(outcomes=folder(tmp_path, *done), model=lambda each: each.cell.subject.model)
    ranking, _ = _rank(build_responses(load_outcomes(read.outcomes), "models"), 0)
    assert ranking.mean == pytest.approx([0.8, 0.6])


def test_models_that_met_nothing_in_common_have_no_order_here_and_in_rank(tmp_path):
    done = [outcome(cell("A", FGSM), first(2)), outcome(cell("B", PGD), ALL)]
    outcomes = folder(tmp_path, *done, failed=[cell("A", PGD), cell("B", FGSM)])
    (standing,), (line,) = answers(outcomes)
    assert standing.places == ()
    assert line == (
        "linf 4/255: no attack has a result on both, so there is no test and no rank (A: torchattacks:fgsm; "
        "B: foolbox:pgd)."
    )
    frame = load_outcomes(outcomes)
    with pytest.raises(ValueError, match="no results in common"):
        build_responses(frame, "models")


@pytest.mark.parametrize("change", [{"seed": 1}, {"parameters": {"steps": 99}}])
def test_what_ran_otherwise_is_another_attack(tmp_path, change):
    done = [outcome(cell(model, PGD), first(2)) for model in "AB"]
    one = cell("B", PGD)
    many = AttackRun(one.subject, PGD, BALL, change.get("parameters", one.parameters), seed=change.get("seed", 0))
    _, (line,) = answers(folder(tmp_path, *done, outcome(many, ALL)))
    assert "A and B tie: each classifies 90 %" in line
    assert "Omitted: foolbox:pgd with other settings or a different seed (no result on A)." in line


def test_under_every_attack_is_only_said_where_every_attack_has_a_result(tmp_path):
    done = outcome(cell("A", FGSM), first(2))
    assert "correctly under every attack" in answers(folder(tmp_path, done))[1][0]
    _, (line,) = answers(folder(tmp_path, done, failed=[cell("A", PGD)]))
    assert "A classifies 90 % of its 20 images correctly under the 1 attack that has a result" in line
    other_ball = AttackRun(cell("A", PGD).subject, PGD, ThreatModel("linf", 8 / 255), {"steps": 10})
    assert "correctly under every attack" in answers(folder(tmp_path, done, failed=[other_ball]))[1][0]


def test_results_that_broke_a_rule_make_no_model_less_robust(tmp_path):
    broken, hit = first(8), np.arange(IMAGES) == IMAGES - 1
    outcomes = folder(tmp_path, outcome(cell("A", PGD), NONE, violated=broken), outcome(cell("B", PGD), hit))
    (standing,), (line,) = answers(outcomes)
    a, b = (place.kept for place in standing.places)
    assert [place.name for place in standing.places] == ["A", "B"]
    assert (a.value, a.least, a.most, a.undecided) == (12 / 12, 12 / 20, 20 / 20, 8)
    assert (a.low, a.high) == pytest.approx((exact_ends(12).low, exact_ends(20).high))  # both bounds
    assert (b.value, b.low, b.high) == pytest.approx((19 / 20, *exact_ends(19)))
    decided = ~broken  # on both
    p = stats.binomtest(0, int((hit & decided).sum())).pvalue
    assert standing.places[1].p == p
    assert standing.places[1].pairs == decided.sum()
    assert "Significantly different" not in line
    assert "100 % of its 12 decided images" in line
    assert "8 of 20 are undecided" in line
    assert "60 % of all if they are fooled, 100 % if not; 95 % interval 36 to 100 %" in line
    assert f"exact McNemar p = {p:.2g}" in line
    assert "Compared on the images decided for both models: 12." in line
    bars = draw_standing(standing, 0)
    assert bars.bars[0].text == "100 % (36 to 100 %), 8 undecided"
    assert "undecided" in bars.legend[0][1]
    table = build_table(outcomes, by="models", metrics=["RA"], bootstrap=0)
    assert [row.metrics["RA"].value for row in table.rows] == [a.least, b.least]


def test_another_attack_decides_what_one_left_undecided(tmp_path):
    """Violated by one and fooled by another is fooled; wrong when clean is decided, too."""
    right, broken, hit = ~first(2), first(10), (np.arange(IMAGES) % 2).astype(bool)
    done = [outcome(cell("A", PGD), NONE, violated=broken, right=right), outcome(cell("A", FGSM), hit, right=right)]
    (standing,), _ = answers(folder(tmp_path, *done))
    kept = standing.places[0].kept
    fooled, robust = ~right | (right & hit), right & ~hit & ~broken
    undecided = ~fooled & ~robust
    assert (int(fooled.sum()), int(robust.sum()), int(undecided.sum())) == (11, 5, 4)
    assert (kept.value, kept.least, kept.most, kept.undecided) == (5 / 16, 5 / 20, 9 / 20, 4)


def test_a_claim_that_undecided_images_could_turn_round_says_so(tmp_path):
    decided = first(8)
    done = [outcome(cell("A", PGD), NONE, violated=~decided), outcome(cell("B", PGD), decided)]
    (standing,), (line,) = answers(folder(tmp_path, *done))
    p = stats.binomtest(8, 8).pvalue
    assert f"Significantly different from B (60 %): exact McNemar p = {p:.2g}." in line
    assert standing.places[0].kept.least < standing.places[1].kept.value
    assert "The undecided images could reverse this order: B." in line


def test_where_no_image_is_decided_nobody_is_first(tmp_path):
    _, (line,) = answers(folder(tmp_path, *(outcome(cell(model, PGD), NONE, violated=ALL) for model in "AB")))
    assert line.startswith("linf 4/255: every image is undecided")
    done = [outcome(cell("A", PGD), NONE, violated=ALL), outcome(cell("B", PGD), NONE)]
    _, (line,) = answers(folder(tmp_path, *done))
    assert line.startswith("B classifies 100 %")
    assert "No image is decided for both with A, so no paired test is possible." in line


def test_the_interval_of_a_median_covers_what_is_undecided(tmp_path):
    far, broken = np.linspace(1, 3, IMAGES), first(4)
    (standing,), (line,) = answers(
        folder(tmp_path, outcome(cell("A", DEEPFOOL, SMALLEST), ~broken, violated=broken, distance=far))
    )
    kept = standing.places[0].kept
    worst, best = np.sort(np.where(broken, 0, far)), np.sort(np.where(broken, np.inf, far))
    assert kept.value == np.median(far[~broken])
    assert (kept.low, kept.high) == (worst[5], best[14])  # the 6th and the 15th of 20 cover 95.9 %
    assert "over its 16 decided images" in line
    assert "4 of 20 are undecided" in line


def test_a_random_model_has_one_share_on_a_page(tmp_path):
    rng = np.random.default_rng(0)
    shares = {attack: rng.integers(0, 6, IMAGES) / 5 for attack in (PGD, FGSM)}
    done = [outcome(cell("A", attack, draws=5), each >= 0.5, shares=each) for attack, each in shares.items()]
    done += [outcome(cell("B", attack), first(15)) for attack in shares]
    accuracy = np.where(first(3), 0.8, 1.0)
    outcomes = folder(tmp_path, *done, accuracy=accuracy)
    (standing,), (line,) = answers(outcomes)
    robust = 1 - np.maximum(*shares.values())
    flags = np.maximum(*shares.values()) < 0.5
    assert abs(robust.mean() - flags.mean()) > 0.05  # so that it matters
    place = next(place for place in standing.places if place.name == "A")
    assert place.kept.value == pytest.approx(robust.mean())
    table = build_table(outcomes, by="models", metrics=["CA", "RA"])
    estimate, clean = (table.rows[0].metrics[symbol] for symbol in ("RA", "CA"))
    assert (place.kept.value, place.kept.low, place.kept.high) == pytest.approx(estimate[:3])
    assert place.clean == pytest.approx(clean.value)
    assert clean.value == pytest.approx(accuracy.mean())
    other = ~first(15)
    only = int((flags & ~other).sum()), int((other & ~flags).sum())
    p = stats.binomtest(only[0], sum(only)).pvalue
    ahead = flags.sum() > other.sum()
    assert standing.places[1].p == pytest.approx(p if ahead == (standing.places[0].name == "A") else 1)
    assert "exact McNemar by the majority of samples p = " in line
    bar = next(bar for bar in draw_standing(standing, 0).bars if bar.label == "A")
    assert bar.value == pytest.approx(robust.mean())


def test_an_attack_is_not_the_strongest_by_the_images_that_it_broke_a_rule_on(tmp_path):
    """PGD fools all that it did not break on, a quarter of all; the other fools half."""
    broken, hit = first(10), {"A": np.arange(IMAGES) % 2 == 0, "B": np.arange(IMAGES) % 2 == 1}
    done = [outcome(cell(model, PGD), hit[model], violated=broken) for model in "AB"]
    done += [outcome(cell(model, OTHER_PGD), hit[model]) for model in "AB"]
    outcomes = folder(tmp_path, *done)
    (line,) = strongest(outcomes)
    fooled = {
        attack: np.mean([each.columns["success"] for each in done if each.cell.attack == attack])
        for attack in (PGD, OTHER_PGD)
    }
    table = build_table(outcomes, by="attacks", metrics=["MR"])
    assert {row.labels["implementation"]: row.metrics["MR"].value for row in table.rows} == fooled
    assert fooled == {PGD: 0.25, OTHER_PGD: 0.5}
    assert line.startswith(f"{OTHER_PGD} fools 50 % of 40 attacked images of 2 models (95 % interval")
    assert f"Not significantly different from {PGD} (25 %)" in line
    assert f"count as not fooled and are excluded from the tests: {PGD} 20." in line
    (alone,) = strongest(folder(tmp_path, *done[:2]))
    assert alone.startswith(f"{PGD} fools 25 % of 40 attacked images of 2 models")
    assert "20 results are invalid and count as not fooled" in alone


def test_the_rate_of_the_strongest_is_that_of_the_table(tmp_path):
    """Over seeds, over models that are right on other images, and over draws."""
    rng = np.random.default_rng(1)
    done = []
    for model in "ABC":
        right, shares = rng.random(IMAGES) < 0.9, rng.integers(0, 6, IMAGES) / 5
        done += [outcome(cell(model, PGD, seed=seed), rng.random(IMAGES) < 0.6, right=right) for seed in (0, 1)]
        done += [outcome(cell(model, FGSM, draws=5), shares >= 0.5, shares=shares, right=right)]
    outcomes = folder(tmp_path, *done)
    (line,) = strongest(outcomes)
    rows = {row.labels["implementation"]: row for row in build_table(outcomes, by="attacks", metrics=["MR"]).rows}
    name, row = max(rows.items(), key=lambda item: item[1].metrics["MR"].value)
    value, low, high = (f"{100 * number:.0f}" for number in row.metrics["MR"][:3])
    attacked = sum(int(each.columns["attacked"].sum()) for each in done if each.cell.attack == FGSM)
    text = f"{name} fools {value} % of {attacked} attacked images of 3 models (95 % interval {low} to {high} %"
    assert line.startswith(text)


def test_the_other_that_is_ahead_image_by_image_is_not_called_behind(tmp_path):
    """What is left of the first, its violations aside, fools fewer images than the other does on the same ones."""
    broken = first(10)
    done = [outcome(cell("A", PGD), ~broken, violated=broken), outcome(cell("A", FGSM), first(12))]
    (line,) = strongest(folder(tmp_path, *done))
    assert line.startswith(f"{FGSM} fools 60 % of 20 attacked images")
    assert f"Not significantly different from {PGD} (50 %): sign test p = 1" in line


@pytest.mark.parametrize(("hit", "share"), [(ALL, 0), (NONE, 100)])
def test_models_of_which_nothing_or_everything_is_left_tie(tmp_path, hit, share):
    done = [outcome(cell(model, attack), hit) for model in "AB" for attack in (PGD, OTHER_PGD)]
    outcomes = folder(tmp_path, *done)
    (standing,), (line,) = answers(outcomes)
    assert [bar.value for bar in draw_standing(standing, 0).bars] == [share / 100] * 2
    assert line.startswith(f"A and B tie: each classifies {share} % of its 20 images correctly under every attack")
    assert "ranks first" not in line
    assert "exact McNemar p = 1" in line
    (attack,) = strongest(outcomes)
    if share:
        assert attack == "linf 4/255: no attack fools any of the 40 attacked images."
    else:
        assert attack.startswith(f"{PGD} and {OTHER_PGD} tie: each fools 100 % of 40 attacked images of 2 models")


def test_those_behind_a_tie_are_tested_against_all_that_share_it(tmp_path):
    """C is told from A by 7 images to 0, but from B by 7 to 0 in other places: the larger p counts."""
    hits = {"A": first(4), "B": ~first(16), "C": first(14)}
    outcomes = folder(tmp_path, *(outcome(cell(model, PGD), hit) for model, hit in hits.items()))
    (standing,), (line,) = answers(outcomes)
    assert line.startswith("A and B tie for the first place: each classifies 80 % of its 20 images")

    def p(one, two):
        only = int((~hits[one] & hits[two]).sum()), int((~hits[two] & hits[one]).sum())
        return stats.binomtest(only[0], sum(only)).pvalue

    assert standing.places[2].p == pytest.approx(max(p("A", "C"), p("B", "C")))
    assert p("A", "C") < p("B", "C")


def test_nothing_needs_the_largest_change_where_no_change_was_found(tmp_path):
    done = [outcome(cell(model, DEEPFOOL, SMALLEST), NONE) for model in "AB"]
    _, (line,) = answers(folder(tmp_path, *done))
    assert "largest change" not in line
    assert line.startswith(
        "A and B tie: each is fooled on none of its 20 images by any attack, so the median is unknown"
    )
    done[0] = outcome(cell("A", DEEPFOOL, SMALLEST), first(8), distance=np.full(IMAGES, 0.5))
    _, (line,) = answers(folder(tmp_path, *done))  # no median here either, but B is left alone on more images
    p = stats.binomtest(8, 8).pvalue
    assert line.startswith("B is fooled on none of its 20 images")
    assert f"Significantly different from A (12 of 20 never fooled): sign test p = {p:.2g}" in line
    same = [outcome(cell(model, DEEPFOOL, SMALLEST), ALL, distance=np.linspace(0.1, 1, IMAGES)) for model in "AB"]
    _, (line,) = answers(folder(tmp_path, *same))
    assert line.startswith("A and B tie: each needs a change of 0.55 in the median over its 20 images")


def test_a_targeted_attack_is_said_to_reach_its_target_or_not(tmp_path):
    """Two images are misclassified, but not as the target: they count as not driven there, and the sentence says it."""
    reached = first(5)
    done = [outcome(cell("A", PGD, AIMED), reached), outcome(cell("A", OTHER_PGD, AIMED), first(3))]
    outcomes = folder(tmp_path, *done)
    (standing,), (line,) = answers(outcomes)
    share = 100 * (1 - reached.mean())
    assert line.startswith(
        f"A is correct when clean and does not predict the target on {share:.0f} % of its 20 images under"
    )
    assert not re.search(r"classifies|images correctly", line)
    bars = draw_standing(standing, 0)
    assert bars.caption.startswith("Images on which no attack reaches the target: linf 4/255, targeted")
    assert bars.legend[0][1].startswith("correct when clean and not classified as the target under every attack")
    assert "robust" not in str(bars.legend)
    (attack,) = strongest(outcomes)
    table = build_table(outcomes, by="attacks", metrics=["TAS"], bootstrap=0)
    assert max(row.metrics["TAS"].value for row in table.rows) == reached.mean()
    assert attack.startswith(f"{PGD} reaches the target on 25 % of 20 attacked images")
    assert "linf 4/255, targeted, ranked by how often the target is reached." in attack
    (none,) = strongest(folder(tmp_path, outcome(cell("A", PGD, AIMED), NONE)))
    assert none == "linf 4/255, targeted: no attack reaches the target on any of the 20 attacked images."


def test_a_targeted_search_is_said_to_reach_its_target(tmp_path):
    aimed = ThreatModel("l2", targeted=True)
    done = [outcome(cell(model, DEEPFOOL, aimed), ALL, distance=np.linspace(far, 2, IMAGES)) for model, far in
            (("A", 1), ("B", 1.5))]  # fmt: skip
    (standing,), (line,) = answers(folder(tmp_path, *done))
    assert line.startswith("B needs the largest change to the target over its 20 images: median 1.75")
    assert draw_standing(standing, 0).caption.startswith("Change needed to reach the target")


def test_where_no_image_or_few_are_decided_under_both_attacks_that_is_said(tmp_path):
    pgd, fgsm = (cell("a", name) for name in ("foolbox:pgd", "torchattacks:fgsm"))
    nothing = folder(tmp_path / "0", outcome(pgd, ALL), outcome(fgsm, NONE, violated=ALL))
    (said,) = say_strongest_attacks(rank_attacks(nothing))
    assert "No test, because no image is decided under both foolbox:pgd and torchattacks:fgsm." in said.proof
    assert "p =" not in said.proof
    few = folder(tmp_path / "1", outcome(pgd, ALL), outcome(fgsm, NONE, violated=~first(4)))
    (said,) = say_strongest_attacks(rank_attacks(few))
    assert "sign test p = 0.12; 4 images are too few for a significant difference; at least 6 are needed" in said.proof


def test_unrestricted_attacks_rank_models_by_what_they_fool_not_by_how_far_they_went(tmp_path):
    blur = ThreatModel("unrestricted")
    far, near = np.full(IMAGES, 9.0), np.full(IMAGES, 1.0)
    done = [
        outcome(cell("a", "foolbox:blur", blur), ALL, distance=far),
        outcome(cell("b", "foolbox:blur", blur), first(4), distance=near),
    ]
    (standing,), (said,) = answers(folder(tmp_path, *done))
    assert [(place.name, place.kept.value) for place in standing.places] == [("b", 1 - 4 / IMAGES), ("a", 0)]
    assert "change" not in said

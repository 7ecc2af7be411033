"""What the page says first: nothing sound is said of what is missing, failed or at chance."""

from pathlib import Path

import numpy as np
import pytest
import torch

from davylamp.adapters import ThreatModel
from davylamp.engine import ResultsStore
from davylamp.engine.attack_run import AttackRun, ModelOnData
from davylamp.engine.checks.check_folder import check_completeness, models_at_chance
from davylamp.engine.checks.standings import rank_attacks, rank_models
from davylamp.engine.store.results import CleanResult, Results, RunResult
from davylamp.intervals import median_interval
from davylamp.report.parts.sentences import say_best_models, say_strongest_attacks

CLASSES = 10


def subject(model, images=40):
    return ModelOnData(model, f"digest-{model}", "demo", "pixels", images)


def clean(model, right):
    label = np.zeros(model.images, int)
    return CleanResult(model, {"label": label, "predicted": np.where(right, 0, 1)}, torch.zeros(model.images, CLASSES))


def outcome(model, robust, attack="foolbox:pgd"):
    columns = {"robust": robust, "attacked": np.ones(len(robust), bool), "violated": np.zeros(len(robust), bool)}
    columns |= {"success": ~robust, "distance": np.zeros(len(robust)), "violations": np.full(len(robust), "")}
    return RunResult(AttackRun(model, attack, ThreatModel("linf", 4 / 255)), columns)


def folder(done=(), right=None, *, failed=(), running=(), waiting=(), tmp: Path):
    """Outcomes of models by name and robust images; `right` images when clean, all if not given."""
    outcomes = [outcome(subject(model, len(robust)), np.array(robust, bool)) for model, robust in done]
    cleans = {}
    for each in outcomes:
        known = (right or {}).get(each.cell.subject.model, np.ones(each.cell.subject.images, bool))
        cleans[each.cell.subject.key] = clean(each.cell.subject, np.array(known, bool))
    return Results(
        ResultsStore(tmp), tuple(outcomes), tuple(failed), tuple(running), cleans, (), {}, tuple(waiting)
    )  # fmt: skip


def judge_first_places(outcomes):
    """Each sentence with its lead and its small print, as a reader sees it."""
    said = say_best_models(outcomes, rank_models(outcomes, models_at_chance(outcomes)))
    return [" ".join(part for part in (line.lead, line.text, line.proof) if part) for line in said]


def judge_strongest(outcomes):
    return say_strongest_attacks(rank_attacks(outcomes))


def write_caveats(outcomes):
    """What forbids to read the folder as a finished evaluation of sound models; these have few images on purpose."""
    return [each.detail for each in check_completeness(outcomes) if each.name not in ("complete", "few-images")]


def cell(model):
    return AttackRun(subject(model), "art:pgd", ThreatModel("linf", 4 / 255))


def test_a_lonely_model_is_only_called_so_if_it_is(tmp_path):
    alone = folder([("a", [1] * 20 + [0] * 20)], tmp=tmp_path)
    assert judge_first_places(alone) == [
        "a classifies 50 % of its 40 images correctly under every attack (95 % interval 34 to 66 %); linf 4/255. "
        "It is the only model."
    ]
    assert write_caveats(alone) == []


def test_a_model_on_two_sets_of_images_is_alone(tmp_path):
    twice = folder([("a", [1] * 20 + [0] * 20), ("a", [1] * 2 + [0] * 8)], tmp=tmp_path)
    assert len(twice.subjects) == 2
    lines = judge_first_places(twice)
    assert lines
    assert not any("other model" in line for line in lines)


@pytest.mark.parametrize("state", ["failed", "running", "waiting"])
def test_an_unfinished_folder_does_not_say_that_a_model_is_alone(tmp_path, state):
    others = [(cell("b"), "out of memory")] if state == "failed" else [cell("b")]
    partly = folder([("a", [1] * 20 + [0] * 20)], **{state: others}, tmp=tmp_path)
    (line,) = judge_first_places(partly)
    assert "only model" not in line
    assert "1 other model cannot be compared with it" in line
    caveats = " ".join(write_caveats(partly))
    if state == "failed":
        assert "1 run failed and is not counted (art:pgd on b: out of memory)" in caveats
        assert "b: no run has a result, so its robustness is unknown." in caveats
    else:
        assert "Not finished: 1 of 2 runs have no result yet" in caveats


def test_a_model_at_chance_is_never_first(tmp_path):
    lucky = [1] * 5 + [0] * 35  # a tenth of the classes is a tenth of the images
    outcomes = folder([("a", [0] * 40), ("guess", lucky)], {"guess": lucky}, tmp=tmp_path)
    assert [key.partition("-")[0] for key in models_at_chance(outcomes)] == [
        outcomes.done[1].cell.subject.key.partition("-")[0]
    ]
    assert "guess" not in judge_first_places(outcomes)[0]
    (caveat,) = write_caveats(outcomes)
    assert caveat.startswith("guess: 5 of 40 clean images correct")
    assert "not distinguishable from guessing one of 10 classes" in caveat
    alone = folder([("guess", lucky)], {"guess": lucky}, tmp=tmp_path)
    assert judge_first_places(alone)[0].endswith("at chance accuracy, so there is no first place.")


def test_nothing_is_told_apart_that_the_test_cannot_tell_apart(tmp_path):
    few = folder([("a", [1] * 4), ("b", [0] * 4)], {"a": [1] * 4, "b": [1] * 4}, tmp=tmp_path)
    (line,) = judge_first_places(few)
    assert "ranks first, but not significantly" in line
    assert "Not significantly different from b (0 %)" in line
    assert "with 4 images, no outcome can be significant: at least 6 are needed, 2 more" in line


def test_the_same_share_is_no_level(tmp_path):
    (line,) = judge_first_places(folder([("a", [1] * 10 + [0] * 30), ("b", [0] * 30 + [1] * 10)], tmp=tmp_path))
    assert line.startswith("a and b tie: each classifies 25 % of its 40 images")
    assert "Not significantly different: exact McNemar p = 1" in line
    assert "level" not in line
    assert "with 40 images, only differences of at least 6 images can be detected" in line
    same = [1] * 60 + [0] * 60
    (line,) = judge_first_places(folder([("a", same), ("b", same)], tmp=tmp_path))
    assert "equivalent within 5%" in line


def test_a_difference_that_counts_is_said(tmp_path):
    (line,) = judge_first_places(folder([("a", [1] * 40), ("b", [1] * 30 + [0] * 10)], tmp=tmp_path))
    assert line.startswith(
        "a classifies 100 % of its 40 images correctly under every attack (95 % interval 91 to 100 %)"
    )
    assert line.endswith("Significantly different from b (75 %): exact McNemar p = 0.002.")


def test_the_first_of_many_is_tested_against_each_other(tmp_path):
    models = [("a", [1] * 40), ("b", [1] * 38 + [0] * 2), ("c", [0] * 40), ("d", [1] * 20 + [0] * 20)]
    (line,) = judge_first_places(folder(models, tmp=tmp_path))
    assert "a ranks first, but not significantly" in line
    assert "1 of the 3 others does not differ significantly from it: b" in line
    clear = [("a", [1] * 40), ("b", [1] * 30 + [0] * 10), ("c", [0] * 40)]
    (line,) = judge_first_places(folder(clear, tmp=tmp_path))
    assert "Significantly different from each of the 2 others: largest exact McNemar p = 0.002." in line


def smallest(model, distance):
    """A model whose images fall to a search at these distances; infinite: they do not."""
    distance = np.array(distance, float)
    columns = {"distance": distance, "success": np.isfinite(distance), "attacked": np.ones(len(distance), bool)}
    columns |= {
        "robust": ~columns["success"],
        "violated": ~columns["attacked"],
        "violations": np.full(len(distance), ""),
    }
    return RunResult(AttackRun(subject(model, len(distance)), "foolbox:deepfool", ThreatModel("l2")), columns)


def test_smallest_changes_are_compared_by_their_medians_and_a_sign_test(tmp_path):
    far, near = np.linspace(2, 3, 21), np.linspace(1, 2, 21)
    outcomes = Results(ResultsStore(tmp_path), (smallest("a", near), smallest("b", far)), (), (), {}, (), {})
    (line,) = judge_first_places(outcomes)
    assert line.startswith("b needs the largest change over its 21 images: median 2.5 (95 % interval 2.25 to 2.75)")
    p = 2 * 0.5**21  # every image says the same
    assert f"Significantly different from a (1.5): sign test p = {p:.2g}" in line
    never = Results(ResultsStore(tmp_path), (smallest("a", [np.inf] * 21), smallest("b", far)), (), (), {}, (), {})
    assert judge_first_places(never)[0].startswith(
        "a is fooled on none of its 21 images by any attack, so the median is unknown"
    )


def test_the_median_of_a_model_says_over_which_images_it_is(tmp_path):
    """Over all, 0 where wrong when clean: 4 of 20 images at 0, the others up to 1.6, give 0.65 and not 0.85."""
    changes = np.array([0.0] * 4 + [0.1 * place for place in range(1, 17)])
    wrong = smallest("a", changes)
    columns = {"label": np.zeros(20, int), "predicted": (changes == 0).astype(int)}
    clean = {wrong.cell.subject.key: CleanResult(wrong.cell.subject, columns, torch.zeros(20, 2))}
    (line,) = judge_first_places(Results(ResultsStore(tmp_path), (wrong,), (), (), clean, (), {}))
    assert "needs a change of 0.65 in the median over its 20 images, 0 if misclassified when clean (95 %" in line
    (line,) = judge_first_places(Results(ResultsStore(tmp_path), (smallest("a", changes + 1),), (), (), {}, (), {}))
    assert "wrong when clean" not in line


def test_the_interval_of_a_median_is_that_of_order_statistics():
    assert median_interval(np.arange(1.0, 22.0)) == (11, 6, 16)  # of 21: the 6th and the 16th cover 97.3 %
    assert np.isnan(median_interval(np.arange(5.0))[1])  # no two of 5 cover 95 %


def test_the_strongest_attack_is_named_with_what_it_is_not_told_apart_from(tmp_path):
    model, hit = subject("a"), np.array([1] * 30 + [0] * 10, bool)
    attacks = {"foolbox:pgd": hit, "art:pgd": np.roll(hit, 1), "foolbox:fgsm": np.zeros(40, bool)}
    done = tuple(outcome(model, ~success, attack) for attack, success in attacks.items())
    (said,) = judge_strongest(Results(ResultsStore(tmp_path), done, (), (), {}, (), {}))
    assert said.lead == "art:pgd and foolbox:pgd"
    assert said.text.startswith("tie for the first place: each fools 75 % of 40 attacked images (95 % interval")
    assert said.proof == f"More than foolbox:fgsm (0 %): sign test p = {2 * 0.5**30:.2g}."
    (said,) = judge_strongest(Results(ResultsStore(tmp_path), done[1:], (), (), {}, (), {}))
    assert said.proof == f"More than foolbox:fgsm (0 %): sign test p = {2 * 0.5**30:.2g}."
    (said,) = judge_strongest(Results(ResultsStore(tmp_path), done[2:], (), (), {}, (), {}))
    assert "no attack fools any of the 40 attacked images" in said.text


def test_attacks_that_met_other_models_are_not_rivals(tmp_path):
    hit = np.ones(40, bool)
    met = [(subject("a"), "art:pgd", hit), (subject("b"), "art:pgd", hit), (subject("a"), "foolbox:pgd", hit)]
    done = tuple(outcome(model, ~success, attack) for model, attack, success in met)
    (said,) = judge_strongest(Results(ResultsStore(tmp_path), done, (), (), {}, (), {}))
    assert (said.lead, said.proof) == (
        "art:pgd",
        "No other attack was run on the same models. 1 run on other models is omitted.",
    )
    assert "80 attacked images of 2 models" in said.text

"""What the page says first: nothing sound is said of what is missing, failed or at chance."""

from pathlib import Path

import numpy as np
import pytest
import torch

from davylamp.adapters import ThreatModel
from davylamp.engine import ResultsStore
from davylamp.engine.cell import Cell, ModelOnData
from davylamp.engine.store.outcomes import Clean, Outcome, Outcomes
from davylamp.report.parts.headline import find_chance, judge_first_places, write_caveats

CLASSES = 10


def subject(model, images=40):
    return ModelOnData(model, f"digest-{model}", "demo", "pixels", images)


def clean(model, right):
    label = np.zeros(model.images, int)
    return Clean(model, {"label": label, "predicted": np.where(right, 0, 1)}, torch.zeros(model.images, CLASSES))


def outcome(model, robust, attack="foolbox:pgd"):
    columns = {"robust": robust, "attacked": np.ones(len(robust), bool), "violated": np.zeros(len(robust), bool)}
    columns |= {"success": ~robust, "distance": np.zeros(len(robust)), "violations": np.full(len(robust), "")}
    return Outcome(Cell(model, attack, ThreatModel("linf", 4 / 255)), columns)


def folder(done=(), right=None, *, failed=(), running=(), waiting=(), tmp: Path):
    """Outcomes of models by name and robust images; `right` images when clean, all if not given."""
    outcomes = [outcome(subject(model, len(robust)), np.array(robust, bool)) for model, robust in done]
    cleans = {}
    for each in outcomes:
        known = (right or {}).get(each.cell.subject.model, np.ones(each.cell.subject.images, bool))
        cleans[each.cell.subject.key] = clean(each.cell.subject, np.array(known, bool))
    return Outcomes(
        ResultsStore(tmp), tuple(outcomes), tuple(failed), tuple(running), cleans, (), {}, tuple(waiting)
    )  # fmt: skip


def cell(model):
    return Cell(subject(model), "art:pgd", ThreatModel("linf", 4 / 255))


def test_a_lonely_model_is_only_called_so_if_it_is(tmp_path):
    alone = folder([("a", [1] * 20 + [0] * 20)], tmp=tmp_path)
    assert judge_first_places(alone) == [
        "linf 4/255: a keeps 0.5 of its images in the worst case; it is the only model."
    ]
    assert write_caveats(alone) == []


@pytest.mark.parametrize("state", ["failed", "running", "waiting"])
def test_an_unfinished_folder_does_not_say_that_a_model_is_alone(tmp_path, state):
    others = [(cell("b"), "out of memory")] if state == "failed" else [cell("b")]
    partly = folder([("a", [1] * 20 + [0] * 20)], **{state: others}, tmp=tmp_path)
    (line,) = judge_first_places(partly)
    assert "only model" not in line
    assert "1 other model cannot be compared with it" in line
    caveats = " ".join(write_caveats(partly))
    if state == "failed":
        assert "1 cell failed and count for nobody (art:pgd on b: out of memory)" in caveats
        assert "b: no cell has a result, so nothing is known of its robustness." in caveats
    else:
        assert "Not finished: 1 of 2 cells have no result yet" in caveats


def test_a_model_at_chance_is_never_first(tmp_path):
    lucky = [1] * 5 + [0] * 35  # a tenth of the classes is a tenth of the images
    outcomes = folder([("a", [0] * 40), ("guess", lucky)], {"guess": lucky}, tmp=tmp_path)
    assert [key.partition("-")[0] for key in find_chance(outcomes)] == [
        outcomes.done[1].cell.subject.key.partition("-")[0]
    ]
    assert "guess" not in judge_first_places(outcomes)[0]
    (caveat,) = write_caveats(outcomes)
    assert caveat.startswith("guess: right on 5 of 40 clean images")
    assert "cannot be told from guessing one of 10 classes" in caveat
    alone = folder([("guess", lucky)], {"guess": lucky}, tmp=tmp_path)
    assert judge_first_places(alone)[0].endswith("at chance when clean: there is no first place.")


def test_nothing_is_told_apart_that_the_test_cannot_tell_apart(tmp_path):
    few = folder([("a", [1] * 4), ("b", [0] * 4)], {"a": [1] * 4, "b": [1] * 4}, tmp=tmp_path)
    (line,) = judge_first_places(few)
    assert "not distinguishable" in line
    assert "with 4 images no outcome can be significant: 6 are the least, 2 more" in line


def test_the_same_share_is_no_level(tmp_path):
    (line,) = judge_first_places(folder([("a", [1] * 10 + [0] * 30), ("b", [0] * 30 + [1] * 10)], tmp=tmp_path))
    assert "a and b both keep 0.25" in line
    assert "level" not in line
    assert "with 40 images only a difference of 6 or more would have been seen" in line
    same = [1] * 60 + [0] * 60
    (line,) = judge_first_places(folder([("a", same), ("b", same)], tmp=tmp_path))
    assert "equivalent within 5%" in line


def test_a_difference_that_counts_is_said(tmp_path):
    (line,) = judge_first_places(folder([("a", [1] * 40), ("b", [1] * 30 + [0] * 10)], tmp=tmp_path))
    assert "a leads with 1, distinguishable from b (0.75): exact McNemar p = 0.002, n = 40." in line

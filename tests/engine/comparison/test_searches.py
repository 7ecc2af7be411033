"""Searches over the radius as rows of a comparison, against the searches themselves."""

import pytest
import torch

import davylamp
from davylamp.adapters import ThreatModel, find_implementation
from davylamp.engine import compare, search_portfolio, search_radius
from davylamp.engine.comparison.searches import check_searches, search_rows
from davylamp.engine.searches.saturation import at_saturation
from davylamp.errors import Unsupported

BALL, FREE = ThreatModel("linf", 0.2), ThreatModel("linf")
STEPS = {"steps": 3}
MATCHED = {"random_start": False, "step_size": "2.5 epsilon / steps"}  # of PGD


def rows_of(*names):
    return [
        row for name in names for row in (search_rows(name, "linf") if "(" in name else [find_implementation(name)])
    ]


def test_searches_find_what_they_find_alone(digits):
    case = digits.first(6)
    nouns = case.classifier, case.inputs, case.labels
    names = "foolbox:pgd", "best(foolbox:pgd)", "at-saturation(foolbox:pgd)"
    comparison = compare("pgd", *nouns, BALL, parameters=STEPS, rows=rows_of(*names))
    assert [row.implementation.name for row in comparison.rows] == [*names]
    best = search_radius("foolbox:pgd", *nouns, BALL, **STEPS, **MATCHED)
    saturated = at_saturation("foolbox:pgd", *nouns, BALL, **STEPS, **MATCHED)
    for row, alone in zip(comparison.rows[1:], (best, saturated), strict=True):
        assert row.result is not None, row.error
        assert torch.equal(row.result.adv_inputs, alone.adv_inputs)
        assert torch.equal(row.result.forwards, alone.forwards)
    assert comparison.rows[1].metrics["linf_median"] < comparison.rows[0].metrics["linf_median"]


def test_several_together_choose_their_parameters_within_the_budget(digits):
    case = digits.first(4)
    nouns = case.classifier, case.inputs, case.labels
    name = "best(adv-lib:fmn,foolbox:pgd)"
    rows = rows_of("best(foolbox:pgd)", name)
    comparison = compare("best(foolbox:pgd)", *nouns, FREE, parameters={"max_queries": 60}, rows=rows)
    alone = search_portfolio(["adv-lib:fmn", "foolbox:pgd"], *nouns, FREE, max_queries=60)
    together = comparison.rows[1]
    assert together.result is not None, together.error
    assert together.left_out == ()
    assert torch.equal(together.result.adv_inputs, alone.adv_inputs)
    assert together.metrics["forwards_max"] + together.metrics["backwards_max"] <= 60


def test_distances_decide_only_where_both_look_for_the_smallest_change(digits):
    case = digits.first(16)
    names = "best(foolbox:pgd)", "at-saturation(foolbox:pgd)", "best(foolbox:fgsm)"
    comparison = compare(
        "pgd", case.classifier, case.inputs, case.labels, FREE, parameters={"steps": 4}, rows=rows_of(*names)
    )
    verdicts = {(pair.a, pair.b): pair for pair in comparison.pairs}
    best, saturated, single_step = names
    assert verdicts[best, saturated].weaker == ""
    assert verdicts[best, saturated].judgement.p_distance < 0.05
    assert verdicts[best, single_step].weaker == single_step


def test_a_search_by_every_library_that_has_the_attack():
    names = [row.name for row in search_rows("best(pgd)", "l2", ["foolbox", "torchattacks"])]
    assert names == ["best(foolbox:pgd)", "best(torchattacks:pgd)"]
    (automatic,) = search_rows("best", "l2")
    assert "l2" in automatic.classes
    assert "adv-lib:ddn@fixed" in automatic.name


def test_a_search_that_cannot_be_is_refused_before_anything_runs():
    for name in ("best(foolbox:cw)", "at-saturation(foolbox:cw)"):
        with pytest.raises(Unsupported, match=r"foolbox:cw.* a minimum-norm attack"):
            check_searches(search_rows(name), ThreatModel("l2"), {}, defaults=False)


def test_in_python_a_search_stands_beside_or_alone(digits):
    case = digits.first(3)
    comparison = davylamp.compare(
        "best(pgd)",
        case.module,
        case.inputs,
        case.labels,
        norm="linf",
        libraries=["foolbox"],
        also=["at-saturation(foolbox:pgd)"],
        steps=2,
    )
    assert comparison.threat_model.epsilon is None
    assert list(comparison.to_frame()["implementation"]) == ["best(foolbox:pgd)", "at-saturation(foolbox:pgd)"]
    assert not any(row.error for row in comparison.rows)

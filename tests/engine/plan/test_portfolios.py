"""`best(A,B)` from the command line to the record and back."""

import json

import numpy as np
import pytest

from davylamp.adapters import ThreatModel
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, load, make_plan
from davylamp.engine.attack_run import AttackRun, ModelOnData, describe_attack, is_foreign
from davylamp.engine.plan.choices import format_defaults_taken
from davylamp.engine.plan.rerun import configs_of
from davylamp.engine.store.record_validation import unknown_attack
from davylamp.engine.store.results import read_outcomes
from davylamp.engine.tables.budget_curves import build_curves
from davylamp.errors import InvalidInput, UnknownName, Unsupported
from davylamp.scoring.items import libraries_of

NAME = "best(adv-lib:fmn,foolbox:pgd)"
SUBJECT = ModelOnData("net", "aa", "digits", "bb", 100)


def plan_of(digits, images, *choices, **settings):
    config = Config(attacks=choices, data="digits", shard_size=6, **settings)
    return make_plan(config, models={"cnn": digits.classifier}, data=images)


def test_a_portfolio_is_evaluated_recorded_resumed_and_read_back(digits, images, tmp_path):
    plan = plan_of(digits, images, AttackChoice("best(adv-lib:fmn, foolbox:pgd)", "linf"), max_queries=120)
    (cell,) = plan.cells
    assert cell.attack == NAME
    assert cell.parameters == {"max_queries": 120}
    assert cell.version.startswith("search 5, adv-lib ")
    assert "foolbox " in cell.version
    assert cell.row.library == "davylamp"
    assert evaluate(plan, ResultsStore(tmp_path)).failed == {}
    assert evaluate(plan, ResultsStore(tmp_path)).kept == 1
    (outcome,) = read_outcomes(tmp_path).done
    columns = outcome.columns
    assert outcome.is_minimum
    assert columns["success"].all()
    for passes, distances, last in zip(
        columns["curve_passes"], columns["curve_distances"], columns["distance"], strict=True
    ):
        assert len(passes) == len(distances) > 0
        assert (np.diff(passes) >= 0).all()
        assert (np.diff(distances) < 0).all()
        assert distances[-1] == pytest.approx(last)
    assert set(columns["winner"]) <= {0, 1}
    assert load(tmp_path)["attack"].unique().tolist() == [NAME]
    assert [curve.labels["implementation"] for curve in build_curves(tmp_path, bootstrap=0).curves] == [NAME]
    (again,) = configs_of([outcome.cell])
    assert make_plan(again, models={"cnn": digits.classifier}, data=images).cells == plan.cells


def test_a_minimum_norm_attack_has_a_curve_too_and_a_fixed_budget_has_none(digits, images, tmp_path):
    choices = AttackChoice("adv-lib:fmn", "linf", parameters={"steps": 15}), AttackChoice("foolbox:fgsm", "linf", 0.1)
    evaluate(plan_of(digits, images, *choices), ResultsStore(tmp_path / "plain"))
    assert all("curve_passes" not in each.columns for each in read_outcomes(tmp_path / "plain").done)  # nobody asked
    evaluate(plan_of(digits, images, *choices, measures=("effect", "curve")), ResultsStore(tmp_path))
    fmn, fgsm = (
        next(each.columns for each in read_outcomes(tmp_path).done if each.cell.attack == choice.attack)
        for choice in choices
    )
    assert "curve_passes" not in fgsm
    for passes, distances, last, hit in zip(
        fmn["curve_passes"], fmn["curve_distances"], fmn["distance"], fmn["success"], strict=True
    ):
        assert hit == (len(passes) > 0)
        if hit:
            assert distances[-1] == pytest.approx(last, rel=1e-5)
            assert 1 <= passes[0] <= passes[-1] <= 30
            assert (np.diff(distances) < 0).all()


@pytest.mark.parametrize("name", ["best", "best(auto)"])
def test_the_default_depends_on_the_norm_and_is_written_out(digits, images, name):
    linf, l2, default = (
        plan_of(digits, images, AttackChoice(name, norm)).cells[0].attack for norm in ("linf", "l2", None)
    )
    assert linf == default == "best(adv-lib:fab-t,adv-lib:fmn@fixed,adv-lib:fab,adv-lib:apgd-dlr)"
    assert l2 == "best(adv-lib:ddn@fixed,adv-lib:fmn@fixed,adv-lib:deepfool,adv-lib:pdgd,adv-lib:alma@fixed)"
    aimed = plan_of(digits, images, AttackChoice(name, "l2", target="second-likely")).cells[0].attack
    assert aimed == l2.replace("adv-lib:deepfool,", "")  # which cannot be aimed
    plan = plan_of(digits, images, AttackChoice(name))
    assert plan.cells[0].parameters == {"max_queries": 2000}
    assert "best(auto): norm linf" in format_defaults_taken(plan.config, plan.cells, ())


def test_a_search_that_was_killed_between_two_shards_gives_the_records_of_one_in_one_go(digits, images, tmp_path):
    plan = plan_of(digits, images, AttackChoice("best", "l2"), max_queries=120)

    def stop(*_: object) -> None:
        if any((tmp_path / "killed" / "parts").glob("*.parquet")):  # the first shard is kept
            raise KeyboardInterrupt

    evaluate(plan, ResultsStore(tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        evaluate(plan, ResultsStore(tmp_path / "killed"), progress=stop)
    evaluate(plan, ResultsStore(tmp_path / "killed"))
    whole, killed = (read_outcomes(tmp_path / name).done[0].columns for name in ("whole", "killed"))
    for name in ("distance", "forwards", "backwards", "winner", "curve_passes", "curve_distances"):
        assert [*map(str, whole[name])] == [*map(str, killed[name])]


def test_a_norm_in_which_nothing_was_compared_has_no_default_and_libraries_have_to_fit(digits, images):
    with pytest.raises(Unsupported, match=r"not l1; choose the attacks"):
        plan_of(digits, images, AttackChoice("best", "l1"))
    choices = AttackChoice("best", "l2"), AttackChoice("best(adv-lib:fmn,foolbox:fmn)", "l1")
    plan = plan_of(digits, images, *choices, max_queries=100)
    assert len(plan.cells) == 2
    assert format_defaults_taken(plan.config, plan.cells, ("data",)).startswith("chosen: ")  # though l1 has no default
    with pytest.raises(InvalidInput, match="adv-lib, foolbox"):
        plan_of(digits, images, AttackChoice(NAME), libraries=("foolbox",))
    assert plan_of(digits, images, AttackChoice(NAME), libraries=("foolbox", "adv-lib")).cells


def test_names_of_one_attack_keep_their_keys():
    cell = AttackRun(SUBJECT, "best(foolbox:pgd)", ThreatModel("linf"), {"steps": 5})
    assert not cell.search.is_portfolio
    assert cell.row.name == "foolbox:pgd"
    assert cell.key == "8d56f1a82e5f336f9f6a"


def test_a_record_of_attacks_that_are_not_here_describes_itself():
    cell = AttackRun(SUBJECT, NAME, ThreatModel("linf"), {"max_queries": 100})
    foreign = "best(adv-lib:fmn,newlib:new)"
    meta = {
        "spec": cell.spec | {"attack": foreign},
        "about": describe_attack(cell) | {"attack": "adv-lib:fmn,newlib:new"},
    }
    read = AttackRun.from_record(json.loads(json.dumps(meta)))
    assert is_foreign(read)
    assert read.row.attack == "adv-lib:fmn,newlib:new"
    assert unknown_attack(read) == ""
    for damaged in (foreign, "best(,)", "best(adv-lib:fmn,adv-lib:fmn)", "best(adv-lib:sigma-zero,foolbox:pgd)"):
        bare = AttackRun.from_record({"spec": cell.spec | {"attack": damaged}})
        assert unknown_attack(bare)
        with pytest.raises(UnknownName):
            _ = bare.row


def test_a_search_by_several_is_davylamps_and_a_list_inside_of_a_list_of_attacks(run):
    assert libraries_of([NAME, "best(foolbox:pgd)", "art:pgd"]) == ["davylamp", "foolbox", "art"]
    code, _, errors = run("evaluate", "--attacks", f"{NAME},foolbox:nothing", "--limit", 1)
    assert (code, "nothing" in errors) == (1, True)

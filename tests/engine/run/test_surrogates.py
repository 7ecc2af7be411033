"""Evaluations through a surrogate: cells of their own, resumed, by several workers, and named wherever they show."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import davylamp
from davylamp.adapters.running.surrogate import run_transfer
from davylamp.engine import (
    AttackChoice,
    Config,
    ResultsStore,
    build_table,
    evaluate,
    load,
    make_plan,
    read_config,
    write_config,
)
from davylamp.engine.attack_run import AttackRun, Surrogate
from davylamp.engine.checks.check_folder import check_folder
from davylamp.engine.plan.rerun import configs_of
from davylamp.engine.run.local_executor import InProcessExecutor
from davylamp.engine.run.processes import WorkerPoolExecutor
from davylamp.engine.tables.transfer_table import build_transfer
from davylamp.errors import InvalidInput
from davylamp.report.page.build import build_report

from ..conftest import Interrupted
from .conftest import NET

ATTACKS = (AttackChoice("foolbox:pgd", "linf", 0.05, parameters={"steps": 3}), AttackChoice("torchattacks:deepfool"))


def config(**changes):
    whole = Config(("net.py:one", "net.py:two"), ATTACKS, "net.py:images", measures=("effect", "cost"), shard_size=4)
    return replace(whole, surrogate=("net.py:three",), **changes)


def test_a_cell_is_the_transfer_and_its_key_names_the_surrogate(files):
    plan = make_plan(config(keep_images=True))
    white = make_plan(replace(config(), surrogate=()))
    evaluate(plan, ResultsStore("r"))
    classifiers = {name: davylamp.load_model(f"net.py:{name}") for name in ("one", "two", "three")}
    data = davylamp.load_data("net.py:images")
    frame = load("r")
    for cell in plan.cells:
        mine = frame[frame["cell"] == cell.key]
        expected = run_transfer(
            cell.attack,
            classifiers[cell.subject.model.partition(":")[2]],
            classifiers["three"],
            data.inputs,
            data.labels,
            cell.threat_model,
            **cell.parameters,
        )
        assert (mine["success"] == expected.success.numpy()).all()
        assert (mine["surrogate_backwards"] == expected.surrogate_backwards.numpy()).all()
        assert not mine[["forwards", "backwards"]].any(axis=None)
        assert np.isnan(mine["AAW"]).all()  # a black-box one
        assert not np.isnan(mine["AAB"][mine["attacked"]]).any()
        assert AttackRun.from_spec(cell.spec) == cell
    assert set(frame["knowledge"]) == {"transfer"}
    assert {*frame["implementation"]} == {"foolbox:pgd via net.py:three", "torchattacks:deepfool via net.py:three"}
    assert frame["success"].any()
    for one, other in zip(plan.cells, white.cells, strict=True):
        assert "surrogate" not in other.spec
        assert replace(one, surrogate=()).key == other.key
        another = replace(one, surrogate=(Surrogate("net.py:three", "other weights"),))
        assert len({one.key, other.key, another.key}) == 3


def numbers(folder):
    frame = load(folder).drop(columns="seconds")
    return frame.to_json()


def test_interrupted_resumed_and_by_two_workers_the_records_are_the_same(files):
    plan = make_plan(config())
    evaluate(plan, ResultsStore("whole"))
    with pytest.raises(KeyboardInterrupt):
        evaluate(plan, ResultsStore("cut"), executor=Interrupted(6))
    summary = evaluate(make_plan(config()), ResultsStore("cut"))
    assert (summary.done, summary.kept, summary.failed) == (3, 1, {})
    assert evaluate(make_plan(config()), ResultsStore("cut")).kept == 4
    evaluate(plan, ResultsStore("crowd"), executor=WorkerPoolExecutor(2))
    assert numbers("whole") == numbers("cut") == numbers("crowd")


def test_an_edited_surrogate_is_another_one(files):
    before, bench = make_plan(config()), InProcessExecutor()
    evaluate(before, ResultsStore("r"), executor=bench)
    (files / "net.py").write_text(NET.replace("build(3)", "build(4)"))
    assert make_plan(config()).cells[0].key != before.cells[0].key
    late = evaluate(before, ResultsStore("late"), executor=InProcessExecutor())
    assert all("net.py" in reason and "differs from the plan" in reason for reason in late.failed.values())
    after = evaluate(make_plan(config()), ResultsStore("r"), executor=bench)
    assert (after.done, after.failed) == (4, {})


def test_tables_rank_report_and_checks_name_the_surrogate(files):
    evaluate(make_plan(config()), ResultsStore("r"))
    page = build_report("r")
    assert "foolbox:pgd via net.py:three" in page  # though nothing was asked of the models
    assert "accuracy against queries" not in page  # no drawing, as an axis of passes has no place for 0
    evaluate(make_plan(replace(config(), surrogate=(), transfer="full")), ResultsStore("r"))
    table = build_table("r", metrics=["MR", "QNC_F", "surrogate_forwards"], bootstrap=0).to_frame()
    via = table[table["implementation"] == "foolbox:pgd via net.py:three"].iloc[0]
    assert via["knowledge"] == "transfer"
    assert via["surrogate_forwards"] >= 3
    assert via["QNC_F"] == 0
    ranking = davylamp.rank("r", scoring="mean")
    assert any("pgd via net.py:three" in item for item in davylamp.rank("r", "attacks", scoring="mean").subjects)
    assert len(ranking.subjects) == 2
    with pytest.raises(InvalidInput):
        davylamp.rank("r", knowledge="score", scoring="mean")
    davylamp.rank("r", knowledge="transfer", scoring="mean")
    transfer = build_transfer("r", bootstrap=0)
    assert all("via" not in labels["implementation"] for each in transfer.tables for labels in each.attacks)
    checks = [check for check in check_folder("r") if "via net.py:three" in check.subject]
    assert checks
    assert any(check.name == "black-box" and check.state != "unknown" for check in check_folder("r"))


def test_the_config_of_a_folder_makes_the_same_cells(files):
    plan, white = make_plan(config()), make_plan(replace(config(), surrogate=()))
    again = [cell.key for each in configs_of([*plan.cells, *white.cells]) for cell in make_plan(each).cells]
    assert set(again) == {cell.key for cell in (*plan.cells, *white.cells)}


def test_what_a_surrogate_cannot_be_is_one_line(files):
    alone = {"models": ("net.py:one",)}
    for wrong, named in (
        ({**alone, "surrogate": ("net.py:three", "net.py:one")}, "got net.py:one"),
        ({**alone, "surrogate": ("net.py:few",)}, "4 classes of net.py:one, got net.py:few"),
        ({"attacks": (AttackChoice("best(foolbox:fgsm)"),)}, "fixed radius"),
        ({"transfer": "full"}, "`surrogate` and `transfer` cannot be combined"),
    ):
        with pytest.raises(InvalidInput, match=named):
            make_plan(replace(config(), **wrong))
    part = make_plan(replace(config(), surrogate=("net.py:one",)))
    assert {cell.subject.model for cell in part.cells} == {"net.py:two"}
    assert list(part.failed) == ["net.py:one via net.py:one"]


def test_in_python_a_module_is_a_surrogate(files, digits):
    torch.manual_seed(0)
    other = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 10))
    evaluation = davylamp.evaluate(
        digits.module, digits.inputs, digits.labels, attacks="foolbox:fgsm", surrogate=other, limit=4, out="r"
    )
    assert {*evaluation.to_frame()["implementation"]} == {"foolbox:fgsm via Sequential"}
    named = davylamp.evaluate(
        {"cnn": digits.module}, digits.inputs, digits.labels, attacks="foolbox:fgsm", limit=4, out="s",
        surrogate={"flat": other, "again": other},
    )  # fmt: skip
    assert {*named.to_frame()["implementation"]} == {"foolbox:fgsm via flat + again"}


def test_on_the_command_line(run, files, tmp_path):
    code, out, errors = run(
        "evaluate", "--models", "net.py:one,net.py:three", "--surrogate", "net.py:two,net.py:three", "--attacks",
        "foolbox:fgsm", "--data", "net.py:images", "-o", "r", "--strict",
    )  # fmt: skip
    assert code == 2, errors
    assert "omitted: net.py:three via net.py:two + net.py:three: expected a surrogate that differs" in out
    code, out, _ = run("table", "r")
    assert code == 0
    assert "via net.py:two + net.py:three" in out


def test_an_attack_has_a_surrogate_of_its_own_and_the_others_stay_white_box(files):
    pair = (ATTACKS[0], replace(ATTACKS[0], surrogate=("net.py:three",)))
    mixed = replace(config(), surrogate=(), attacks=pair)
    plan = make_plan(mixed)
    white = make_plan(replace(config(), surrogate=(), attacks=ATTACKS[:1])).cells
    via = make_plan(config(attacks=ATTACKS[:1])).cells
    assert {cell.key for cell in plan.cells} == {cell.key for cell in (*white, *via)}
    replaced = make_plan(replace(mixed, surrogate=("net.py:two",), models=("net.py:one",))).cells
    assert [[each.model for each in cell.surrogate] for cell in replaced] == [[], ["net.py:two"]]
    assert evaluate(plan, ResultsStore("r")).failed == {}
    assert {*load("r")["knowledge"]} == {"white-box", "transfer"}
    assert read_config_of(mixed) == mixed
    simple = replace(mixed, transfer="full", keep_images=True)
    assert all(not cell.surrogate for _, cell in make_plan(simple).transfers)


def read_config_of(settings):
    Path("run.toml").write_text(write_config(settings))
    return read_config("run.toml")


def test_a_surrogate_of_other_classes_costs_its_attack_and_no_other(files):
    pair = (ATTACKS[0], replace(ATTACKS[0], surrogate=("net.py:few",)))
    plan = make_plan(replace(config(), surrogate=(), attacks=pair))
    assert [cell.surrogate for cell in plan.cells] == [(), ()]
    assert sorted(plan.failed) == [f"foolbox:pgd via net.py:few on net.py:{name}" for name in ("one", "two")]
    assert "classes" in plan.failed["foolbox:pgd via net.py:few on net.py:one"]
    itself = (ATTACKS[0], replace(ATTACKS[0], surrogate=("net.py:one",)))
    plan = make_plan(replace(config(), surrogate=(), attacks=itself))
    assert [*plan.failed] == ["foolbox:pgd via net.py:one on net.py:one"]
    assert len(plan.cells) == 3

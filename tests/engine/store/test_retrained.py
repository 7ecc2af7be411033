"""Two models under one name, as after training again into one file, are two models wherever they are shown."""

import json
from copy import deepcopy

import pytest
import torch
from typer.testing import CliRunner

import davylamp
from davylamp import cli
from davylamp.adapters import Classifier
from davylamp.commands.evaluation_summary import result_lines
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.checks.check_folder import check_folder
from davylamp.engine.store.notes import list_changed
from davylamp.engine.store.plan_records import list_cells
from davylamp.engine.store.results import as_results
from davylamp.engine.tables.table import build_table

FGSM = AttackChoice("foolbox:fgsm", "linf", 0.1)


@pytest.fixture(scope="module")
def folder(digits, images, tmp_path_factory):
    """Old weights that nothing fools, then new ones that much fools, both called "cnn"; the plan of the new ones."""
    store, config = ResultsStore(tmp_path_factory.mktemp("results")), Config(attacks=(FGSM,), data="digits")
    old = deepcopy(digits.module)
    with torch.no_grad():
        old[5].weight.mul_(1 + 1e-3)
    evaluate(make_plan(config, models={"cnn": Classifier(old)}, data=images), store)
    plan = make_plan(config, models={"cnn": digits.classifier}, data=images)
    assert len(list_changed(store, plan.subjects)) == 1
    evaluate(plan, store)
    return plan, store


def test_every_view_has_two_names(folder):
    _, store = folder
    outcomes = as_results(store.folder)
    names = {each.cell.subject.name for each in outcomes.done}
    assert len(names) == 2
    assert {each.cell.subject.model for each in outcomes.done} == {"cnn"}
    assert {state.cell.subject.name for state in list_cells(store.folder)} == names
    assert {row.labels["model"] for row in build_table(outcomes, by="models", bootstrap=0).rows} == names
    assert {name for check in check_folder(outcomes) for name in names if name in check.subject} == names
    shown = CliRunner().invoke(cli.app, ["status", str(store.folder), "--json"])
    assert {cell["model"] for cell in json.loads(shown.stdout)["cells"]} == names
    assert {each.cell.key for each in outcomes.done} == {state.key for state in list_cells(store.folder)}


def test_the_ending_of_an_evaluation_speaks_of_the_model_that_it_evaluated(folder):
    plan, store = folder
    (subject,) = {subject for subject, _ in plan.subjects}
    lines = result_lines(plan, store)
    rows = build_table(as_results(store.folder), by="models", metrics=["CA"], bootstrap=0).rows
    shown = {row.labels["model"]: f"{row.metrics['CA'].value:.2f}" for row in rows}
    assert lines[0].startswith(f"{subject.full_name}, linf 0.1: clean accuracy {shown[subject.full_name]}")
    assert sum(line.startswith("cnn") for line in lines) == 1


def test_one_model_keeps_its_plain_name(digits, images, tmp_path):
    store = ResultsStore(tmp_path)
    plan = make_plan(Config(attacks=(FGSM,), data="digits"), models={"cnn": digits.classifier}, data=images)
    assert list_changed(store, plan.subjects) == []
    evaluate(plan, store)
    assert result_lines(plan, store)[0].startswith("cnn, linf 0.1")


def test_a_table_over_several_versions_has_a_note(folder):
    _, store = folder
    outcomes = as_results(store.folder)
    for by in ("attacks", "models"):
        (found,) = [each for each in build_table(outcomes, by=by, bootstrap=0).findings if each.name == "versions"]
        assert (found.state, found.subject, found.numbers["count"]) == ("warn", "cnn", 2)


def test_an_evaluation_shows_the_models_that_it_evaluated(digits, tmp_path):
    """An untrained and a trained model under one name in one folder, and the trained one again on a part of its images.

    The numbers of each evaluation are those of the same call in a folder of its own.
    """
    torch.manual_seed(0)
    untrained = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(digits.inputs[0].numel(), 10))
    calls = [(untrained, 16), (digits.module, 16), (digits.module, 12)]
    given = {"attacks": "foolbox:fgsm", "norm": "linf", "epsilon": 0.1, "progress": False}

    def evaluate(place, module, images, out):
        models = {"cnn": module, f"other {place}": untrained}
        return davylamp.evaluate(models, digits.inputs[:images], digits.labels[:images], out=out, **given)

    done = [evaluate(place, *call, tmp_path / "one") for place, call in enumerate(calls)]
    for place, ((module, images), each) in enumerate(zip(calls, done, strict=True)):
        alone = evaluate(place, module, images, tmp_path / str(place))
        for by in ("attacks", "models"):
            shown, truth = (one.table(by, metrics=["CA", "RA", "MR"], bootstrap=0).to_frame() for one in (each, alone))
            assert shown.equals(truth)
            assert set(shown.get("model", ["cnn"])) <= {"cnn", f"other {place}"}
        frames = [one.to_frame().drop(columns=["seconds"], errors="ignore") for one in (each, alone)]
        assert list(frames[0]["cell"]) == list(frames[1]["cell"])
        assert set(frames[0]["model"]) == {"cnn", f"other {place}"}
        if module is digits.module:  # the others do not differ
            assert set(each.rank(scoring="mean").subjects) == {"cnn", f"other {place}"}
            assert set(davylamp.rank(each, scoring="mean").subjects) == {"cnn", f"other {place}"}
        assert (
            davylamp.table(each, "models", bootstrap=0).to_frame().equals(each.table("models", bootstrap=0).to_frame())
        )
        assert set(davylamp.load(each)["model"]) == {"cnn", f"other {place}"}
        checks, truth = (davylamp.check(one).document["checks"] for one in (each, tmp_path / str(place)))
        assert [(one["name"], one["subject"], one["state"]) for one in checks] == [
            (one["name"], one["subject"], one["state"]) for one in truth
        ]
        page = davylamp.report(each, tmp_path / "report.html").read_text(encoding="utf-8")
        assert str(tmp_path / "one") in page
        assert "cnn [" not in page
        assert not any("versions" in note for note in each.table().notes)
    everything = davylamp.Evaluation(tmp_path / "one")
    assert len(set(everything.to_frame()["model"])) == 5
    assert sum("2 versions" in note for note in everything.rank(scoring="mean").notes) == 1
    assert "cnn [" in everything.report(tmp_path / "whole.html").read_text(encoding="utf-8")

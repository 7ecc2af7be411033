"""Two models under one name, as after training again into one file, are two models wherever they are shown."""

import json
from copy import deepcopy

import pytest
import torch
from typer.testing import CliRunner

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
    assert lines[0].startswith(f"cnn [{subject.model_digest[:6]}], linf 0.1: clean accuracy")
    assert sum(line.startswith("cnn [") for line in lines) == 1


def test_one_model_keeps_its_plain_name(digits, images, tmp_path):
    store = ResultsStore(tmp_path)
    plan = make_plan(Config(attacks=(FGSM,), data="digits"), models={"cnn": digits.classifier}, data=images)
    assert list_changed(store, plan.subjects) == []
    evaluate(plan, store)
    assert result_lines(plan, store)[0].startswith("cnn, linf 0.1")

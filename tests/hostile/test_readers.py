"""What lies outside of a program's code is a part of what it is, or its results are never taken for another's."""

import importlib
import sys

import numpy as np
import pytest
import torch

from davylamp.adapters.data.datasets import Data
from davylamp.adapters.models.identity.digest import identify_model
from davylamp.adapters.models.zoo.load import load_model
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from tests.hostile import readers


@pytest.fixture
def factor(tmp_path, monkeypatch):
    """Sets the number that all these programs read."""
    monkeypatch.syspath_prepend(tmp_path)

    def set_factor(value):
        monkeypatch.setenv("FACTOR", str(value))
        (tmp_path / "factor.txt").write_text(str(value))
        (tmp_path / "factor_of_mine.py").write_text(f"FACTOR = {float(value)}\n")
        np.save(tmp_path / "factor.npy", np.array(float(value)))
        torch.save(torch.tensor(float(value)), tmp_path / "factor.pt")
        sys.modules.pop("factor_of_mine", None)
        importlib.invalidate_caches()

    set_factor(1)
    return set_factor


def evaluated(folder, digits, attack="foolbox:fgsm"):
    data = Data(digits.inputs[:4], digits.labels[:4], list("abcd"))
    choice = AttackChoice(attack, "linf", 0.1)
    plan = make_plan(Config(attacks=(choice,), models=(f"{folder}/model.py:make",), data="digits"), data=data)
    return plan, evaluate(plan, ResultsStore(folder / "results"))


@pytest.mark.parametrize("name", readers.MODELS)
def test_what_a_model_reads_is_a_part_of_it(name, factor, digits, tmp_path):
    (tmp_path / "model.py").write_text(readers.MODELS[name])
    first, summary = evaluated(tmp_path, digits)
    assert (summary.done, summary.failed) == (1, {})
    again, summary = evaluated(tmp_path, digits)
    assert summary.done == (name in readers.UNKNOWN)
    assert bool(summary.unknown) == (name in readers.UNKNOWN)
    assert again.cells[0].key == first.cells[0].key
    factor(-1)
    other, summary = evaluated(tmp_path, digits)
    assert summary.done == 1
    assert (other.cells[0].key == first.cells[0].key) == (name in readers.UNKNOWN)
    assert summary.failed == {}


def test_a_model_that_reads_nothing_is_what_it_was(digits, tmp_path):
    (tmp_path / "model.py").write_text(readers.HONEST)
    plan, _ = evaluated(tmp_path, digits)
    name = f"{tmp_path}/model.py:make"
    assert plan.cells[0].subject.model_digest == identify_model(load_model(name), name).digest
    assert evaluated(tmp_path, digits)[1].kept == 1


@pytest.mark.parametrize("name", readers.ATTACKS)
def test_an_attack_that_reads_is_run_again_and_named(name, factor, digits, tmp_path):
    (tmp_path / "model.py").write_text(readers.HONEST)
    (tmp_path / "attack.py").write_text(readers.ATTACKS[name])
    for value in (1, -1):
        factor(value)
        _, summary = evaluated(tmp_path, digits, f"{tmp_path}/attack.py:attack")
        assert summary.done == 1
        assert len(summary.unknown) == 1

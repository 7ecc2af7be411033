"""Results of an attack before it was edited are no part of what is said of the attack, or of its model."""

import json

from davylamp.adapters.data.datasets import Data
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.run import provenance
from davylamp.engine.store.data_frames import load, load_outcomes
from davylamp.engine.store.plan_records import list_cells
from davylamp.engine.store.results import as_results
from davylamp.engine.tables.table import build_table

CODE = """
import torch


def attack(model, inputs, labels, epsilon):
    asked = inputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(torch.nn.functional.cross_entropy(model(asked), labels), asked)
    return (inputs + {strength} * epsilon * gradient.sign()).clamp(0, 1)
"""


class _Clock:
    now = 0

    def __init__(self, *_):
        _Clock.now += 1

    def isoformat(self, **_):
        return f"2026-01-01T00:00:{self.now:02}+00:00"


def test_the_worst_case_is_over_the_edited_attack_alone(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "datetime", type("Time", (), {"now": _Clock}))
    file, store = tmp_path / "mine.py", ResultsStore(tmp_path / "results")
    data = Data(digits.inputs, digits.labels, [str(place) for place in range(len(digits.labels))])
    config = Config(attacks=(AttackChoice(f"{file}:attack", "linf", 0.1),), data="digits")
    for strength in (1.0, 0.5):  # the first fools more
        file.write_text(CODE.format(strength=strength))
        evaluate(make_plan(config, models={"cnn": digits.classifier}, data=data), store)
    assert len(list_cells(store.folder)) == 2
    outcomes = as_results(store.folder)
    (last,) = outcomes.done
    assert json.dumps(outcomes.notes).count("before its code was edited") == 1
    assert load(store.folder)["version"].nunique() == 2  # the records themselves are all there
    assert load_outcomes(store.folder)["cell"].unique().tolist() == [last.cell.key]
    robust = build_table(outcomes, by="models", metrics=["RA"], bootstrap=0).rows[0].metrics
    expected = 1 - last.columns["success"][last.columns["attacked"]].mean()
    assert robust["RA"].value == expected
    assert 0 < last.columns["linf"].max() < 0.06

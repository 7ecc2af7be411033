"""AIAC and ARTC of examples on models that they were not made on: recomputed from the models themselves."""

import numpy as np
import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.store.columns import read_examples
from davylamp.engine.tables.transfer_table import build_transfer_confidence
from davylamp.metrics import adversarial_confidence_increase, true_confidence_reduction


class Shifted(nn.Module):
    """Another model: sees the image moved by one pixel."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, inputs):
        return self.module(inputs.roll(1, -1))


def test_they_are_the_metrics_of_the_tested_model_averaged_over_pairs(digits, images, tmp_path):
    models = {"a": digits.classifier, "b": Classifier(Shifted(digits.module), name="b")}
    attacks = (
        AttackChoice("foolbox:fgsm", "linf", 0.1),
        AttackChoice("foolbox:pgd", "linf", 0.2, parameters={"steps": 3}),
    )
    config = Config(attacks=attacks, data="digits", measures=("effect",), transfer="full")
    plan = make_plan(config, models=models, data=images)
    evaluate(plan, ResultsStore(tmp_path))
    rows = build_transfer_confidence(tmp_path, bootstrap=50)
    assert [row.labels["implementation"] for row in rows] == ["foolbox:fgsm", "foolbox:pgd"]
    for row in rows:
        means = {"AIAC": [], "ARTC": []}
        for cell in (cell for cell in plan.cells if cell.attack == row.labels["implementation"]):
            made, (tested,) = models[cell.subject.model], [m for n, m in models.items() if n != cell.subject.model]
            adv_inputs = read_examples(ResultsStore(tmp_path), cell)
            counts = made(images.inputs).argmax(1) == images.labels
            with torch.no_grad():
                logits = tested(images.inputs[counts]), tested(adv_inputs[counts]), images.labels[counts]
            for symbol, metric in (("AIAC", adversarial_confidence_increase), ("ARTC", true_confidence_reduction)):
                means[symbol].append(float(metric(*logits)))
        assert row.pairs == 2
        for symbol, values in means.items():
            assert row.means[symbol].value == pytest.approx(np.mean(values), abs=1e-6)
            assert row.means[symbol].low < row.means[symbol].value < row.means[symbol].high

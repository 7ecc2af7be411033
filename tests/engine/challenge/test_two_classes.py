"""A defence of two classes is challenged by an ensemble that is named, whatever the size of its logits."""

import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters import Classifier
from davylamp.engine.challenge import robust_accuracy
from davylamp.report.page.build import build_report

WEIGHT = torch.randn(64, generator=torch.Generator().manual_seed(0))
INPUTS = 0.3 + 0.4 * torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(1))
SCORE = INPUTS.flatten(1) @ WEIGHT
BIAS = -SCORE.median() - 0.01
LABELS = (SCORE + BIAS > 0).long()
LEAST = (SCORE + BIAS).abs() / WEIGHT.abs().sum()  # the smallest linf change that fools it
RADIUS = float(LEAST.sort().values[13:15].mean())
LEFT = float((LEAST > RADIUS).float().mean())
EFFORT = {"steps": 20, "candidates": 2, "queries": 12, "eot": 2, "judge_samples": 4}


class Linear(nn.Module):
    """The two logits -z/2 and z/2 of z = w.x + b times a factor, or z alone."""

    def __init__(self, factor, *, one=False, end=None):
        super().__init__()
        self.factor, self.one, self.end = factor, one, end or nn.Identity()

    def forward(self, images):
        z = self.factor * (images.flatten(1) @ WEIGHT + BIAS)
        return self.end(z[:, None]) if self.one else torch.stack([-z / 2, z / 2], 1)


@pytest.mark.parametrize("factor", [1, 1000])
def test_what_is_left_of_a_linear_model_follows_from_its_weights(factor, tmp_path):
    done = davylamp.challenge(Linear(factor), INPUTS, LABELS, epsilon=RADIUS, effort=EFFORT, out=tmp_path)
    assert done.clean.value == 1
    assert done.worst.value == pytest.approx(LEFT)
    white = {each.attack: each for each in done.attempts if each.part == "white-box"}
    assert all(each.accuracy is not None for each in white.values())
    on_the_margin = [name for name in white if "margin" in name]
    assert white[on_the_margin[0]].accuracy.value == pytest.approx(LEFT)  # of gradients alone, not by luck of FAB
    assert "margin ensemble" in repr(done)
    assert "margin ensemble" in build_report(tmp_path)


def test_one_logit_in_a_column_is_two_classes(tmp_path):
    """Of the same model each attack leaves the same, by one number as by two."""
    words = {"norm": "linf", "epsilon": RADIUS}
    for name in ("torchattacks:fgsm", "foolbox:fgsm"):  # of a linear model one step is the best there is
        one = davylamp.run_attack(name, Classifier(Linear(1, one=True), outputs="logit"), INPUTS, LABELS, **words)
        two = davylamp.run_attack(name, Linear(1), INPUTS, LABELS, **words)
        assert torch.equal(one.success, LEAST < RADIUS)
        assert torch.equal(one.success, two.success)
    evaluation = davylamp.evaluate(
        {"one": Classifier(Linear(1, one=True), outputs="logit")}, INPUTS, LABELS,
        attacks="foolbox:fgsm", out=tmp_path, **words,
    )  # fmt: skip
    assert evaluation.to_frame()["robust"].mean() == pytest.approx(LEFT)


@pytest.mark.parametrize(("outputs", "end"), [("logit", nn.Identity()), ("probability", nn.Sigmoid())])
def test_the_robust_accuracy_of_one_number_follows_from_the_weights(outputs, end, monkeypatch):
    monkeypatch.setattr(robust_accuracy, "QUERIES", 500)  # a tenth: of a linear model the gradient is enough
    model = Classifier(Linear(1, one=True, end=end), outputs=outputs)
    done = davylamp.robust_accuracy(model, INPUTS, LABELS, epsilon=RADIUS)
    assert done.robust.value == pytest.approx(LEFT)
    assert done.ensemble == "margin ensemble (APGD-CE, APGD on the plain margin, FAB, Square)"

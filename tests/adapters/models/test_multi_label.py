"""Multi-label models: linear ones, whose least perturbations are a formula for each label."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters.models.zoo.load import load_model
from davylamp.engine.challenge import robust_accuracy
from davylamp.errors import InvalidInput, ModelFailed, Unsupported

GENERATOR = torch.Generator().manual_seed(0)
INPUTS = 0.3 + 0.4 * torch.rand(40, 1, 6, 6, generator=GENERATOR)
WEIGHTS = torch.randn(3, 36, generator=GENERATOR)
WEIGHTS = WEIGHTS / WEIGHTS.abs().sum(1, keepdim=True)  # a step of e in linf moves each score by e
BIAS = -(INPUTS.flatten(1) @ WEIGHTS.T).sort(0).values[19:21].mean(0)  # half of the images have each label
SCORES = INPUTS.flatten(1) @ WEIGHTS.T + BIAS
TARGETS = (SCORES > 0).long()


class Linear(nn.Module):
    """Three scores w.x + b, or their sigmoids."""

    def __init__(self, end=None):
        super().__init__()
        self.weights, self.end = nn.Parameter(WEIGHTS.clone(), requires_grad=False), end or nn.Identity()

    def forward(self, inputs):
        return self.end(inputs.flatten(1) @ self.weights.T + BIAS)


KINDS = [("logits", None), ("probabilities", nn.Sigmoid())]


def _between(distances):
    """A radius in the widest gap near the median of the distances."""
    order = distances.sort().values[15:25]
    place = int(order.diff().argmax())
    return float(order[place : place + 2].mean())


@pytest.mark.parametrize(("outputs", "end"), KINDS)
@pytest.mark.parametrize("label", [None, 0, 2])
def test_what_is_left_of_a_linear_model_follows_from_its_weights(label, outputs, end, monkeypatch):
    monkeypatch.setattr(robust_accuracy, "STEPS", 10)
    monkeypatch.setattr(robust_accuracy, "QUERIES", 100)
    least = SCORES.abs().amin(1) if label is None else SCORES[:, label].abs()
    radius = _between(least)
    model, classes = davylamp.from_multi_label(Linear(end), TARGETS, label=label, outputs=outputs)
    done = davylamp.robust_accuracy(model, INPUTS, classes, epsilon=radius)
    assert done.clean.value == 1
    assert done.robust.value == pytest.approx(float((least > radius).float().mean()))
    assert 0 < done.robust.value < 1
    assert ("AutoAttack" in done.ensemble) == (label is None)  # two classes have the margin ensemble


def test_the_largest_logit_is_the_predicted_combination():
    """Of a few combinations among all eight; every other one is the last class."""
    model, classes = davylamp.from_multi_label(Linear(), TARGETS[:3])
    known = TARGETS[:3].unique(dim=0)
    predicted = model.predict_logits(INPUTS).argmax(1)
    wanted = [next((i for i, each in enumerate(known) if torch.equal(each, row)), len(known)) for row in TARGETS]
    assert predicted.tolist() == wanted
    assert len(known) in wanted
    assert classes.tolist() == wanted[:3]


def test_it_goes_through_an_evaluation_like_any_other_model(tmp_path):
    model, classes = davylamp.from_multi_label(Linear(), TARGETS, name="chest")
    how = {"attacks": "foolbox:pgd", "norm": "linf", "epsilon": _between(SCORES.abs().amin(1)), "keep_images": True}
    done = davylamp.evaluate(model, INPUTS, classes, out=tmp_path / "results", **how)
    assert any("any of the 3 labels flips" in note for note in done.notes)
    davylamp.export(tmp_path / "results", tmp_path / "a.zip", form="verdict", data=(INPUTS, classes))
    assert davylamp.verify(tmp_path / "a.zip", model).document["holds"]


def test_what_is_no_multi_label_model_is_refused():
    for targets in (TARGETS[:, 0], TARGETS * 2, np.zeros((0, 3))):
        with pytest.raises(InvalidInput, match="0 or 1"):
            davylamp.from_multi_label(Linear(), targets)
    for wrong in ({"label": 3}, {"label": -1}, {"outputs": "labels"}):
        with pytest.raises(InvalidInput):
            davylamp.from_multi_label(Linear(), TARGETS, **wrong)
    for outputs, targets in (("probabilities", TARGETS), ("logits", torch.cat([TARGETS, TARGETS], 1))):
        model, classes = davylamp.from_multi_label(Linear(), targets, outputs=outputs)
        with pytest.raises(ModelFailed):
            davylamp.run_attack("foolbox:fgsm", model, INPUTS, classes, norm="linf", epsilon=0.1)


def test_everywhere_else_several_labels_are_refused_by_name(tmp_path, run):
    for verb in (davylamp.robust_accuracy, lambda *given: davylamp.run_attack("foolbox:pgd", *given)):
        with pytest.raises(InvalidInput, match="from_multi_label"):
            verb(Linear(), INPUTS, TARGETS)
    np.savez(tmp_path / "d.npz", inputs=INPUTS, labels=TARGETS)
    code, _, err = run("evaluate", "--models", "demo:digits-cnn", "--data", "npz:d.npz", "--attacks", "foolbox:pgd")
    assert (code, "from_multi_label" in err) == (1, True)
    kinds = {"architectures": ["ViTForImageClassification"], "problem_type": "multi_label_classification"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit", **kinds}))
    with pytest.raises(Unsupported, match="from_multi_label"):
        load_model(f"hf:{tmp_path}")

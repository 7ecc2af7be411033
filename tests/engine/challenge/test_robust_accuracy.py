"""Robust accuracy in one call: the authors' number, the closed form, and what is said before it."""

import json

import pytest
import torch
from torch import nn

import davylamp
from davylamp.engine.challenge.robust_accuracy import standard_ensemble
from davylamp.errors import InvalidInput

GENERATOR = torch.Generator().manual_seed(0)
WEIGHTS = torch.randn(5, 64, generator=GENERATOR)
INPUTS = 0.4 + 0.2 * torch.rand(40, 1, 8, 8, generator=GENERATOR)


class Linear(nn.Module):
    """Logits w.x + b of the first few classes, so that noise is of every class."""

    def __init__(self, classes):
        super().__init__()
        self.weights = nn.Parameter(WEIGHTS[:classes])
        self.bias = nn.Parameter(-(INPUTS.flatten(1) @ WEIGHTS[:classes].T).mean(0))

    def forward(self, images):
        return images.flatten(1) @ self.weights.T + self.bias


def least_changes(model, labels):
    """The smallest linf change that fools a linear model, of each image: the least margin over the l1 of its slope."""
    logits = model(INPUTS).detach()
    margins = logits.gather(1, labels[:, None]) - logits
    slopes = (model.weights[labels][:, None] - model.weights[None]).abs().sum(2).detach()
    return (margins / slopes).masked_fill(torch.eye(logits.shape[1], dtype=torch.bool)[labels], torch.inf).amin(1)


@pytest.mark.parametrize(("classes", "title"), [(5, "AutoAttack standard"), (2, "margin ensemble")])
def test_what_is_left_of_a_linear_model_follows_from_its_weights(classes, title):
    model = Linear(classes)
    labels = model(INPUTS).argmax(1)
    labels[0] = (labels[0] + 1) % classes  # one that is wrong when clean
    least = least_changes(model, labels)
    radius = float(least.sort().values[36:38].mean())
    done = davylamp.robust_accuracy(model, INPUTS, labels, epsilon=radius)
    assert done.ensemble == title
    assert done.clean.value == pytest.approx(39 / 40)
    assert done.robust.value == pytest.approx(float((least > radius).float().mean()))
    assert done.robust.n == 40
    assert done.robust.low < done.robust.value < done.robust.high
    assert done.steps[0].attacked == 39
    assert sum(step.fooled for step in done.steps) == 39 - round(40 * done.robust.value)
    assert done.to_frame()["accuracy"].iloc[-1] == pytest.approx(done.robust.value)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_it_is_the_number_of_the_authors(digits, norm):
    from pyautoattack import AutoAttack

    case, radius = digits.first(12), {"linf": 0.06, "l2": 1.5}[norm]
    authors = AutoAttack(case.classifier, norm=norm.capitalize(), eps=radius, seed=0)
    examples = authors.run_standard_evaluation(case.inputs, case.labels, batch_size=12)[0]
    theirs = (case.classifier(examples).argmax(1) == case.labels).float().mean()
    done = davylamp.robust_accuracy(case.classifier, case.inputs, case.labels, norm=norm, epsilon=radius)
    assert done.robust.value == pytest.approx(float(theirs))
    assert 0 < done.robust.value < 1
    assert done.queries > 201  # what AutoAttack spends on those that stand


def test_a_random_model_is_named_first(digits):
    class Noisy(nn.Module):
        def forward(self, images):
            logits = digits.classifier(images)
            return logits + 3 * torch.randn_like(logits)

    case = digits.first(4)
    done = davylamp.robust_accuracy(Noisy(), case.inputs, case.labels, epsilon=0.2)
    assert "random=True" in done.warnings[0]
    assert repr(done).startswith("warning: ")


def test_zero_gradients_are_named(digits):
    class Rounding(nn.Module):
        def forward(self, images):
            return digits.classifier((images * 8).round() / 8)

    case = digits.first(4)
    done = davylamp.robust_accuracy(Rounding(), case.inputs, case.labels, epsilon=0.05)
    assert any("gradient" in line.lower() for line in done.warnings)


def test_a_kept_folder_is_gone_on_with(digits, tmp_path):
    case = digits.first(4)
    given = (case.classifier, case.inputs, case.labels)
    first = davylamp.robust_accuracy(*given, epsilon=0.3, out=tmp_path)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.glob("cells/*")}
    second = davylamp.robust_accuracy(*given, epsilon=0.3, out=tmp_path)
    assert files
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("cells/*")} == files
    assert second.to_dict() == first.to_dict()
    with pytest.raises(InvalidInput, match="more images"):
        davylamp.robust_accuracy(case.classifier, case.inputs[:2], case.labels[:2], epsilon=0.3, out=tmp_path)


@pytest.mark.parametrize(
    ("classes", "is_random", "attacks"),
    [
        (10, False, ["apgd-ce", "apgd-t", "fab-t", "square"]),
        (3, False, ["apgd-ce", "apgd-margin", "fab", "square"]),
        (10, True, ["apgd-ce", "apgd-dlr"]),
        (2, True, ["apgd-ce", "apgd-margin"]),
    ],
)
def test_the_ensemble_is_that_of_the_authors_where_it_is_defined(classes, is_random, attacks):
    made = standard_ensemble("linf", 8 / 255, classes, is_random=is_random)
    assert [choice.attack.partition(":")[2] for choice in made.attacks] == attacks
    with pytest.raises(InvalidInput, match="l0"):
        standard_ensemble("l0", 3, classes)


def test_the_command_says_what_python_says(run):
    words = ["--data", "demo:mnist", "--limit", "4", "--epsilon", "0.3", "--json"]
    code, out, _ = run("robust-accuracy", "demo:mnist-lenet5", *words)
    assert code == 0
    printed = json.loads(out)
    done = davylamp.robust_accuracy("demo:mnist-lenet5", data="demo:mnist", limit=4, epsilon=0.3)
    assert printed == json.loads(json.dumps(done.to_dict()))

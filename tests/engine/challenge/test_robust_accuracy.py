"""Robust accuracy in one call: the authors' number, the closed form, and what is said before it."""

import json
import math
import signal
import threading
import time

import numpy as np
import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters import Classifier
from davylamp.engine.attack_run import SHARD_SIZE
from davylamp.engine.challenge import robust_accuracy
from davylamp.engine.challenge.robust_accuracy import standard_ensemble
from davylamp.engine.store.store import ResultsStore
from davylamp.errors import InvalidInput, WrongType

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


@pytest.fixture
def short(monkeypatch):
    """A tenth of AutoAttack's steps, where its number is not the question: enough for a linear model."""
    monkeypatch.setattr(robust_accuracy, "STEPS", robust_accuracy.STEPS // 10)
    monkeypatch.setattr(robust_accuracy, "QUERIES", robust_accuracy.QUERIES // 10)


MARGIN = "margin ensemble (APGD-CE, APGD on the plain margin, FAB, Square)"


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(("classes", "title"), [(5, "AutoAttack standard"), (2, MARGIN)])
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
    assert list(done.to_frame()["fooled"]) == [step.fooled for step in done.steps]


class FirstFive(nn.Module):
    """The logits of the first five classes: AutoAttack tries each other class in turn."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, images):
        return self.inner(images)[:, :5]


@pytest.fixture
def five(digits):
    """The digits from 0 to 4 and a model of these classes."""
    chosen = digits.labels < 5
    return FirstFive(digits.module), digits.inputs[chosen], digits.labels[chosen]


@pytest.mark.parametrize(("norm", "radius"), [("linf", 0.08), ("l2", 1.5)])
def test_it_is_the_number_of_the_authors(five, norm, radius, monkeypatch):
    """With all of AutoAttack's steps, and a tenth of the queries of Square for both."""
    from pyautoattack import AutoAttack

    model, inputs, labels = five
    authors = AutoAttack(model, norm=norm.capitalize(), eps=radius, seed=0)
    parts = (authors.apgd, authors.apgd_targeted, authors.fab)
    assert {part.n_iter for part in parts} == {robust_accuracy.STEPS}
    assert authors.square.n_queries == robust_accuracy.QUERIES
    monkeypatch.setattr(robust_accuracy, "QUERIES", robust_accuracy.QUERIES // 10)
    authors.apgd_targeted.n_target_classes = authors.fab.n_target_classes = 4
    authors.square.n_queries = robust_accuracy.QUERIES
    examples = authors.run_standard_evaluation(inputs, labels, batch_size=len(inputs))[0]
    theirs = (model(examples).argmax(1) == labels).float().mean()
    done = davylamp.robust_accuracy(model, inputs, labels, norm=norm, epsilon=radius)
    assert done.robust.value == pytest.approx(float(theirs))
    assert 0 < done.robust.value < 1
    assert done.queries > 2 * robust_accuracy.STEPS + 1  # what AutoAttack spends on those that stand


class Noisy(nn.Module):
    """Its logits are random."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, images):
        logits = self.inner(images)
        return logits + 3 * torch.randn_like(logits)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("until", [None, "RA >= 0.5"])
def test_a_random_model_that_is_not_declared_is_not_judged(digits, until):
    case = digits.first(4)
    done = davylamp.robust_accuracy(Noisy(digits.classifier), case.inputs, case.labels, epsilon=0.2, until=until)
    assert "random=True" in done.warnings[0]
    assert repr(done).startswith("warning: ")
    assert math.isnan(done.robust.value)
    assert math.isnan(done.robust.high)
    assert (done.steps, done.stopped) == ((), "")
    document = json.loads(json.dumps(done.to_dict(), allow_nan=False))
    assert document["robust"] == {"value": None, "low": None, "high": None, "n": done.robust.n}
    assert "%" not in done.sentence


class Rounding(nn.Module):
    """Its gradients are zero everywhere."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, images):
        return self.inner((images * 4).round() / 4)


class Detached(nn.Module):
    """It gives no gradients at all."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, images):
        with torch.no_grad():
            return self.inner(images)


@pytest.mark.usefixtures("short")
def test_gradients_that_mislead_are_named_twice(five):
    """By the indicator of zero gradients, and by Square, which needs none and fools what they left."""
    model, inputs, labels = five
    done = davylamp.robust_accuracy(Rounding(model), inputs[:4], labels[:4], epsilon=0.4)
    *by_gradients, square = done.steps
    assert sum(step.fooled for step in by_gradients) == 0
    assert square.fooled > 0
    by_square = [line for line in done.warnings if line.startswith("square")]
    assert len(by_square) == 1
    assert f" {square.fooled} of the {square.attacked} images" in by_square[0]
    assert [line for line in done.warnings if line.startswith("Unavailable gradients") and "zero on 4" in line]


@pytest.mark.usefixtures("short")
def test_what_a_model_without_gradients_cannot_be_attacked_by_is_named(digits):
    case = digits.first(8)
    done = davylamp.robust_accuracy(Detached(digits.classifier), case.inputs, case.labels, epsilon=0.2)
    (square,) = done.steps
    assert square.attack.endswith(":square")
    assert square.attacked == 8
    assert square.fooled == 8 - round(8 * done.robust.value) > 0
    assert done.ensemble == "AutoAttack standard without apgd-ce, apgd-t, fab-t"
    assert "apgd-ce, apgd-t, fab-t" in done.warnings[0]


@pytest.mark.usefixtures("short")
def test_a_declared_random_model_is_judged_by_the_share_of_its_draws(digits):
    case = digits.first(6)
    model = Classifier(Noisy(digits.classifier), random=True)
    done = davylamp.robust_accuracy(model, case.inputs, case.labels, epsilon=0.1)
    assert done.ensemble == "AutoAttack rand"
    assert [step.attack.partition(":")[2] for step in done.steps] == ["apgd-ce", "apgd-dlr"]
    assert 0 < done.robust.value < done.clean.value < 1
    assert (done.robust.value * 6 * 20) % 1 == pytest.approx(0, abs=1e-6)  # shares of 20 draws
    assert not [line for line in done.warnings if "random=True" in line]


def test_nobody_right_when_clean(digits):
    case = digits.first(5)
    done = davylamp.robust_accuracy(digits.classifier, case.inputs, (case.labels + 1) % 10, epsilon=0.1)
    assert (done.clean.value, done.robust.value) == (0, 0)
    assert [(step.attacked, step.fooled) for step in done.steps] == [(0, 0)] * 4
    assert math.isnan(done.queries)
    assert json.loads(json.dumps(done.to_dict(), allow_nan=False))["queries"] is None


@pytest.mark.usefixtures("short")
def test_an_invalid_result_is_not_robust_and_is_named(digits):
    """The model answers NaN for what an attack changed: its own fault, which counts against both ends."""

    class Undefined(nn.Module):
        def forward(self, images):
            logits = digits.classifier(images)
            clean = (images[:, None] - case.inputs).abs().flatten(2).amax(2).amin(1) < 1e-4
            return torch.where(clean[:, None], logits, torch.nan)

    case = digits.first(4)
    done = davylamp.robust_accuracy(Undefined(), case.inputs, case.labels, epsilon=0.1)
    assert done.clean.value == 1
    assert done.robust.value == 0
    assert [line for line in done.warnings if line.startswith("4 results are invalid (4 caused by the model")]


@pytest.mark.usefixtures("short")
def test_repeated_and_missing_images_are_named(digits):
    case = digits.first(3)
    inputs, labels = torch.cat([case.inputs] * 2), torch.cat([case.labels] * 2)
    done = davylamp.robust_accuracy(digits.classifier, inputs, labels, epsilon=0.3, limit=50)
    assert [line for line in done.warnings if line.startswith("3 of 6 images duplicate")]
    assert [line for line in done.warnings if "6 images, fewer than the requested 50" in line]
    assert davylamp.robust_accuracy(digits.classifier, inputs, labels, epsilon=0.3, limit=3).robust.n == 3


def test_what_it_refuses(digits):
    case = digits.first(2)
    for wrong, named in (({"limit": 0}, "limit"), ({"data": "demo:mnist"}, "both")):
        with pytest.raises(InvalidInput, match=named):
            davylamp.robust_accuracy(digits.classifier, case.inputs, case.labels, **wrong)
    for model, data, named in ((3, "demo:mnist", "model.* int"), ("demo:mnist-lenet5", 3, "data as text, got 3")):
        with pytest.raises(WrongType, match=named):
            davylamp.robust_accuracy(model, data=data)


def test_an_interrupted_call_goes_on_where_it_was(digits, tmp_path):
    count = 3 * SHARD_SIZE
    times = count // len(digits.labels)
    inputs, labels = digits.inputs.repeat(times, 1, 1, 1), digits.labels.repeat(times)

    def type_control_c():
        while not any(tmp_path.glob("parts/[!.]*")):  # a draft that is still written begins with a dot
            time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=type_control_c, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        davylamp.robust_accuracy(digits.classifier, inputs, labels, epsilon=0.9, out=tmp_path)
    store = ResultsStore(tmp_path)
    kept = dict(store.read_all("parts"))
    assert kept
    assert not list(store.read_all("cells"))
    done = davylamp.robust_accuracy(digits.classifier, inputs, labels, epsilon=0.9, out=tmp_path)
    assert done.robust.n == count
    ((_, cell),) = store.read_all("cells")
    for name, part in kept.items():
        start = int(name.rpartition("-")[2]) * SHARD_SIZE
        assert cell.table["seconds"].to_pylist()[start : start + SHARD_SIZE] == part.table["seconds"].to_pylist()


@pytest.mark.usefixtures("short")
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


@pytest.mark.usefixtures("short")
def test_the_command_says_what_python_says_in_both_of_its_forms(run, tmp_path):
    given = {"data": "demo:mnist", "limit": 4, "epsilon": 0.3, "out": tmp_path}
    document = json.loads(json.dumps(davylamp.robust_accuracy("demo:mnist-lenet5", **given).to_dict()))
    words = ["robust-accuracy", "demo:mnist-lenet5", "--data", "demo:mnist", "--limit", "4", "--epsilon", "0.3"]
    assert json.loads(run(*words, "-o", tmp_path, "--json")[1]) == document
    code, out, _ = run(*words, "-o", tmp_path)
    assert code == 0
    answer, *steps = out.splitlines()[len(document["warnings"]) :]
    robust, clean = document["robust"], document["clean"]
    assert f"robust accuracy {robust['value']:.1%} [{100 * robust['low']:.1f}, {100 * robust['high']:.1f}]" in answer
    assert f"clean accuracy {clean['value']:.1%}" in answer
    for step, shown in zip(document["steps"], steps, strict=True):
        assert step["attack"] in shown
        numbers = [int(word) for word in shown.replace(",", " ").split() if word.isdigit()]
        assert numbers == [step["fooled"], step["attacked"]]
    (tmp_path / "file").touch()
    code, _, errors = run(*words, "-o", tmp_path / "file")
    assert (code, str(tmp_path / "file") in errors) == (1, True)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("until", "verdict", "decides"), [("RA >= 0.2", "RA >= 0.2,", True), ("RA >= 0.9", "not RA >= 0.9,", False)]
)
def test_a_sequence_stops_once_it_is_decided(until, verdict, decides, tmp_path):
    """Half of the images stand at the radius: by the closed form, for the images that were drawn too."""
    model = Linear(5)
    labels = model(INPUTS).argmax(1)
    least = least_changes(model, labels)
    radius = float(least.sort().values[19:21].mean())
    words = {"epsilon": radius, "batch_size": 8, "seed": 3}
    done = davylamp.robust_accuracy(model, INPUTS, labels, until=until, out=tmp_path / "out", **words)
    drawn = np.random.default_rng(3).permutation(40)[: done.robust.n]
    stands = (least > radius)[drawn].numpy()
    assert 0 < done.robust.n < 40
    assert done.robust.value == pytest.approx(stands.mean())
    assert f": {verdict}" in done.stopped
    assert (done.robust.low >= 0.2 if decides else done.robust.high < 0.9) is True
    assert done.robust.low <= float((least > radius).float().mean()) <= done.robust.high
    assert sum(step.fooled for step in done.steps) == int((~stands).sum())
    assert done.robust.n % 8 == 0
    again = davylamp.robust_accuracy(model, INPUTS, labels, until=until, out=tmp_path / "out", **words)
    assert again.to_dict() == done.to_dict()


@pytest.mark.usefixtures("short")
def test_all_images_of_a_sequence_give_the_number_itself():
    model = Linear(5)
    labels = model(INPUTS).argmax(1)
    least = least_changes(model, labels)
    radius = float(least.sort().values[19:21].mean())
    done = davylamp.robust_accuracy(model, INPUTS, labels, epsilon=radius, until="width <= 0.01")
    assert (done.robust.value, done.robust.low, done.robust.high) == pytest.approx((0.5, 0.5, 0.5))
    assert done.robust.n == 40


@pytest.mark.parametrize(
    "until", ["CA >= 0.5", "RA >= 50", "RA >= 0.5 @ l2 1", "width <= 0", "soon", "A > B", "ranked"]
)
def test_a_rule_that_cannot_be_kept_is_refused(until):
    with pytest.raises(InvalidInput, match=r"expected|needs"):
        davylamp.robust_accuracy(Linear(5), INPUTS, torch.zeros(40, dtype=torch.long), until=until)

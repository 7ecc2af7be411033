"""A model that was made robust: it is, its file says how, and loads as that model."""

import json

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from torch import nn

import davylamp
from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.data.datasets import Data
from davylamp.adapters.models.identity.digest import digest_model
from davylamp.adapters.models.zoo.load import load_model
from davylamp.adapters.models.zoo.weights_file import read_weights
from davylamp.engine.training.card import describe_measured, measure_model
from davylamp.engine.training.held_out import check_disjoint, digest_image, split_data
from davylamp.engine.training.methods import make_settings
from davylamp.errors import InvalidInput, Unavailable, UnknownName, Unsupported
from davylamp.intervals import proportion_interval

FACTORY = """
import torch
from torch import nn

def make():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(256, 10),
        )

def wider():
    return nn.Sequential(nn.Flatten(), nn.Linear(768, 10))

def empty():
    return nn.Flatten()
"""
QUICK = {"epochs": 1, "epsilon": 0.1}


class Large(nn.Module):
    """The logits of a network, 10 000 times as large."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, inputs):
        return self.network(inputs) * 1e4


@pytest.fixture(scope="module")
def images() -> Data:
    """All digits as the fixture `digits` has them."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    inputs = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None].expand(-1, 3, -1, -1) * 0.9 + 0.05
    inputs = nn.functional.interpolate(inputs, scale_factor=2).contiguous()
    return Data(inputs, torch.tensor(digits.target), [str(place) for place in range(len(inputs))])


@pytest.fixture(scope="module")
def few(images) -> Data:
    return Data(images.inputs[:60], images.labels[:60], images.names[:60])


@pytest.fixture
def folder(tmp_path, monkeypatch, few):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(FACTORY)
    np.savez(tmp_path / "d.npz", inputs=few.inputs.numpy(), labels=few.labels.numpy())
    return tmp_path


@pytest.mark.parametrize(("method", "rate"), [("pgd", 0.005), ("trades", 0.001)])
def test_a_hardened_model_is_more_robust_than_chance_explains(digits, images, method, rate):
    """By Foolbox's PGD, which the training knows nothing of, on images that it never saw; paired over images."""
    training, held = split_data(images, 0.2, 0)
    held = Data(held.inputs[:150], held.labels[:150], held.names[:150])
    made = davylamp.harden(
        digits.module, training, method, validation=held, epsilon=0.1, epochs=3, steps=5, learning_rate=rate
    )
    rules = ThreatModel("linf", 0.1)
    plain, robust = (
        run_attack("foolbox:pgd", model, held.inputs, held.labels, rules, seed=1, steps=10, step_size=0.025).robust
        for model in (Classifier(digits.module), made.classifier)
    )
    gained, lost = int((robust & ~plain).sum()), int((plain & ~robust).sum())
    assert binomtest(gained, gained + lost).pvalue < 1e-6
    assert gained > lost
    assert made.card["before"]["pgd"]["n"] == made.card["after"]["pgd"]["n"] == 150
    assert made.card["after"]["pgd"]["right"] > made.card["before"]["pgd"]["right"]


def test_the_card_says_what_made_it_and_counts_right(digits, few):
    made = davylamp.harden(digits.module, few, held_out=0.5, seed=3, **QUICK)
    card = made.card
    right = int((made.classifier.predict_logits(few.inputs).argmax(1) == few.labels).sum())
    training, held = split_data(few, 0.5, 3)
    on_both = [int((made.classifier.predict_logits(d.inputs).argmax(1) == d.labels).sum()) for d in (training, held)]
    assert sum(on_both) == right
    assert (card["after"]["clean"]["right"], card["after"]["clean"]["n"]) == (on_both[1], 30)
    assert card["base_digest"] == digest_model(Classifier(digits.module))
    assert card["settings"]["values"]["step_size"] == pytest.approx(0.025)
    assert card["settings"]["seed"] == 3
    assert card["versions"]["torch"] == torch.__version__
    assert card["after"]["attack"].startswith("foolbox:pgd, linf 0.1, 20 steps")
    low, high = card["after"]["clean"]["interval"]
    assert low <= card["after"]["clean"]["accuracy"] <= high
    assert low > 0.5
    assert json.loads(json.dumps(card)) == card


def test_results_that_prove_nothing_widen_the_interval_and_are_named(digits, few):
    """Logits so large that the gradient of the softmax is zero."""
    settings = make_settings("pgd", "linf", 0.1, {"epochs": 1})
    measured = measure_model(Classifier(Large(digits.module), num_classes=10), few, settings)
    share, violated, n = measured["pgd"], measured["violations"], len(few.labels)
    assert violated == measured["kinds"]["no-gradient"] > 0
    assert share["interval"] == [
        proportion_interval(share["right"], n)[0],
        proportion_interval(share["right"] + violated, n)[1],
    ]
    assert f"{violated} of PGD's results are invalid (no-gradient {violated})" in describe_measured(measured)


def test_the_model_that_was_given_stays_as_it_is(digits, few):
    before = {name: tensor.clone() for name, tensor in digits.module.state_dict().items()}
    made = davylamp.harden(digits.module, few, "natural", **QUICK)
    assert all(torch.equal(before[name], tensor) for name, tensor in digits.module.state_dict().items())
    assert not any(parameter.requires_grad for parameter in digits.module.parameters())
    assert made.path is None
    assert not all(torch.equal(before[name], tensor) for name, tensor in made.classifier.model.state_dict().items())


def test_the_file_is_the_model_under_two_names(folder, few):
    made = davylamp.harden("net.py:make", "npz:d.npz", "fgsm", out="w.pt", **QUICK)
    expected = made.classifier(few.inputs)
    alone, behind = load_model("w.pt"), load_model("net.py:make+w.pt")
    for model in (alone, behind):
        assert torch.equal(model(few.inputs), expected)
    plain = load_model("net.py:make")
    assert digest_model(alone) == digest_model(behind)
    assert digest_model(plain) != digest_model(alone)  # a record knows which weights it is of
    assert json.loads((folder / "w.json").read_text()) == read_weights(folder / "w.pt").card
    assert not (folder / "w.pt.partial").exists()
    jpeg = load_model("w.pt+jpeg:quality=90")
    assert jpeg(few.inputs).shape == (60, 10)


def test_the_same_training_is_not_done_again_and_another_is_refused(folder):
    first = davylamp.harden("net.py:make", "npz:d.npz", "natural", out="w.pt", **QUICK)
    written = (folder / "w.pt").stat().st_mtime_ns
    again = davylamp.harden("net.py:make", "npz:d.npz", "natural", out="w.pt", **QUICK)
    assert (folder / "w.pt").stat().st_mtime_ns == written
    assert again.card == first.card
    states = [made.classifier.model.state_dict() for made in (first, again)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    with pytest.raises(InvalidInput, match="from a training with a different"):
        davylamp.harden("net.py:make", "npz:d.npz", "natural", out="w.pt", seed=1, **QUICK)


def test_training_goes_on_from_weights(folder, few):
    davylamp.harden("net.py:make", "npz:d.npz", "natural", out="a.pt", **QUICK)
    made = davylamp.harden("a.pt", "npz:d.npz", "natural", out="b.pt", **QUICK)
    assert read_weights(folder / "b.pt").base.endswith("net.py:make")
    assert (
        made.card["before"] == davylamp.harden("net.py:make", "npz:d.npz", "natural", out="a.pt", **QUICK).card["after"]
    )
    fresh = davylamp.harden("a.pt", "npz:d.npz", "natural", fresh=True, **QUICK)
    assert not torch.equal(fresh.classifier(few.inputs), made.classifier(few.inputs))


def test_weights_whose_code_changed_are_not_run(folder):
    davylamp.harden("net.py:make", "npz:d.npz", "natural", out="w.pt", **QUICK)
    (folder / "net.py").write_text(FACTORY + "\n# edited\n")
    with pytest.raises(InvalidInput, match=r"which has changed since; give the model explicitly: FILE.py:FACTORY\+"):
        load_model("w.pt")
    assert load_model("net.py:make+w.pt").name == "net.py:make+w.pt"
    with pytest.raises(InvalidInput, match=r"do not fit net\.py:wider"):
        load_model("net.py:wider+w.pt")
    (folder / "net.py").unlink()
    with pytest.raises(InvalidInput, match="which no longer exists"):
        load_model("w.pt")


def test_a_file_that_is_no_weights_is_one_line(folder, digits):
    torch.save(digits.module.state_dict(), "state.pt")
    torch.save(digits.module, "program.pt")
    for error, name, named in (
        (InvalidInput, "state.pt", r"state.pt holds weights only"),
        (Unavailable, "program.pt", r"program\.pt.*contains code"),
        (Unavailable, "nowhere.pt", "no such file: nowhere.pt"),
    ):
        with pytest.raises(error, match=named):
            load_model(name)


def test_weights_of_a_module_without_a_name_need_one(folder, digits, few):
    davylamp.harden(digits.module, few, "natural", out="w.pt", **QUICK)
    with pytest.raises(InvalidInput, match="does not record the name"):
        load_model("w.pt")
    assert load_model("net.py:make+w.pt")(few.inputs).shape == (60, 10)


WRONG = {
    "unknown method": ({"method": "madry"}, UnknownName, "madry"),
    "number of another method": ({"method": "pgd", "beta": 6}, UnknownName, "beta"),
    "out of range": ({"learning_rate": -1.0}, InvalidInput, "learning_rate"),
    "no choice": ({"optimiser": "lion"}, InvalidInput, "optimiser"),
    "norm": ({"norm": "l1"}, UnknownName, "norm.*'l1'"),
    "norm of the method": ({"method": "fgsm", "norm": "l2"}, InvalidInput, "linf for fgsm"),
    "radius": ({"epsilon": 8.0}, InvalidInput, "8/255"),
    "share": ({"held_out": 1.0}, InvalidInput, r"in \(0, 1\)"),
    "place": ({"out": "no/such/w.pt"}, Unavailable, "no/such"),
    "ending": ({"out": "weights.pth"}, InvalidInput, "weights.pth"),
    "seed": ({"seed": -1}, InvalidInput, "seed"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_one_line_before_anything_is_trained(folder, digits, few, name, monkeypatch):
    given, kind, text = WRONG[name]
    monkeypatch.setattr("davylamp.engine.training.harden.train", None)  # whoever gets there fails
    with pytest.raises(kind, match=text):
        davylamp.harden(digits.module, few, **{"epsilon": 0.1, **given})


def test_models_and_images_that_do_not_fit_are_one_line(folder, digits, few):
    for error, named, model, data, words in (
        (Unsupported, "without defences", "net.py:make+jpeg", "npz:d.npz", {}),
        (Unsupported, "with parameters to train", "net.py:empty", "npz:d.npz", {}),
        (InvalidInput, "labels from 0 to 9", digits.module, (few.inputs, few.labels + 5), {}),
        (InvalidInput, "60 of 60 in the training data", digits.module, few, {"validation": few}),
        (InvalidInput, "at least 2 different images", digits.module, few, {"limit": 1}),
    ):
        with pytest.raises(error, match=named):
            davylamp.harden(model, data, **words, **QUICK)


def test_equal_images_stay_on_one_side(few):
    twice = Data(torch.cat([few.inputs, few.inputs]), few.labels.repeat(2), [str(place) for place in range(120)])
    training, held = split_data(twice, 0.3, 0)
    assert len(held.labels) == 36
    check_disjoint(training, held)
    assert len({digest_image(image) for image in held.inputs}) == 18

"""Multi-label models: linear ones, whose least perturbations are a formula for each label."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters.data.datasets import load_data_for
from davylamp.adapters.models.identity.digest import identify_model
from davylamp.adapters.models.sandbox.isolation import Isolation, read_files
from davylamp.adapters.models.zoo.load import load_model
from davylamp.engine.challenge import robust_accuracy
from davylamp.errors import InvalidInput, ModelFailed, Unavailable, Unsupported

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


@pytest.fixture
def files(tmp_path, monkeypatch):
    """net.py:make with three scores, net.py:soft with their sigmoids, and d.npz with the labels."""
    monkeypatch.chdir(tmp_path)
    torch.save({"weights": WEIGHTS, "bias": BIAS}, "net.pt")
    np.savez("d.npz", inputs=INPUTS, labels=TARGETS)
    (tmp_path / "net.py").write_text(NET)


NET = """
from pathlib import Path
import numpy as np
import torch

class Linear(torch.nn.Module):
    def __init__(self, end):
        super().__init__()
        stored = torch.load(Path(__file__).with_name("net.pt"))
        self.weights, self.bias, self.end = stored["weights"], stored["bias"], end

    def forward(self, inputs):
        return self.end(inputs.flatten(1) @ self.weights.T + self.bias)

def make(): return Linear(torch.nn.Identity())
def soft(): return Linear(torch.nn.Sigmoid())
def data():
    stored = np.load(Path(__file__).with_name("d.npz"))
    return stored["inputs"], stored["labels"]
"""


@pytest.mark.parametrize("source", ["npz:d.npz", "net.py:data"])
@pytest.mark.parametrize(
    "end", ["any=d.npz", "label=2", "any=d.npz,scores=probabilities", "label=0,scores=probabilities"]
)
def test_a_name_declares_the_criterion(end, source, files, run):
    """The same numbers as by Python, from the command line."""
    label = int(end[6]) if end.startswith("label") else None
    name = f"net.py:{'soft' if 'prob' in end else 'make'}+multi-label:{end}"
    least = SCORES.abs().amin(1) if label is None else SCORES[:, label].abs()
    radius = _between(least)
    how = ("--data", source, "--attacks", "foolbox:pgd", "--norm", "linf", "--epsilon", f"{radius}")
    code, _, err = run("evaluate", "--models", name, *how, "-o", "results")
    assert code == 0, err
    frame = davylamp.load("results")
    assert frame["attacked"].all()
    left, found = int((least > radius).sum()), int(frame["robust"].sum())
    assert 0 < left < len(least)
    assert left <= found <= left + (4 if label is None else 0)  # pgd may miss the label that is easiest to change


def test_views_treat_it_as_any_other_model(files, run):
    name, radius = "net.py:make+multi-label:any=d.npz", str(_between(SCORES.abs().amin(1)))
    shared = ("--data", "npz:d.npz", "--norm", "linf", "--epsilon", radius)
    models = f"{name},{name}+bit-depth:bits=6"
    both = "foolbox:pgd,foolbox:fgsm"
    assert run("evaluate", "--models", models, "--attacks", both, *shared, "--keep-images", "-o", "results")[0] == 0
    for view in (("table", "results"), ("rank", "results"), ("report", "results"), ("check", "results")):
        code, _, err = run(*view)
        assert code == 0, err
    assert run("export", "results", "a.zip", "--verdict", "--model", name)[0] == 0
    assert run("verify", "a.zip", "--model", name, "--data", "npz:d.npz")[0] == 0
    other = "net.py:make+multi-label:label=0"  # another criterion is another model
    assert run("verify", "a.zip", "--model", other, "--data", "npz:d.npz")[0] != 0


def test_its_criterion_is_its_identity_and_its_isolated_model_is_the_same(files):
    names = [f"net.py:make+multi-label:{end}" for end in ("label=0", "label=1", "any=d.npz", "any=e.npz")]
    np.savez("e.npz", y=np.eye(3))
    digests = {identify_model(load_model(name), name).digest for name in names}
    assert len(digests) == 4
    apart = load_model(names[2], isolation=Isolation("yes"))
    assert identify_model(apart, names[2]).digest == identify_model(load_model(names[2]), names[2]).digest
    classes = load_data_for(apart, "npz:d.npz").labels
    assert torch.equal(apart.predict_logits(INPUTS).argmax(1), classes)
    assert read_files(names[3])[-1].name == "e.npz"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("net.py:make+multi-label:", InvalidInput),
        ("net.py:make+multi-label:label=-1", InvalidInput),
        ("net.py:make+multi-label:label=1,any=d.npz", InvalidInput),
        ("net.py:make+multi-label:label=1,scores=labels", InvalidInput),
        ("net.py:make+multi-label:any=none.npz", Unavailable),
        ("net.py:make+multi-label:any=net.py", Unavailable),
        ("net.py:make+multi-label:any=f.npz", InvalidInput),
        ("net.py:make+multi-label:any=g.npz", InvalidInput),
        ("net.py:make+jpeg+multi-label:label=1", InvalidInput),
    ],
)
def test_wrong_criteria_are_refused(name, error, files):
    np.savez("f.npz", inputs=INPUTS)
    np.savez("g.npz", labels=TARGETS * 2)
    with pytest.raises(error):
        load_model(name)


def test_data_that_do_not_fit_the_criterion_are_refused(files):
    np.savez("e.npz", labels=1 - TARGETS[:1])
    np.savez("half.npz", inputs=INPUTS, labels=TARGETS / 2)
    for end, data in (("any=e.npz", "d.npz"), ("label=3", "d.npz"), ("label=0", "half.npz")):
        with pytest.raises(InvalidInput):
            load_data_for(load_model(f"net.py:make+multi-label:{end}"), f"npz:{data}")
    with pytest.raises(ModelFailed):
        load_model("net.py:make+multi-label:label=3").predict_logits(INPUTS)


def test_a_multi_label_model_of_hugging_face_is_loaded_with_a_criterion(tmp_path):
    transformers = pytest.importorskip("transformers", reason="the extra hf is not installed")
    config = transformers.ViTConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=6,
        patch_size=3,
        num_channels=1,
        num_labels=3,
        problem_type="multi_label_classification",
        architectures=["ViTForImageClassification"],
    )
    with torch.random.fork_rng():
        model = transformers.ViTForImageClassification(config).eval()
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        wanted = model(pixel_values=INPUTS).logits[:, 1]
    logits = load_model(f"hf:{tmp_path}+multi-label:label=1").predict_logits(INPUTS)
    torch.testing.assert_close(logits[:, 1] - logits[:, 0], wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(Unsupported, match="multi-label:label"):
        load_model(f"hf:{tmp_path}")


@pytest.mark.parametrize("label", [None, 1])
def test_scores_of_a_sigmoid_are_not_taken_for_logits(label):
    """40 scores in [0, 1] are hardly logits. The same model with its declaration has the labels' own accuracy."""
    targets = torch.randint(0, 2, (20, 3), generator=torch.Generator().manual_seed(0))
    inputs = targets[:, :, None, None].float() * 0.8 + 0.1

    class Sigmoids(torch.nn.Module):
        def forward(self, images):
            return (images.mean((2, 3)) * 20 - 10).sigmoid()

    wrong, labels = davylamp.from_multi_label(Sigmoids(), targets, label=label)
    with pytest.raises(ModelFailed, match="sigmoid"):
        wrong.predict_logits(inputs)
    right, labels = davylamp.from_multi_label(Sigmoids(), targets, label=label, outputs="probabilities")
    assert (right.predict_logits(inputs).argmax(1) == labels).all()

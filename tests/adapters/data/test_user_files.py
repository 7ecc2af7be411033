"""A user's data and defences: functions in a file, checked like everything else that comes from outside."""

import pytest
import torch

from davylamp.adapters import Classifier
from davylamp.adapters.data.datasets import load_data
from davylamp.adapters.models.identity.digest import identify_model
from davylamp.adapters.models.zoo.load import load_model
from davylamp.engine import build_defence, load
from davylamp.errors import InvalidInput, ModelFailed, Unavailable, UnknownName

DATA = """
import numpy as np
import torch
from torch.utils.data import TensorDataset

inputs = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
labels = torch.arange(6) % 4

def tensors():
    return inputs, labels

def named(limit=None):
    return inputs[:limit], labels[:limit], [f"image {i}" for i in range(6)][:limit]

def bytes_last():
    return (inputs.permute(0, 2, 3, 1).numpy() * 255).astype(np.uint8), labels.numpy()

def two_pairs():
    return [(inputs[0], 1), (inputs[1], 2)]

def three_pairs():
    return [(inputs[0], 1), (inputs[1], 2), (inputs[2], 3)]

def default(limit=2):
    return inputs[:limit], labels[:limit]

def float_pairs():
    return [(image, 1.7) for image in inputs]

def word_pairs():
    return [(image, "1") for image in inputs]

def true_pairs():
    return [(image, True) for image in inputs]

def pairs_of_sizes():
    return [(inputs[0], 1), (inputs[1, :, :4], 2)] * 3

def one_hot_pairs():
    return [(image, torch.eye(4)[1]) for image in inputs]

def dataset():
    return TensorDataset(inputs, labels)

def wrong_range():
    return inputs * 255, labels

def float_labels():
    return inputs, labels.float()

def nothing():
    return None

def short_names():
    return inputs, labels, ["one"]

def fails():
    raise ValueError("no disk")
"""
MODEL = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
"""
DEFENCE = """
from torch import nn

import grid

def quantised(classifier):
    return nn.Sequential(grid.Levels(8), classifier)

def nothing(classifier):
    return None
"""
GRID = """
from torch import nn

class Levels(nn.Module):
    def __init__(self, levels):
        super().__init__()
        self.levels = levels

    def forward(self, inputs):
        return inputs + ((inputs * self.levels).round() / self.levels - inputs).detach()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, text in {"data": DATA, "net": MODEL, "defence": DEFENCE, "grid": GRID}.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tensors_arrays_and_datasets(folder):
    whole = load_data("data.py:tensors")
    assert whole.inputs.shape == (6, 3, 8, 8)
    assert whole.labels.tolist() == [0, 1, 2, 3, 0, 1]
    assert whole.names == ["0", "1", "2", "3", "4", "5"]
    assert load_data("data.py:named", limit=2).names == ["image 0", "image 1"]
    assert torch.equal(load_data("data.py:dataset", limit=4).inputs, whole.inputs[:4])
    for name, count in (("two_pairs", 2), ("three_pairs", 3)):
        pairs = load_data(f"data.py:{name}")
        assert torch.equal(pairs.inputs, whole.inputs[:count])
        assert pairs.labels.tolist() == [1, 2, 3][:count]
    assert len(load_data("data.py:default").labels) == 2
    rounded = load_data("data.py:bytes_last").inputs
    assert torch.equal(rounded, (whole.inputs * 255).to(torch.uint8).float() / 255)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("data.py:wrong_range", InvalidInput, "expected images in"),
        ("data.py:float_labels", InvalidInput, "expected integer labels"),
        *((f"data.py:{kind}_pairs", InvalidInput, "expected integer labels") for kind in ("float", "word", "true")),
        ("data.py:one_hot_pairs", InvalidInput, "argmax"),
        ("data.py:pairs_of_sizes", InvalidInput, r"\(3, 8, 8\) and \(3, 4, 8\)"),
        ("data.py:nothing", InvalidInput, "to return images and labels"),
        ("data.py:short_names", InvalidInput, "a name for each of the 6 images"),
        ("data.py:inputs", InvalidInput, "expected a function"),
        ("data.py:fails", ModelFailed, r"raised ValueError: no disk \(line \d+ of data\.py\)"),
        ("data.py:tensor", UnknownName, "did you mean tensors"),
        ("absent.py:load", Unavailable, "expected a Python file with a data function"),
    ],
)
def test_what_is_no_data_gets_one_line(folder, name, kind, words):
    with pytest.raises(kind, match=words) as caught:
        load_data(name)
    assert "\n" not in str(caught.value)


def test_a_defended_model_is_what_the_function_makes_of_it(folder):
    inputs = load_data("data.py:tensors").inputs
    plain, defended = load_model("net.py:net"), load_model("net.py:net+defence.py:quantised")
    assert isinstance(defended, Classifier)
    assert defended.name == "net.py:net+defence.py:quantised"
    expected = plain.predict_logits((inputs * 8).round() / 8)
    assert torch.allclose(defended.predict_logits(inputs), expected, atol=1e-6)
    assert not torch.allclose(expected, plain.predict_logits(inputs))
    with pytest.raises(InvalidInput, match="expected a Classifier or a torch"):
        load_model("net.py:net+defence.py:nothing")
    with pytest.raises(UnknownName, match=r"unknown defence in .*did you mean quantised"):
        load_model("net.py:net+defence.py:quantized")


def test_the_identity_sees_the_defence_its_settings_and_its_neighbours(folder):
    def digest(name="net.py:net+defence.py:quantised"):
        return identify_model(load_model(name), name).digest

    first = digest()
    assert first == digest()
    assert first != digest("net.py:net")
    (folder / "defence.py").write_text(DEFENCE.replace("Levels(8)", "Levels(4)"))
    second = digest()
    assert second != first
    (folder / "grid.py").write_text(GRID.replace(".round()", ".floor()"))
    assert digest() != second


def test_both_take_part_in_an_evaluation(folder, run):
    attacks = ("--attacks", "foolbox:fgsm", "--epsilon", "0.1", "--norm", "linf")
    code, _, errors = run(
        "evaluate", "--models", "net.py:net", "--defence", "defence.py:quantised", *attacks, "--data", "data.py:named"
    )
    assert code == 0, errors
    table = load("results")
    assert set(table["model"]) == {"net.py:net", "net.py:net+defence.py:quantised"}
    assert table["image"].iloc[0] == "image 0"
    built = build_defence("results", "net.py:net", "net.py:net+defence.py:quantised")
    assert built.rows

"""`davylamp detectors`, `train` and `detect`: from images to what fools and is not detected."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

NET = """
import torch
from torch import nn

def make():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(256, 10),
    )
    net.load_state_dict(torch.load({path!r}, weights_only=True))
    return net

def other():
    return nn.Sequential(make(), nn.Identity())
"""


@pytest.fixture
def folder(run, digits, tmp_path):
    """A model file, 150 images to train on, and 20 others."""
    torch.save(digits.module.state_dict(), tmp_path / "state.pth")
    (tmp_path / "net.py").write_text(NET.replace("{path!r}", repr(str(tmp_path / "state.pth"))))
    data: Any = load_digits()
    images = torch.tensor(data.images / 16, dtype=torch.float32)[:, None].expand(-1, 3, -1, -1) * 0.9 + 0.05
    images = nn.functional.interpolate(images, scale_factor=2).numpy()
    np.savez(tmp_path / "train.npz", inputs=images[:150], labels=data.target[:150])
    np.savez(tmp_path / "test.npz", inputs=images[140:170], labels=data.target[140:170])
    return tmp_path


TRAIN = ("train", "art:binary-input", "--model", "net.py:make", "--data", "npz:train.npz")
ATTACK = ("--attack", "foolbox:pgd", "--epsilon", "0.2", "--attack-param", "steps=5")
EVALUATE = (
    "evaluate",
    "--data",
    "npz:test.npz",
    "--attacks",
    "foolbox:pgd",
    "--epsilon",
    "0.2",
)


def test_from_training_to_what_fools_undetected(run, folder):
    code, out, err = run(*TRAIN, *ATTACK, "--param", "epochs=3", "-o", "d.pt")
    assert code == 0, err
    assert "chosen: foolbox:pgd, norm linf, epsilon 0.2, seed 0" in err
    assert "its line is drawn on 45 other clean ones" in out
    code, _, err = run(*EVALUATE, "--models", "net.py:make", "--keep-images", "-o", "r")
    assert code == 0, err
    code, out, _ = run("detect", "r", "--detector", "d.pt", "--rate", "0.05", "--json")
    assert code == 0
    (row,) = json.loads(out)["detections"]
    assert (row["clean"], row["left_out"]) == (20, 10)  # images 140 to 149 were trained on
    (at,) = row["rates"]
    assert at["detected"]["n"] == row["fooled"] > 0
    assert at["missed"]["count"] == row["fooled"] - at["detected"]["count"]
    code, out, _ = run("detect", "r", "--detector", "d.pt")
    assert "fooled, not detected" in out
    assert "did not know the detector" in out
    code, _, err = run(
        *EVALUATE, "--models", "net.py:make+detector:d.pt,fpr=0.1", "--target", "random", "-o", "adaptive"
    )
    assert code == 0, err


def test_a_detector_of_another_model_and_examples_that_were_not_kept(run, folder):
    assert run("train", "feature-squeezing", "--model", "net.py:make", "--data", "npz:train.npz", "-o", "d.pt")[0] == 0
    assert run(*EVALUATE, "--models", "net.py:other", "-o", "other")[0] == 0
    code, _, err = run("detect", "other", "--detector", "d.pt")
    assert code == 1
    assert "expected results of net.py:make as d.pt was trained for, got those of net.py:other" in err
    assert run(*EVALUATE, "--models", "net.py:make", "-o", "r")[0] == 0
    code, _, err = run("detect", "r", "--detector", "d.pt")
    assert code == 1
    assert "expected kept examples in r, got none; evaluate with --keep-images" in err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((*TRAIN,), "expected an attack whose examples art:binary-input learns, got none; give --attack"),
        (("train", "kernel-density", *ATTACK), "expected no attack, got foolbox:pgd"),
        (("train", "lidd"), "unknown detector 'lidd'; did you mean lid"),
        ((*TRAIN, *ATTACK, "--param", "epochs"), "expected --param name=value, got 'epochs'"),
        ((*TRAIN, *ATTACK[:2], "--epsilon", "0.0001"), "expected at least 10 examples to learn from, got"),
        ((*TRAIN, *ATTACK, "-o", "no/such.pt"), "could not write no/such.pt"),
        (("detect", "nowhere", "--detector", "d.pt"), "expected a file of a trained detector, found none at d.pt"),
    ],
)
def test_bad_input_is_one_line(run, folder, arguments, line):
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert next(text for text in err.splitlines() if text.startswith("davylamp: ")).startswith(f"davylamp: {line}")


def test_every_detector_is_listed_with_what_is_not_here(run):
    code, out, _ = run("detectors", "--json")
    document = json.loads(out)
    assert code == 0
    assert len(document["detectors"]) == 6
    assert {row["learns"] for row in document["detectors"]} == {"clean images", "clean and adversarial images"}
    code, out, _ = run("detectors", "lid")
    assert "nearest clean images that a dimension is estimated from" in out
    assert document["left_out"]

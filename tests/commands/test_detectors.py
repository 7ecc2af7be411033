"""`davylamp detectors`, `train` and `detect`: from images to what fools and is not detected."""

import json
from pathlib import Path
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


TRAIN = ("fit", "art:binary-input", "--model", "net.py:make", "--data", "npz:train.npz")
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
    assert "threshold calibrated on 45 further clean" in out
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
    (kept,) = (folder / "r" / "detections").glob("*.parquet")
    page = report_of(run, "r")
    assert f"{at['missed']['count'] / at['missed']['n']:.3g}" in page
    assert "d.pt (art:binary-input)" in page
    before = kept.read_bytes()
    for images in (folder / "r" / "images").glob("*.npz"):
        images.unlink()  # what was measured is not measured again
    code, out, _ = run("detect", "r", "--detector", "d.pt", "--rate", "0.05", "--json")
    assert (code, json.loads(out)["detections"], kept.read_bytes()) == (0, [row], before)
    code, _, err = run(
        *EVALUATE, "--models", "net.py:make+detector:d.pt,fpr=0.1", "--target", "random", "-o", "adaptive"
    )
    assert code == 0, err


def report_of(run, folder):
    code, _, err = run("report", folder, "-o", "page.html")
    assert code == 0, err
    return Path("page.html").read_text(encoding="utf-8").replace("<wbr>", "")


def test_evaluate_measures_detectors_on_its_examples(run, folder):
    """The same numbers as `detect` on the finished folder; the examples are kept without being asked for."""
    train = ("fit", "feature-squeezing", "--model", "net.py:make", "--data", "npz:train.npz")
    assert run(*train, "-o", "d.pt")[0] == run(*train, "--param", "bits=2", "-o", "e.pt")[0] == 0
    files = ("--detector", "d.pt", "--detector", "e.pt")
    code, out, err = run(*EVALUATE, "--models", "net.py:make", *files, "-o", "r", "--json")
    assert code == 0, err
    assert "keeping adversarial images (keep_images)" in err
    measured = json.loads(out)["detectors"]["detections"]
    assert [row["detector"] for row in measured] == ["d.pt", "e.pt"]
    assert run(*EVALUATE, "--models", "net.py:make", "--keep-images", "-o", "again")[0] == 0
    code, out, _ = run("detect", "again", *files, "--json")
    assert json.loads(out)["detections"] == measured
    code, out, _ = run(*EVALUATE, "--models", "net.py:make", *files, "-o", "r")
    assert code == 0
    assert "1 reused" in out
    assert "fooled, not detected" in out
    page = report_of(run, "r")
    assert len(list((folder / "r" / "detections").glob("*.parquet"))) == 2
    assert "e.pt [" in page
    run("evaluate", "--models", "net.py:make", "--data", "npz:test.npz", "--attacks", "foolbox:fgsm", "-o", "none")
    assert 'id="detectors"' not in report_of(run, "none")


def test_scores_of_a_cell_that_changed_are_not_shown(run, folder):
    train = ("fit", "feature-squeezing", "--model", "net.py:make", "--data", "npz:train.npz", "-o", "d.pt")
    assert run(*train)[0] == 0
    assert run(*EVALUATE, "--models", "net.py:make", "--detector", "d.pt", "-o", "r")[0] == 0
    (cell,) = (folder / "r" / "cells").glob("*.parquet")
    assert 'id="detectors"' in report_of(run, "r")
    cell.rename(cell.with_name(f"{cell.name.split('.')[0]}.{'0' * 12}.parquet"))
    assert 'id="detectors"' not in report_of(run, "r")


def test_evaluate_refuses_a_detector_before_it_runs(run, folder):
    assert run("fit", "feature-squeezing", "--model", "net.py:make", "--data", "npz:train.npz", "-o", "d.pt")[0] == 0
    code, _, err = run(*EVALUATE, "--models", "net.py:other", "--detector", "d.pt", "-o", "r")
    assert code == 1
    assert "d.pt was trained for net.py:make, but the results are for net.py:other" in err
    code, _, err = run(*EVALUATE, "--models", "net.py:make", "--detector", "none.pt", "-o", "r")
    assert (code, (folder / "r" / "cells").exists()) == (1, False)
    assert "no such file: none.pt" in err
    code, out, err = run(*EVALUATE, "--models", "net.py:make", "--detector", "d.pt", "--print-config")
    assert (code, out) == (1, "")
    assert "--print-config and --detector cannot be combined" in err


def test_a_detector_of_activations_is_refused_beside_an_isolated_model(run, folder):
    """It ended a finished evaluation with an error, and `detect` said that no examples were kept."""
    train = ("fit", "kernel-density", "--model", "net.py:make", "--data", "npz:train.npz", "-o", "d.pt")
    code, _, err = run(*train, "--isolate", "auto")
    assert (code, (folder / "d.pt").exists()) == (1, False)
    assert "davylamp: kernel-density needs the layers of net.py:make" in err
    assert err.endswith("add --isolate no\n")
    assert run(*train, "--isolate", "no")[0] == 0
    evaluate = (*EVALUATE, "--models", "net.py:make", "-o", "r")
    code, _, err = run(*evaluate, "--detector", "d.pt", "--isolate", "auto")
    assert (code, (folder / "r" / "cells").exists()) == (1, False)
    assert "d.pt (davylamp:kernel-density) reads the layers of net.py:make" in err
    assert err.endswith("--isolate no\n")
    assert run(*evaluate, "--detector", "d.pt", "--isolate", "no")[0] == 0
    for kept in (folder / "r" / "detections").glob("*"):
        kept.unlink()
    code, _, err = run("detect", "r", "--detector", "d.pt", "--isolate", "auto")
    assert code == 1
    assert "net.py:make: in a separate process" in err
    assert "net.py:make: this needs the layers of net.py:make" in err


def test_an_evaluation_is_told_of_when_its_detector_cannot_be_measured(run, folder):
    train = ("fit", "feature-squeezing", "--model", "net.py:make", "--data", "npz:test.npz", "-o", "d.pt")
    assert run(*train)[0] == 0
    code, out, _ = run(*EVALUATE, "--models", "net.py:make", "--detector", "d.pt", "-o", "r")
    assert code == 0
    assert "r: 1 run done" in out
    assert "test images were used to train d.pt" in out


@pytest.mark.parametrize("content", [b"", b"no weights", b"\x80\x02junk", b"PK\x03\x04 damaged"])
def test_a_file_that_is_no_detector_is_one_line_without_torchs_advice(run, folder, content):
    (folder / "d.pt").write_bytes(content)
    code, _, err = run(*EVALUATE, "--models", "net.py:make", "--detector", "d.pt", "-o", "r")
    assert code == 1
    assert "davylamp: expected a trained detector in d.pt, but it" in err
    assert err.endswith("make one with davylamp fit\n")
    assert "weights_only" not in err


def test_a_detector_of_another_model_and_examples_that_were_not_kept(run, folder):
    assert run("fit", "feature-squeezing", "--model", "net.py:make", "--data", "npz:train.npz", "-o", "d.pt")[0] == 0
    assert run(*EVALUATE, "--models", "net.py:other", "-o", "other")[0] == 0
    code, _, err = run("detect", "other", "--detector", "d.pt")
    assert code == 1
    assert "d.pt was trained for net.py:make, but the results are for net.py:other" in err
    assert run(*EVALUATE, "--models", "net.py:make", "-o", "r")[0] == 0
    code, _, err = run("detect", "r", "--detector", "d.pt")
    assert code == 1
    assert "no examples in r" in err
    assert "its examples were not stored (--keep-images)" in err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((*TRAIN,), "art:binary-input is trained on the examples of an attack; give --attack"),
        (
            ("fit", "kernel-density", *ATTACK),
            "davylamp:kernel-density is trained on clean images only; omit the attack foolbox:pgd",
        ),
        (("fit", "lidd"), "unknown detector 'lidd'; did you mean lid"),
        ((*TRAIN, *ATTACK, "--param", "epochs"), "expected --param name=value, got 'epochs'"),
        ((*TRAIN, *ATTACK[:2], "--epsilon", "0.0001"), "expected at least 10 examples for training, got"),
        ((*TRAIN, *ATTACK, "-o", "no/such.pt"), "could not write no/such.pt"),
        (("detect", "nowhere", "--detector", "d.pt"), "no such file: d.pt"),
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
    assert "nearest clean images used to estimate a dimension" in out
    assert document["left_out"]

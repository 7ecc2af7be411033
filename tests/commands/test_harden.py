"""`davylamp harden`: what it prints, what it leaves, how it ends."""

import json

import numpy as np
import pytest

from davylamp.engine.training.methods import METHODS

NET = """
from torch import nn

def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(768, 10))
"""


@pytest.fixture
def folder(run, digits, tmp_path):
    (tmp_path / "net.py").write_text(NET)
    np.savez(tmp_path / "d.npz", inputs=digits.inputs.numpy(), labels=digits.labels.numpy())
    return tmp_path


ASKED = ("harden", "net.py:make", "--data", "npz:d.npz", "--epsilon", "0.1", "--epochs", "1")


def test_what_was_chosen_and_what_came_of_it_is_said(run, folder):
    code, out, err = run(*ASKED, "--with", "fgsm", "--held-out", "0.5", "--param", "clean_share=0.25")
    assert code == 0, err
    assert "chosen: held out 8 of 16 images at random, seed 0" in err
    assert "clean_share" not in err
    assert "weights.pt: net.py:make trained with fgsm, linf 0.1, on 8 images" in out
    assert "- after: clean accuracy" in out
    assert "of 8, 95 % interval" in out
    assert {file.name for file in folder.glob("weights*")} == {"weights.pt", "weights.json"}
    code, out, err = run(
        "evaluate", "--models", "weights.pt", "--data", "npz:d.npz", "--attacks", "foolbox:fgsm", "-o", "r"
    )
    assert code == 0, err


def test_the_card_comes_as_json(run, folder):
    code, out, _ = run(*ASKED, "--with", "natural", "-o", "w.pt", "--json", "--validation", "npz:d.npz")
    assert code == 1
    code, out, _ = run(*ASKED, "--with", "natural", "-o", "w.pt", "--json")
    assert code == 0
    card = json.loads(out)
    assert (card["file"], card["settings"]["method"], card["trained_on"]) == ("w.pt", "natural", 14)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--with", "pdg"), "unknown method of training 'pdg'; did you mean pgd?"),
        (("--param", "beta"), "expected --param name=value, got 'beta'"),
        (("--param", "beta=6"), "unknown parameter of pgd 'beta'"),
        (("--steps", "3", "--param", "steps=4"), "expected one value of steps, got 3 and 4"),
        (("--param", "weight_decay=x"), "expected weight_decay as a number"),
        (("--device", "cuda:9"), "expected a device that torch can use here"),
    ],
)
def test_bad_input_is_one_line(run, folder, options, line):
    code, out, err = run(*ASKED, *options)
    assert (code, out) == (1, "")
    assert next(text for text in err.splitlines() if text.startswith("davylamp: ")).startswith(f"davylamp: {line}")


def test_every_method_is_listed(run):
    code, out, _ = run("defences", "--json")
    assert code == 0
    assert [row["method"] for row in json.loads(out)["training"]] == list(METHODS)

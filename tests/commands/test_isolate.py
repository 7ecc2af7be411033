"""`--isolate`: what a model does to its process costs a cell, and nothing else changes."""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

import davylamp
from davylamp.adapters.models.sandbox.bubblewrap import find_sandbox
from davylamp.commands import loading
from davylamp.engine import load, load_clean

FACTORY = """
import ctypes
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, crashes):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.crashes = nn.Linear(108, 4), crashes

    def forward(self, inputs):
        if self.crashes and inputs.requires_grad:
            ctypes.string_at(0)
        return self.linear(inputs.flatten(1))

def good():
    return Net(False)

def bad():
    return Net(True)

def worse():
    ctypes.string_at(0)
"""
ATTACKS = (
    "--attacks",
    "foolbox:fgsm,foolbox:hopskipjump",
    "--norm",
    "linf",
    "--epsilon",
    "2/255",
    "--max-queries",
    "30",
)
WITH = ("--data", "npz:images.npz", *ATTACKS)


@pytest.fixture
def run(run, tmp_path, monkeypatch, shipped_isolate):
    """Run a command as users have it, where there is a model and images."""
    monkeypatch.setattr(loading, "_DEFAULT_ISOLATE", shipped_isolate)
    (tmp_path / "net.py").write_text(FACTORY)
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 6, 6), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", inputs=images, labels=np.arange(4) % 2)
    return run


def test_a_crash_costs_its_cell(run):
    models = ("--models", "net.py:worse", "--models", "net.py:bad", "--models", "net.py:good")
    code, out, err = run("evaluate", *models, *WITH, "--out", "out")
    assert code == 0
    assert out.startswith("out: 3 runs done, 1 failed") or out.startswith("out: 4 runs done, 1 failed")
    assert "- omitted: net.py:worse: the model net.py:worse was killed (signal 11, SIGSEGV) (while loading)" in out
    (failed,) = (line for line in out.splitlines() if line.startswith("- failed: foolbox:fgsm on net.py:bad: "))
    assert "the model net.py:bad was killed (signal 11, SIGSEGV)" in failed
    assert "net.py:worse, net.py:bad, net.py:good: in separate processes" in err
    records = load("out")
    assert {(model, attack) for model, attack in zip(records["model"], records["attack"], strict=True)} == {
        ("net.py:bad", "hopskipjump"),
        ("net.py:good", "fgsm"),
        ("net.py:good", "hopskipjump"),
    }


def test_a_folder_goes_on_without_isolation_with_the_same_numbers(run):
    for isolate, out in (("no", "here"), ("auto", "apart")):
        assert run("evaluate", "--models", "net.py:good", *WITH, "--out", out, "--isolate", isolate)[0] == 0
    here, apart = (load(name).drop(columns="seconds") for name in ("here", "apart"))
    assert here.equals(apart)
    summary = json.loads(
        run("evaluate", "--models", "net.py:good", *WITH, "--out", "apart", "--isolate", "no", "--json")[1]
    )
    assert (summary["done"], summary["kept"]) == (0, 2)


def test_compare_isolates_too(run):
    command = ("compare", "fgsm", "--model", "net.py:bad", "--data", "npz:images.npz", "--epsilon", "2/255")
    code, out, err = run(*command, "--library", "foolbox")
    assert code == 1
    assert "the model net.py:bad was killed (signal 11, SIGSEGV)" in out + err
    assert run(*command, "--isolate", "perhaps")[2].startswith("davylamp: ")


@pytest.mark.parametrize(
    "command",
    [
        ("saturation", "foolbox:fgsm", "--model", "net.py:worse"),
        ("certify", "net.py:worse+smoothing:sigma=0.25"),
        ("challenge", "net.py:worse+bit-depth:bits=4", "--quick"),
        ("fit", "feature-squeezing", "--model", "net.py:worse"),
        ("corruptions", "run", "net.py:worse", "--corruption", "fog"),
    ],
    ids=lambda command: command[0],
)
def test_a_crash_does_not_reach_the_command(run, command):
    code, out, err = run(*command, "--data", "npz:images.npz")
    assert code == 1
    assert not out
    assert ": in a separate process" in err
    assert "was killed (signal 11, SIGSEGV) (while loading)" in err.splitlines()[-1]


def test_a_served_model_is_in_a_room(run):
    code, out, err = run("serve-model", "net.py:worse")
    assert (code, out) == (1, "")
    assert "was killed (signal 11, SIGSEGV) (while loading)" in err.splitlines()[-1]


def test_a_folder_is_probed_in_a_room(run):
    models = ("--models", "net.py:good", "--models", "net.py:bad", "--isolate", "auto")
    assert run("evaluate", *models, *WITH, "--out", "out")[0] == 0
    code, out, err = run("check", "out", "--probe", "--images", "2")
    assert code == 0
    assert ": in separate processes" in err
    assert "net.py:bad" in out


def test_a_newcomer_is_in_a_room_too(run):
    models = ("--models", "net.py:good", "--models", "net.py:bad")
    attack = ("--attacks", "foolbox:hopskipjump", "--norm", "linf", "--epsilon", "2/255", "--max-queries", "30")
    assert run("evaluate", *models, "--data", "npz:images.npz", *attack, "--out", "base")[0] == 0
    code, out, err = run("evaluate", "--models", "net.py:worse", "--against", "base", "--out", "new")
    assert (code, out) == (1, "")
    assert "- net.py:worse: in a separate process" in err
    assert "was killed (signal 11, SIGSEGV) (while loading)" in err.splitlines()[-1]
    assert run("evaluate", "--models", "net.py:other", "--against", "base", "--isolate", "perhaps")[0] == 1


LOOKING = """
from pathlib import Path

import davylamp
from torch import nn

CLONE = Path(davylamp.__file__).resolve().parent

def make():
    seen = [name for name in ("pyproject.toml", "tests", ".git", "LAB") if (CLONE / name).exists()]
    net = nn.Sequential(nn.Flatten(), nn.Linear(108, 4))
    net[1].weight.data.zero_()
    net[1].bias.data = nn.functional.one_hot(__import__("torch").tensor(min(len(seen), 3)), 4).float()
    return net
"""


@pytest.mark.skipif(not find_sandbox().program, reason=find_sandbox().reason)
def test_a_model_of_a_file_sees_nothing_of_the_clone_but_the_package(run, tmp_path):
    """It says by its class how many of a lab's folder and the clone's own files are there for it."""
    lab = Path(tempfile.mkdtemp(prefix=".lab-", dir=Path(davylamp.__file__).resolve().parent))
    try:
        (lab / "secret.key").write_bytes(bytes(32))
        (tmp_path / "looking.py").write_text(LOOKING.replace("LAB", f"{lab.name}/secret.key"))
        code, _, err = run("evaluate", "--models", "looking.py:make", *WITH, "--isolate", "strict", "--out", "out")
    finally:
        shutil.rmtree(lab)
    assert code == 0, err
    assert set(load_clean("out")["predicted"]) == {0}

"""What a command proposes works: names that it refuses, several folders, paths that a shell would split."""

import shlex

import numpy as np
import pytest

from davylamp.tools.speed.synthetic_results import write_results

NET = """
import torch
from torch import nn


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(768, 10))
"""
ATTACKS = """
def still(model, inputs, labels, epsilon):
    return inputs


def nearest(model, inputs, labels):
    return inputs


still.norm = nearest.norm = "linf"
nearest.kind = "minimum-norm"
"""


@pytest.fixture
def files(run, digits, tmp_path):
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "att.py").write_text(ATTACKS)
    np.savez(tmp_path / "d.npz", inputs=digits.inputs.numpy(), labels=digits.labels.numpy())
    return tmp_path


COMMON = ("--models", "net.py:make", "--data", "npz:d.npz", "--isolate", "no")


@pytest.mark.parametrize(
    ("attacks", "words"),
    [
        ("att.py", "got 'att.py'; write att.py:FUNCTION"),
        ("best(att.py:nearest,art:pgd)", "it is a minimum-norm attack: run it without best(...)"),
        ("best(att.py:still,art:pgd)", "search with this attack alone: best(att.py:still)"),
    ],
)
def test_an_attack_that_is_refused_is_told_how_it_can_be_run(attacks, words, run, files):
    code, _, errors = run("evaluate", *COMMON, "--attacks", attacks, "--norm", "linf", "-o", "no")
    assert code == 1
    assert words in " ".join(errors.split())
    for proposed in ("att.py:nearest", "best(att.py:still)"):
        code, _, errors = run(
            "evaluate", *COMMON, "--attacks", proposed, "--norm", "linf", "--print-config", "-o", "no"
        )
        assert code == 0, errors


def test_paths_in_proposed_commands_are_quoted(run, files):
    weights, folder = "rob ust.pt", "res é"
    words = ("--data", "npz:d.npz", "--epsilon", "0.1", "--epochs", "1", "--with", "natural", "-o", weights)
    code, out, errors = run("harden", "net.py:make", *words)
    assert code == 0, errors
    assert f"davylamp evaluate --models {shlex.quote(weights)} --attacks best" in out
    attack = ("--attacks", "foolbox:fgsm", "--epsilon", "0.1", "--shard-size", "3", "--part", "1/4")
    code, out, errors = run("evaluate", *COMMON, *attack, "-o", folder)
    assert code == 0, errors
    assert f"davylamp status {shlex.quote(folder)}; davylamp table {shlex.quote(folder)}" in out


def test_several_folders_are_ranked_as_one(run, files):
    for folder, models in (("a", ("weak", "middle")), ("b", ("fair", "strong"))):
        write_results(files / folder, attacks=("art:fgsm", "foolbox:pgd"), images=24, models=models, side=32)
    code, out, errors = run("rank", "a", "b", "--method", "mean", "--json")
    assert code == 0, errors
    assert '"weak"' in out
    assert '"strong"' in out
    (files / "t.csv").write_text("model,MR\na,0.5\n")
    code, _, errors = run("rank", "a", "t.csv")
    assert code == 1
    assert "a CSV table must be the only path, got 2 paths, including t.csv" in errors

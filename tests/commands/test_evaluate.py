"""`davylamp evaluate` and `status` as a user meets them."""

import json
from contextlib import contextmanager

import numpy as np
import pytest

from davylamp.engine import load, load_transfer

FACTORY = """
import torch
from torch import nn

def one():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(108, 4))

def pair():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(108, 2))

def two():
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(108, 4))
"""
COMMON = ("--models", "net.py:one", "--models", "net.py:two", "--data", "npz:images.npz", "--out", "out")
PGD = ("--attacks", "foolbox:pgd", "--attacks", "torchattacks:pgd", "--epsilon", "2/255", "--param", "steps=3")


@pytest.fixture
def run(run, tmp_path):
    """Run a command where there is a model and images."""
    (tmp_path / "net.py").write_text(FACTORY)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (8, 3, 6, 6), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", inputs=images, labels=np.arange(8) % 2)
    return run


def test_evaluate_then_resume(run):
    code, out, _ = run("evaluate", *COMMON, *PGD, "--transfer", "full")
    assert code == 0
    assert out.startswith("out: 4 cells run, 0 failed")
    records = load("out")
    assert len(records) == 4 * 8
    transfer = load_transfer("out")
    assert {(a, b) for a, b in zip(transfer["made_on"], transfer["tested_on"], strict=True)} == {
        ("net.py:one", "net.py:two"),
        ("net.py:two", "net.py:one"),
    }
    code, out, _ = run("evaluate", *COMMON, *PGD, "--transfer", "full", "--json")
    assert json.loads(out)["kept"] == 4
    assert json.loads(out)["done"] == 0


def test_a_printed_config_runs_the_same_cells(run, tmp_path):
    run("evaluate", *COMMON, *PGD)
    _, out, _ = run("evaluate", *COMMON, *PGD, "--print-config")
    (tmp_path / "run.toml").write_text(out)
    code, out, _ = run("evaluate", "run.toml", "--out", "out", "--json")
    assert code == 0
    assert json.loads(out)["kept"] == 4


def test_a_step_may_be_relative_to_the_radius(run):
    radius = ("--attacks", "foolbox:pgd", "--epsilon", "2/255", "--param", "steps=4")
    run("evaluate", *COMMON, *radius, "--param", f"step_size={2.5 * 2 / 255 / 4!r}")
    _, out, _ = run("evaluate", *COMMON, *radius, "--param", "step_size=2.5 epsilon / steps", "--print-config")
    assert 'step_size = "2.5 epsilon / steps"' in out
    _, out, _ = run("evaluate", *COMMON, *radius, "--param", "step_size=2.5 epsilon / steps", "--json")
    assert json.loads(out)["kept"] == 2  # the same cells as with the number


def test_a_preset_is_a_config(run):
    code, out, _ = run("evaluate", "--preset", "canary", "--print-config", "--limit", "3", "--shard-size", "2")
    assert code == 0
    assert "limit = 3" in out
    assert "shard_size = 2" in out
    assert 'transfer = "simple"' in out


def test_a_failed_cell_is_told_and_shown(run):
    """The difference of logits ratio needs more classes than two: that cell fails alone."""
    attacks = ("--attacks", "foolbox:pgd", "--attacks", "torchattacks:apgd-dlr", "--norm", "linf")
    code, out, _ = run("evaluate", "--models", "net.py:pair", *COMMON[4:], *attacks)
    assert code == 0
    assert "failed: torchattacks:apgd-dlr on net.py:pair: Unsupported: torchattacks:apgd-dlr needs at least" in out
    _, out, _ = run("status", "out", "--json")
    states = {cell["attack"]: cell["status"] for cell in json.loads(out)["cells"]}
    assert states == {"foolbox:pgd": "done", "torchattacks:apgd-dlr": "failed"}
    command = ("evaluate", "--models", "net.py:pair", *COMMON[4:], "--norm", "linf", "--strict", "--attacks")
    assert run(*command, "torchattacks:apgd-dlr")[0] == 2
    assert run(*command, "torchattacks:apgd-dlr", "--json")[0] == 2
    assert run(*command, "foolbox:pgd")[0] == 0


@pytest.mark.parametrize("transfer", ["no", "simple", "full"])
def test_progress_ends_where_all_is_done_also_with_failed_cells_and_transfers(run, monkeypatch, transfer):
    told = []

    @contextmanager
    def show(total):
        told.append([total, 0, 0])

        def add(name, images):
            told[-1][1 if name else 2] += images

        yield add

    monkeypatch.setattr("davylamp.commands.evaluate.show_progress", show)
    attacks = ("--attacks", "foolbox:fgsm", "--attacks", "torchattacks:apgd-dlr", "--norm", "linf")
    models = ("--models", "net.py:pair", "--models", "net.py:one", *COMMON[4:])
    for _ in range(2):
        run("evaluate", *models, *attacks, "--shard-size", "3", "--transfer", transfer)
    transfers = {"no": 0, "simple": 4, "full": 4}[transfer]
    assert [sum(rest) for _, *rest in told] == [total for total, *_ in told] == [(2 + 4 + transfers) * 8] * 2
    assert told[1][1] == 0  # all was there


def test_status_counts_and_names_damage(run, tmp_path):
    run("evaluate", *COMMON, *PGD)
    file = sorted((tmp_path / "out" / "cells").glob("*.parquet"))[0]
    file.write_bytes(file.read_bytes()[:-20])
    code, out, _ = run("status", "out")
    assert code == 0
    assert out.startswith("out: 3 done")
    assert "is damaged" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("evaluate", "missing.toml"), "expected a TOML file"),
        (("evaluate", "--preset", "canari", "--print-config"), "did you mean canary"),
        (("evaluate", *COMMON, "--epsilon", "1/255"), "expected --attacks beside"),
        (("evaluate", *COMMON, "--attacks", "pgd", "--executor", "slurm"), "unknown executor"),
        (("evaluate", *COMMON, "--attacks", "pgd", "--address", "x:1"), "expected --address with --executor ray"),
        (("evaluate", *COMMON, "--attacks", "pgd", "--workers", "0"), "at least one worker"),
        (("evaluate", "--models", "vgg*", "--attacks", "pgd"), "unknown model"),
        (("status", "nowhere"), "expected a results folder"),
    ],
)
def test_mistakes_get_one_line(run, arguments, words):
    code, out, err = run(*arguments)
    assert code == 1
    assert words in err
    assert err.count("\n") == 1
    assert out == ""

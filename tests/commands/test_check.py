"""`davylamp check` as a user meets it."""

import json
import re

import numpy as np
import pytest

FACTORY = """
import torch
from torch import nn

class Steps(nn.Module):
    def forward(self, inputs):
        return torch.round(inputs * 8) / 8

def linear():
    torch.manual_seed(0)
    layer = nn.Linear(108, 4)
    layer.weight.data *= 20
    return nn.Sequential(nn.Flatten(), layer)

def masked():
    return nn.Sequential(Steps(), linear())
"""
COMMON = ("--models", "net.py:linear", "--models", "net.py:masked", "--data", "npz:images.npz", "--out", "out")
ATTACKS = ("--attacks", "foolbox:pgd,torchattacks:pgd", "--norm=linf", "--epsilon", "0.05", "--param", "steps=5")


@pytest.fixture
def run(run, tmp_path):
    """Run a command where there is a model."""
    (tmp_path / "net.py").write_text(FACTORY)
    return run


@pytest.fixture
def folder(run, tmp_path):
    """Two models on images that the plain one gets right."""
    from davylamp.adapters.models.zoo.load import load_model

    inputs = np.random.default_rng(0).integers(0, 33, (8, 3, 6, 6), dtype=np.uint8) * 7
    labels = load_model("net.py:linear").predict_logits(_tensor(inputs)).argmax(1).numpy()
    np.savez(tmp_path / "images.npz", inputs=inputs, labels=labels)
    run("evaluate", *COMMON, *ATTACKS)


def _tensor(inputs):
    import torch

    return torch.from_numpy(inputs).float() / 255


def test_check_before_and_after_a_run(run, folder):
    code, out, _ = run("check", "out", "--json")
    assert code == 0
    before = json.loads(out)
    states = [check["state"] for check in before["checks"]]
    assert before["counts"] == {state: states.count(state) for state in ("fail", "warn", "unknown", "pass")}
    code, out, err = run("check", "out", "--probe", "--images", "2", "--json", "--isolate", "auto")
    assert code == 0
    assert err.startswith("- net.py:")
    assert "net.py:masked: in separate processes" in err
    after = json.loads(out)
    assert after["notes"] == []
    check_of = {(check["name"], check["subject"]): check for check in after["checks"]}
    assert check_of["gradients", "net.py:masked"]["state"] == "fail"
    assert check_of["gradients", "net.py:linear"]["state"] == "pass"
    planted = check_of["active-test", "foolbox:pgd (linf 0.05) on net.py:masked"]
    assert planted["state"] == "unknown"
    assert planted["detail"] == "the model's layers are in a separate process; use --isolate no"
    code, out, err = run("check", "out", "--probe", "--images", "2", "--json", "--isolate", "no")
    assert (code, err) == (0, "")
    state_of = {(check["name"], check["subject"]): check["state"] for check in json.loads(out)["checks"]}
    assert state_of["active-test", "foolbox:pgd (linf 0.05) on net.py:masked"] == "fail"
    assert state_of["active-test", "foolbox:pgd (linf 0.05) on net.py:linear"] == "pass"


def test_the_table_counts_and_folds(run, folder):
    code, out, _ = run("check", "out", "-v")
    lines = out.splitlines()
    document = json.loads(run("check", "out", "--json")[1])
    assert code == 0
    numbers = {word: int(number) for number, word in re.findall(r"(\d+) (fail|warn|unknown|pass)\b", lines[0])}
    assert numbers == document["counts"]
    assert lines[1].split()[:3] == ["state", "indicator", "subject"]
    order = [line.split()[0] for line in lines[2:]]
    assert order == sorted(order, key=["fail", "warn", "unknown", "pass"].index)
    short = run("check", "out")[1].splitlines()
    assert short[0] == lines[0]
    assert {line.split()[0] for line in short[2:]} <= {"fail", "warn", "-"}
    assert all(each["title"] in " ".join(short) for each in document["checks"] if each["state"] in ("fail", "warn"))
    assert sum("Bounds and epsilon respected" in line for line in lines) == 1
    assert any("Unavailable gradients" in line and "net.py:masked" in line for line in lines)


def test_strict_fails_where_an_indicator_does(run, folder):
    assert run("check", "out", "--strict")[0] == 2
    assert run("check", "out", "--strict", "--model", "net.py:linear")[0] == 0


def test_a_changed_model_is_not_probed(run, folder, tmp_path):
    (tmp_path / "net.py").write_text(FACTORY.replace("*= 20", "*= 21"))
    code, out, err = run("check", "out", "--probe", "--images", "1")
    assert code == 1  # the other model holds this one: none is as it was
    assert re.search("- net.py:linear, .*: the model differs from the evaluated model", out)
    assert err.splitlines()[-1].startswith("davylamp: no run can be repeated: net.py:linear: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), "expected a results folder"),
        (("out", "--model", "net.py:linaer"), "did you mean net.py:linear"),
    ],
)
def test_mistakes_get_one_line(run, folder, arguments, words):
    code, out, err = run("check", *arguments)
    assert (code, out) == (1, "")
    assert words in err
    assert err.count("\n") == 1

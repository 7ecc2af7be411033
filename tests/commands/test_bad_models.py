"""Whatever a user's model does: one line, the right exit code, nothing on standard output, and the others go on."""

import json

import numpy as np
import pytest
import torch

BAD = """
import os, sys, torch
from torch import nn
from helper import SCALE

class Net(nn.Module):
    def __init__(self, act=None):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(256, 10))
        self.body.load_state_dict(torch.load(os.path.join(os.path.dirname(__file__), "net.pth")))
        self.act = act
    def forward(self, x):
        if self.act == "in place":
            x.mul_(SCALE).add_(0)
        if self.act == "prints":
            print("loss: 3")
        z = self.body(x)
        if self.act == "tuple":
            return z, x
        if self.act == "dict":
            return {"logits": z}
        if self.act == "complex":
            return z + 0j
        if self.act == "exits":
            sys.exit(0)
        if self.act == "hard exit":
            os._exit(0)
        if self.act == "interrupts":
            raise KeyboardInterrupt
        if self.act == "raises":
            raise RuntimeError("boom")
        if self.act == "one" and len(x) > 1:
            raise RuntimeError("batch of 1 only")
        if self.act == "attacked" and torch.is_grad_enabled():
            sys.exit(3)
        return z

def good(): return Net()
def inplace(): return Net("in place")
def prints(): print("building"); return Net("prints")
def returns_tuple(): return Net("tuple")
def returns_dict(): return Net("dict")
def complex_logits(): return Net("complex")
def exits(): return Net("exits")
def hard_exit(): return Net("hard exit")
def interrupts(): return Net("interrupts")
def raises(): return Net("raises")
def one(): return Net("one")
def attacked(): return Net("attacked")
def grey(): return nn.Sequential(nn.Conv2d(1, 3, 1), Net())
def factory_exits(): sys.exit(0)
def factory_hard_exit(): os._exit(0)
def factory_raises(): raise ValueError("no weights")
def nothing(): pass
def many(x): pass
async def later(): return Net()
"""


@pytest.fixture
def folder(run, digits, tmp_path):
    """A folder, the current one, with models in bad.py and three digits in d.npz."""
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "helper.py").write_text("SCALE = 1.0")
    torch.save(digits.module.state_dict(), tmp_path / "net.pth")
    np.savez(tmp_path / "d.npz", inputs=digits.inputs[:3].numpy(), labels=digits.labels[:3].numpy())
    return tmp_path


COMPARE = ("compare", "pgd", "--data", "npz:d.npz", "--epsilon", "0.1", "--steps", "2", "--norm", "linf")
WRONG = {
    "complex_logits": "the model bad.py:complex_logits: expected real logits in floating point, got complex64",
    "exits": "the model bad.py:exits called sys.exit(0) (line 27 of bad.py) on images of shape (3, 3, 16, 16)",
    "hard_exit": "the model bad.py:hard_exit called os._exit(0)",
    "interrupts": "the model bad.py:interrupts raised KeyboardInterrupt",
    "raises": "the model bad.py:raises raised RuntimeError: boom (line",
    "one": "on images of shape (3, 3, 16, 16); it accepts only one image at a time; make it accept batches",
    "grey": "it works on images of 1 x 16 x 16, got 3 x 16 x 16",
    "factory_exits": "bad.py:factory_exits called sys.exit(0) (line",
    "factory_hard_exit": "bad.py:factory_hard_exit called os._exit(0) (line",
    "factory_raises": "bad.py:factory_raises raised ValueError: no weights (line",
    "nothing": "got NoneType; the factory must return the model",
    "many": "expected a function without arguments as bad.py:many, got missing a required argument",
    "later": "got a coroutine; make the factory a plain function, not async",
}


@pytest.mark.parametrize("factory", WRONG)
def test_a_model_that_fails_is_one_line(run, folder, factory):
    code, out, err = run(*COMPARE, "--model", f"bad.py:{factory}")
    assert (code, out) == (1, "")
    lines = [line for line in err.splitlines() if line.startswith("davylamp: ")]
    assert len(lines) == 1
    assert WRONG[factory] in lines[0]
    assert "Traceback" not in err


@pytest.mark.parametrize("factory", ["inplace", "prints", "returns_tuple", "returns_dict"])
def test_a_model_with_habits_gets_the_numbers_of_a_plain_one(run, folder, factory):
    (code, plain, _), (other, got, err) = (
        run(*COMPARE, "--library", "foolbox", "--model", f"bad.py:{name}", "--json") for name in ("good", factory)
    )
    assert (code, other) == (0, 0)
    rows = [json.loads(text)["rows"][0] for text in (plain, got)]
    assert {**rows[1], "seconds_per_image": 0} == {**rows[0], "seconds_per_image": 0}
    assert ("loss: 3" in err) == (factory == "prints")
    assert ("- took the first tensor of the tuple that the model" in err) == (factory == "returns_tuple")


def test_labels_that_start_at_one_are_named(run, folder, digits):
    np.savez("ones.npz", inputs=digits.inputs.numpy(), labels=digits.labels.clamp(max=8).numpy() + 1)
    for arguments in ((*COMPARE, "--model", "bad.py:good"), (*EVALUATE, "--models", "bad.py:good", "-o", "r")):
        err = run(*arguments, "--data", "npz:ones.npz")[2]
        assert "images are classified correctly: the labels seem to start at 1 instead of 0" in err


def test_a_model_that_exits_under_attack_is_not_the_library_s_fault(run, folder):
    code, out, err = run(*COMPARE, "--model", "bad.py:attacked")
    assert code == 1
    assert "bad.py:attacked called sys.exit(3)" in out + err
    assert "art:pgd crashed" not in out + err
    assert "Traceback" not in out + err


EVALUATE = ("evaluate", "--attacks", "foolbox:pgd", "--norm", "linf", "--epsilon", "0.1", "--data", "npz:d.npz")


def test_one_bad_model_costs_itself(run, folder):
    bad = [f"bad.py:{name}" for name in ("factory_exits", "nothing", "raises")]
    models = [part for name in ("bad.py:factory_exits", "bad.py:good", *bad[1:]) for part in ("--models", name)]
    code, out, err = run(*EVALUATE, *models, "--param", "steps=2", "-o", "r")
    assert code == 0, err
    text = " ".join(out.split())
    assert "r: 2 runs done, 1 failed" in text
    assert "omitted: bad.py:factory_exits: bad.py:factory_exits called sys.exit(0)" in text
    assert "omitted: bad.py:nothing: expected a torch.nn.Module" in text
    assert (
        "failed: foolbox:pgd on bad.py:raises: ModelFailed: the model bad.py:raises raised RuntimeError: boom" in text
    )
    code, out, _ = run("status", "r")
    assert "omitted: bad.py:nothing: expected a torch.nn.Module" in " ".join(out.split())
    code, out, _ = run(*EVALUATE, *models, "--param", "steps=2", "-o", "r", "--strict", "--json")
    assert code == 2
    assert set(json.loads(out)["left_out"]) == set(bad[:2])
    (folder / "bad.py").write_text(BAD.replace("def nothing(): pass", "def nothing(): return Net()"))
    code, out, _ = run(*EVALUATE, "--models", "bad.py:nothing", "--param", "steps=2", "-o", "r")
    assert list(json.loads(run("status", "r", "--json")[1])["left_out"]) == ["bad.py:factory_exits"]


def test_models_that_are_all_bad_end_the_command(run, folder):
    models = [part for name in ("factory_exits", "nothing") for part in ("--models", f"bad.py:{name}")]
    code, out, err = run(*EVALUATE, *models, "-o", "r")
    assert (code, out) == (1, "")
    assert "none of 2 models can be evaluated: bad.py:factory_exits: bad.py:factory_exits called sys.exit(0)" in err
    code, out, err = run(*EVALUATE[:-1], "npz:none.npz", "--models", "bad.py:good", "--models", "bad.py:inplace")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("davylamp: expected an npz file, found none at none.npz")


def test_a_row_that_cannot_do_what_others_can_costs_itself(run, folder):
    """Foolbox's FGSM takes no target."""
    arguments = ("evaluate", "--norm", "linf", "--epsilon", "0.1", "--target", "3", *EVALUATE[-2:], "-o", "r")
    three = ("--library", "art,foolbox,torchattacks")
    code, out, err = run(*arguments, "--attacks", "fgsm", *three, "--models", "bad.py:good")
    assert code == 0, err
    assert "r: 2 runs done, 0 failed" in out
    assert "omitted: foolbox:fgsm: foolbox:fgsm has no targeted mode" in " ".join(out.split())
    code, out, err = run(*arguments, "--attacks", "foolbox:fgsm", "--models", "bad.py:good")
    assert (code, out) == (1, "")
    assert "foolbox:fgsm has no targeted mode" in err

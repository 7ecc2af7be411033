"""`davylamp fit`: what it keeps is what an evaluation would have learned, and is used by it."""

import json

import pytest

import davylamp
from davylamp.engine import ResultsStore, load
from davylamp.engine.store.other_records import load_fitted
from davylamp.errors import InvalidInput

NET = """
import torch

WEIGHTS = torch.randn(4, 48, generator=torch.Generator().manual_seed(9))

def build():
    layer = torch.nn.Linear(48, 4)
    layer.weight.data = WEIGHTS
    layer.bias.data.zero_()
    return torch.nn.Sequential(torch.nn.Flatten(), layer)

def labelled(seed, count):
    inputs = torch.rand(count, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    return inputs, (inputs.flatten(1) @ WEIGHTS.T).argmax(1)

def images(): return labelled(1, 6)

def more(): return labelled(2, 8)
"""
HOW = ("--norm", "linf", "--epsilon", "0.1", "--param", "epochs=2")


@pytest.fixture
def command(run, tmp_path):
    (tmp_path / "net.py").write_text(NET)
    return run


@pytest.mark.parametrize("attack", ["davylamp:advgan", "davylamp:tremba"])
def test_an_evaluation_uses_what_was_trained(command, attack, tmp_path):
    train = ("fit", attack, "--model", "net.py:build", "--data", "net.py:more", *HOW, "-o", "out")
    code, out, err = command(*train, "--json")
    assert code == 0, err
    (line,) = json.loads(out)["fits"]
    assert (line["images"], line["model"], line["forwards"], line["backwards"]) == (8, "net.py:build", 16, 16)
    (file,) = (tmp_path / "out" / "fits").glob("*.parquet")
    before = file.stat().st_mtime_ns
    evaluate = ("--models", "net.py:build", "--attacks", attack, "--data", "net.py:images", *HOW)
    code, _, err = command("evaluate", *evaluate, "--fit-data", "net.py:more", "-o", "out", "--max-queries", "40")
    assert code == 0, err
    assert [file.stat().st_mtime_ns for file in (tmp_path / "out" / "fits").glob("*.parquet")] == [before]
    (cell,) = ResultsStore("out").keys("cells")
    assert ResultsStore("out").read("cells", cell).meta["fit"]["digest"] == line["digest"]
    assert load("out")["implementation"].unique().tolist() == [f"{attack} fitted on net.py:more (8)"]
    assert command(*train)[0] == 0
    assert [file.stat().st_mtime_ns for file in (tmp_path / "out" / "fits").glob("*.parquet")] == [before]
    assert {kept.digest for kept in load_fitted("out").values()} == {line["digest"]}


def test_an_attack_is_told_from_a_detector_by_its_name(command):
    code, _, err = command("fit", "davylamp:advgan", "--model", "net.py:build", "--data", "net.py:more")
    assert (code, "expected --out as a folder" in err) == (1, True)
    arguments = ("fit", "davylamp:advgan", "--model", "net.py:build", "--data", "net.py:more", "-o", "out")
    code, _, err = command(*arguments, "--target", "0")
    assert (code, "without --attack, --target or" in err) == (1, True)
    code, _, err = command("fit", "davylamp:advgam", "--model", "net.py:build", "--data", "net.py:more", "-o", "out")
    assert (code, "unknown detector" in err) == (1, True)


@pytest.mark.parametrize(
    ("attack", "more", "words"),
    [
        ("foolbox:pgd", (), "foolbox:pgd cannot be fitted"),
        ("at-saturation(art:uap)", (), "an attack with a single radius"),
        ("davylamp:advgan", ("--param", "epochs=0"), "expected epochs"),
        ("davylamp:advgan", ("--param", "steps=3"), "steps"),
    ],
)
def test_mistakes_are_one_line(command, attack, more, words):
    code, _, err = command("fit", attack, "--model", "net.py:build", "--data", "net.py:more", *more, "-o", "out")
    assert code == 1
    assert words in err
    assert err.strip().count("\n") <= 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--norm", "l2", "--eps", "0.1"), "--attack is missing for --norm, --epsilon"),
        (("--target", "0", "--attack-param", "steps=2"), "--attack is missing for --target, --attack-param"),
        (("--limit", "-1"), "expected --limit as a whole number from 1, got -1"),
        (("-o", "nowhere/file.pt"), "choose a different file for --out"),
    ],
)
def test_what_a_detector_cannot_use_is_refused(command, options, words, tmp_path):
    detector = ("fit", "feature-squeezing", "--model", "net.py:build", "--data", "net.py:more")
    code, _, err = command(*detector, *options)
    assert (code, words in err) == (1, True), err
    assert not (tmp_path / "detector.pt").exists()
    code, out, err = command(*detector)
    assert (code, "--detector detector.pt" in out) == (0, True), err


def test_class_0_is_a_target(digits, tmp_path):
    pair = digits.inputs, digits.labels
    with pytest.raises(InvalidInput, match="without `attack`, `target` or"):
        davylamp.fit("art:uap@fixed", digits.module, pair, out=tmp_path / "out", target=0)

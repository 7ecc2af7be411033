"""What is said of one results folder agrees: on which models and images are one, and on every name and number."""

import json
import re
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import davylamp
from davylamp.report.page.build import build_report

FACTORY = """
from torch import nn


def make():
    first, second = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 16, 3, stride=2, padding=1)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(256, 10))
"""
MODEL, DATA = "net.pth+net.py:make", "npz:digits.npz"


@pytest.fixture
def here(digits, tmp_path, run):
    """The digits' network and images in files of a folder, and what evaluates them into its folder `out`."""
    (tmp_path / "net.py").write_text(FACTORY)
    np.savez(tmp_path / "digits.npz", inputs=digits.inputs.numpy(), labels=digits.labels.numpy())

    def train(factor=1.0):
        """Write weights under the one name, the last layer's multiplied."""
        weights = digits.module.state_dict()
        torch.save(weights | {name: weights[name] * factor for name in ("5.weight", "5.bias")}, tmp_path / "net.pth")

    def evaluate(*more, model=MODEL, data=DATA, attacks=("foolbox:pgd", "foolbox:fgsm"), radius="0.1", steps=5):
        given = [word for name in attacks for word in ("--attacks", name)]
        given += ["--norm", "linf", "--epsilon", radius, "--param", f"steps={steps}", "--isolate", "no", "-o", "out"]
        code, out, err = run("evaluate", "--models", model, "--data", data, *given, *more)
        assert code == 0, err
        return out, err

    def read(command, *more):
        code, out, err = run(command, "out", *more, "--json")
        assert code == 0, err
        return json.loads(out)

    train()
    return SimpleNamespace(train=train, evaluate=evaluate, read=read, path=tmp_path, run=run)


def test_weights_trained_again_under_one_name_are_two_models_in_everything(here):
    """The old ones saturate the cross-entropy, so that indicators fail; the new ones have none that does."""
    here.train(6.0)
    old, _ = here.evaluate()
    here.train()
    new, _ = here.evaluate()
    names = {cell["model"] for cell in here.read("status")["cells"]}
    assert len(names) == 2
    shown = {row["model"]: row["metrics"] for row in here.read("table", "--by", "models", "--metric", "RA")["rows"]}
    assert set(shown) == names
    assert {row["subject"] for row in here.read("rank", "--method", "mean")["rows"]} == names
    assert set(davylamp.engine.load("out")["model"]) == names
    (said,) = (line for line in new.splitlines() if "robust accuracy" in line)
    (name,) = (name for name in names if said.startswith(f"{name}, linf 0.1"))
    assert f"robust accuracy {shown[name]['RA']['value']:.3g} " in said
    indicators = [out.partition("failure indicators: ")[2].splitlines()[0] for out in (old, new)]
    assert "Uninformative runs" in indicators[0]
    assert indicators[1].startswith("0 fail, ")


def test_a_model_and_data_by_another_path_are_the_same(here):
    here.train(0.5)
    (here.path / "half.pth").write_bytes((here.path / "net.pth").read_bytes())
    here.train()
    (here.path / "sub").mkdir()
    (here.path / "sub" / "copy.npz").write_bytes((here.path / "digits.npz").read_bytes())
    both = ("--models", "half.pth+net.py:make")
    first, _ = here.evaluate(*both)
    views = ("table", "--by", "models", "--metric", "RA", "--bootstrap", "0"), ("rank", "--method", "mean")
    before = [here.read(*view)["rows"] for view in views]
    assert {(row["cells"], row["images"]) for row in before[0]} == {(2, 32)}
    absolute = ("--models", f"{here.path}/half.pth+{here.path}/net.py:make")
    out, _ = here.evaluate(
        *absolute, model=f"{here.path}/net.pth+{here.path}/net.py:make", data=f"npz:{here.path}/digits.npz"
    )
    assert "4 reused" in out
    assert [here.read(*view)["rows"] for view in views] == before
    out, _ = here.evaluate(*both, data="npz:sub/copy.npz")
    assert [here.read(*view)["rows"] for view in views] == before
    assert out.splitlines()[1:-1] == first.splitlines()[1:-1]


def test_fewer_of_the_same_images_end_with_the_numbers_of_all(here):
    first, _ = here.evaluate()
    for count in (8, 12):
        out, _ = here.evaluate("--limit", count)
        assert out.splitlines()[1:-1] == first.splitlines()[1:-1]
        assert "robust accuracy" in out


@pytest.mark.parametrize(("name", "most"), [("torchattacks:pgd", 25), ("foolbox:pgd", 21)])
def test_on_8_bits_nothing_outside_of_the_ball_is_a_success(here, digits, name, most):
    """A radius between two grey levels: rounding to the nearest would leave the ball, and no success may."""
    inputs = (digits.inputs * 255).round() / 255
    np.savez(here.path / "digits.npz", inputs=inputs.numpy(), labels=digits.labels.numpy())
    here.evaluate("--eight-bit", attacks=(name,), radius=f"{most + 0.5}/255")
    frame = davylamp.engine.load("out")
    levels = frame["linf"] * 255
    assert frame["success"].any()
    assert levels[frame["success"]].max() <= most + 0.01
    frame = davylamp.evaluate(
        digits.module,
        inputs,
        digits.labels,
        attacks=name,
        epsilon=0.5 / 255,
        steps=3,
        eight_bit=True,
        out=here.path / "no",
    ).to_frame()
    assert not frame["success"].any()


def test_robust_accuracy_is_the_worst_case_under_every_name(here):
    """FGSM and PGD fool different images: what the field calls robust accuracy is below the mean of the two."""
    here.evaluate(attacks=("foolbox:pgd", "foolbox:fgsm"), radius="0.07", steps=20)
    frame = davylamp.engine.load("out")
    robust = frame.pivot_table(index="image", columns="attack", values="robust").astype(bool)
    worst, mean = robust.all(axis=1).mean(), robust.to_numpy().mean()
    assert worst < mean
    (row,) = here.read("table", "--by", "models")["rows"]
    assert (row["metrics"]["RA"]["value"], row["metrics"]["RA"]["n"]) == (pytest.approx(worst), 16)
    assert row["metrics"]["RA_mean"]["value"] == pytest.approx(mean)
    known = {name: here.run("metrics", name, "--json") for name in ("RA", "robust accuracy", "Robust Accuracy")}
    assert {json.loads(out)[0]["symbol"] for _, out, _ in known.values()} == {"RA"}
    assert davylamp.metrics.METRICS["RA"].symbol == "RA"


@pytest.mark.parametrize(("radius", "reached"), [("0.2", True), ("0.04", False)])
def test_a_half_distortion_that_nothing_reached_is_marked_on_the_page_as_curve_does(here, read_page, radius, reached):
    """Half of the images fall within 0.2; within 0.04 they do not, and a fit says where they might."""
    here.evaluate(attacks=("best(foolbox:pgd)",), radius=radius)
    curves = here.read("curves")
    (curve,) = curves["curves"]
    assert (curve["half_at"] is not None) == reached
    assert ("extrapolated" in " ".join(curves["notes"])) != reached
    (row,) = read_page(build_report("out")).table("curves-epsilon")
    assert row["half distortion"].value == pytest.approx(curve["metrics"]["D_half"]["value"])
    assert ("extrapolated" in row["half distortion"].text) != reached


@pytest.mark.parametrize(("factor", "worst"), [(1.0, "pass"), (5.0, "warn"), (6.0, "fail")])
def test_the_badge_of_the_indicators_counts_what_check_counts(here, factor, worst):
    """Of a page on which none failed the badge counts warnings, and says so."""
    here.train(factor)
    here.evaluate()
    states = Counter(each["state"] for each in here.read("check")["checks"])
    assert next(state for state in ("fail", "warn", "pass") if states[state]) == worst
    page = build_report("out")
    (badge,) = re.findall(r'href="#trust">Trust: failure indicators(.*?)</a>', page, re.S)
    shown = {state: int(count) for count, state in re.findall(r"(\d+) (fail|warn)", badge)}
    assert shown == {state: states[state] for state in ("fail", "warn") if states[state]}
    assert re.findall(r"\d+", re.sub(r"<[^>]*>", "", badge)) == [*map(str, shown.values())]
    assert ("None failed" in page) == (worst == "warn")


def test_fewer_images_than_asked_for_are_said_at_once(here):
    _, err = here.evaluate("--limit", "100")
    assert any({"16", "100"} <= set(line.replace(",", " ").split()) for line in err.splitlines()), err

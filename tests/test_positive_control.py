"""A model that is robust, as adversarial training at this radius made it: nothing may cry wolf, and it ranks first."""

import json

import pytest

from davylamp.adapters import ThreatModel, run_attack
from davylamp.adapters.data.datasets import load_data
from davylamp.adapters.models.zoo.load import load_model

from .madry import ascend

PLAIN, ROBUST = "demo:mnist-lenet5", "demo:mnist-lenet5-robust"
RADIUS = 0.3


@pytest.mark.parametrize(("name", "clean", "left"), [(PLAIN, 19, 0), (ROBUST, 20, 18)])
def test_adversarial_training_is_what_is_left_after_pgd(name, clean, left):
    classifier, data = load_model(name), load_data("demo:mnist")
    right = classifier(data.inputs).argmax(1) == data.labels
    case = (classifier, data.inputs[right], data.labels[right], ThreatModel("linf", RADIUS))
    result = run_attack("foolbox:pgd", *case, steps=40, step_size=2.5 * RADIUS / 40, random_start=False)
    by_hand = classifier(ascend(classifier, *case[1:3], 40, RADIUS)).argmax(1) == case[2]
    assert (int(right.sum()), int((~result.success).sum())) == (clean, left)
    assert int(by_hand.sum()) == left


def test_a_robust_model_ranks_first_and_fires_no_indicator(run, tmp_path):
    folder = tmp_path / "results"
    attacks = ("--attacks", "foolbox:fgsm,foolbox:pgd", "--norm", "linf", "--epsilon", "0.2,0.3", "--param", "steps=20")
    code, _, errors = run("evaluate", "--models", "demo:*", "--data", "demo:mnist", *attacks, "-o", folder)
    assert code == 0, errors
    code, out, errors = run("check", folder, "--probe", "--images", 3, "--json")
    assert code == 0, errors
    checks = json.loads(out)["checks"]
    states = {state: [check for check in checks if check["state"] == state] for state in ("pass", "warn", "fail")}
    assert states["fail"] == []
    # The one step of FGSM misses what is planted between it and the image, and is said to.
    warned = [
        check for check in states["warn"] if ROBUST in check["subject"] and "foolbox:fgsm" not in check["subject"]
    ]
    assert warned == []
    passed = {check["name"] for check in states["pass"] if ROBUST in check["subject"]}
    assert {"gradients", "single-step", "epsilon-growth", "unbounded", "active-test"} <= passed, passed
    code, out, errors = run("rank", folder, "--json")
    assert code == 0, errors
    first, second = json.loads(out)["rows"]
    assert (first["subject"], second["subject"]) == (ROBUST, PLAIN)
    assert first["group"] != second["group"]

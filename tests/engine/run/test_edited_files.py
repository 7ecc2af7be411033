"""What a file makes is what was planned, or it is not recorded: files are edited while they are evaluated."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, load, make_plan
from davylamp.engine.run.processes import WorkerPoolExecutor

FILE = """
import torch
from torch.nn.functional import cross_entropy

SCALE = 1.0

def build():
    layer = torch.nn.Linear(48, 4)
    layer.weight.data = SCALE * torch.randn(4, 48, generator=torch.Generator().manual_seed(0))
    layer.bias.data.zero_()
    return torch.nn.Sequential(torch.nn.Flatten(), layer)

def images():
    inputs = SCALE * torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    return inputs, build()(inputs).argmax(1)

def attack(model, inputs, labels, epsilon):
    inputs.requires_grad_(True)
    cross_entropy(model(inputs), labels).backward()
    return (inputs + SCALE * epsilon * inputs.grad.sign()).clamp(0, 1).detach()

attack.norm = "linf"

def metric(inputs, adv_inputs):
    return SCALE * (adv_inputs - inputs).abs().flatten(1).sum(1)
"""
RANDOM = "import torch\n\ndef build():\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 4))\n"


@pytest.fixture
def files(tmp_path, monkeypatch):
    for name in ("net", "data", "step", "share"):
        (tmp_path / f"{name}.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config(**changes):
    attacks = (AttackChoice("step.py:attack", "linf", 0.05),)
    whole = Config(("net.py:build",), attacks, "data.py:images", measures=("effect", "share.py:metric"))
    return replace(whole, **changes)


def edit(folder, name):
    (folder / f"{name}.py").write_text(FILE.replace("SCALE = 1.0", "SCALE = 0.5"))


@pytest.mark.parametrize("name", ["net", "data"])
def test_what_was_edited_after_the_plan_is_not_recorded_as_planned(files, name):
    plan = make_plan(config())
    edit(files, name)
    summary = evaluate(plan, ResultsStore("results"))
    assert all("differs from the plan of this evaluation" in reason for reason in summary.failed.values())
    assert len(summary.failed) == 1
    again = evaluate(make_plan(config()), ResultsStore("results"))
    assert (again.done, again.failed) == (1, {})


def test_an_attack_in_this_process_is_the_one_that_was_planned(files):
    plan = make_plan(config())
    edit(files, "step")
    assert evaluate(plan, ResultsStore("results")).failed == {}
    assert np.allclose(load("results")["linf"], 0.05, atol=1e-6)
    assert evaluate(make_plan(config()), ResultsStore("results")).done == 1  # the edited one is another cell


def test_an_attack_in_another_process_is_not_recorded_if_it_was_edited(files):
    plan = make_plan(config())
    edit(files, "step")
    (reason,) = evaluate(plan, ResultsStore("results"), executor=WorkerPoolExecutor(1)).failed.values()
    assert "step.py:attack differs from the plan" in reason


def test_a_metric_that_was_edited_is_not_recorded_as_planned(files):
    plan = make_plan(config())
    edit(files, "share")
    evaluate(plan, ResultsStore("results"))
    assert np.isnan(load("results")["share.py:metric"]).all()


def test_a_model_that_is_another_each_time_is_refused(files):
    (files / "net.py").write_text(RANDOM)
    (reason,) = evaluate(make_plan(config()), ResultsStore("results")).failed.values()
    assert "draws random numbers" in reason


def test_what_a_script_defines_is_sent_to_workers_by_value(files, digits):
    class Inside(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, inputs):
            return self.module(inputs)

    from davylamp import evaluate as verb

    share = 0.5
    attack = lambda model, inputs, labels, epsilon: inputs + share * epsilon  # noqa: E731
    frames = []
    for workers in (1, 2):
        out = f"results{workers}"
        case = (Inside(digits.module), digits.inputs.clamp(max=0.9), digits.labels)
        done = verb(*case, attacks=attack, epsilon=0.05, out=out, workers=workers)
        assert done.summary.failed == {}
        frames.append(load(out).drop(columns=["seconds", "attack_seconds"], errors="ignore"))
    assert np.allclose(frames[0]["linf"], 0.025, atol=1e-6)
    assert frames[0]["cell"].equals(frames[1]["cell"])
    assert np.array_equal(frames[0]["linf"], frames[1]["linf"])


def test_what_cannot_be_sent_is_one_line(files, digits):
    from davylamp import evaluate as verb
    from davylamp.errors import InvalidInput

    waiting = (number for number in range(3))
    attack = lambda model, inputs, labels, epsilon: inputs + epsilon * next(waiting)  # noqa: E731
    with pytest.raises(InvalidInput, match=r"TypeError: cannot pickle 'generator' object.*workers=1"):
        verb(digits.module, digits.inputs, digits.labels, attacks=attack, epsilon=0.05, workers=2)

"""`challenge` names models that optimise in their forward pass; each model here counts its own passes."""

import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters import Classifier
from davylamp.adapters.models.sandbox.isolated import load_isolated
from davylamp.adapters.models.sandbox.isolation import Isolation
from davylamp.engine.challenge.inner_passes import InnerPasses, count_inner_passes, optimisation_note

STEPS = 3
TINY = {"steps": 2, "candidates": 2, "queries": 3, "eot": 2, "judge_samples": 4}
MOVED = """
import torch
from torch import nn

class Moved(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(48, 5)

    def forward(self, images):
        with torch.enable_grad():
            leaf = images.detach().requires_grad_()
            change = torch.autograd.grad(self.net(leaf.flatten(1)).logsumexp(1).sum(), leaf)[0]
        return self.net((images + change).flatten(1))
"""


class TestTime(nn.Module):
    """Move each image to larger confidence in `STEPS` gradient steps, then classify it."""

    __test__ = False

    def __init__(self, net, way):
        super().__init__()
        self.net, self.way, self.calls, self.inner = net, way, 0, 0

    def ask(self, images):
        self.calls += 1
        return self.net(images)

    def gradient(self, images):
        self.inner += 1
        if self.way == "functional":
            return torch.func.grad(lambda point: self.ask(point).logsumexp(1).sum())(images)
        if self.way == "backward":
            leaf = images.detach().requires_grad_()
            self.ask(leaf).logsumexp(1).sum().backward()
            return leaf.grad
        confidence = self.ask(images).logsumexp(1).sum()
        gradient = torch.autograd.grad(confidence, images, create_graph=self.way != "constant", retain_graph=True)[0]
        return gradient.detach() if self.way == "detached" else gradient

    def forward(self, images):
        with torch.enable_grad():
            point = images if images.requires_grad else images.detach().requires_grad_()
            for _ in range(STEPS):
                point = point + 0.05 * self.gradient(point)
        return self.ask(point)


WAYS = {"exact": True, "functional": True, "detached": False, "constant": False, "backward": False}


@pytest.mark.parametrize(("way", "passes"), WAYS.items())
def test_the_counts_are_those_of_the_model_itself(digits, way, passes):
    net = nn.Sequential(*list(digits.module)).eval()
    net[1] = net[3] = nn.Softplus()  # its second derivative is not zero
    model = TestTime(net, way)
    inner = count_inner_passes(Classifier(model, outputs="logits"), digits.inputs[:1])
    queries = 2 if way in ("exact", "functional", "detached") else 1  # the second one cuts the inner graph
    assert (model.calls, model.inner) == (queries * (STEPS + 1), queries * STEPS)
    assert inner == InnerPasses(STEPS + 1, STEPS, passes)


def test_a_classifier_inside_the_model_counts_once(digits):
    model = TestTime(Classifier(digits.module), "constant")
    assert count_inner_passes(Classifier(model), digits.inputs[:1]).forwards == STEPS + 1


@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")
def test_a_feed_forward_model_costs_one_pass(digits):
    scripted = Classifier(torch.jit.script(digits.module))
    assert count_inner_passes(scripted, digits.inputs[:1]) == InnerPasses(1, 0)
    assert count_inner_passes(Classifier(digits.module), digits.inputs[:1]) == InnerPasses(1, 0)


def test_a_model_in_a_separate_process_has_the_same_note(tmp_path):
    (tmp_path / "moved.py").write_text(MOVED)
    model = load_isolated(f"{tmp_path}/moved.py:Moved", "cpu", Isolation("yes"))
    (line,) = optimisation_note(model, torch.rand(1, 3, 4, 4))
    assert " 2 forward and 1 backward " in line


def test_challenge_says_it_in_one_line(digits, tmp_path):
    words = {"epsilon": 0.1, "effort": TINY, "limit": 2, "progress": False}
    images = (digits.inputs, digits.labels)
    done = davylamp.challenge(TestTime(digits.module, "constant"), *images, out=tmp_path / "optimising", **words)
    (line,) = done.notes
    assert "\n" not in line
    assert f" {STEPS + 1} forward and {STEPS} backward " in line
    assert line in repr(done)
    assert done.to_dict()["notes"] == [line]

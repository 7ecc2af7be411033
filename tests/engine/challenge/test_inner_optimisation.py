"""`challenge` names models that optimise in their forward pass; each model here counts its own passes."""

import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters import Classifier
from davylamp.engine.challenge.inner_passes import InnerPasses, count_inner_passes

STEPS = 3
TINY = {"steps": 2, "candidates": 2, "queries": 3, "eot": 2, "judge_samples": 4}


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


def test_a_feed_forward_model_costs_one_pass(digits):
    assert count_inner_passes(Classifier(digits.module), digits.inputs[:1]) == InnerPasses(1, 0)


def test_challenge_says_it_in_one_line(digits, tmp_path):
    words = {"epsilon": 0.1, "effort": TINY, "limit": 2, "progress": False}
    images = (digits.inputs, digits.labels)
    done = davylamp.challenge(TestTime(digits.module, "constant"), *images, out=tmp_path / "optimising", **words)
    (line,) = done.notes
    assert "\n" not in line
    assert f" {STEPS + 1} forward and {STEPS} backward " in line
    assert line in repr(done)
    assert done.to_dict()["notes"] == [line]

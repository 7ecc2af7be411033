"""The draws that a random model is judged by are the same for every run, so that runs can be set against each other."""

import numpy as np
import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.running.judge import quantise
from davylamp.adapters.running.surrogate import run_transfer
from davylamp.engine.searches.single import on_pixels

RULES = ThreatModel("linf", 0.1)
LABELS = torch.zeros(60, dtype=torch.long)
IMAGES = torch.linspace(0.1, 0.4, 60)[:, None, None, None].expand(60, 1, 4, 4).clone()
DRAWS = 20


class Coin(nn.Module):
    """Predicts class 1 with a chance that is the mean of the image, class 0 otherwise."""

    def forward(self, inputs):
        heads = (torch.rand(len(inputs)) < inputs.mean((1, 2, 3))).float()
        return torch.stack([1 - 2 * heads, 2 * heads - 1], 1) + 0 * inputs.flatten(1)[:, :1]


class Dark(nn.Module):
    """Class 0 for every image."""

    def forward(self, inputs):
        return torch.tensor([[1.0, 0.0]]) + 0 * inputs.flatten(1)[:, :1]


def brighter(model, inputs, labels):
    """The same examples in every run."""
    model(inputs)
    return (inputs + 0.1).clamp(0, 1)


ROW = davylamp.as_implementation(brighter, norms=("linf",), kind="fixed-budget")
KNOWN = {"logits": torch.tensor([[1.0, -1.0]]).expand(60, 2), "draws": DRAWS}


def coin():
    return Classifier(Coin(), num_classes=2, random=True)


def attacked(seed):
    return run_attack(ROW, coin(), IMAGES, LABELS, RULES, seed=seed, **KNOWN)


def transferred(seed):
    surrogate = Classifier(Dark(), num_classes=2)
    return run_transfer(ROW, coin(), surrogate, IMAGES, LABELS, RULES, seed=seed, **KNOWN)


def rounded(seed):
    return on_pixels(attacked(seed), coin(), IMAGES)


def shares_of_today(images):
    """What the seed 0 gives: the share of the draws that are fooled, each spelt out."""
    model = Coin()
    torch.manual_seed(int(np.random.SeedSequence([0, 3, 1]).generate_state(1)[0]))
    return torch.stack([model(images).argmax(1) == 1 for _ in range(DRAWS)]).double().mean(0)


@pytest.mark.parametrize("way", [attacked, transferred, rounded])
def test_the_same_examples_get_the_same_verdict_whatever_the_seed_of_the_run(way):
    results = [way(seed) for seed in (0, 1, 7)]
    examples = results[0].adv_inputs if way is rounded else (IMAGES + 0.1).clamp(0, 1)
    expected = shares_of_today(examples)
    assert torch.equal(examples, quantise(examples)) or way is not rounded
    assert len(expected.unique()) > 5  # or this test says little
    for result in results:
        assert torch.equal(result.draws_fooled, expected)
        assert torch.equal(result.success, results[0].success)
        assert torch.equal(result.success_8bit, results[0].success_8bit)


def test_the_least_of_several_seeds_is_the_share_of_one():
    """With draws of its own for each of five seeds the least would be that of the luckiest: far below."""
    robust = torch.stack([attacked(seed).robust_share for seed in range(5)])
    assert torch.equal(robust.amin(0), robust[0])
    truth = 1 - (IMAGES.mean((1, 2, 3)) + 0.1).double()
    spread = (truth * (1 - truth) / DRAWS).mean().sqrt() / len(truth) ** 0.5
    assert abs(float(robust.amin(0).mean() - truth.mean())) < 4 * float(spread)

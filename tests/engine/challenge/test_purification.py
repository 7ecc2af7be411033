"""A diffusion purifier trained on digits: exact gradients through its loop break it, attacks without them do not."""

import re

import pytest
import torch
from sklearn.datasets import load_digits

import davylamp
from davylamp.adapters.user_file import load_object
from davylamp.engine.challenge.challenge import challenge

DENOISER = """
from pathlib import Path

import torch
from torch.nn.functional import avg_pool2d, interpolate, silu


class Denoiser(torch.nn.Module):
    # Predicts a digit from a noisy one, in 8 x 8 pixels, where the standard deviation of the noise is a quarter

    def __init__(self, width=32):
        super().__init__()
        self.first, self.last = (torch.nn.Conv2d(*each, 3, padding=1) for each in ((2, width), (width, 1)))
        self.middle = torch.nn.ModuleList(torch.nn.Conv2d(width, width, 3, padding=1) for _ in range(3))

    def forward(self, images, level):
        return interpolate(self.small(avg_pool2d(images, 4), level / 4), scale_factor=4, mode="bicubic")

    def small(self, x, level):
        h = self.first(torch.cat([x, torch.full_like(x, level)], 1))
        for layer in self.middle:
            h = h + layer(silu(h))
        return x + self.last(silu(h))


def make():
    made = Denoiser()
    made.load_state_dict(torch.load(Path(__file__).with_name("denoiser.pt")))
    return made
"""
LEVELS = (0.2, 0.1)  # standard deviations of the noise in 8 x 8 pixels
RADIUS = 0.1


@pytest.fixture(scope="module")
def digits():
    data = davylamp.load_data("demo:digits", limit=16)
    return data.inputs, data.labels


@pytest.fixture(scope="module")
def name(tmp_path_factory):
    """Name of a purified model, with a denoiser trained on digits that are not in `digits`."""
    file = tmp_path_factory.mktemp("purifier") / "denoiser.py"
    file.write_text(DENOISER)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        images = torch.tensor(load_digits().images[:1400], dtype=torch.float32)[:, None] / 16
        made = load_object(file, "Denoiser", "a denoiser")[0]()
        optimiser = torch.optim.Adam(made.parameters(), 3e-3)
        for place in range(200):
            batch, level = images[torch.randint(len(images), (96,))], LEVELS[place % len(LEVELS)]
            loss = (made.small(batch + level * torch.randn_like(batch), level) - batch).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    torch.save(made.state_dict(), file.with_name("denoiser.pt"))
    return f"demo:digits-cnn+purify:{file}:make:noise={4 * LEVELS[0]},steps={len(LEVELS)}"


def accuracy(model, images, labels, samples=20):
    """The mean rate of correct outputs over samples."""
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(1)
        return float(torch.stack([(model(images).argmax(1) == labels).float() for _ in range(samples)]).mean())


def attacked(model, digits, attack, **parameters):
    result = davylamp.run_attack(attack, model, *digits, norm="linf", epsilon=RADIUS, **parameters)
    assert float((result.adv_inputs - digits[0]).abs().max()) <= RADIUS + 1e-6
    return accuracy(model, result.adv_inputs, digits[1])


def test_exact_gradients_break_a_purifier_that_withstands_attacks_without_gradients(name, digits):
    purified, cut = davylamp.load_model(name), davylamp.load_model(f"{name},gradients=none")
    clean = accuracy(purified, *digits)
    by_gradients = attacked(purified, digits, "torchattacks:eot-pgd", steps=20, samples=4)
    by_scores = attacked(purified, digits, "torchattacks:square", max_queries=100)
    without = attacked(cut, digits, "torchattacks:eot-pgd", steps=20, samples=4)
    assert clean > 0.8
    assert by_gradients < by_scores - 0.2
    assert by_gradients < without - 0.2


def test_challenge_attacks_through_the_loop_and_finds_the_break(name, tmp_path):
    effort = {"steps": 5, "queries": 10, "eot": 2, "judge_samples": 10}
    done = challenge(name, "demo:digits", epsilon=RADIUS, limit=8, effort=effort, out=tmp_path / "challenge")
    left: dict[str, float] = {}
    for each in done.attempts:
        way = each.gradients if each.part == "white-box" else each.part
        left[way] = min(left.get(way, 1), each.accuracy.value)
    assert {"", "straight-through", "of one step", "of the mean probability"} <= set(left)
    assert done.clean.value > 0.8
    assert left[""] < min(left["scores"], left["decisions"]) - 0.3
    assert done.worst.value < left["undefended"] + 0.2  # hardly better than without it
    (several,) = re.findall(r"10 samples, ([0-9.]+)%", " ".join(done.notes))
    assert float(several) / 100 <= done.worst.value  # one fooled sample of ten is enough

"""A sparsifier after MeanSparse (Amini et al. 2024) on digits: plain and adaptive accuracy, and the verdict."""

from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import davylamp
from davylamp.engine.challenge.attempts import by_attacker, worst_case

RADIUS = 0.15
ALPHA = 0.5
EFFORT = {"steps": 12, "candidates": 2, "queries": 10}


class MeanSparsifier(nn.Module):
    """Replace activations within `alpha` standard deviations of their channel's mean by that mean.

    The gradient is that of the formula ("exact"), the identity ("straight-through"), or zero ("none").
    """

    def __init__(self):
        super().__init__()
        self.mean = self.threshold = torch.zeros(())
        self.way = "exact"

    def forward(self, x):
        y = torch.where((x - self.mean).abs() <= self.threshold, self.mean, x) if self.threshold.any() else x
        return {"exact": y, "straight-through": x + (y - x).detach(), "none": y.detach() + 0 * x}[self.way]


def pgd(net, images, labels, steps):
    """Return PGD's examples from a random start (Madry et al. 2018)."""
    moved = images + RADIUS * (2 * torch.rand_like(images) - 1)
    for _ in range(steps):
        moved = moved.clamp(0, 1).requires_grad_()
        gradient = torch.autograd.grad(cross_entropy(net(moved), labels), moved)[0]
        moved = moved.detach() + 2.5 * RADIUS / steps * gradient.sign()
        moved = images + (moved - images).clamp(-RADIUS, RADIUS)
    return moved.clamp(0, 1).detach()


def make(state=None, sizes=None, *, alpha=0.0, way="exact"):
    """A network with a sparsifier before each activation function; `sizes` are mean and deviation of the channels."""
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), MeanSparsifier(), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), MeanSparsifier(), nn.ReLU(),
        nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip
    if state is not None:
        net.load_state_dict(state)
        net.eval().requires_grad_(False)
    for place, (mean, deviation) in (sizes or {}).items():
        part: Any = net[place]
        part.mean, part.threshold, part.way = mean, alpha * deviation, way
    return net


@pytest.fixture(scope="module")
def trained():
    """Weights after adversarial training, the sizes of the activations, and images that were not used for either."""
    data: Any = load_digits()
    images, labels = torch.tensor(data.images / 16, dtype=torch.float32)[:, None], torch.tensor(data.target)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make()
        optimiser = torch.optim.Adam(net.parameters(), 5e-3)
        for _ in range(8):
            for batch in torch.randperm(1400).split(100):
                loss = cross_entropy(net(pgd(net, images[batch], labels[batch], 3)), labels[batch])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
    with torch.no_grad():
        before = {place: net[:place](images[:1400]) for place in (1, 4)}
    sizes = {place: (x.mean((0, 2, 3), True), x.std((0, 2, 3), keepdim=True)) for place, x in before.items()}
    return net.state_dict(), sizes, images[1400:1432], labels[1400:1432]


def challenged(trained, out, way):
    """The challenge of one sparsifier with its straight-through version as a source of examples; both accuracies."""
    state, sizes, *images = trained
    adaptive = make(state, sizes, alpha=ALPHA, way="straight-through")
    done = davylamp.challenge(
        make(state, sizes, alpha=ALPHA, way=way), *images, original=make(state),
        surrogates={"straight-through": adaptive}, epsilon=RADIUS, effort=EFFORT, out=out, progress=False,
    )  # fmt: skip
    plain = by_attacker(done.attempts, "white-box")
    through = [each for each in by_attacker(done.attempts, "transfer") if each.made_on == "straight-through"]
    return done, *(float((each[0].attacked * (1 - worst_case(each))).mean()) for each in (plain, through))


def under_pgd(trained, way):
    """The defended model's accuracy on clean images, and on PGD's examples through `way`."""
    state, sizes, inputs, labels = trained
    judge = make(state, sizes, alpha=ALPHA)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        moved = pgd(make(state, sizes, alpha=ALPHA, way=way), inputs, labels, EFFORT["steps"])
    right = [judge(each).argmax(1) == labels for each in (inputs, moved)]
    return float(right[0].float().mean()), float((right[0] & right[1]).float().mean())


def test_gradients_of_the_formula_break_it_as_well_as_the_identity_does(trained, tmp_path):
    done, plain, adaptive = challenged(trained, tmp_path, "exact")
    clean, pgd_left = under_pgd(trained, "exact")
    assert done.clean.value == pytest.approx(clean)
    assert done.verdict == "falls"
    assert done.ruling.masking == ()  # no other gradients are necessary
    assert plain <= adaptive <= clean - 0.2
    assert done.worst.value <= min(plain, adaptive, pgd_left)


def test_without_its_gradients_the_plain_accuracy_misleads_and_the_adaptive_one_does_not(trained, tmp_path):
    done, plain, adaptive = challenged(trained, tmp_path, "none")
    clean, pgd_left = under_pgd(trained, "straight-through")
    assert plain >= clean - 0.05
    assert adaptive <= pgd_left + 1 / done.clean.n
    assert adaptive <= plain - 0.2
    assert done.verdict == "falls"
    assert done.worst.value <= adaptive
    assert any("on straight-through fools images that no gradient attack fools" in line for line in done.ruling.masking)

"""A diffusion purifier trained on digits: exact gradients through its loop break it, attacks without them do not."""

import pytest
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import avg_pool2d, interpolate, silu
from torch.utils.checkpoint import checkpoint

import davylamp

LEVELS = (0.2, 0.1)  # standard deviations of the noise
RADIUS = 0.1


class Denoiser(torch.nn.Module):
    """Predict the digit from a noisy one, (n, 1, 8, 8), and the noise level."""

    def __init__(self, width=32):
        super().__init__()
        self.first, self.last = (torch.nn.Conv2d(*each, 3, padding=1) for each in ((2, width), (width, 1)))
        self.middle = torch.nn.ModuleList(torch.nn.Conv2d(width, width, 3, padding=1) for _ in range(3))

    def forward(self, x, level):
        h = self.first(torch.cat([x, torch.full_like(x, level)], 1))
        for layer in self.middle:
            h = h + layer(silu(h))
        return x + self.last(silu(h))


class Purified(torch.nn.Module):
    """Add noise and denoise in steps. Without `exact`, the loop has no gradient."""

    def __init__(self, model, denoiser, *, exact=True):
        super().__init__()
        self.model, self.denoiser, self.exact = model, denoiser, exact

    def forward(self, images):
        with torch.set_grad_enabled(self.exact and torch.is_grad_enabled()):
            x = avg_pool2d(images, 4)
            x = x + LEVELS[0] * torch.randn_like(x)
            for level, following in zip(LEVELS, (*LEVELS[1:], 0), strict=True):
                x = checkpoint(self.step, x, level, following, use_reentrant=False)
            purified = interpolate(x, scale_factor=4, mode="bicubic").clamp(0, 1)
        return self.model(purified + 0 * images)

    def step(self, x, level, following):
        clean = self.denoiser(x, level)
        return clean + following / level * (x - clean)


@pytest.fixture(scope="module")
def digits():
    data = davylamp.load_data("demo:digits", limit=16)
    return data.inputs, data.labels


@pytest.fixture(scope="module")
def denoiser():
    """Trained on digits that are not in `digits`."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        images, made = torch.tensor(load_digits().images[:1400], dtype=torch.float32)[:, None] / 16, Denoiser()
        optimiser = torch.optim.Adam(made.parameters(), 3e-3)
        for place in range(200):
            batch, level = images[torch.randint(len(images), (96,))], LEVELS[place % len(LEVELS)]
            loss = (made(batch + level * torch.randn_like(batch), level) - batch).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return made.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def models(denoiser):
    plain = davylamp.load_model("demo:digits-cnn")
    return {
        "purified": davylamp.Classifier(Purified(plain, denoiser), random=True, name="purified"),
        "cut": davylamp.Classifier(Purified(plain, denoiser, exact=False), random=True, name="cut"),
    }


def accuracy(model, images, labels, samples=20):
    """The mean rate of correct outputs over samples."""
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(1)
        return float(torch.stack([(model(images).argmax(1) == labels).float() for _ in range(samples)]).mean())


def attacked(model, digits, attack, **parameters):
    result = davylamp.run_attack(attack, model, *digits, norm="linf", epsilon=RADIUS, **parameters)
    assert float((result.adv_inputs - digits[0]).abs().max()) <= RADIUS + 1e-6
    return accuracy(model, result.adv_inputs, digits[1])


def test_exact_gradients_break_a_purifier_that_withstands_attacks_without_gradients(models, digits):
    clean = accuracy(models["purified"], *digits)
    by_gradients = attacked(models["purified"], digits, "torchattacks:eot-pgd", steps=20, samples=4)
    by_scores = attacked(models["purified"], digits, "torchattacks:square", max_queries=100)
    without = attacked(models["cut"], digits, "torchattacks:eot-pgd", steps=20, samples=4)
    assert clean > 0.8
    assert by_gradients < by_scores - 0.2
    assert by_gradients < without - 0.2

"""NATTACK: a score-based attack that fits a distribution of adversarial images with an evolution strategy."""

import torch
from torch import Tensor

from ...criterion import is_fooled
from .losses import by_image, logit_margin
from .queries import Model, query_logits

_DEVIATION = 0.1  # of the noise, in the variable that tanh maps to pixels
_POINTS = 256  # largest number of images per model call
_INSIDE = 1 - 1e-6  # how near to black and white tanh may come


@torch.no_grad()
def nattack(  # noqa: PLR0913 - the parameters of the attack, by keyword
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    *,
    epsilon: float | Tensor,
    targets: Tensor | None = None,
    steps: int = 600,
    samples: int = 300,
    learning_rate: float = 0.02,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Run NATTACK (Li et al. 2019) in linf, which moves the mean of a Gaussian until its image is adversarial.

    The Gaussian is over a latent variable. A latent variable is converted to an image by tanh and by clipping to the
    radius. In each step, `samples` latent variables are drawn around the mean. The mean moves by a weighted sum of
    their noise. The weights are the standardised rewards, where the reward of an image is its negative logit margin, at
    most 0. The search ends as soon as the image of the mean is adversarial.

    Args:
        model: maps images in [0, 1] to logits. No gradient is used.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: true classes, shape (n,).
        epsilon: radius in linf, or one radius per image, shape (n, 1, 1, 1).
        targets: target classes, shape (n,), for a targeted attack.
        steps: largest number of steps. A step costs samples + 1 forward passes.
        samples: number of images drawn in each step.
        learning_rate: learning rate of the mean.
        generator: random generator for the noise. None for torch's default generator.

    Returns:
        The first adversarial image of the mean, shape (n, C, H, W). If there was none, the image of the last mean.
    """
    radius = torch.as_tensor(epsilon).to(inputs).expand(len(inputs), 1, 1, 1)
    centre = ((2 * inputs - 1) * _INSIDE).atanh()
    mean = torch.zeros_like(inputs)

    def image_of(shift: Tensor, rows: Tensor) -> Tensor:
        points, clean, ball = (centre[rows] + shift).tanh() / 2 + 0.5, inputs[rows], radius[rows]
        return torch.minimum(torch.maximum(points, clean - ball), clean + ball).clamp(0, 1)

    def margins(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        logits, wanted = query_logits(model, points, rows), None if targets is None else targets[rows]
        return logit_margin(logits, labels[rows], wanted), is_fooled(logits, labels[rows], wanted)

    rows = torch.arange(len(inputs), device=inputs.device)
    for _ in range(steps):
        _, hit = margins(image_of(mean[rows], rows), rows)
        rows = rows[~hit]
        if not len(rows):
            break
        strategy = _WeightedNoise(mean[rows])
        for few in _portions(samples, len(rows)):
            noise = torch.randn((few, *mean[rows].shape), generator=generator, device=inputs.device)
            owners = rows.repeat(few)
            shift = (mean[rows] + _DEVIATION * noise).flatten(0, 1)
            reward = -margins(image_of(shift, owners), owners)[0].clamp(min=0)
            strategy.add(reward.view(few, len(rows)), noise)
        mean[rows] += learning_rate / _DEVIATION * strategy.direction()
    return image_of(mean, torch.arange(len(inputs), device=inputs.device))


def _portions(samples: int, images: int) -> list[int]:
    """Split the samples of a step into parts such that a call of the model has at most about `_POINTS` images."""
    most = max(1, _POINTS // images)
    return [min(most, samples - first) for first in range(0, samples, most)]


class _WeightedNoise:
    """Computes the sum of the noise of a step, weighted by the standardised rewards, part by part."""

    def __init__(self, like: Tensor):
        self.noise, self.weighted = torch.zeros_like(like), torch.zeros_like(like)
        self.rewards: list[Tensor] = []

    def add(self, reward: Tensor, noise: Tensor) -> None:
        """Add rewards (samples, m) and noise (samples, m, C, H, W)."""
        reward = reward.nan_to_num(0, 0, 0)
        self.rewards.append(reward)
        self.noise += noise.sum(0)
        self.weighted += (reward[..., None, None, None] * noise).sum(0)

    def direction(self) -> Tensor:
        """Return the mean over samples of noise x (reward - mean reward) / standard deviation, shape (m, C, H, W)."""
        rewards = torch.cat(self.rewards)
        deviation = rewards.std(0, correction=0) + 1e-7
        return (self.weighted - by_image(rewards.mean(0)) * self.noise) / by_image(deviation) / len(rewards)

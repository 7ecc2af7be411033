"""AdvGAN: trains a network that generates perturbations. Its examples need no queries of the attacked model."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...threat_model import ThreatModel
from .generators import Resized, Sum, batches, fit_size, load_weights, weights_of
from .losses import logit_margin
from .queries import Model, query_logits

_BATCH = 32
_REAL = 0.1  # weight of the discriminator in the generator's loss
_RATE = 0.001  # of Adam, divided by ten in the last third of the epochs
_BLOCKS = 4


def advgan(
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    *,
    epsilon: float,
    epochs: int = 60,
    confidence: float = 0.0,
) -> Tensor:
    """Train a generator on images (n, C, H, W), see `train_advgan`, and return these images with its perturbations."""
    learned = train_advgan(model, inputs, labels, epsilon=epsilon, epochs=epochs, confidence=confidence)
    return apply_advgan(learned, inputs, ThreatModel("linf", epsilon))


def fit_advgan(
    _: Callable[..., Tensor], model: Model, inputs: Tensor, labels: Tensor, threat_model: ThreatModel, **words: Any
) -> Mapping[str, Tensor]:
    """Train a generator on images (n, C, H, W) with labels (n,), see `train_advgan`, and return its weights."""
    assert threat_model.epsilon is not None
    return train_advgan(model, inputs, labels, epsilon=threat_model.epsilon, **words)


def apply_advgan(learned: Mapping[str, Tensor], inputs: Tensor, threat_model: ThreatModel) -> Tensor:
    """Return images with the perturbations of a trained generator. The model is not queried.

    Raises:
        ValueError: if the generator was trained on images with a different number of channels.
    """
    assert threat_model.epsilon is not None
    generator = make_generator(inputs.shape[1]).to(inputs).eval()
    load_weights(learned, generator=generator)
    with torch.no_grad():
        return _moved(generator, inputs, threat_model.epsilon)


def train_advgan(
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    *,
    epsilon: float,
    epochs: int = 60,
    confidence: float = 0.0,
) -> dict[str, Tensor]:
    """Train a generator whose perturbations fool the model and look real to a discriminator (Xiao et al. 2018).

    As in the paper, the generator is c3s1-8, d16, d32, four residual blocks of 32, u16, u8, and the discriminator is
    C8, C16, C32. The losses are a least-squares GAN loss and a hinge loss on the logit margin. Each batch is used for
    one step of the discriminator and one step of the generator.

    There are three differences from the paper. First, the perturbation is epsilon times a hyperbolic tangent. The paper
    instead has a hinge loss on the size of the perturbation, without stating its bound and weight. Second, upsampling
    and convolution replace transposed convolutions. Third, features are normalised over all channels of an image, so
    that images of any size are possible.

    Args:
        model: maps images in [0, 1] to logits, differentiably.
        inputs: training images, shape (n, C, H, W).
        labels: true classes, shape (n,).
        epsilon: radius in linf.
        epochs: number of epochs. An epoch costs a forward and a backward pass per image.
        confidence: logit margin beyond which the hinge loss is constant.

    Returns:
        The weights of the generator by name.
    """
    with torch.enable_grad():
        generator, judge = make_generator(inputs.shape[1]).to(inputs), make_discriminator(inputs.shape[1]).to(inputs)
        optimisers = [torch.optim.Adam(network.parameters(), lr=_RATE) for network in (generator, judge)]
        slower = [torch.optim.lr_scheduler.MultiStepLR(each, [2 * epochs // 3]) for each in optimisers]
        for epoch in range(epochs):
            for rows in batches(len(inputs), 1, _BATCH):
                clean, places = inputs[rows], rows.to(inputs.device)
                adversarial = _moved(generator, clean, epsilon)
                _step(optimisers[1], _truth(judge(clean), 1.0) + _truth(judge(adversarial.detach()), 0.0))
                logits = query_logits(model, adversarial, places)
                fooling = logit_margin(logits, labels[rows], None).clamp(min=-confidence).mean()
                _step(optimisers[0], fooling + _REAL * _truth(judge(adversarial), 1.0))
            if epoch + 1 < epochs:
                for schedule in slower:
                    schedule.step()
    return weights_of(generator=generator)


def make_generator(channels: int) -> nn.Module:
    """Build an untrained generator for images with `channels` channels."""

    def normal(width: int) -> nn.Module:
        return nn.GroupNorm(1, width)

    def residual() -> nn.Module:
        first, second = (nn.Conv2d(32, 32, 3, padding=1) for _ in range(2))
        return Sum(first, normal(32), nn.ReLU(), second, normal(32))

    down, layers = ((channels, 8, 1), (8, 16, 2), (16, 32, 2)), []
    for before, after, stride in down:
        layers += [nn.Conv2d(before, after, 3, stride, 1), normal(after), nn.ReLU()]
    layers += [residual() for _ in range(_BLOCKS)]
    for before, after in ((32, 16), (16, 8)):
        layers += [Resized(), nn.Conv2d(before, after, 3, padding=1), normal(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(8, channels, 3, padding=1))


def make_discriminator(channels: int) -> nn.Module:
    """Build an untrained discriminator, whose output is the mean score over the patches of an image."""
    layers: list[nn.Module] = []
    for before, after in ((channels, 8), (8, 16), (16, 32)):
        layers += [nn.Conv2d(before, after, 4, 2, 2), nn.GroupNorm(1, after), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 1))


def _moved(generator: nn.Module, inputs: Tensor, epsilon: float) -> Tensor:
    return (inputs + epsilon * fit_size(generator(inputs), inputs).tanh()).clamp(0, 1)


def _truth(answers: Tensor, wanted: float) -> Tensor:
    return functional.mse_loss(answers, torch.full_like(answers, wanted))


def _step(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

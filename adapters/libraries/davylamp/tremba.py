"""TREMBA: a score-based attack. It searches in the embedding of an autoencoder that was trained to fool a model."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from ...criterion import is_fooled
from ...threat_model import ThreatModel
from .generators import batches, fit_size, load_weights, weights_of
from .losses import by_image, logit_margin
from .queries import Model, query_logits

_BATCH = 32
_TRAINED = {"lr": 0.01, "momentum": 0.9, "nesterov": True}  # stochastic gradient descent
_SLOWER, _TIMES = 0.75, 10  # factor of the learning rate, and how often it is applied
_LARGE = 64  # side of an image from which the embedding is that for ImageNet, not that for CIFAR
_SIGMA = 1.0  # of the noise, in the embedding
_MARGIN = 5.0  # beyond which a point that fools the model is not better still
_SLOWEST, _SLOWED = 0.1, 2.0  # smallest learning rate, and its divisor on a plateau
_PLATEAU, _RISE, _NEAR = 20, 0.3, 0.6  # number of losses considered, and the criteria of a plateau
_POINTS = 256  # largest number of images per model call


@torch.no_grad()
def tremba(  # noqa: PLR0913 - the parameters of the attack, by keyword
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    *,
    epsilon: float,
    steps: int = 200,
    samples: int = 20,
    learning_rate: float = 5.0,
    epochs: int = 200,  # noqa: ARG001 - of the training alone
    learned: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Run TREMBA (Huang and Zhang 2020) in linf: natural evolution strategies in the embedding of a trained decoder.

    A point of the embedding stands for a perturbation: epsilon times the decoder's output. The search for an image
    starts at the encoder's output for this image. In each step, the point is queried, and then `samples` points around
    it, which are drawn in antithetic pairs. The point moves along the mean of their noise, weighted by the hinge loss
    on the logit margin. If the loss has not fallen over 20 steps, the learning rate is halved. The search ends when the
    point fools the model.

    Args:
        model: maps images in [0, 1] to logits. No gradient is used.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: true classes, shape (n,).
        epsilon: radius in linf.
        steps: largest number of steps. A step costs samples + 1 forward passes, and the last step costs one.
        samples: number of points that are queried around the current point. An odd number is rounded up, because points
            are drawn in pairs.
        learning_rate: learning rate of the search in the embedding.
        epochs: not used here: number of epochs of the training in `fit_tremba`.
        learned: weights of encoder and decoder. None for untrained networks.

    Returns:
        The image of the last point, shape (n, C, H, W).

    Raises:
        ValueError: if the weights are for networks of different shapes, for example for a different image size.
    """
    pairs = -(-samples // 2)
    encoder, decoder = (network.to(inputs).eval() for network in make_networks(inputs))
    if learned is not None:
        load_weights({name: value.to(inputs) for name, value in learned.items()}, encoder=encoder, decoder=decoder)
    points = encoder(inputs)

    def image_of(embedded: Tensor, rows: Tensor) -> Tensor:
        clean = inputs[rows]
        return (clean + epsilon * fit_size(decoder(embedded), clean).tanh()).clamp(0, 1)

    def scores(embedded: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        logits = query_logits(model, image_of(embedded, rows), rows)
        return logit_margin(logits, labels[rows], None).clamp(min=-_MARGIN), is_fooled(logits, labels[rows], None)

    rows = torch.arange(len(inputs), device=inputs.device)
    rates = _Rates(len(inputs), learning_rate, inputs)
    for step in range(steps + 1):
        loss, hit = scores(points[rows], rows)
        rows, loss = rows[~hit], loss[~hit]
        if not len(rows) or step == steps:
            break
        direction = torch.zeros_like(points[rows])
        for few in _portions(pairs, len(rows)):
            noise = torch.randn((few, *direction.shape), device=inputs.device).to(inputs)
            noise = torch.cat([noise, -noise])
            around = (points[rows] + _SIGMA * noise).flatten(0, 1)
            values = scores(around, rows.repeat(2 * few))[0].view(2 * few, len(rows))
            direction += (values.nan_to_num(0, 0, 0)[..., None, None, None] * noise).sum(0) / (2 * pairs)
        points[rows] -= by_image(rates.of(rows)) * direction
        rates.note(rows, loss)
    return image_of(points, torch.arange(len(inputs), device=inputs.device))


def fit_tremba(
    _: Callable[..., Tensor],
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    *,
    epochs: int = 200,
) -> Mapping[str, Tensor]:
    """Train an encoder and a decoder whose perturbations fool a source model, of which gradients are used.

    The loss is the hinge loss on the logit margin, without the paper's bound of 200. The learning rate is reduced by a
    quarter ten times during the training. An epoch costs a forward and a backward pass per image.

    Args:
        model: the source model, which maps images in [0, 1] to logits, differentiably.
        inputs: training images, shape (n, C, H, W).
        labels: true classes, shape (n,).
        threat_model: a threat model with norm linf and a radius.
        epochs: number of epochs.

    Returns:
        The weights of encoder and decoder.
    """
    radius = threat_model.epsilon
    assert radius is not None
    with torch.enable_grad():
        encoder, decoder = (network.to(inputs).train() for network in make_networks(inputs))
        optimiser = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], **_TRAINED)
        slower = torch.optim.lr_scheduler.StepLR(optimiser, max(1, epochs // _TIMES), _SLOWER)
        for _epoch in range(epochs):
            for rows in batches(len(inputs), 1, _BATCH):
                if len(rows) == 1 and len(inputs) > 1:
                    continue  # a batch of one cannot be normalised
                clean = inputs[rows]
                change = fit_size(decoder(encoder(clean)), clean).tanh()
                logits = query_logits(model, (clean + radius * change).clamp(0, 1), rows.to(inputs.device))
                optimiser.zero_grad()
                logit_margin(logits, labels[rows], None).mean().backward()
                optimiser.step()
            slower.step()
    return weights_of(encoder=encoder, decoder=decoder)


def apply_tremba(learned: Mapping[str, Tensor], inputs: Tensor, threat_model: ThreatModel) -> Tensor:
    """Return the images at which the search starts: with perturbations decoded from the encoder's output.

    The model is not queried.

    Raises:
        ValueError: if the weights do not fit the networks for these images.
    """
    assert threat_model.epsilon is not None
    encoder, decoder = (network.to(inputs).eval() for network in make_networks(inputs))
    load_weights(learned, encoder=encoder, decoder=decoder)
    with torch.no_grad():
        return (inputs + threat_model.epsilon * fit_size(decoder(encoder(inputs)), inputs).tanh()).clamp(0, 1)


def make_networks(inputs: Tensor) -> tuple[nn.Module, nn.Module]:
    """Build an untrained encoder and decoder for images of this shape, with the widths of the paper.

    For images of at least 64 pixels a side, the networks are those of the paper for ImageNet, with an embedding of 3
    channels and 1/16 of the image's side. For smaller images, the networks are those of the paper for CIFAR-10, with an
    embedding of 8 channels and 1/4 of the image's side.
    """
    channels = inputs.shape[1]
    if min(inputs.shape[-2:]) >= _LARGE:
        down = ((channels, 16, 32), (32, 64, 64), (64, 128, 128), (128, 32, 3))
        up = ((3, 32, 64), (64, 128, 128), (128, 128, 64), (64, 32, 16))
    else:
        down = ((channels, 32, 32), (32, 32, 8))
        up = ((8, 32, 64), (64, 64, 16))
    encoder = nn.Sequential(*(nn.Sequential(*_block(*widths), nn.MaxPool2d(2, ceil_mode=True)) for widths in down))
    decoder = nn.Sequential(*(nn.Sequential(*_block(*widths, stride=2)) for widths in up))
    return encoder, nn.Sequential(decoder, nn.Conv2d(16, channels, 1))


def _block(before: int, between: int, after: int, stride: int = 1) -> list[nn.Module]:
    """Return two convolutions, each with a ReLU and a normalisation.

    If `stride` is above 1, the second convolution enlarges its input by this factor.
    """
    second: nn.Module = nn.Conv2d(between, after, 3, padding=1)
    if stride > 1:
        second = nn.ConvTranspose2d(between, after, 3, stride, padding=1, output_padding=1)
    first = nn.Conv2d(before, between, 3, padding=1)
    return [first, nn.ReLU(), nn.BatchNorm2d(between), second, nn.ReLU(), nn.BatchNorm2d(after)]


def _portions(pairs: int, images: int) -> list[int]:
    """Split the pairs of a step into parts such that a call of the model has at most about `_POINTS` images."""
    most = max(1, _POINTS // (2 * images))
    return [min(most, pairs - first) for first in range(0, pairs, most)]


class _Rates:
    """Learning rate of each image. It is reduced if the last 20 losses of the image have not fallen."""

    def __init__(self, images: int, rate: float, like: Tensor):
        self.rates = torch.full((images,), rate, device=like.device, dtype=like.dtype)
        self.losses = torch.zeros((images, _PLATEAU), device=like.device, dtype=like.dtype)
        self.seen = torch.zeros(images, dtype=torch.long, device=like.device)

    def of(self, rows: Tensor) -> Tensor:
        return self.rates[rows]

    def note(self, rows: Tensor, losses: Tensor) -> None:
        """Add a loss for each image in `rows`.

        If the last 20 losses of an image have not fallen, its learning rate is reduced, and its losses are cleared.
        """
        self.losses[rows] = torch.cat([self.losses[rows, 1:], losses[:, None]], 1)
        self.seen[rows] += 1
        oldest = self.losses[rows, 0]
        flat = (losses > oldest + _RISE) | ((losses > oldest) & (losses < _NEAR))
        slowed = rows[flat & (self.seen[rows] >= _PLATEAU)]
        self.rates[slowed] = (self.rates[slowed] / _SLOWED).clamp(min=_SLOWEST)
        self.seen[slowed] = 0

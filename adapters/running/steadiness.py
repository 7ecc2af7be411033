"""Does the model predict the same of the same image, whatever it is asked about beside it, and asked again?"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..criterion import fooled
from ..models.classifier import Classifier
from ..models.remote.traffic import asked_afresh
from ..switches import full_float32
from .seeding import seeded

TOLERANCE = 1e-2  # relative to the largest logit: what another batch may change (TF32, half precision)
NOISE = 8 / 255  # of the images that are not clean
DRAWS = 8
_SIZES = (1, 7, 64, 2, 3, 33, 5, 16)  # of the batches that the draws are asked in


@full_float32()
def is_steady(classifier: Classifier, inputs: Tensor, logits: Tensor, seed: int) -> bool:
    """Whether two images, clean and under noise, get the same logits alone, in another batch, and asked again.

    Measured once for each classifier: it costs seven forward passes.

    Args:
        classifier: the model.
        inputs: clean images, shape (N, C, H, W).
        logits: what is known of them, shape (N, K).
        seed: random seed of what the model draws.
    """
    if classifier.steady is None:
        noise = torch.rand(inputs[:2].shape, generator=torch.Generator().manual_seed(0), device="cpu").to(inputs)
        images = torch.cat([inputs[:2], (inputs[:2] + NOISE * (2 * noise - 1)).clamp(0, 1)]).flip(0)
        with seeded(seed), asked_afresh(classifier):
            together = classifier.predict_logits(images)
            alone = classifier.predict_logits(images[[0, -1]], batch_size=1)
        expected = torch.cat([logits[:2].flip(0), together[[0, -1]]])
        classifier.steady = _agree(torch.cat([together[len(images) // 2 :], alone]), expected)
    return classifier.steady


class Hits(NamedTuple):
    """Of each image, shape (N,) bool: whether it counted as a hit every time, and whether it did ever."""

    always: Tensor
    ever: Tensor


@full_float32()
def draw_hits(
    classifier: Classifier, images: Tensor, labels: Tensor, targets: Tensor | None, seed: int, draws: int = DRAWS
) -> Hits:
    """Ask an unsteady model about each image several times, in another order and in batches of another size each time.

    Args:
        classifier: the model.
        images: shape (N, C, H, W).
        labels: shape (N,).
        targets: shape (N,), or None.
        seed: random seed of the orders, and of what the model draws.
        draws: how often, at most 8.
    """
    always, ever = torch.ones_like(labels, dtype=torch.bool), torch.zeros_like(labels, dtype=torch.bool)
    generator = torch.Generator().manual_seed(seed)
    with seeded(seed), asked_afresh(classifier):
        for size in _SIZES[:draws]:
            order = torch.randperm(len(images), generator=generator, device="cpu").to(images.device)
            logits = classifier.predict_logits(images[order], batch_size=size)[order.argsort()]
            hit = fooled(logits, labels, targets)
            always, ever = always & hit, ever | hit
    return Hits(always, ever)


def _agree(logits: Tensor, expected: Tensor) -> bool:
    scale = expected.abs().amax(1, keepdim=True)
    close = (logits - expected).abs() <= TOLERANCE * scale
    return bool((close | (~torch.isfinite(logits) & ~torch.isfinite(expected))).all())

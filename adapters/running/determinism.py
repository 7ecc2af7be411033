"""Does the model predict the same of the same image, whatever it is asked about beside it, and asked again?"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..criterion import is_fooled
from ..models.classifier import Classifier
from ..models.remote.server_usage import bypass_cache, remote_models_in
from ..torch_state import full_float32
from .seeding import seeded

TOLERANCE = 1e-2  # relative to the largest logit: what another batch may change (TF32, half precision)
NOISE = 8 / 255  # of the image that is not clean
DRAWS = 8
_SIZES = (1, 7, 64, 2, 3, 33, 5, 16)  # of the batches that the draws are asked in
_CLEAN = 3  # images asked about again at the beginning
_SHARE = 200  # passes of attacks to one that asks again
_FEWEST = 4  # of these at a time
_BITS = 16  # times the rounding of a number in the model's precision


class Answered(NamedTuple):
    """Images, shape (N, C, H, W), and what the model answered, shape (N, K)."""

    images: Tensor
    logits: Tensor


@full_float32()
def is_deterministic(classifier: Classifier, inputs: Tensor, logits: Tensor, seed: int) -> bool:
    """Whether three clean images and one under noise get the same logits alone, in another batch, and asked again.

    The images are of different predictions where there are such. Measured once for each classifier: it costs six
    forward passes. `stays_steady` looks again after each run.

    Args:
        classifier: the model.
        inputs: clean images, shape (N, C, H, W).
        logits: what is known of them, shape (N, K).
        seed: random seed of what the model draws.
    """
    if classifier.steady is None:
        places = spread(logits.argmax(1), seed)[:_CLEAN].flip(0)
        clean = inputs[places]
        noise = torch.rand(clean[-1:].shape, generator=torch.Generator().manual_seed(0), device="cpu").to(inputs)
        images = torch.cat([(clean[-1:] + NOISE * (2 * noise - 1)).clamp(0, 1), clean])
        with seeded(seed), bypass_cache(classifier):
            together = classifier.predict_logits(images)
            alone = classifier.predict_logits(images[[0, -1]], batch_size=1)
        expected = torch.cat([logits[places], together[[0, -1]]])
        classifier.steady = agree(torch.cat([together[1:], alone]), expected)
        classifier.answers.passes_unchecked = _SHARE * _FEWEST  # the first run is looked at whatever it costs
    return classifier.steady


@full_float32()
def stays_steady(
    classifier: Classifier, clean: Answered, examples: Answered, attacked: Tensor, passes: int, seed: int
) -> bool:
    """Whether a model that was steady answers as before after a run: clean images and examples, asked together.

    An image that comes back as it was has been asked about twice, which costs nothing. Of those that were attacked one
    is asked about again for every 200 passes since the last time, clean or as an example, of different predictions;
    none as long as that would be less than four. Kept answers of a server are not passed by: it is looked at by itself
    (`RemoteModel.has_changed`).

    Args:
        classifier: the model.
        clean: the images, and the logits that the run began with.
        examples: what the attack made of them, and the logits that they are judged by.
        attacked: by the rules, shape (N,) bool.
        passes: of the attack.
        seed: random seed of the choice, and of what the model draws.
    """
    # Many images in another batch: of few bits one of them may well be rounded further than one of a few.
    near = max(TOLERANCE, _BITS * torch.finfo(classifier.anchor.dtype).eps)
    same = (examples.images == clean.images).flatten(1).all(1)
    steady = agree(examples.logits[same], clean.logits[same], near)
    classifier.answers.passes_unchecked += passes
    half, places = classifier.answers.passes_unchecked // (2 * _SHARE), attacked.nonzero()[:, 0]
    if steady and 2 * half >= _FEWEST and len(places) and not remote_models_in(classifier):
        classifier.answers.passes_unchecked = 0
        first, second = (
            places[spread(logits[places].argmax(1), seed + turn)][:half]
            for turn, logits in enumerate((clean.logits, examples.logits))
        )
        with seeded(seed):
            again = classifier.predict_logits(torch.cat([clean.images[first], examples.images[second]]))
        steady = agree(again, torch.cat([clean.logits[first], examples.logits[second]]), near)
    classifier.steady = steady
    return steady


def spread(classes: Tensor, seed: int) -> Tensor:
    """Places of images in an order by chance in which every class, shape (N,), comes once before one comes again."""
    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed), device="cpu").to(classes.device)
    grouped, by_class = classes[order].sort(stable=True)
    turns = torch.empty_like(order)
    turns[by_class] = torch.arange(len(order), device=order.device) - torch.searchsorted(grouped, grouped)
    return order[turns.argsort(stable=True)]


class RepeatedOutcomes(NamedTuple):
    """Of each image, shape (N,) bool: whether it counted as a hit every time, and whether it did ever."""

    always: Tensor
    ever: Tensor


@full_float32()
def draw_hits(
    classifier: Classifier, images: Tensor, labels: Tensor, targets: Tensor | None, seed: int, draws: int = DRAWS
) -> RepeatedOutcomes:
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
    with seeded(seed), bypass_cache(classifier):
        for size in _SIZES[:draws]:
            order = torch.randperm(len(images), generator=generator, device="cpu").to(images.device)
            logits = classifier.predict_logits(images[order], batch_size=size)[order.argsort()]
            hit = is_fooled(logits, labels, targets)
            always, ever = always & hit, ever | hit
    return RepeatedOutcomes(always, ever)


def agree(logits: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Whether answers to the same images, shape (N, K), differ by no more than what another batch may change."""
    scale = expected.abs().amax(1, keepdim=True)
    close = (logits - expected).abs() <= tolerance * scale
    return bool((close | (~torch.isfinite(logits) & ~torch.isfinite(expected))).all())

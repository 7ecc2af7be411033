"""Checks whether a model is deterministic: an image has the same outputs in another batch and in a repeated call."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..criterion import is_fooled
from ..models.classifier import Classifier
from ..models.remote.server_usage import bypass_cache, remote_models_in
from ..torch_state import full_float32
from .seeding import seeded

TOLERANCE = 1e-2  # relative to the largest logit: change allowed between batches (TF32, half precision)
NOISE = 8 / 255  # of the image that is not clean
DRAWS = 8
_SIZES = (1, 7, 64, 2, 3, 33, 5, 16)  # batch sizes of the repetitions
_CLEAN = 3  # images queried again at the start
_SHARE = 200  # attack queries per repeated query
_FEWEST = 4  # of these at a time
_BITS = 16  # times the rounding of a number in the model's precision


class Answered(NamedTuple):
    """Images, shape (N, C, H, W), and the model's logits for these images, shape (N, K)."""

    images: Tensor
    logits: Tensor


@full_float32()
def is_deterministic(classifier: Classifier, inputs: Tensor, logits: Tensor, seed: int) -> bool:
    """Whether the logits of an image are the same if it is queried alone, in another batch, and repeatedly.

    Three clean images, with different predictions if possible, and a noisy image are queried. The check is made once
    per classifier and costs six forward passes. After each run, `stays_steady` makes a similar check.

    Args:
        classifier: the model.
        inputs: clean images, shape (N, C, H, W).
        logits: known logits of the clean images, shape (N, K).
        seed: random seed of the model.
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
    """Whether a deterministic model still returns the same outputs after a run.

    The check has two parts. First, an image that the attack returned unchanged was queried twice, so its two outputs
    are compared. Second, one clean image or example is queried again for every 200 queries since the last check. Images
    with different predictions are preferred. The second part is omitted if it would have fewer than four images. It is
    also omitted for a model on a server, which `RemoteModel.has_changed` checks.

    Args:
        classifier: the model.
        clean: the clean images, and their logits at the start of the run.
        examples: the attack's examples, and the logits on which they are judged.
        attacked: whether each image was attacked, shape (N,), bool.
        passes: number of queries of the attack.
        seed: random seed for the choice of images and for the model.
    """
    # Many images in a different batch: at low precision one of them may be rounded further than in a small batch.
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
    """Return images in a random order in which every class occurs once before any class occurs again.

    Args:
        classes: class of each image, shape (N,).
        seed: random seed of the order.

    Returns:
        Indices of the images, shape (N,).
    """
    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed), device="cpu").to(classes.device)
    grouped, by_class = classes[order].sort(stable=True)
    turns = torch.empty_like(order)
    turns[by_class] = torch.arange(len(order), device=order.device) - torch.searchsorted(grouped, grouped)
    return order[turns.argsort(stable=True)]


class RepeatedOutcomes(NamedTuple):
    """Whether each image was fooled in every repetition of a query, and in at least one, shape (N,) bool each."""

    always: Tensor
    ever: Tensor


@full_float32()
def draw_hits(
    classifier: Classifier, images: Tensor, labels: Tensor, targets: Tensor | None, seed: int, draws: int = DRAWS
) -> RepeatedOutcomes:
    """Query an unstable model several times with the same images, in different orders and batch sizes.

    Args:
        classifier: the model.
        images: shape (N, C, H, W).
        labels: shape (N,).
        targets: target classes, shape (N,). None for untargeted attacks.
        seed: random seed of the orders and of the model.
        draws: number of repetitions, at most 8.
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
    """Whether two sets of logits for the same images, shape (N, K), are equal apart from effects of batching."""
    scale = expected.abs().amax(1, keepdim=True)
    close = (logits - expected).abs() <= tolerance * scale
    return bool((close | (~torch.isfinite(logits) & ~torch.isfinite(expected))).all())

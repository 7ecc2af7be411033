"""The answers that images are judged by: in full float32, and of a model that draws random numbers many of them."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import InvalidInput
from ..criterion import is_fooled
from ..defaults import MOST_DRAWS, PASS_SIZE
from ..models.classifier import Classifier
from ..models.images import check_images
from ..torch_state import full_float32
from .seeding import call_seed, seeded

_CLEAN, _BETWEEN, _FINAL = 1, 2, 3  # what is drawn for: other numbers, so that no choice is judged by its luck


class SampledOutputs(NamedTuple):
    """What a model answers: logits, (N, K), and of a random one the share of its draws that are fooled, (N,) double.

    The logits of a random model are those of one of its draws, the median one by the margin: they are fooled if and
    only if at least half of the draws are. If any draw is not finite they are that one: such an image proves nothing.
    """

    logits: Tensor
    share: Tensor | None = None


@contextmanager
def sampling_context(classifier: Classifier, *, draws: int | None = None, eot: int | None = None) -> Iterator[None]:
    """In the block a random model is judged by so many draws, and an attack sees the mean of so many; None: as it is.

    Raises:
        InvalidInput: if a number is out of range.
    """
    for name, number in (("draws", draws), ("eot", eot)):
        if number is not None and not (type(number) is int and 1 <= number <= MOST_DRAWS):
            raise InvalidInput(f"expected {name} as a whole number from 1 to {MOST_DRAWS}, got {number!r}")
    before = classifier.draws, classifier.eot
    if classifier.random:
        classifier.draws, classifier.eot = draws or before[0], eot or before[1]
    try:
        yield
    finally:
        if classifier.random:
            classifier.draws, classifier.eot = before


@full_float32()
def clean_logits(classifier: Classifier, inputs: Tensor, labels: Tensor, logits: Tensor | None = None) -> Tensor:
    """`Classifier.check`; of a random model the logits of the median of as many draws as it has, always the same ones.

    Args:
        classifier: the model.
        inputs: images in [0, 1], shape (N, C, H, W).
        labels: shape (N,).
        logits: where they are known; the model is not asked then.

    Raises:
        InvalidInput: as `Classifier.check`.
    """
    if logits is not None or not classifier.random:
        return classifier.check(inputs, labels, logits=logits)
    return clean_draws(classifier, inputs, labels).logits


@full_float32()
def clean_draws(classifier: Classifier, inputs: Tensor, labels: Tensor) -> SampledOutputs:
    """What a model makes of the clean images, checked; the number of draws is the default whatever an attack asks for.

    Raises:
        InvalidInput: as `Classifier.check`, and if any of the draws is not finite.
    """
    if not classifier.random:
        return SampledOutputs(classifier.check(inputs, labels))
    check_images(inputs)
    with seeded(_CLEAN):
        classifier.check(inputs, labels)
    labels = labels.to(inputs.device, torch.long)
    with sampling_context(classifier, draws=Classifier.draws):
        drawn = _draw(classifier, inputs, labels, None, _CLEAN)
    if not drawn.logits.isfinite().all():
        raise InvalidInput("expected finite logits, got NaN or infinity in a draw of the clean images")
    return drawn


@full_float32()
def judge_outputs(
    classifier: Classifier, images: Tensor, labels: Tensor, targets: Tensor | None, seed: int = 0, *, final: bool = True
) -> SampledOutputs:
    """What a model makes of images: one answer, or of a random model the median of its draws and the share fooled.

    Args:
        classifier: the model.
        images: shape (N, C, H, W).
        labels: shape (N,), on the same device.
        targets: shape (N,), or None.
        seed: random seed of the draws. The verdicts of all runs have the same one, whatever their own: the least that
            several of them leave of an image is then not that of the luckiest draws.
        final: draw other numbers than where examples were only chosen.
    """
    if not classifier.random:
        return SampledOutputs(classifier.predict_logits(images))
    return _draw(classifier, images, labels, targets, call_seed(seed, _FINAL if final else _BETWEEN, 1))


def _draw(classifier: Classifier, images: Tensor, labels: Tensor, targets: Tensor | None, seed: int) -> SampledOutputs:
    parts, draws = [], classifier.draws
    with seeded(seed):
        for rows in torch.arange(len(images), device=images.device).split(PASS_SIZE):
            answers = torch.stack([classifier.predict_logits(images[rows]) for _ in range(draws)])
            goal = None if targets is None else targets[rows]
            parts.append(_median(answers, labels[rows], goal))
    logits = torch.cat([part.logits for part in parts])
    return SampledOutputs(logits, torch.cat([part.share for part in parts if part.share is not None]))


def _median(answers: Tensor, labels: Tensor, targets: Tensor | None) -> SampledOutputs:
    """Of answers (draws, n, K) the one at the median of how far each image is from being fooled, and the share fooled.

    An answer that is not finite counts as not fooled; where there is one, it is what stands for the image: neither a
    success nor robust.
    """
    hit = torch.stack([is_fooled(answer, labels, targets) for answer in answers])
    finite = answers.isfinite().all(2)
    hit &= finite
    wanted = labels if targets is None else targets
    places = wanted.expand(len(answers), -1)[..., None]
    of_wanted = answers.gather(2, places)[..., 0]
    rest = answers.scatter(2, places, -torch.inf).amax(2)
    margin = (of_wanted - rest) if targets is None else (rest - of_wanted)
    order = margin.where(finite, torch.inf).sort(dim=0, stable=True).indices  # those that are not finite come last
    # A tie counts as argmax has it: fooled draws come first whatever their margin rounds to.
    order = order.gather(0, (~hit).gather(0, order).to(torch.uint8).sort(dim=0, stable=True).indices)
    middle = order[math.ceil(len(answers) / 2) - 1].where(finite.all(0), (~finite).to(torch.uint8).argmax(0))
    return SampledOutputs(answers[middle, torch.arange(len(labels), device=labels.device)], hit.double().mean(0))

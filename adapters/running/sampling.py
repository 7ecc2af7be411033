"""Logits on which images are judged: in full float32, and on several samples if the model is random."""

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

_CLEAN, _BETWEEN, _FINAL = 1, 2, 3  # separate random numbers, so that selection does not bias the judge


class SampledOutputs(NamedTuple):
    """Logits of images, (N, K). For a random model also the proportion of its samples that are fooled, (N,), float64.

    The logits of a random model are those of the sample with the median margin. This sample is fooled exactly if at
    least half of the samples are. If a sample is not finite, the logits are those of that sample, and the result of the
    image is invalid.
    """

    logits: Tensor
    share: Tensor | None = None


@contextmanager
def sampling_context(classifier: Classifier, *, draws: int | None = None, eot: int | None = None) -> Iterator[None]:
    """Set the numbers of samples of random models inside the block.

    Args:
        classifier: the model.
        draws: number of samples on which the judge classifies an image. None to keep the number.
        eot: number of samples whose mean an attack gets. None to keep the number.

    Raises:
        InvalidInput: if a number is out of range.
    """
    for name, number in (("judge_samples", draws), ("eot", eot)):
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
    """Check clean images, and return the logits on which they are judged.

    For a random model, these are the logits of the median sample, which is the same in every call.

    Args:
        classifier: the model.
        inputs: images in [0, 1], shape (N, C, H, W).
        labels: labels of the images, shape (N,).
        logits: logits of the images, shape (N, K), if known. The model is then not queried.

    Returns:
        The logits, shape (N, K).

    Raises:
        InvalidInput: as for `Classifier.check`.
    """
    if logits is not None or not classifier.random:
        return classifier.check(inputs, labels, logits=logits)
    return clean_draws(classifier, inputs, labels).logits


@full_float32()
def clean_draws(classifier: Classifier, inputs: Tensor, labels: Tensor) -> SampledOutputs:
    """Check clean images, and return the model's outputs. The number of samples is always the default.

    Raises:
        InvalidInput: as for `Classifier.check`, or if a sample is not finite.
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
        raise InvalidInput("expected finite logits, got NaN or infinity in a sample of the clean images")
    return drawn


@full_float32()
def judge_outputs(
    classifier: Classifier, images: Tensor, labels: Tensor, targets: Tensor | None, seed: int = 0, *, final: bool = True
) -> SampledOutputs:
    """Compute the outputs on which images are judged.

    Args:
        classifier: the model.
        images: shape (N, C, H, W).
        labels: shape (N,), on the same device.
        targets: target classes, shape (N,). None for an untargeted attack.
        seed: random seed of the samples. It is the same for all runs, whatever seed they have. With different seeds,
            the worst case over several runs would select the samples with the lowest accuracy.
        final: whether the outputs are the final result. Their random numbers then differ from those with which examples
            were selected.

    Returns:
        The logits. For a random model also the proportion of samples that are fooled.
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
    """Select for each image the output with the median margin.

    A non-finite output counts as not fooled. If an image has a non-finite output, this output is selected, so that the
    image is neither fooled nor robust.

    Args:
        answers: outputs of several samples, shape (draws, n, K).
        labels: labels of the images, shape (n,).
        targets: target classes, shape (n,). None for an untargeted attack.
    """
    hit = torch.stack([is_fooled(answer, labels, targets) for answer in answers])
    finite = answers.isfinite().all(2)
    hit &= finite
    wanted = labels if targets is None else targets
    places = wanted.expand(len(answers), -1)[..., None]
    of_wanted = answers.gather(2, places)[..., 0]
    rest = answers.scatter(2, places, -torch.inf).amax(2)
    margin = (of_wanted - rest) if targets is None else (rest - of_wanted)
    order = margin.where(finite, torch.inf).sort(dim=0, stable=True).indices  # non-finite ones come last
    # Ties are resolved as argmax does: fooled samples come first, however their margin is rounded.
    order = order.gather(0, (~hit).gather(0, order).to(torch.uint8).sort(dim=0, stable=True).indices)
    middle = order[math.ceil(len(answers) / 2) - 1].where(finite.all(0), (~finite).to(torch.uint8).argmax(0))
    return SampledOutputs(answers[middle, torch.arange(len(labels), device=labels.device)], hit.double().mean(0))

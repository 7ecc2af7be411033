"""Certificates of randomized smoothing (Cohen et al. 2019): radii within which predictions are provably constant."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy
import torch
from torch import Tensor

from ..adapters import Classifier
from ..adapters.models.classifier import PASS_SIZE, check_several
from ..adapters.models.defences.names import is_defence, parse_defence
from ..adapters.running.seeding import call_seed, seeded
from ..errors import InvalidInput
from ..intervals import proportion_interval

ABSTAIN = -1


class Certificates(NamedTuple):
    """Certificates of N images.

    Args:
        predicted: class that the smoothed model predicts; -1 if it abstains; shape (N,).
        radius: l2 radius within which the prediction is constant; 0 if the model abstains; shape (N,).
        chance: lower bound, at confidence 1 - alpha, of the probability of the likeliest class under noise; shape (N,).
        not_finite: number of samples with non-finite logits, which count for no class; shape (N,).
    """

    predicted: np.ndarray
    radius: np.ndarray
    chance: np.ndarray
    not_finite: np.ndarray


class CertifiedAccuracy(NamedTuple):
    """Rate of images that are classified correctly and whose certificate covers a radius.

    Args:
        radius: the l2 radius.
        accuracy: rate of images.
        low: lower bound of the 95 % interval of the rate.
        high: upper bound of the 95 % interval of the rate.
        n: number of images.
    """

    radius: float
    accuracy: float
    low: float
    high: float
    n: int


def certify(  # noqa: PLR0913 - the names of the paper's algorithm by keyword
    classifier: Classifier,
    inputs: Tensor,
    *,
    sigma: float,
    first: int = 100,
    draws: int = 1000,
    alpha: float = 0.001,
    seed: int = 0,
    progress: Callable[[int], object] | None = None,
) -> Certificates:
    """Certify images by the algorithm CERTIFY of Cohen et al. (2019).

    For each image, `first` noisy samples select a class, and `draws` other samples bound the probability of this class.
    The radius is sigma times the normal quantile of the bound (their theorem 1). The bound is Clopper and Pearson's,
    one-sided, so that an image's certificate is wrong with a probability of at most alpha. If the bound is not above
    1/2, the smoothed model abstains. Samples with non-finite logits count for no class.

    Args:
        classifier: the model without the noise.
        inputs: images in [0, 1], shape (N, C, H, W).
        sigma: standard deviation of the noise, on pixels in [0, 1].
        first: number of samples that select the class (n0).
        draws: number of samples that estimate the probability of the class (n).
        alpha: probability that a certificate is wrong.
        seed: random seed of the noise. Each image has its own random numbers.
        progress: called with 1 after each image.

    Raises:
        InvalidInput: if a number is out of range, or the classifier has only one class.
    """
    if not (sigma > 0 and first >= 1 and draws >= 1 and 0 < alpha < 0.5):
        got = f"sigma={sigma}, first={first}, draws={draws}, alpha={alpha}"
        raise InvalidInput(f"expected sigma > 0, first >= 1, draws >= 1 and 0 < alpha < 1/2, got {got}")
    predicted, chance = np.full(len(inputs), ABSTAIN), np.zeros(len(inputs))
    not_finite = np.zeros(len(inputs), int)
    if len(inputs):
        count_classes(classifier, inputs)
    with classifier.frozen():
        for place, image in enumerate(inputs):
            with seeded(call_seed(seed, place, 1)):
                chosen_by = _count(classifier, image, sigma, first)
                counted = _count(classifier, image, sigma, draws)
            likeliest = int(chosen_by.argmax())
            hits = int(counted[likeliest])
            not_finite[place] = first + draws - chosen_by.sum() - counted.sum()
            chance[place] = probability_lower_bound(hits, draws, alpha)
            if chance[place] > 0.5:
                predicted[place] = likeliest
            if progress is not None:
                progress(1)
    radius = np.where(predicted != ABSTAIN, sigma * scipy.stats.norm.ppf(chance), 0.0)
    return Certificates(predicted, radius, chance, not_finite)


def probability_lower_bound(hits: int, draws: int, alpha: float) -> float:
    """Return Clopper and Pearson's lower bound of a probability at confidence 1 - alpha (`hits` in `draws`)."""
    return float(scipy.special.betaincinv(hits, draws - hits + 1, alpha)) if hits else 0.0


def certified_accuracy(certificates: Certificates, labels: Tensor, radii: tuple[float, ...]) -> list[CertifiedAccuracy]:
    """Compute the certified accuracy at each radius.

    Args:
        certificates: certificates of the images.
        labels: ground truth, shape (N,).
        radii: l2 radii, on pixels in [0, 1].

    Raises:
        InvalidInput: if a radius is negative or not finite.
    """
    check_radii(radii)
    right = certificates.predicted == labels.cpu().numpy()
    lines = []
    for radius in radii:
        held = int((right & (certificates.radius >= radius)).sum())
        lines.append(CertifiedAccuracy(radius, held / len(right), *proportion_interval(held, len(right)), len(right)))
    return lines


def count_classes(classifier: Classifier, inputs: Tensor) -> int:
    """Return the number of classes of a classifier.

    Raises:
        InvalidInput: if there is only one class.
    """
    logits = classifier.predict_logits(inputs[:1])
    check_several(logits)
    return logits.shape[1]


def check_radii(radii: Sequence[float]) -> None:
    """Raise InvalidInput if a radius is negative or not finite."""
    for radius in radii:
        if not 0 <= radius < float("inf"):
            raise InvalidInput(f"expected every radius >= 0, got {radius:g}")


def split_smoothed(model: str) -> tuple[str, float]:
    """Split the name of a smoothed model into the name of the undefended model and the sigma of the smoothing.

    Raises:
        InvalidInput: if the last defence in the name is not randomized smoothing.
    """
    original, _, last = model.rpartition("+")
    named = parse_defence(last) if original and is_defence(last) else None
    if named is None or named.defence.name != "smoothing":
        raise InvalidInput(f"expected MODEL+smoothing:sigma=0.25, which has a certificate, got {model!r}")
    return original, float(named.parameters["sigma"])


def _count(classifier: Classifier, image: Tensor, sigma: float, draws: int) -> np.ndarray:
    """Count how often each class is predicted for noisy copies of an image, (C, H, W).

    Copies with non-finite logits are not counted.
    """
    counts: Tensor | None = None
    for start in range(0, draws, PASS_SIZE):
        copies = image.expand(min(PASS_SIZE, draws - start), *image.shape)
        logits = classifier.predict_logits(copies + sigma * torch.randn_like(copies))
        answered = logits[logits.isfinite().all(1)]  # argmax takes NaN for the largest
        some = torch.bincount(answered.argmax(1), minlength=logits.shape[1])
        counts = some if counts is None else counts + some
    assert counts is not None
    return counts.cpu().numpy()

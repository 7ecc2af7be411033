"""Fingerprint of a model that cannot be inspected: its outputs for a few fixed images."""

import hashlib
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

IMAGES = 4
OF_LABELS = 64  # number of images if the outputs are labels, which reveal less about a model than scores
AGREEING = 1e-2  # tolerance relative to the spread of the outputs, for a different batch or machine
_STEP = 0.05  # relative to the spread; smaller differences are rounded away
_READINGS = 4  # projections per output
_AGAIN = (3, 0)  # images queried a second time; all of them if the outputs are labels


class Fingerprint(NamedTuple):
    """The outputs of a model for fixed probe images, which identify the model.

    Args:
        digest: 20 hexadecimal digits of a hash of the rounded outputs.
        answers: the outputs, float64. Scores have the shape (IMAGES, K), labels (OF_LABELS, 1).
        steady: whether each image that was queried twice had the same outputs both times.
    """

    digest: str
    answers: np.ndarray
    steady: bool = True


@torch.no_grad()
def fingerprint(model: Callable[[Tensor], Tensor], shape: tuple[int, int, int]) -> Fingerprint:
    """Query a model on fixed probe images, some of them twice.

    A model that returns scores gets 6 queries: four images, two of them twice. A model that returns labels gets 128
    images, all of them twice. Noise changes only few labels, so it would rarely show in two repeated images.

    Args:
        model: called with images in [0, 1] of shape (N, C, H, W). It returns scores (N, K), or labels (N,).
        shape: (C, H, W) of the images.
    """
    images, places = probe_images(shape), list(_AGAIN)
    answers = _numbers(model(images))
    if answers.shape[1] == 1:
        further = label_probe_images(shape)
        answers = np.concatenate([answers, _numbers(model(further))])
        images, places = torch.cat([images, further]), list(range(OF_LABELS))[::-1]
    steady = outputs_match(_numbers(model(images[places])), answers[places])
    return Fingerprint(digest_answers(answers), answers, steady)


def label_probe_images(shape: tuple[int, int, int]) -> Tensor:
    """Return further probe images for a model that returns labels. They are always the same.

    The images show noise patches of many sizes: in grey, in black and white, and in the middle of a dark image. Such
    images get more different labels than the four other probe images.

    Returns:
        The images, shape (OF_LABELS - IMAGES, C, H, W).
    """
    channels, height, width = shape
    rows, columns = np.mgrid[0:height, 0:width]
    planes = np.arange(channels)[:, None, None]
    middle = (np.abs(rows - height / 2) < height / 3) & (np.abs(columns - width / 2) < width / 3)
    images = []
    for number in range(OF_LABELS - IMAGES):
        size = max(1, round(max(height, width) / (2, 3, 4, 5, 7, 9, 13, 20)[number % 8]))
        place = (rows // size) * 73856093 ^ (columns // size) * 19349663 ^ (number + 1) * 2654435761
        grey = ((place ^ planes * 83492791 * (number % 2)) // 7) % 251 / 250
        if number % 3:
            grey = (grey > 0.5).astype(float)
        images.append(np.broadcast_to(grey * middle if number % 4 > 1 else grey, shape))
    return torch.from_numpy(np.round(np.stack(images) * 255) / 255).float()


def probe_images(shape: tuple[int, int, int]) -> Tensor:
    """Return the probe images, (IMAGES, C, H, W), in [0, 1]: grey, noise, waves, coarse noise.

    They are always the same.
    """
    channels, height, width = shape
    rows, columns = np.mgrid[0:height, 0:width]
    planes = np.arange(channels)[:, None, None]
    hashed = (rows * 73856093 ^ columns * 19349663 ^ planes * 83492791) % 251 / 250
    coarse = ((rows // 4) * 73856093 ^ (columns // 4) * 19349663 ^ planes * 83492791) % 251 / 250
    waves = 0.5 + 0.5 * np.sin(rows * 0.9 + planes) * np.cos(columns * 0.7)
    pixels = np.stack([np.full((channels, height, width), 0.5), hashed, np.broadcast_to(waves, hashed.shape), coarse])
    return torch.from_numpy(np.round(pixels * 255) / 255).float()  # exact in 8 bits


def outputs_match(answers: np.ndarray, known: np.ndarray) -> bool:
    """Whether two outputs for the probe images are equal, apart from rounding.

    The rounding of an output may depend on the batch and on the machine.
    """
    if answers.shape != known.shape:
        return False
    if answers.shape[1] == 1:
        return bool((answers == known).all())
    return bool((np.abs(answers - known) <= AGREEING * _spread(known)).all())


def digest_answers(answers: np.ndarray) -> str:
    """Return a hash of outputs that floating-point rounding rarely changes.

    Each output is projected on 4 fixed random signs, and the projections are rounded before they are hashed. If outputs
    differ by 1e-6 of their spread, the hash differs with a probability of about 1e-4. If the earlier outputs are
    stored, `outputs_match` is used instead of the hash.
    """
    classes = answers.shape[1]
    if classes == 1:
        rounded = answers[:, 0].tolist()
    else:
        signs = np.array(
            [[1 if (k * 2654435761 >> (7 + r)) & 1 else -1 for k in range(classes)] for r in range(_READINGS)]
        )
        centred = answers - answers.mean(1, keepdims=True)
        # The spread, rounded to a power of two: it is the unit, and must not change the numbers measured in it.
        unit = _STEP * 2.0 ** round(math.log2(_spread(answers)))
        rounded = [unit, *np.round(centred @ signs.T / math.sqrt(classes) / unit).reshape(-1).tolist()]
    text = ",".join(f"{value:.6g}" for value in (classes, *rounded))
    return hashlib.sha256(text.replace("-0,", "0,").encode()).hexdigest()[:20]


def _spread(answers: np.ndarray) -> float:
    finite = answers[np.isfinite(answers)]
    return max(float(finite.std()), 1e-12) if len(finite) else 1.0


def _numbers(answers: Tensor) -> np.ndarray:
    numbers = answers.detach().double().cpu().numpy()
    return numbers.reshape(len(numbers), -1)

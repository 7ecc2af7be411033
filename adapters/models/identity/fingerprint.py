"""What a model that cannot be read is known by: its answers about a few fixed images."""

import hashlib
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

IMAGES = 4
OF_LABELS = 64  # where each answer is a label, which tells so much less of a model than scores do
AGREEING = 1e-2  # relative to the spread of the answers: what another batch or machine may change
_STEP = 0.05  # of the spread: what is smaller is rounded away
_READINGS = 4  # numbers that are read off each answer
_AGAIN = (3, 0)  # of the images, asked about once more; where answers are labels, all of them


class Fingerprint(NamedTuple):
    """The answers of a model about the fixed images.

    Args:
        digest: 20 hexadecimal digits of a hash over what is left of them after rounding.
        answers: float64, shape (IMAGES, K), or of labels (OF_LABELS, 1).
        steady: whether the images that were asked about twice were answered alike.
    """

    digest: str
    answers: np.ndarray
    steady: bool = True


@torch.no_grad()
def fingerprint(model: Callable[[Tensor], Tensor], shape: tuple[int, int, int]) -> Fingerprint:
    """Ask a model about the fixed images, and about two of them again: 6 images; where it gives labels 128, all again.

    Noise moves every score, and few labels: of two of them it hardly ever flips one.

    Args:
        model: called with images in [0, 1] of shape (N, C, H, W); gives scores (N, K), or labels (N,).
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
    """What else a model that gives labels is asked about, shape (OF_LABELS - IMAGES, C, H, W), equal everywhere.

    Patches of noise of many sizes, in grey levels, in black and white, and in the middle of a dark image: labels of
    these differ more than those of the other four.
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
    """The fixed images, shape (IMAGES, C, H, W), in [0, 1]: grey, noise, waves and coarse noise, equal everywhere."""
    channels, height, width = shape
    rows, columns = np.mgrid[0:height, 0:width]
    planes = np.arange(channels)[:, None, None]
    hashed = (rows * 73856093 ^ columns * 19349663 ^ planes * 83492791) % 251 / 250
    coarse = ((rows // 4) * 73856093 ^ (columns // 4) * 19349663 ^ planes * 83492791) % 251 / 250
    waves = 0.5 + 0.5 * np.sin(rows * 0.9 + planes) * np.cos(columns * 0.7)
    pixels = np.stack([np.full((channels, height, width), 0.5), hashed, np.broadcast_to(waves, hashed.shape), coarse])
    return torch.from_numpy(np.round(pixels * 255) / 255).float()  # 8 bits hold them


def outputs_match(answers: np.ndarray, known: np.ndarray) -> bool:
    """Whether answers are the same but for rounding on their way through another batch or machine."""
    if answers.shape != known.shape:
        return False
    if answers.shape[1] == 1:
        return bool((answers == known).all())
    return bool((np.abs(answers - known) <= AGREEING * _spread(known)).all())


def digest_answers(answers: np.ndarray) -> str:
    """A hash that float rounding does not change, short of luck: 4 sums of each answer with fixed signs, rounded.

    The luck is some 1e-4 where answers differ by 1e-6 of their spread; whoever keeps them can tell by `agree`.
    """
    classes = answers.shape[1]
    if classes == 1:
        rounded = answers[:, 0].tolist()
    else:
        signs = np.array(
            [[1 if (k * 2654435761 >> (7 + r)) & 1 else -1 for k in range(classes)] for r in range(_READINGS)]
        )
        centred = answers - answers.mean(1, keepdims=True)
        # A spread that is rounded to a power of two: it is the unit, and must not move the numbers measured in it.
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

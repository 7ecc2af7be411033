"""Detects whether images are changed on their way to a remote model: rounded to 8 bits, or compressed as JPEG.

If a change (such as rounding) has no effect on the outputs, but a random change of the same size has, then the images
are already changed in this way before they reach the model.
"""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ...adapters import Classifier

IMAGES = 3
QUALITIES = (95, 85, 75)  # usual default qualities of JPEG
_GRID = 1 / 255


def probe_transport(classifier: Classifier, inputs: Tensor) -> dict[str, Any]:
    """Measure how much the outputs of a remote model differ after changes of the images, and after random changes.

    Each random change has the same size as the change with which it is compared. The probe takes 27 queries: each of 3
    images is queried unchanged, after 4 changes, and after 4 random changes.

    Args:
        classifier: remote model.
        inputs: clean images in [0, 1], shape (N, C, H, W).

    Returns:
        "images": the number of images. "moved": for each change, by name, two numbers: the largest difference of an
        output (median over the images) after the change, and after the random change.
    """
    generator = torch.Generator().manual_seed(0)
    few = inputs[:IMAGES]
    # Images off the 8-bit grid, so that rounding in transport changes them.
    offset = (torch.rand(few.shape, generator=generator, device="cpu").to(few) - 0.5) * _GRID
    few = (0.02 + 0.96 * few + offset).clamp(0, 1)
    before = classifier.predict_logits(few)
    moved = {}
    for name, change in _changes(few.shape[1]).items():
        changed = change(few)
        signs = torch.randint(0, 2, few.shape, generator=generator, device="cpu").to(few) * 2 - 1
        other = (few + (changed - few).roll(1, 3) * signs).clamp(0, 1)
        both = [(classifier.predict_logits(images) - before).abs().amax(1).median() for images in (changed, other)]
        moved[name] = [float(each) for each in both]
    return {"images": len(few), "moved": moved}


def _changes(channels: int) -> dict[str, Callable[[Tensor], Tensor]]:
    changes: dict[str, Callable[[Tensor], Tensor]] = {"8 bits": lambda images: (images * 255).round() / 255}
    if channels in (1, 3):
        changes |= {f"JPEG of quality {q}": lambda images, q=q: _compress(images, q) for q in QUALITIES}
    return changes


def _compress(images: Tensor, quality: int) -> Tensor:
    arrays = (images.detach().cpu() * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    read = []
    for array in arrays:
        file = io.BytesIO()
        Image.fromarray(array.squeeze(-1) if array.shape[2] == 1 else array).save(file, "JPEG", quality=quality)
        pixels = np.asarray(Image.open(file), dtype=np.float32) / 255
        read.append(torch.from_numpy(pixels if pixels.ndim == 3 else pixels[:, :, None]).permute(2, 0, 1))
    return torch.stack(read).to(images)

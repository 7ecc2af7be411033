"""What attacks that learn once have learned, as pictures: perturbations, and what generators add to some images."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from PIL import Image

from ...adapters.catalogue.lookup import find_implementation, load_apply
from ...adapters.running.fit import Fitted
from ...adapters.words import threat_text
from ...engine.store.other_records import load_fitted
from ...engine.store.outcomes import Outcome
from ...errors import DavylampError
from ..parts.blocks import PictureGrid, Shown
from ..parts.reading import Folder

_IMAGES = 3  # that what a generator adds is shown on
_ROWS = 40  # of the page, at most


def show_learned(
    folder: Folder, pixels_of: Callable[[bytes], np.ndarray], thumbnail: Callable[..., str], side: int
) -> list[PictureGrid]:
    """A row for each fitting that is kept in the folder: what was learned, from what, and what that cost.

    Args:
        folder: of the report.
        pixels_of: a stored picture as an array (H, W, 3) of 8 bits.
        thumbnail: such an array as a data URI.
        side: of a picture, in pixels; smaller ones are magnified to it by whole numbers.
    """
    used: dict[str, Outcome] = {}
    for outcome in folder.outcomes.done:
        used.setdefault(outcome.cell.fit_key, outcome)
    rows = []
    for key, fitted in list(load_fitted(folder.path).items())[:_ROWS]:
        pictures = [
            Shown(f"{title}, {_factor(change)}", thumbnail(_magnify(_around_grey(change), side), nearest=True))
            for title, change in _changes(fitted, _first_images(folder, used.get(key), pixels_of))
            if change.shape[0] in (1, 3)
        ]
        if pictures:
            rows.append((_describe(fitted, used.get(key)), tuple(pictures)))
    caption = "What was learned once, before any image was attacked: changes around mid-grey, amplified and magnified"
    return [PictureGrid("gallery-learned", caption, tuple(rows))] if rows else []


def _changes(fitted: Fitted, images: list[tuple[str, np.ndarray]]) -> Iterator[tuple[str, np.ndarray]]:
    """A perturbation itself; of a generator what it adds to each of some images: titles and changes (C, H, W)."""
    if "perturbation" in fitted.arrays:
        yield "added to every image", fitted.arrays["perturbation"]
        return
    learned = {name: torch.from_numpy(np.array(array)) for name, array in fitted.arrays.items()}
    try:
        apply = load_apply(find_implementation(fitted.implementation))
        for name, image in images:
            inputs = torch.from_numpy(image)[None]
            with torch.no_grad():
                yield f"added to {name}", (apply(learned, inputs, fitted.threat_model) - inputs)[0].numpy()
    except (DavylampError, ValueError):  # an attack of another version, or of images of another shape
        return


def _first_images(
    folder: Folder, outcome: Outcome | None, pixels_of: Callable[[bytes], np.ndarray]
) -> list[tuple[str, np.ndarray]]:
    """Names and pixels (C, H, W) in [0, 1] of the first images of the data that a fitting is scored on."""
    known = None if outcome is None else folder.outcomes.clean.get(outcome.cell.subject.key)
    if outcome is None or known is None:
        return []
    images = []
    for example in [each for each in known.examples if each.picture][:_IMAGES]:
        pixels = pixels_of(example.picture or b"").astype(np.float32).transpose(2, 0, 1) / 255
        images.append((example.image, pixels))
    return images


def _describe(fitted: Fitted, outcome: Outcome | None) -> str:
    """By what, from what, on what, and at what cost."""
    title = f"{fitted.implementation}, not used yet" if outcome is None else outcome.cell.title
    seen = f"from {fitted.images} images" if fitted.images else "from no image"
    cost = f"{fitted.forwards} forward and {fitted.backwards} backward passes, {fitted.seconds:.3g} s"
    return f"{title}: {threat_text(fitted.threat_model)}, learned on {fitted.model} {seen}; {cost}"


def _factor(change: np.ndarray) -> str:
    largest = float(np.abs(change).max())
    return f"change x {0.5 / largest:.3g}" if largest else "no change"


def _around_grey(change: np.ndarray) -> np.ndarray:
    """A change (C, H, W) as a picture (H, W, 3) of 8 bits whose largest value is black or white."""
    largest = float(np.abs(change).max()) or 1.0
    pixels = (127.5 + 127.5 * change / largest).round().clip(0, 255).astype(np.uint8).transpose(1, 2, 0)
    return np.repeat(pixels, 3, 2) if pixels.shape[2] == 1 else pixels


def _magnify(pixels: np.ndarray, side: int) -> np.ndarray:
    """Each pixel as a square, as large as the side allows."""
    factor = max(1, side // max(pixels.shape[:2]))
    size = (pixels.shape[1] * factor, pixels.shape[0] * factor)
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST))

"""Perturbation sequences of ImageNet-P, and of CIFAR-10-P for small images (Hendrycks and Dietterich 2019)."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ....errors import InvalidInput, UnknownName
from .generate import corruption_seed, load_library, seeded_numpy, severity_scale_for

_MOVING = (
    "moves the cropped image, so black enters at its edges, where ImageNet-P still has 16 pixels of the photograph"
)
_ENGINE = "the library's motion blur in place of ImageMagick's"


class Sequence(NamedTuple):
    """A perturbation sequence: frames that are made from one image by an increasing or random perturbation.

    Args:
        name: name used by the authors.
        frames: number of frames, including the clean first frame.
        noise: whether each frame is an independent noise sample. The prediction on each frame is then compared with the
            prediction on the first frame. If False, it is compared with the prediction on the previous frame.
        frame: function that returns one frame. Its arguments are the clean image (float64, H x W x 3, in [0, 1]), the
            number of the frame, and the result of `prepare`.
        prepare: function that computes values shared by all frames of an image. None if there are no such values.
        finding: how the sequence differs from the sequence in ImageNet-P. (All published frames are also compressed as
            video, which is not mentioned.)
    """

    name: str
    frames: int
    noise: bool
    frame: Callable[[np.ndarray, int, Any], np.ndarray]
    prepare: Callable[[np.ndarray], Any] | None = None
    finding: str = ""


def find_sequence(name: str, size: str = "imagenet") -> Sequence:
    """Return the sequence with a name. In the name, `-` may be written instead of `_`.

    Args:
        name: name of the sequence.
        size: benchmark whose step sizes are used: "imagenet", or "cifar" for images of up to 32 pixels a side.

    Raises:
        UnknownName: if there is no such sequence.
    """
    known = name.replace("-", "_")
    if known not in SEQUENCES:
        raise UnknownName("sequence", name, SEQUENCES)
    return (SMALL_SEQUENCES if size == "cifar" else SEQUENCES)[known]


def frames_of(image: Tensor, sequence: str, *, seed: int = 0) -> Tensor:
    """Compute the frames of a sequence for one image, rounded to 8 bits, at the first difficulty of the authors.

    The step sizes are those of CIFAR-10-P for images of up to 32 pixels a side, and those of ImageNet-P for images of
    more than 64 pixels. Other sizes are not supported, because the step sizes of Tiny ImageNet-P are not implemented.

    Args:
        image: image in [0, 1], shape (3, H, W).
        sequence: name of the sequence, such as "translate".
        seed: random seed. The frames depend only on the seed and the image.

    Returns:
        The frames in [0, 1], float32, shape (frames, 3, H, W).

    Raises:
        UnknownName: if there is no such sequence.
        InvalidInput: if the image has a different shape.
        MissingLibrary: if imagecorruptions is not installed.
    """
    size = severity_scale_for(*image.shape[1:]) if image.ndim == 3 else ""
    row = find_sequence(sequence, size)
    if image.ndim != 3 or image.shape[0] != 3 or size == "tiny-imagenet":
        raise InvalidInput(
            "sequences (`sequence`, mFR) need images with 3 channels, and with sides of up to 32 or more than "
            f"64 pixels, got shape {tuple(image.shape)}. Sizes in between (Tiny ImageNet-P) are not supported; "
            "use corruptions without sequences"
        )
    load_library()
    pixels = image.detach().cpu().mul(255).round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).numpy()
    clean = pixels / 255
    with seeded_numpy(corruption_seed(pixels, f"sequence {row.name}", 0, seed)):
        shared = None if row.prepare is None else row.prepare(clean)
        made = [np.clip(row.frame(clean, place, shared), 0, 1) for place in range(row.frames)]
    whole = torch.from_numpy((np.stack(made) * 255 + 1e-9).astype(np.uint8))
    return whole.permute(0, 3, 1, 2).contiguous().float().div_(255).to(image.device)


def _gaussian(clean: np.ndarray, place: int, _: Any, *, scale: float = 0.03) -> np.ndarray:
    return clean + np.random.normal(size=clean.shape, scale=scale) if place else clean  # noqa: NPY002


def _shots(clean: np.ndarray, place: int, _: Any, *, photons: int = 300) -> np.ndarray:
    return np.random.poisson(clean * photons) / photons if place else clean  # noqa: NPY002


def _brighter(clean: np.ndarray, place: int, _: Any, *, step: float = 1 / 50) -> np.ndarray:
    from skimage.color import hsv2rgb, rgb2hsv

    converted = rgb2hsv(clean)
    converted[:, :, 2] = np.clip(converted[:, :, 2] + (place - 15) * step, 0, 1)
    return hsv2rgb(converted)


def _moved(
    clean: np.ndarray, place: int, _: Any, *, blur: tuple[int, float] = (10, 3), start: int = -30, step: int = 4
) -> np.ndarray:
    from imagecorruptions.corruptions import _motion_blur

    return _motion_blur(clean * 255, radius=blur[0], sigma=blur[1], angle=(start + place) * step) / 255


def _zooms(clean: np.ndarray) -> Iterator[np.ndarray]:
    """Yield frames of increasing zoom blur. Each is the mean of the image and of its versions enlarged so far."""
    total = np.zeros_like(clean)
    for place in range(31):
        total = total + (_affine(clean, scale=1 + 0.004 * place) if place else clean)
        yield total / (place + 1)


def _zoomed(_: np.ndarray, __: int, means: Iterator[np.ndarray]) -> np.ndarray:
    return next(means)


def _flakes(clean: np.ndarray, *, factor: int = 3) -> np.ndarray:
    from .small_image_corruptions import zoom_middle

    layer = zoom_middle(np.random.normal(size=clean.shape[:2], loc=0.05, scale=0.3)[..., None], factor)[..., 0]  # noqa: NPY002
    return (np.clip(np.where(layer < 0.5, 0, layer), 0, 1) * 255).astype(np.uint8)


def _snowed(clean: np.ndarray, place: int, flakes: np.ndarray, *, blur: tuple[int, float] = (14, 4)) -> np.ndarray:
    from imagecorruptions.corruptions import _motion_blur

    layer = np.round(_motion_blur(flakes, radius=blur[0], sigma=blur[1], angle=place * 4 - 150)) / 255
    grey = clean @ np.array((0.299, 0.587, 0.114))
    whiter = 0.85 * clean + 0.15 * np.maximum(clean, grey[..., None] * 1.5 + 0.5)
    return whiter + (layer + np.rot90(layer, k=2))[..., None]


def _translated(clean: np.ndarray, place: int, _: Any, *, start: int = -20) -> np.ndarray:
    return _affine(clean, shift=start + place, bilinear=False)


def _rotated(clean: np.ndarray, place: int, _: Any) -> np.ndarray:
    return _affine(clean, angle=place - 15)


def _scaled(clean: np.ndarray, place: int, _: Any, *, start: float = 40, step: float = 2.5) -> np.ndarray:
    return _affine(clean, scale=(place * step + start) / 100)


def _affine(clean: np.ndarray, *, angle: float = 0, shift: int = 0, scale: float = 1, bilinear: bool = True) -> Any:
    """Rotate an image, shift it to the right and scale it around its centre, as torchvision does on 8-bit images."""
    from PIL import Image
    from torchvision.transforms import InterpolationMode, functional

    image = Image.fromarray(np.round(clean * 255).astype(np.uint8))
    mode = InterpolationMode.BILINEAR if bilinear else InterpolationMode.NEAREST
    return np.asarray(functional.affine(image, angle, [shift, 0], scale, [0.0], mode)) / 255  # type: ignore[arg-type]


def _tilted(clean: np.ndarray, place: int, _: Any, *, step: float = 1) -> np.ndarray:
    """Rotate an image in space around its horizontal and vertical axis, and return the view in perspective.

    The distance of the viewer is the diagonal of the image.
    """
    import cv2

    height, width = clean.shape[:2]
    turn, focus = np.deg2rad(step * (place - 15)), np.hypot(width, height)
    cosine, sine = np.cos(turn), np.sin(turn)
    into_space = np.array([[1, 0, -width / 2], [0, 1, -height / 2], [0, 0, 1], [0, 0, 1]])
    around_x = np.array([[1, 0, 0, 0], [0, cosine, -sine, 0], [0, sine, cosine, 0], [0, 0, 0, 1]])
    around_y = np.array([[cosine, 0, -sine, 0], [0, 1, 0, 0], [sine, 0, cosine, 0], [0, 0, 0, 1]])
    away = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, focus], [0, 0, 0, 1]])
    onto_plane = np.array([[focus, 0, width / 2, 0], [0, focus, height / 2, 0], [0, 0, 1, 0]])
    matrix = onto_plane @ away @ around_x @ around_y @ into_space
    return cv2.warpPerspective(np.round(clean * 255).astype(np.uint8), matrix, (width, height)) / 255


_ROWS = (
    Sequence("gaussian_noise", 31, True, _gaussian),
    Sequence("shot_noise", 31, True, _shots),
    Sequence("motion_blur", 31, False, _moved, finding=_ENGINE),
    Sequence("zoom_blur", 31, False, _zoomed, _zooms),
    Sequence("snow", 31, False, _snowed, _flakes, finding=_ENGINE),
    Sequence("brightness", 31, False, _brighter),
    Sequence("translate", 41, False, _translated, finding=_MOVING),
    Sequence("rotate", 31, False, _rotated, finding=_MOVING),
    Sequence("tilt", 31, False, _tilted, finding=_MOVING),
    Sequence("scale", 31, False, _scaled, finding=_MOVING),
)
_SMALL_ROWS = (  # the steps of the authors' program for CIFAR-10-P, whose frames are not compressed
    Sequence("gaussian_noise", 31, True, partial(_gaussian, scale=0.02)),
    Sequence("shot_noise", 31, True, partial(_shots, photons=700)),
    Sequence("motion_blur", 21, False, partial(_moved, blur=(6, 1.8), start=-20, step=9), finding=_ENGINE),
    Sequence("zoom_blur", 31, False, _zoomed, _zooms),
    Sequence("snow", 31, False, partial(_snowed, blur=(10, 2)), partial(_flakes, factor=2), finding=_ENGINE),
    Sequence("brightness", 31, False, partial(_brighter, step=0.015)),
    Sequence("translate", 16, False, partial(_translated, start=-7)),
    Sequence("rotate", 31, False, _rotated),
    Sequence("tilt", 31, False, partial(_tilted, step=0.75)),
    Sequence("scale", 31, False, partial(_scaled, start=70, step=2)),
)
SEQUENCES: Mapping[str, Sequence] = {row.name: row for row in _ROWS}
SMALL_SEQUENCES: Mapping[str, Sequence] = {row.name: row for row in _SMALL_ROWS}

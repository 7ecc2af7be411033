"""Corrupts images with the package imagecorruptions, or, for small images, as the authors of CIFAR-10-C do."""

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ....errors import InvalidInput, MissingLibrary, Unsupported
from .published import Corruption, check_severity, find_corruption

SMALLEST = 32  # smallest side of an image that the library accepts
VERSION = 1  # of the seeding and the parameters of an image: a change of pixels needs a new version
Sized = Literal["imagenet", "tiny-imagenet", "cifar"]
_LIBRARY = 'pip install "davylamp[corruptions]" && pip install --no-deps "imagecorruptions-imaug>=1.1.5,<1.2"'
_WITHOUT_WINDOWS = "pip uninstall -y opencv-python && pip install --force-reinstall --no-deps opencv-python-headless"
_SEEDED = ("glass_blur", "impulse_noise")  # they use separate generators, which np.random.seed does not affect


def severity_scale_for(height: int, width: int) -> Sized:
    """Return the benchmark whose severities are used for images of this size: "cifar", "tiny-imagenet" or "imagenet".

    Smaller images get weaker corruptions. The blur for images of 224 x 224 pixels would erase an image of 32 x 32.
    """
    longer = max(height, width)
    return "cifar" if longer <= 32 else "tiny-imagenet" if longer <= 64 else "imagenet"


def corrupt_images(inputs: Tensor, corruption: str, severity: int, *, seed: int = 0) -> Tensor:
    """Apply one of the 19 corruptions of Hendrycks and Dietterich (2019) to images.

    Images are first rounded to 8 bits. The random numbers depend only on the image's pixels, the corruption, the
    severity and the seed, and not on the other images. Grey images are corrupted as three equal channels, and the first
    channel is returned.

    Images of up to 32 pixels a side are corrupted with the severities of CIFAR-10-C, images of up to 64 with those of
    Tiny ImageNet-C, and larger images with those of ImageNet-C. The results differ from the published data sets in
    three ways. The published images are stored as JPEG, which makes them a little harder. Their motion blur and snow
    were made with ImageMagick. Their elastic transformation has an affine part, which imagecorruptions lacks.

    Args:
        inputs: images in [0, 1], shape (N, C, H, W), with 1 or 3 channels.
        corruption: name, such as "fog".
        severity: severity from 1 to 5.
        seed: random seed.

    Returns:
        The corrupted images, float32, rounded to 8 bits, with the shape of `inputs`.

    Raises:
        UnknownName: if there is no such corruption.
        InvalidInput: if the severity or the images are invalid.
        Unsupported: if the corruption cannot be applied to grey images.
        MissingLibrary: if imagecorruptions is not installed.
    """
    row = find_corruption(corruption)
    level = check_severity(severity, row.name)
    check_images_for(row, inputs)
    pixels = inputs.detach().cpu().mul(255).round().clamp(0, 255).to(torch.uint8)
    arrays = [_corrupt_one(image.permute(1, 2, 0).numpy(), row, level, seed) for image in pixels]
    if not arrays:
        return inputs.clone()
    stacked = torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous()
    return stacked.float().div_(255).to(inputs.device)


def check_images_for(row: Corruption, inputs: Tensor) -> None:
    """Raise an error unless the corruption can be applied to images of this shape.

    Raises:
        InvalidInput: if `inputs` are too small or are not images.
        Unsupported: if the images are grey and the corruption adds colour.
    """
    if inputs.ndim != 4 or inputs.shape[1] not in (1, 3):
        raise InvalidInput(f"expected images of shape (N, 1 or 3, H, W) to corrupt, got {tuple(inputs.shape)}")
    height, width = inputs.shape[2:]
    if min(height, width) < SMALLEST:
        got = f"{width} x {height}"
        raise InvalidInput(f"expected images of at least {SMALLEST} x {SMALLEST} for {row.name}, got {got}")
    if inputs.shape[1] == 1 and row.coloured:
        raise Unsupported(f"{row.name} adds colour and cannot be applied to grey images; choose a different corruption")


def corruption_seed(pixels: np.ndarray, corruption: str, severity: int, seed: int) -> int:
    """Return the random seed for the corruption of one image: a hash of the pixels and of the other arguments."""
    about = f"{VERSION} {corruption} {severity} {seed} {pixels.shape}".encode()
    digest = hashlib.sha256(about + np.ascontiguousarray(pixels).tobytes()).digest()
    return int.from_bytes(digest[:4], "little")


def library_version() -> str:
    """Return the installed version of imagecorruptions.

    Raises:
        MissingLibrary: if imagecorruptions is not installed.
    """
    from importlib.metadata import version

    load_library()
    return version("imagecorruptions-imaug")


def load_library() -> Any:
    """Import and return the module imagecorruptions.

    Raises:
        MissingLibrary: if imagecorruptions cannot be imported.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numba and OpenCV, on some versions
            return import_module("imagecorruptions")
    except ImportError as error:
        remedy = _WITHOUT_WINDOWS if "libGL" in str(error) else _LIBRARY
        raise MissingLibrary("imagecorruptions", "corruptions", str(error), command=remedy) from error


@contextmanager
def seeded_numpy(seed: int) -> Iterator[None]:
    """Context manager that seeds NumPy's global generator, which imagecorruptions uses, and restores it on exit."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


def _corrupt_one(pixels: np.ndarray, row: Corruption, severity: int, seed: int) -> np.ndarray:
    """Corrupt an image, uint8, shape (H, W, C)."""
    drawn, grey = corruption_seed(pixels, row.name, severity, seed), pixels.shape[2] == 1
    three = np.repeat(pixels, 3, axis=2) if grey else pixels
    size = severity_scale_for(*pixels.shape[:2])
    library = load_library()
    with seeded_numpy(drawn):
        if size == "imagenet":
            more = {"seed": drawn} if row.name in _SEEDED else {}
            made = library.corrupt(three, severity=severity, corruption_name=row.name, **more)
        else:
            from .small_image_corruptions import corrupt_small

            made = corrupt_small(three, row.name, severity, size, drawn)
    return made[:, :, :1] if grey else made

"""Corruptions for images of up to 64 pixels a side, as in CIFAR-10-C and Tiny ImageNet-C.

The code follows the authors' programs, but uses three functions of imagecorruptions: the disk kernel, the height map
of fog, and motion blur, for which the authors used ImageMagick. Random numbers come from NumPy's global generator,
because the height map uses it. The caller in `generate` seeds it.
"""

import io
from collections.abc import Callable, Mapping
from importlib.resources import as_file, files
from typing import Any

import numpy as np

from .small_parameters import FROST_SCALE, PARAMETERS

Image = np.ndarray  # float64, shape (H, W, 3), in [0, 1]
_FROSTS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")  # the authors never use the sixth
_WATER, _MUD = np.array((175, 238, 238)) / 255, np.array((63, 42, 20)) / 255


def corrupt_small(pixels: np.ndarray, corruption: str, severity: int, size: str, seed: int) -> np.ndarray:
    """Corrupt an image of up to 64 pixels a side.

    Args:
        pixels: the image, uint8, shape (H, W, 3).
        corruption: name of the corruption.
        severity: severity from 1 to 5.
        size: benchmark whose severities are used: "cifar" or "tiny-imagenet".
        seed: random seed.
    """
    chosen = PARAMETERS[size][corruption][severity - 1]
    if corruption == "jpeg_compression":
        return _compressed(pixels, chosen)
    if corruption == "pixelate":
        return _pixelated(pixels, chosen)
    if corruption == "frost":
        return _frosted(pixels, chosen, FROST_SCALE[size])
    image = pixels / 255.0
    if corruption in ("impulse_noise", "glass_blur"):
        made = (_impulses if corruption == "impulse_noise" else _glass)(image, chosen, seed)
    else:
        made = _FUNCTIONS[corruption](image, chosen)
    return (np.clip(made, 0, 1) * 255).astype(np.uint8)


def _noise(image: Image, scale: float) -> Image:
    return image + np.random.normal(size=image.shape, scale=scale)  # noqa: NPY002


def _shots(image: Image, photons: float) -> Image:
    return np.random.poisson(image * photons) / photons  # noqa: NPY002


def _speckles(image: Image, scale: float) -> Image:
    return image + image * np.random.normal(size=image.shape, scale=scale)  # noqa: NPY002


def _impulses(image: Image, share: float, seed: int) -> Image:
    from skimage.util import random_noise

    return random_noise(image, "s&p", rng=seed, amount=share)


def _blurred(image: Image, sigma: float) -> Image:
    from skimage.filters import gaussian

    return gaussian(image, sigma=sigma, channel_axis=-1)


def _glass(image: Image, chosen: tuple[float, int, int], seed: int) -> Image:
    """Apply the corruption "glass blur": blur the image, exchange neighbouring pixels, and blur the image again.

    As in the authors' code, a pixel is duplicated if two exchanges overlap.
    """
    sigma, reach, rounds = chosen
    height, width = image.shape[:2]
    shuffled, draw = (_blurred(image, sigma) * 255).astype(np.uint8), np.random.RandomState(seed)
    for _ in range(rounds):
        for row in range(height - reach, reach, -1):
            for column in range(width - reach, reach, -1):
                right, down = draw.randint(-reach, reach, size=2)
                here, there = (row, column), (row + down, column + right)
                # Views, not copies: the authors' exchange writes one of the two over the other.
                shuffled[here], shuffled[there] = shuffled[there], shuffled[here]
    return _blurred(shuffled / 255.0, sigma)


def _out_of_focus(image: Image, chosen: tuple[float, float]) -> Image:
    import cv2
    from imagecorruptions.corruptions import disk

    kernel = disk(radius=chosen[0], alias_blur=chosen[1])
    return np.stack([cv2.filter2D(channel, -1, kernel) for channel in np.moveaxis(image, 2, 0)], axis=2)


def _moved(image: Image, chosen: tuple[int, float]) -> Image:
    from imagecorruptions.corruptions import _motion_blur

    angle = np.random.uniform(-45, 45)  # noqa: NPY002
    return _motion_blur(np.round(image * 255).astype(np.uint8), radius=chosen[0], sigma=chosen[1], angle=angle) / 255


def zoom_middle(image: np.ndarray, factor: float) -> np.ndarray:
    """Return the centre of an image, (H, W, C), enlarged to the size of the image."""
    from scipy.ndimage import zoom

    height, width = image.shape[:2]
    rows, columns = (int(np.ceil(side / factor)) for side in (height, width))
    top, left = (height - rows) // 2, (width - columns) // 2
    larger: Any = zoom(image[top : top + rows, left : left + columns], (factor, factor, 1), order=1)
    top, left = (larger.shape[0] - height) // 2, (larger.shape[1] - width) // 2
    return larger[top : top + height, left : left + width]


def _zoom_blurred(image: Image, end: float) -> Image:
    factors: Any = np.arange(1, end, 0.01)
    single = image.astype(np.float32)
    return (single + np.sum([zoom_middle(single, factor) for factor in factors], axis=0)) / (len(factors) + 1)


def _foggy(image: Image, chosen: tuple[Any, Any]) -> Image:
    from imagecorruptions.corruptions import plasma_fractal

    height, width = image.shape[:2]
    side = 1 << (max(height, width) - 1).bit_length()
    strength, decay = chosen
    layer = plasma_fractal(mapsize=side, wibbledecay=decay)[:height, :width, None]
    return (image + strength * layer) * image.max() / (image.max() + strength)


def _frosted(pixels: np.ndarray, chosen: tuple[float, float], scale: float) -> np.ndarray:
    import cv2

    name = _FROSTS[np.random.randint(len(_FROSTS))]  # noqa: NPY002
    with as_file(files("imagecorruptions") / "frost" / name) as path:
        frost = cv2.resize(cv2.imread(str(path)), (0, 0), fx=scale, fy=scale)  # type: ignore[arg-type]
    height, width = pixels.shape[:2]
    top = np.random.randint(0, frost.shape[0] - height)  # noqa: NPY002
    left = np.random.randint(0, frost.shape[1] - width)  # noqa: NPY002
    part = frost[top : top + height, left : left + width, ::-1]
    return np.clip(chosen[0] * pixels + chosen[1] * part, 0, 255).astype(np.uint8)


def _snowy(image: Image, chosen: tuple[float, ...]) -> Image:
    from imagecorruptions.corruptions import _motion_blur

    mean, scale, zoom, threshold, radius, sigma, weight = chosen
    layer = zoom_middle(np.random.normal(size=image.shape[:2], loc=mean, scale=scale)[..., None], zoom)[..., 0]  # noqa: NPY002
    flakes = (np.clip(np.where(layer < threshold, 0, layer), 0, 1) * 255).astype(np.uint8)
    angle = np.random.uniform(-135, -45)  # noqa: NPY002
    drifting = np.round(_motion_blur(flakes, radius=int(radius), sigma=sigma, angle=angle)) / 255
    grey = image @ np.array((0.299, 0.587, 0.114))
    whiter = weight * image + (1 - weight) * np.maximum(image, grey[..., None] * 1.5 + 0.5)
    return whiter + (drifting + np.rot90(drifting, k=2))[..., None]


def _spattered(image: Image, chosen: tuple[Any, ...]) -> Image:
    import cv2
    from skimage.filters import gaussian

    mean, scale, sigma, threshold, strength, mud = chosen
    liquid = gaussian(np.random.normal(size=image.shape[:2], loc=mean, scale=scale), sigma=sigma)  # noqa: NPY002
    liquid[liquid < threshold] = 0
    if mud:
        drops = gaussian((liquid > threshold).astype(np.float32), sigma=strength)
        cover = np.where(drops < 0.8, 0, drops)[..., None]
        return image * (1 - cover) + _MUD * cover
    drops = (liquid * 255).astype(np.uint8)
    distance = cv2.distanceTransform(255 - cv2.Canny(drops, 50, 150), cv2.DIST_L2, 5)
    edges = cv2.equalizeHist(cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8))
    edges = cv2.filter2D(edges, cv2.CV_8U, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]))
    cover = drops * cv2.blur(edges, (3, 3)).astype(np.float32)
    largest = cover.max()
    return image + (cover / largest * strength if largest > 0 else cover)[..., None] * _WATER


def _faded(image: Image, factor: float) -> Image:
    means = image.mean(axis=(0, 1), keepdims=True)
    return (image - means) * factor + means


def _in_hsv(image: Image, channel: int, factor: float, shift: float) -> Image:
    from skimage.color import hsv2rgb, rgb2hsv

    converted = rgb2hsv(image)
    converted[:, :, channel] = np.clip(converted[:, :, channel] * factor + shift, 0, 1)
    return hsv2rgb(converted)


def _compressed(pixels: np.ndarray, quality: int) -> np.ndarray:
    from PIL import Image as Pillow

    file = io.BytesIO()
    Pillow.fromarray(pixels).save(file, "JPEG", quality=quality)
    with Pillow.open(file) as image:
        return np.array(image)


def _pixelated(pixels: np.ndarray, share: float) -> np.ndarray:
    from PIL import Image as Pillow

    image, box = Pillow.fromarray(pixels), Pillow.Resampling.BOX
    return np.array(image.resize((int(image.width * share), int(image.height * share)), box).resize(image.size, box))


def _elastic(image: Image, chosen: tuple[float, float, float]) -> Image:
    import cv2
    from scipy.ndimage import map_coordinates
    from skimage.filters import gaussian

    height, width = image.shape[:2]
    side = min(height, width)
    shift, smooth, affine = (share * side for share in chosen)
    middle, third = np.array((height // 2, width // 2), np.float32), np.float32(side // 3)
    corners = np.array([middle + third, (middle[0] + third, middle[1] - third), middle - third], np.float32)
    moved = corners + np.random.uniform(-affine, affine, size=corners.shape).astype(np.float32)  # noqa: NPY002
    matrix = cv2.getAffineTransform(corners, moved)
    bent = cv2.warpAffine(image.astype(np.float32), matrix, (width, height), borderMode=cv2.BORDER_REFLECT_101)
    across, down = (
        gaussian(np.random.uniform(-1, 1, size=(height, width)), smooth, mode="reflect", truncate=3) * shift  # noqa: NPY002
        for _ in range(2)
    )
    rows, columns = np.indices((height, width))
    places = [rows + down, columns + across]
    return np.stack([map_coordinates(each, places, order=1, mode="reflect") for each in np.moveaxis(bent, 2, 0)], 2)


_FUNCTIONS: Mapping[str, Callable[..., Image]] = {
    "gaussian_noise": _noise,
    "shot_noise": _shots,
    "speckle_noise": _speckles,
    "gaussian_blur": _blurred,
    "defocus_blur": _out_of_focus,
    "motion_blur": _moved,
    "zoom_blur": _zoom_blurred,
    "fog": _foggy,
    "snow": _snowy,
    "spatter": _spattered,
    "contrast": _faded,
    "brightness": lambda image, shift: _in_hsv(image, 2, 1, shift),
    "saturate": lambda image, chosen: _in_hsv(image, 1, *chosen),
    "elastic_transform": _elastic,
}

"""Conversion of an image processor of transformers to the resizing, crop and normalisation of a classifier."""

from collections.abc import Mapping
from typing import Any

from ....errors import InvalidInput, Unsupported

_INTERPOLATIONS = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers
_CONVNEXT = 384  # from this side on, its processor does not crop
_BYTE = 255


def read_processor(processor: Mapping[str, Any] | None, side: Any) -> tuple[dict[str, Any], list[str]]:
    """Convert an image processor of transformers to settings for a `Classifier`.

    Some processors stretch images to a square. Here the shorter side is resized and the image is cropped instead, as
    for timm's models.

    Args:
        processor: contents of the processor's JSON file. None if there is no such file.
        side: side of the images in the model's configuration. None if unknown.

    Returns:
        The settings, and notes on differences from the processor.

    Raises:
        Unsupported: if the processor makes images that are not square.
        InvalidInput: if a value is invalid.
    """
    side = side if isinstance(side, int) else None  # some models take images that are not square
    if processor is None:
        note = "no preprocessor_config.json, so pixels in [0, 1] are not normalised; set --mean and --std if needed"
        return {"mean": None, "std": None, "resize": side, "crop": side}, [note]
    resize, crop, notes = _sizes(processor)
    mean, std = _normalisation(processor)
    settings: dict[str, Any] = {"mean": mean, "std": std, "resize": resize, "crop": crop}
    number = processor.get("resample", 2)
    if number not in _INTERPOLATIONS:
        notes.append(f"uses Pillow's filter {number} for resizing; replaced by bicubic")
    return {**settings, "interpolation": _INTERPOLATIONS.get(number, "bicubic")}, notes


def _sizes(processor: Mapping[str, Any]) -> tuple[int | None, int | None, list[str]]:
    size = processor.get("size") if processor.get("do_resize", True) else None
    crop = _square(processor.get("crop_size")) if processor.get("do_center_crop") else None
    if size is None:
        return None, crop, []
    is_shortest = "shortest_edge" in size if isinstance(size, Mapping) else crop is not None
    side = size["shortest_edge"] if is_shortest and isinstance(size, Mapping) else _square(size)
    if not isinstance(side, int) or side < 1:
        raise InvalidInput(f"expected the size of images in preprocessor_config.json, got {size}")
    percent = processor.get("crop_pct")
    if percent and side < _CONVNEXT:
        return int(side / percent), side, []
    if is_shortest and not percent:
        return side, crop, []
    note = f"squeezes images to {side} x {side}; davylamp resizes the shorter edge to {side} and crops the centre"
    return side, crop or side, [note]


def _square(size: Any) -> int | None:
    if isinstance(size, Mapping):
        height, width = size.get("height"), size.get("width")
        if height != width:
            raise Unsupported(f"its processor makes images of {width} x {height}; only square images are supported")
        return height
    return size


def _normalisation(processor: Mapping[str, Any]) -> tuple[list[float] | None, list[float] | None]:
    scale = _BYTE * processor.get("rescale_factor", 1 / _BYTE) if processor.get("do_rescale", True) else _BYTE
    shift = 1.0 if processor.get("rescale_offset") and processor.get("do_rescale", True) else 0.0
    mean, std = [0.0] * 3, [1.0] * 3
    if processor.get("do_normalize", True) and processor.get("image_mean") is not None:
        mean, std = processor["image_mean"], processor["image_std"]
    if not shift and abs(scale - 1) < 1e-9:
        return (mean, std) if (mean, std) != ([0.0] * 3, [1.0] * 3) else (None, None)
    return [(each + shift) / scale for each in mean], [each / scale for each in std]

"""Images and labels by name: the samples that packages ship, folders of images, and array files."""

import csv
import os
import zipfile
import zlib
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import InvalidInput, MissingLibrary, Unavailable, UnknownName
from .classifier import Interpolation, check_images
from .paths import expand_path

_SAMPLES = ("cifar10", "cifar100", "fashionMNIST", "imagenet", "mnist")
_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_INPUT_KEYS = ("inputs", "x", "images")
_LABEL_KEYS = ("labels", "y")


class Data(NamedTuple):
    """Labelled images as every attack takes them.

    Args:
        inputs: in [0, 1], float32, shape (N, C, H, W).
        labels: int64, shape (N,).
        names: per image, its file, or its index in an array file.
    """

    inputs: Tensor
    labels: Tensor
    names: list[str]


class _Item(NamedTuple):
    name: str
    path: Path
    label: int


class _Size(NamedTuple):
    resize: int | None
    crop: int | None
    interpolation: Interpolation


def known_data() -> list[str]:
    """Every fixed name of data and the patterns of the others, for help texts."""
    return ["demo:imagenet", *(f"foolbox:{name}" for name in _SAMPLES), "imagefolder:PATH", "npz:PATH"]


def load_data(
    name: str,
    *,
    limit: int | None = None,
    resize: int | None = None,
    crop: int | None = None,
    interpolation: Interpolation = "bilinear",
) -> Data:
    """Load images and labels; only the image files that are needed are read.

    `demo:imagenet` and `foolbox:NAME` are the 20 samples of a data set that Foolbox ships. `imagefolder:PATH` has a
    folder for each class (the sorted folder names are the classes 0, 1, ...) or a `labels.csv` with the columns `file`
    and `label`; its images become RGB and come in turns, one of each class, so that any `limit` is spread over the
    classes. `npz:PATH` holds arrays `inputs` (or `x`, `images`; NCHW or NHWC; uint8, or floats in [0, 1]) and `labels`
    (or `y`), which are taken as they are: sizes apply to image files only.

    Args:
        name: one of `known_data()`.
        limit: how many images, the first ones in a fixed order; None: all.
        resize: side that the shorter edge is resized to. Resize and crop are torchvision's, on the image file.
        crop: side of the square centre crop that follows. With neither, ImageNet's samples are resized to 256 and
            cropped to 224, and all other images keep their size.
        interpolation: of the resizing, antialiased.

    Raises:
        UnknownName: if there is no such data.
        MissingLibrary: if the package that ships the samples is not installed.
        Unavailable: if a path does not exist or a file could not be read.
        InvalidInput: if what was read is not labelled images of one size.
    """
    for key, value in {"limit": limit, "resize": resize, "crop": crop}.items():
        if value is not None and value < 1:
            raise InvalidInput(f"expected {key} >= 1, got {value}")
    size = _Size(resize, crop, interpolation)
    source, _, rest = name.partition(":")
    if source == "npz" and rest:
        return _read_arrays(expand_path(rest), limit)
    if source == "imagefolder" and rest:
        return _read_images(_list_folder(expand_path(rest))[:limit], size, as_rgb=True)
    if name not in known_data() or rest not in _SAMPLES:
        raise UnknownName("data", name, known_data())
    if rest == "imagenet" and resize is None and crop is None:
        size = _Size(256, 224, interpolation)
    return _read_images(_list_samples(rest, extra=source)[:limit], size, as_rgb=False)


def _list_samples(dataset: str, extra: str) -> list[_Item]:
    """The samples in Foolbox's package folder; Foolbox itself, slow to import, is not."""
    spec = find_spec("foolbox")
    if spec is None or not spec.submodule_search_locations:
        raise MissingLibrary("foolbox", extra)
    folder = Path(spec.submodule_search_locations[0]) / "data"
    files = sorted(folder.glob(f"{dataset}_[0-9][0-9]_*"))
    if not files:
        raise Unavailable(f"expected Foolbox's samples of {dataset} in {folder}, found none; reinstall foolbox")
    return [_Item(file.name, file, int(file.stem.rpartition("_")[2])) for file in files]


def _list_folder(root: Path) -> list[_Item]:
    """The images of a folder, one of each class in turns."""
    if not root.is_dir():
        raise Unavailable(f"expected a folder of images, found none at {root}")
    table = root / "labels.csv"
    items = _list_table(table) if table.is_file() else _list_classes(root)
    if not items:
        raise InvalidInput(f"expected class folders with images, or a labels.csv with rows, in {root}, got none")
    classes: dict[int, list[_Item]] = {}
    for item in items:
        classes.setdefault(item.label, []).append(item)
    turns = zip_longest(*(classes[label] for label in sorted(classes)))
    return [item for turn in turns for item in turn if item is not None]


def _list_classes(root: Path) -> list[_Item]:
    """As torchvision's ImageFolder, except that hidden folders are skipped and an empty class keeps its index."""
    folders = sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    items = []
    for label, folder in enumerate(folders):
        for parent, _, files in sorted(os.walk(root / folder, followlinks=True)):
            paths = (Path(parent, file) for file in sorted(files) if file.lower().endswith(_SUFFIXES))
            items += [_Item(path.relative_to(root).as_posix(), path, label) for path in paths]
    return items


def _list_table(table: Path) -> list[_Item]:
    items = []
    try:
        with table.open(newline="", encoding="utf-8-sig") as lines:
            rows = csv.DictReader(lines)
            if not {"file", "label"} <= set(rows.fieldnames or ()):
                got = ", ".join(rows.fieldnames or ()) or "an empty file"
                raise InvalidInput(f"expected columns file and label in {table}, got {got}")
            for row in rows:
                file, label = (row["file"] or "").strip(), (row["label"] or "").strip()
                if not file or not label.isdecimal():
                    where = f"line {rows.line_num} of {table}"
                    raise InvalidInput(f"expected a file and an integer label >= 0 in {where}, got {file!r}, {label!r}")
                items.append(_Item(file, table.parent / file, int(label)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Unavailable(f"could not read {table} as UTF-8 CSV: {error}") from error
    return items


def _read_images(items: Sequence[_Item], size: _Size, *, as_rgb: bool) -> Data:
    images = [_read_image(item.path, size, as_rgb) for item in items]
    first = images[0].shape
    for item, image in zip(items, images, strict=True):
        if image.shape != first:
            sizes = " and ".join(f"{i.shape[2]} x {i.shape[1]} x {i.shape[0]}" for i in (images[0], image))
            raise InvalidInput(
                f"expected images of one size, got {sizes} ({items[0].path}, {item.path}); give resize and crop"
            )
    labels = torch.tensor([item.label for item in items], dtype=torch.int64)
    return Data(torch.stack(images).float().div_(255), labels, [item.name for item in items])


def _read_image(path: Path, size: _Size, as_rgb: bool) -> Tensor:
    """An image file as uint8, shape (C, H, W), resized and cropped as torchvision does."""
    from PIL import Image
    from torchvision.transforms import InterpolationMode, functional

    try:
        with Image.open(path) as file:
            deep = file.mode[0] in "IF"
            # The way over RGBA spares Pillow's warning about palettes with transparency.
            image = file.convert("RGBA").convert("RGB") if as_rgb and "transparency" in file.info else file.copy()
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise Unavailable(f"could not read the image {path}: {' '.join(str(error).split())}") from error
    if deep:
        raise InvalidInput(f"expected an image of 8 bits a channel, got mode {image.mode} in {path}")
    image: Any = image.convert("RGB") if as_rgb else image
    if size.resize is not None:
        image = functional.resize(image, [size.resize], InterpolationMode(size.interpolation))
    if size.crop is not None:
        if min(image.size) < size.crop:
            got = f"{image.width} x {image.height} ({path})"
            raise InvalidInput(f"expected images of at least {size.crop} x {size.crop} before the crop, got {got}")
        image = functional.center_crop(image, [size.crop])
    return functional.pil_to_tensor(image)


def _read_arrays(path: Path, limit: int | None) -> Data:
    if not path.is_file():
        raise Unavailable(f"expected an npz file, found none at {path}")
    if not zipfile.is_zipfile(path):
        raise InvalidInput(f"expected an npz file, got another format in {path}")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            images, labels = (_pick(arrays, keys, path) for keys in (_INPUT_KEYS, _LABEL_KEYS))
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise Unavailable(f"could not read {path}: {error}") from error
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        wanted = f"integer labels of shape ({len(images)},)" if images.ndim else "an array of images"
        raise InvalidInput(f"expected {wanted} in {path}, got {labels.dtype} of shape {labels.shape}")
    if len(labels) and labels.min() < 0:
        raise InvalidInput(f"expected labels >= 0 in {path}, got {labels.min()}")
    inputs = _to_inputs(images[:limit], path)
    return Data(inputs, torch.from_numpy(labels[:limit].astype(np.int64)), [str(index) for index in range(len(inputs))])


def _pick(arrays: Any, keys: Sequence[str], path: Path) -> np.ndarray:
    key = next((key for key in keys if key in arrays.files), None)
    if key is None:
        got = ", ".join(arrays.files) or "none"
        raise InvalidInput(f"expected an array named {' or '.join(keys)} in {path}, got {got}")
    try:
        return arrays[key]
    except ValueError as error:
        raise InvalidInput(f"expected an array of numbers as {key} in {path}, got Python objects") from error


def _to_inputs(images: np.ndarray, path: Path) -> Tensor:
    """Images as float32 in [0, 1], NCHW; NHWC is recognised where only the last axis can be channels (1 or 3)."""
    if images.ndim != 4 or (images.shape[1] not in (1, 3) and images.shape[3] not in (1, 3)):
        raise InvalidInput(f"expected images of shape (N, C, H, W) or (N, H, W, C) in {path}, got {images.shape}")
    if images.shape[1] not in (1, 3):
        images = images.transpose(0, 3, 1, 2)
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        raise InvalidInput(f"expected images as uint8 or floats in [0, 1] in {path}, got {images.dtype}")
    inputs = torch.from_numpy(np.array(images, dtype=np.float32, order="C"))
    inputs = inputs.div_(255) if images.dtype == np.uint8 else inputs  # in place: thousands of images are gigabytes
    check_images(inputs)
    return inputs

"""Loads images and labels by name: bundled samples, folders, array files, and corrupted versions of these."""

import os
import stat
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...errors import DavylampError, InvalidInput, Unavailable, UnknownName
from ..models.classifier import Classifier, Interpolation
from ..models.multi_label import LabelCriterion, criterion_in
from ..models.sandbox.isolation import isolation_of_data
from ..models.sandbox.model_process import read_apart
from ..models.zoo.demo import check_demo_classes
from ..paths import expand_path, is_file_name
from ..user_code_guard import one_line
from .array_files import open_arrays, open_npz
from .bundled_images import DIGITS, IMAGENET, SAMPLES, WHOLE, list_samples, open_picture, read_test_digits
from .corruptions.corrupted_sets import (
    FOLDERS,
    CorruptionSpec,
    corruption_folder,
    read_corruption_arrays,
    split_corruption,
)
from .corruptions.generate import corrupt_images
from .hf_datasets import list_hub_set
from .hub_parts import PREFIX as HUB
from .image_folders import ImageFile, has_wordnet_ids, list_folder
from .lazy_data import Data, LazyData
from .torchvision_datasets import PREFIX, open_published
from .user_dataset import open_data_file

IN_FOLDERS = ("imagefolder:", f"{FOLDERS}:")  # data with a folder per class
_GREY = ("1", "L", "LA")  # Pillow's modes


_DAMAGED = (  # what Pillow raises for files that are no images, or broken ones
    *(OSError, ValueError, SyntaxError, EOFError, MemoryError, OverflowError, struct.error, zlib.error),
    *(AttributeError, IndexError, KeyError, TypeError, RuntimeError),
)


class ImagePreparation(NamedTuple):
    """How image files must be prepared for a model: size and channels of images, and the classes of the model if known.

    `all_named` says whether it is an error if the name of a class folder is not the name of a class. If an image has
    several labels, `criterion` converts them to a class.
    """

    resize: int | None
    crop: int | None
    interpolation: Interpolation
    as_rgb: bool = True
    channels: int | None = None
    classes: int | None = None
    names: tuple[str, ...] = ()
    all_named: bool = False
    criterion: LabelCriterion | None = None


def dataset_name_patterns() -> list[str]:
    """Return the fixed names of data sets, and patterns such as `npz:PATH` for all other names, for help texts."""
    return [
        *SAMPLES,
        "torchvision:cifar10:PATH",
        "torchvision:NAME-train:PATH",
        "hf:ORG/NAME:SPLIT",
        "imagefolder:PATH",
        "npz:PATH",
        "path/to/file.py:load",
        "DATA+CORRUPTION:severity",
        "imagenet-c:PATH+CORRUPTION:severity",
        "cifar-10-c:PATH+CORRUPTION:severity",
    ]


def load_data(
    name: str,
    *,
    limit: int | None = None,
    resize: int | None = None,
    crop: int | None = None,
    interpolation: Interpolation = "bilinear",
) -> Data:
    """Load images and labels by name. Only the image files that are needed are read.

    Names of data:

    - `demo:imagenet`, `demo:cifar10`, `demo:mnist` and `foolbox:NAME`: the 20 samples per data set that Foolbox ships.
    - `demo:tiny-imagenet`: 499 photos of 64 x 64 pixels, from 107 of ImageNet's classes.
    - `demo:digits`: 397 handwritten digits of scikit-learn, always enlarged to 32 x 32.
    - `imagefolder:PATH`: a folder for each class (the sorted folder names are classes 0, 1, ...), or a `labels.csv`
      with the columns `file` and `label`. The images are converted to RGB and interleaved by class, so that any `limit`
      is spread over the classes.
    - `npz:PATH`: arrays `inputs` (or `x`, `images`; NCHW or NHWC; uint8, or floats in [0, 1]) and `labels` (or `y`).
      The images are not resized: `resize` and `crop` apply to image files only.
    - `path/to/file.py:load`: a function that returns such images and labels, or a dataset of pairs.
    - `torchvision:cifar10` and others: published data sets on this machine (see `torchvision_datasets`).
    - `hf:ORG/NAME:SPLIT`: data sets of the Hugging Face Hub, downloaded only on request (see `list_hub_set`).
    - `DATA+fog:3`: any of the data above, to which a corruption is applied (see `corrupt`).
    - `imagenet-c:PATH+fog:3`: corrupted images on disk, in folders PATH/fog/3/CLASS as in ImageNet-C.
    - `cifar-10-c:PATH+fog:3`: corrupted images on disk, in PATH/fog.npy as in CIFAR-10-C.

    If several links point to one file, the file is loaded only once.

    Args:
        name: one of the names above.
        limit: largest number of images. The first images in a fixed order are used. None for all images.
        resize: length in pixels to which the shorter side of image files is resized, as by torchvision.
        crop: side in pixels of the square that is cut from the centre after resizing. Photos of `demo:tiny-imagenet`
            are resized to this size instead. If neither `resize` nor `crop` is given, `demo:imagenet` is resized to 256
            and cropped to 224, and all other images keep their size.
        interpolation: interpolation method for resizing. Antialiasing is always used.

    Raises:
        UnknownName: if there is no such data.
        MissingLibrary: if the package that contains the samples is not installed.
        Unavailable: if a path does not exist or a file cannot be read.
        InvalidInput: if the data are not labelled images of one size.
    """
    for key, value in {"limit": limit, "resize": resize, "crop": crop}.items():
        if value is not None and value < 1:
            raise InvalidInput(f"expected {key} >= 1, got {value}")
    return open_prepared(name, limit, ImagePreparation(resize, crop, interpolation)).take()


def load_data_for(classifier: Classifier, name: str, limit: int | None = None, chosen: Collection[str] = ()) -> Data:
    """Load data by name in the form that a model needs: with its image size, its channels and its class numbers.

    For a model with one channel, grey images stay grey.

    Args:
        classifier: the model.
        name: see `load_data`.
        limit: see `load_data`.
        chosen: names of images to load, out of the first `limit` images. Other image files are not read. Empty to load
            all images.

    Raises:
        InvalidInput: if there is no image with one of the chosen names, or the classes of a bundled model are not those
            of the sample images.
        DavylampError: see `load_data`.
    """
    images = open_data_for(classifier, name, limit)
    data = images.take(find_places(images.names, chosen))
    classifier.answers.expect_labels(data.labels)
    return data


def open_data_for(classifier: Classifier, name: str, limit: int | None = None) -> LazyData:
    """Open data by name in the form that a model needs, see `load_data_for`. Images are decoded only when taken.

    Raises:
        DavylampError: see `load_data_for`.
    """
    if limit is not None and limit < 1:
        raise InvalidInput(f"expected limit >= 1, got {limit}")
    if name.partition("+")[0] in SAMPLES:
        check_demo_classes(classifier.name, name)
    return open_prepared(name, limit, preparation_for_data(classifier, name))


def corrupt(data: Data, corruption: str, severity: int, *, seed: int = 0) -> Data:
    """Apply a corruption of Hendrycks and Dietterich (2019) to labelled images, see `corrupt_images`.

    Args:
        data: images and labels.
        corruption: name of the corruption, such as "fog".
        severity: severity from 1 to 5.
        seed: random seed. The result for an image does not depend on the other images.

    Raises:
        DavylampError: see `corrupt_images`.
    """
    return data._replace(inputs=corrupt_images(data.inputs, corruption, severity, seed=seed))


def find_places(names: Sequence[str], chosen: Collection[str]) -> list[int] | None:
    """Return the indices of the images with the chosen names, in the order of the data. None if `chosen` is empty.

    Raises:
        InvalidInput: if a chosen name is not the name of exactly one image.
    """
    if not chosen:
        return None
    counts = Counter(names)
    for name in chosen:
        if counts[name] != 1:
            got = (
                f"no such name among {len(names)} images (the first is {names[0]})"
                if not counts[name]
                else f"{counts[name]}"
            )
            raise InvalidInput(f"expected one image of the name {name}, got {got}")
    wanted = set(chosen)
    return [place for place, name in enumerate(names) if name in wanted]


def open_prepared(name: str, limit: int | None, wanted: ImagePreparation) -> LazyData:
    """Open images by name, see `load_data`. They are prepared as described by `wanted` when they are taken."""
    data = _open_labelled(name, limit, wanted)
    if wanted.criterion is None or data.labels.ndim == 1:
        return data
    return data._replace(labels=wanted.criterion.classes_of(data.labels))


def _open_labelled(name: str, limit: int | None, wanted: ImagePreparation) -> LazyData:
    several = wanted.criterion is not None
    corrupted = split_corruption(name)
    if corrupted is not None and not (corrupted.on_disk and name.startswith(FOLDERS)):
        return _open_corrupted(corrupted, limit, wanted)
    files = list_files(name, limit, wanted)
    if files is not None:
        return _open_files(*files, read_images)
    source, _, rest = name.partition(":")
    if source == "npz" and rest:
        return _open_npz(expand_path(rest), limit, several=several)
    if name.startswith(PREFIX) or name == DIGITS:
        return open_published(name, limit) if name != DIGITS else open_arrays(*read_test_digits(), name, limit)
    if is_file_name(name):
        return open_data_file(name, limit, several=several)
    if name not in SAMPLES:
        raise UnknownName("data", name, dataset_name_patterns(), meant=_meant_data(name))
    if name in IMAGENET and wanted.resize is None and wanted.crop is None:
        wanted = wanted._replace(resize=256, crop=224)
    if name in WHOLE and wanted.crop is not None:
        wanted = wanted._replace(resize=wanted.crop)
    return _open_files(list_samples(name)[:limit], wanted._replace(as_rgb=False), _stack_images)


def _open_files(
    items: Sequence[ImageFile],
    wanted: ImagePreparation,
    read: Callable[[Sequence[ImageFile], ImagePreparation], Tensor],
) -> LazyData:
    """Return image files as `LazyData`. When images are taken, the function `read` reads them as uint8."""
    labels = torch.tensor([item.label for item in items], dtype=torch.int64)

    def inputs(places: Sequence[int] | None) -> Tensor:
        return read(items if places is None else [items[place] for place in places], wanted).float().div_(255)

    return LazyData(labels, [item.name for item in items], inputs)


def _meant_data(name: str) -> str:
    """Return the data name, such as "npz:PATH", that a user probably meant by giving only a path.

    "" if there are no images or arrays at the path.
    """
    if not name:
        return ""
    path = expand_path(name)
    if path.is_dir():
        return f"imagefolder:{name}"
    return f"npz:{name}" if path.suffix == ".npz" and path.is_file() else ""


def preparation_for(classifier: Classifier) -> ImagePreparation:
    """Return the preparation of image files that a model needs."""
    sizes = ImagePreparation(classifier.resize, classifier.crop, classifier.interpolation)
    named = {"names": classifier.class_names, "all_named": classifier.all_named}
    classes, criterion = classifier.stated_classes, criterion_in(classifier.name)
    return sizes._replace(channels=classifier.channels, classes=classes, criterion=criterion, **named)


def preparation_for_data(classifier: Classifier, name: str) -> ImagePreparation:
    """Return the preparation of image files that a model needs for the named data.

    The number of the model's classes is needed if class folders are named by WordNet ids. A model with 1000 classes
    then gets ImageNet's class numbers, and other models get classes in the order of the folders. If the model does not
    declare the number of its classes, the model is queried once, on the first image.

    Raises:
        DavylampError: see `load_data`.
    """
    wanted = preparation_for(classifier)
    if wanted.classes is not None or not name.startswith(IN_FOLDERS):
        return wanted
    corrupted = split_corruption(name)
    if corrupted is not None and not corrupted.on_disk:
        return preparation_for_data(classifier, corrupted.base)
    listed = list_files(name, None, wanted)
    if listed is None or not has_wordnet_ids(listed[0]):
        return wanted
    if classifier.num_classes is None:
        try:
            image = _open_files(*listed, read_images).read([0])
            logits = classifier.predict_logits(image.to(classifier.device))
        except DavylampError:  # reported when the model is queried on all images
            return wanted
        if classifier.answers.outputs != "labels":  # a single label reveals nothing about the other classes
            classifier.num_classes = logits.shape[1]
    return wanted._replace(classes=classifier.num_classes)


def label_mapping_key(classifier: Classifier, name: str) -> tuple[Any, ...]:
    """Return a key for the labels that a model gets for the named data.

    Two models with equal keys get the same labels.
    """
    named = classifier.stated_classes or (classifier.name if name.startswith(IN_FOLDERS) else None)
    return named, criterion_in(classifier.name)


def list_files(
    name: str, limit: int | None, wanted: ImagePreparation
) -> tuple[list[ImageFile], ImagePreparation] | None:
    """Return the image files of data in a folder, with their preparation for the model. None for other kinds of data.

    Args:
        name: name of the data.
        limit: largest number of images. None for all images.
        wanted: preparation that the model needs. For some data, the returned preparation differs.
    """
    source, _, rest = name.partition(":")
    corrupted = split_corruption(name)
    if corrupted is not None and corrupted.on_disk and source == FOLDERS:
        root = expand_path(corrupted.base.partition(":")[2])
        folder = corruption_folder(root, corrupted.corruption, corrupted.severity)
        # They are cropped already, so only sizes different from the model's are resized.
        wanted = wanted._replace(resize=wanted.crop)
        return list_folder(folder, wanted.classes, wanted.names, strict=wanted.all_named)[:limit], wanted
    if corrupted is None and name.startswith(HUB):
        return list_hub_set(name, limit, wanted.classes, wanted.names, strict=wanted.all_named), wanted
    if corrupted is None and source == "imagefolder" and rest:
        return list_folder(expand_path(rest), wanted.classes, wanted.names, strict=wanted.all_named)[:limit], wanted
    return None


def _open_corrupted(corrupted: CorruptionSpec, limit: int | None, wanted: ImagePreparation) -> LazyData:
    corruption, severity = corrupted.corruption, corrupted.severity
    if corrupted.on_disk:
        root = expand_path(corrupted.base.partition(":")[2])
        return open_arrays(*read_corruption_arrays(root, corruption, severity, limit), root, limit)
    base = open_prepared(corrupted.base, limit, wanted)
    return base._replace(read=lambda places: corrupt_images(base.read(places), corruption, severity))


def read_images(items: Sequence[ImageFile], wanted: ImagePreparation) -> Tensor:
    """Read image files, which must have one size, as uint8, shape (N, C, H, W). A sandbox reads untrusted files."""
    isolation = isolation_of_data()
    if isolation is None or any(item.content is not None for item in items):
        return _stack_images(items, wanted)
    seen = [Path(os.path.commonpath([item.path.parent for item in items]))]
    given = [str(item.path) for item in items], wanted._replace(names=())
    (pixels,) = read_apart(images_in_room, given, seen, isolation, torch.uint8)
    if pixels.ndim != 4 or len(pixels) != len(items):
        raise Unavailable(f"expected {len(items)} images from {seen[0]}, got shape {tuple(pixels.shape)}")
    return pixels


def images_in_room(paths: Sequence[str], wanted: Sequence[Any]) -> list[Tensor]:
    """Read the pixels of image files. This function runs in the sandboxed process."""
    return [_stack_images([ImageFile(path, Path(path), 0) for path in paths], ImagePreparation(*wanted))]


def _open_npz(path: Path, limit: int | None, *, several: bool) -> LazyData:
    isolation = isolation_of_data()
    if isolation is None or not path.is_file():
        return open_npz(path, limit, several=several)
    given, types = (str(path), limit, several), (torch.float32, torch.int64)
    inputs, labels = read_apart(arrays_in_room, given, [path], isolation, *types)
    return open_arrays(inputs.numpy(), labels.numpy(), path, limit, several=several)


def arrays_in_room(path: str, limit: int | None, several: bool) -> list[Tensor]:
    """Read the arrays of a file. This is called in the sandboxed process."""
    return [*open_npz(Path(path), limit, several=several).take()[:2]]


def _stack_images(items: Sequence[ImageFile], wanted: ImagePreparation) -> Tensor:
    """Read image files, which must have one size, and return their pixels, uint8, shape (N, C, H, W)."""
    by_row = sorted(range(len(items)), key=lambda place: items[place].row)  # neighbours share a block of a data file
    read = {place: _read_image(items[place], wanted) for place in by_row}
    images = [read[place] for place in range(len(items))]
    first = images[0].shape
    for item, image in zip(items, images, strict=True):
        if image.shape != first:
            sizes = " and ".join(f"{i.shape[2]} x {i.shape[1]} x {i.shape[0]}" for i in (images[0], image))
            raise InvalidInput(
                f"expected images of one size, got {sizes} ({_where(items[0])}, {_where(item)}); give resize and crop"
            )
    return torch.stack(images)


def _read_image(item: ImageFile, wanted: ImagePreparation) -> Tensor:
    """Read an image file as uint8, shape (C, H, W), resized and cropped like torchvision."""
    from torchvision.transforms import InterpolationMode, functional

    image: Any = _open_image(item, wanted)
    if wanted.resize is not None:
        image = functional.resize(image, [wanted.resize], InterpolationMode(wanted.interpolation))
    if wanted.crop is not None:
        if min(image.size) < wanted.crop:
            got = f"{image.width} x {image.height} ({_where(item)})"
            raise InvalidInput(f"expected images of at least {wanted.crop} x {wanted.crop} before the crop, got {got}")
        image = functional.center_crop(image, [wanted.crop])
    return functional.pil_to_tensor(image)


def _where(item: ImageFile) -> str:
    return str(item.path) if item.content is None else f"{item.name} of {item.path}"


def _open_image(item: ImageFile, wanted: ImagePreparation) -> Any:
    """Open an image file with Pillow. It is converted to RGB, unless it is grey and the model has one channel."""
    from PIL import Image

    content = None if item.content is None else item.content()
    try:
        if not stat.S_ISREG(item.path.stat().st_mode):  # opening a pipe would wait for ever
            raise OSError("it is not a regular file")
        with open_picture(item.path) if content is None else Image.open(BytesIO(content)) as file:
            deep = file.mode[0] in "IF"
            grey = file.mode in _GREY and wanted.channels == 1
            # The way over RGBA spares Pillow's warning about palettes with transparency.
            clear = wanted.as_rgb and "transparency" in file.info
            image = file.convert("RGBA").convert("RGB") if clear and not grey else file.copy()
    except (*_DAMAGED, Image.DecompressionBombError) as error:
        reason = one_line(error) or type(error).__name__
        raise Unavailable(f"could not read the image {_where(item)}: {reason}; replace or remove it") from error
    if deep:
        raise InvalidInput(f"expected an image of 8 bits a channel, got mode {image.mode} in {_where(item)}")
    if grey:
        return image.convert("L")
    return image.convert("RGB") if wanted.as_rgb else image

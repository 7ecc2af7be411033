"""Loads published data sets with torchvision from a local folder. They are downloaded only if the user allows it."""

import os
import sys
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ...errors import Unavailable, UnknownName
from ..paths import expand_path
from ..user_code_guard import one_line
from .array_files import open_arrays
from .lazy_data import LazyData

PREFIX = "torchvision:"
DOWNLOAD = "DAVYLAMP_DOWNLOAD"  # environment variable: "yes" allows downloads of data sets


class PublishedSet(NamedTuple):
    """A published data set that torchvision can read.

    Args:
        kind: name of torchvision's class.
        split: arguments of the class that select the split.
        files: path of a file or folder that exists if the data set has been downloaded.
        megabytes: size of the download in MB.
    """

    kind: str
    split: dict[str, Any]
    files: str
    megabytes: int


PUBLISHED = {
    "cifar10": PublishedSet("CIFAR10", {"train": False}, "cifar-10-batches-py/", 163),
    "cifar10-train": PublishedSet("CIFAR10", {"train": True}, "cifar-10-batches-py/", 163),
    "cifar100": PublishedSet("CIFAR100", {"train": False}, "cifar-100-python/", 161),
    "cifar100-train": PublishedSet("CIFAR100", {"train": True}, "cifar-100-python/", 161),
    "svhn": PublishedSet("SVHN", {"split": "test"}, "test_32x32.mat", 61),
    "svhn-train": PublishedSet("SVHN", {"split": "train"}, "train_32x32.mat", 174),
    "mnist": PublishedSet("MNIST", {"train": False}, "MNIST/raw/", 11),
    "mnist-train": PublishedSet("MNIST", {"train": True}, "MNIST/raw/", 11),
    "fashionmnist": PublishedSet("FashionMNIST", {"train": False}, "FashionMNIST/raw/", 29),
    "fashionmnist-train": PublishedSet("FashionMNIST", {"train": True}, "FashionMNIST/raw/", 29),
    "kmnist": PublishedSet("KMNIST", {"train": False}, "KMNIST/raw/", 20),
    "kmnist-train": PublishedSet("KMNIST", {"train": True}, "KMNIST/raw/", 20),
}


def open_published(name: str, limit: int | None) -> LazyData:
    """Open the images and labels of "torchvision:cifar10[:FOLDER]".

    Args:
        name: name of the data. Without a folder, `TORCH_HOME/datasets` is used.
        limit: largest number of images. The first images are loaded. None for all images.

    Raises:
        UnknownName: if there is no such data set.
        Unavailable: if the data set is missing or damaged. The message says how to download it.
    """
    word, _, folder = name.removeprefix(PREFIX).partition(":")
    if word not in PUBLISHED:
        raise UnknownName("data set of torchvision", word, PUBLISHED)
    published = PUBLISHED[word]
    root = expand_path(folder) if folder else Path(torch.hub.get_dir()).parent / "datasets"
    from torchvision import datasets

    kind = getattr(datasets, published.kind)
    try:
        with redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read = _open(kind, published, root, name)
    except (OSError, RuntimeError, ValueError, EOFError, KeyError) as error:
        raise Unavailable(f"{_advice(name, published, root)} ({one_line(error)})") from error
    images = np.asarray(read.data)
    images = images[:, None] if images.ndim == 3 else images
    labels = np.asarray(read.targets if hasattr(read, "targets") else read.labels)
    return open_arrays(images, labels, f"{name} in {root}", limit)


def download_allowed() -> bool:
    """Whether the user allows downloads of data sets, by an environment variable."""
    return os.environ.get(DOWNLOAD, "").lower() in ("1", "yes")


def _open(kind: Any, published: PublishedSet, root: Path, name: str) -> Any:
    """Open a data set with torchvision's class `kind`. If it is missing and downloads are allowed, download it first.

    Torchvision verifies the files if it knows their checksums.
    """
    if not download_allowed():
        return kind(root, **published.split)
    try:
        return kind(root, **published.split)
    except RuntimeError:
        sys.stderr.write(f"fetching {name} ({published.megabytes} MB) to {root}\n")
        return kind(root, **published.split, download=True)


def _advice(name: str, published: PublishedSet, root: Path) -> str:
    state = "incomplete" if (root / published.files).exists() else "missing"
    fetch = f"set {DOWNLOAD}=yes to let davylamp download it ({published.megabytes} MB)"
    return f"the files of {name} are {state}: {root / published.files}; put them there, or {fetch}"

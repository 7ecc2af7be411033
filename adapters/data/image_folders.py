"""Lists the image files of a folder with their labels. If several links point to one file, it is listed once."""

import csv
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import InvalidInput, Unavailable

_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_WORDNET_ID = re.compile(r"n\d{8}")
_MOST_DIGITS = 9  # of a label
_IMAGENET = 1000


class ImageFile(NamedTuple):
    """An image file with its name, path and label. For an image in a row of a data file, `content` reads the image."""

    name: str
    path: Path
    label: int
    content: Callable[[], bytes] | None = None
    row: int = 0


def list_folder(
    root: Path, classes: int | None = None, names: Sequence[str] = (), *, strict: bool = False
) -> list[ImageFile]:
    """List the image files of a folder with their labels, in an order in which the classes alternate.

    Args:
        root: folder with a folder for each class, or with a file `labels.csv`.
        classes: number of classes of the model, if known. For 1000 classes, a class folder that is named by a WordNet
            id gets the class number that this id has in ImageNet, even if folders for other classes are missing.
        names: names of the model's classes, if known. The names of class folders, or the labels in `labels.csv`, are
            looked up in this list.
        strict: whether it is an error if the name of a class folder is not in `names`. If False, such a folder causes
            `names` to be ignored.

    Raises:
        Unavailable: if the folder does not exist or cannot be read.
        InvalidInput: if the folder has no labelled images, or has one image in two classes.
    """
    if not root.is_dir():
        raise Unavailable(f"no such folder: {root} (expected a folder of images)")
    table = root / "labels.csv"
    if table.exists():
        items = _list_table(table, {name: index for index, name in enumerate(names)})
    else:
        items = _list_classes(root, classes, names, strict=strict)
    if not items:
        kinds = ", ".join(_SUFFIXES)
        raise InvalidInput(
            f"no images in {root}: expected class folders with images ({kinds}), or a labels.csv with rows"
        )
    return interleave_classes(items)


def has_wordnet_ids(items: Sequence[ImageFile]) -> bool:
    """Whether the class folders are named by WordNet ids. Class numbers then depend on the model, see `list_folder`."""
    return any(_WORDNET_ID.fullmatch(item.name.partition("/")[0]) for item in items)


def interleave_classes(items: Iterable[ImageFile]) -> list[ImageFile]:
    """Sort images such that the classes alternate. The first images are then spread over all classes."""
    known = list(items)
    return [known[place] for place in alternate_classes(np.array([item.label for item in known], np.int64))]


def alternate_classes(labels: np.ndarray) -> np.ndarray:
    """Return the places of images in another order: the first image of each class, then the second, and so on, (N,)."""
    _, counts = np.unique(labels, return_counts=True)
    turn = np.empty(len(labels), np.int64)
    turn[np.argsort(labels, kind="stable")] = np.concatenate([np.arange(count) for count in (*counts, 0)])
    return np.lexsort((labels, turn))


def _list_classes(root: Path, classes: int | None, names: Sequence[str], *, strict: bool) -> list[ImageFile]:
    """List the images in class folders. Folders whose names begin with "." or "__" (`__MACOSX`) are skipped.

    An empty class folder counts in the numbering of the classes, in contrast to torchvision's ImageFolder.
    """
    try:
        folders = sorted(
            path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith((".", "__"))
        )
    except OSError as error:
        raise Unavailable(f"could not read {root} ({error.strerror})") from error
    labels = class_indices(folders, classes, names, strict=strict, where=str(root))
    real: dict[str, ImageFile] = {}
    for folder in folders:
        for path, target in _walk(root / folder):
            item = ImageFile(path.relative_to(root).as_posix(), path, labels[folder])
            same = real.setdefault(target, item)
            if same.label != item.label:
                got = f"the same file as {same.name} and as {item.name} in {root}"
                raise InvalidInput(f"expected each image in one class only, got {got}; remove one of them")
    _check_depth(list(real.values()), root)
    return list(real.values())


def class_indices(
    classes_there: Sequence[str], classes: int | None, names: Sequence[str], *, strict: bool, where: str
) -> dict[str, int]:
    """Return the model's class number for each class of the data.

    A class is found by its name in `names`, or else by its WordNet id. Otherwise its number is its position.

    Args:
        classes_there: names of the classes of the data, in order.
        classes: number of classes of the model, if known. WordNet ids are used only for 1000 classes.
        names: names of the model's classes, if known. If a class of the data is not among them, `names` is ignored.
        strict: whether it is an error if a class of the data is not in `names`.
        where: name of the data, for error messages.

    Raises:
        InvalidInput: if the model does not have a class of the data.
    """
    indices = {name: index for index, name in enumerate(names)}
    unnamed = [name for name in classes_there if name not in indices]
    if strict and unnamed:
        got = f"{', '.join(unnamed[:3])} ({len(unnamed)} of {len(classes_there)} classes)"
        raise InvalidInput(f"the {len(indices)} given class names lack classes of {where}: {got}")
    labels: Mapping[str, int] = {} if unnamed else indices
    if not labels and classes == _IMAGENET:
        labels = _imagenet_classes(classes_there, where)
    return {name: labels.get(name, place) for place, name in enumerate(classes_there)}


def _check_depth(items: list[ImageFile], root: Path) -> None:
    """Raise InvalidInput if the class folders are inside another folder, so that all images would get class 0."""
    deeper: dict[str, set[str]] = {}
    for item in items:
        first, *rest = item.name.split("/")
        deeper.setdefault(first, set()).add(rest[0] if len(rest) > 1 else "")
    if any("" in inner for inner in deeper.values()) or not any(len(inner) > 1 for inner in deeper.values()):
        return
    advice = " or ".join(f"imagefolder:{root / name}" for name in list(deeper)[:3])
    raise InvalidInput(f"expected class folders with images in {root}, got folders of class folders; give {advice}")


def _walk(folder: Path) -> list[tuple[Path, str]]:
    """List the image files in a folder and its subfolders, with links resolved. Each subfolder is read only once."""
    paths, seen = [], set()
    for parent, folders, files in os.walk(folder, followlinks=True):
        here = os.path.realpath(parent)
        if here in seen:
            folders.clear()
            continue
        seen.add(here)
        folders.sort(key=lambda name: (Path(parent, name).is_symlink(), name))
        for path in (Path(parent, file) for file in files if file.lower().endswith(_SUFFIXES)):
            paths.append((path, os.path.realpath(path) if path.is_symlink() else str(Path(here, path.name))))
    return sorted(paths, key=lambda pair: (str(pair[0].parent), pair[0].name))


def _imagenet_classes(folders: Sequence[str], root: str) -> dict[str, int]:
    """Return the ImageNet class number of each class folder that is named by a WordNet id.

    Empty if no folder is named by a WordNet id. Also empty if there are all 1000 folders, because the position of a
    folder is then its class number.
    """
    others = [name for name in folders if not _WORDNET_ID.fullmatch(name)]
    if len(others) == len(folders):
        return {}
    if others:  # by their places one more folder would move the classes of all that follow it
        got = (
            f"{', '.join(others[:3])} among {len(folders)} folders; move the folders that are not classes out of {root}"
        )
        raise InvalidInput(f"expected WordNet ids as names of all class folders of {root}, got {got}")
    if len(folders) == _IMAGENET:
        return {}
    try:
        from timm.data.imagenet_info import ImageNetInfo
    except ImportError as error:
        got = f"{len(folders)} folders with WordNet ids in {root}"
        advice = 'install it with pip install "davylamp[timm]", or write a labels.csv'
        raise InvalidInput(
            f"cannot look up the classes of {got}, because the list of WordNet ids is missing; {advice}"
        ) from error
    known = {name: index for index, name in enumerate(ImageNetInfo().label_names())}
    unknown = [name for name in folders if name not in known]
    if unknown:
        raise InvalidInput(f"expected ImageNet's WordNet ids as class folders of {root}, got {', '.join(unknown[:3])}")
    return {name: known[name] for name in folders}


def _list_table(table: Path, indices: Mapping[str, int]) -> list[ImageFile]:
    if not table.is_file():
        raise Unavailable(f"expected a file, got a folder or a device at {table}")
    items: dict[str, ImageFile] = {}
    try:
        with table.open(newline="", encoding="utf-8-sig") as lines:
            rows = csv.DictReader(lines)
            if not {"file", "label"} <= set(rows.fieldnames or ()):
                got = ", ".join(rows.fieldnames or ()) or "an empty file"
                raise InvalidInput(f"expected columns file and label in {table}, got {got}")
            for row in rows:
                file, label = (row["file"] or "").strip(), (row["label"] or "").strip()
                where = f"line {rows.line_num} of {table}"
                label = str(indices.get(label, label))
                if not file or not label.isdecimal() or len(label) > _MOST_DIGITS:
                    raise InvalidInput(f"expected a file and an integer label >= 0 in {where}, got {file!r}, {label!r}")
                if Path(file).is_absolute() or ".." in Path(file).parts:  # untrusted data may contain anything
                    raise InvalidInput(
                        f"expected a file inside the folder in {where}, got {file!r}; move or link it there"
                    )
                if (same := Path(file).as_posix()) in items:
                    raise InvalidInput(f"expected each file once, got {file!r} again in {where}")
                items[same] = ImageFile(file, table.parent / file, int(label))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Unavailable(f"could not read {table} as UTF-8 CSV: {error}") from error
    return list(items.values())

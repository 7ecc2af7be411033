"""Input settings in a model name, as in "MODEL+input:crop=224,mean=0.5/0.5/0.5"."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch

from ....errors import InvalidInput, Unavailable, UnknownName
from ...paths import expand_path
from ...user_code_guard import one_line
from ..classifier import Classifier, Interpolation

PREFIX = "input:"
WORDS = ("resize", "crop", "mean", "std", "interpolation", "labels")
_LARGEST_SIDE = 1 << 14
_LARGEST_FILE = 1 << 24


class Preprocessing(NamedTuple):
    """Input settings from a model name. If a setting is None, the model's published value is used.

    Args:
        resize: length to which the shorter side of an image file is resized. 0 for no resizing.
        crop: side of the square centre crop. 0 for no crop.
        mean: mean per channel, for pixels in [0, 1], or one number for all channels.
        std: standard deviation per channel, or one number for all channels.
        interpolation: interpolation of the resizing.
        labels: class names in the order of the model's outputs.
    """

    resize: int | None = None
    crop: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    interpolation: Interpolation | None = None
    labels: tuple[str, ...] | None = None


def is_input_part(text: str) -> bool:
    """Whether a part of a model name contains input settings."""
    return text.startswith(PREFIX)


def write_input(settings: Mapping[str, str]) -> str:
    """Convert settings of the command line to a part of a model name.

    Args:
        settings: values by setting. `mean` and `std` are numbers or fractions, separated by commas.

    Raises:
        DavylampError: as for `parse_input_settings`.
    """
    texts = dict(settings)
    for word in {"mean", "std"} & texts.keys():
        texts[word] = "/".join(f"{_fraction(word, each):.12g}" for each in re.split(r"[,\s]+", texts[word].strip()))
    part = PREFIX + ",".join(f"{word}={text}" for word, text in texts.items())
    parse_input_settings(part)
    return part


def parse_input_settings(text: str) -> Preprocessing:
    """Read the input settings in a part of a model name.

    Args:
        text: "input:resize=256,crop=224,mean=0.485/0.456/0.406,std=0.2,interpolation=bicubic,labels=FILE".

    Raises:
        UnknownName: if there is no such setting.
        InvalidInput: if a value is invalid.
        Unavailable: if the file of labels cannot be read.
    """
    values: dict[str, Any] = {}
    for setting in text.removeprefix(PREFIX).split(","):
        word, equals, value = setting.partition("=")
        if not equals or not value:
            raise InvalidInput(f"expected input:KEY=VALUE,KEY=VALUE, got {text!r}")
        if word not in WORDS:
            raise UnknownName("setting of input", word, WORDS)
        values[word] = _read(word, value)
    if ("mean" in values) != ("std" in values):
        raise InvalidInput(f"mean and std must be given together, got only {'mean' if 'mean' in values else 'std'}")
    return Preprocessing(**values)


def apply_input_settings(classifier: Classifier, said: Preprocessing, name: str) -> Classifier:
    """Replace input settings of a classifier by those in its name.

    Args:
        classifier: the classifier as published.
        said: settings in the name.
        name: name of the model.

    Raises:
        InvalidInput: if mean and std do not have the model's number of channels, or the number of labels is wrong.
    """
    classifier.name = name
    if said.mean is not None and said.std is not None:
        count = max(len(said.mean), len(said.std), 1)
        if count == 1:
            count = classifier.channels or 3
        for word in ("mean", "std"):
            numbers = torch.tensor(getattr(said, word)).expand(count).clone()
            setattr(classifier, word, numbers.view(1, -1, 1, 1).to(classifier.anchor))  # replaces the buffer
    for word in ("resize", "crop"):
        if (side := getattr(said, word)) is not None:
            setattr(classifier, word, side or None)
    if said.interpolation is not None:
        classifier.interpolation = said.interpolation
    if said.labels is not None:
        known = classifier.stated_classes
        if known is not None and known != len(said.labels):
            raise InvalidInput(f"expected {known} labels, one for each class of {name}, got {len(said.labels)}")
        classifier.class_names, classifier.all_named = said.labels, True
        classifier.answers.classes = classifier.answers.classes or len(said.labels)
    return classifier


def read_labels(path: Path) -> tuple[str, ...]:
    """Read the class names in a file.

    The file has one name per line, a JSON list of names, or a JSON object. The object maps indices to names or names to
    indices. In ImageNet's usual object {"0": ["n01440764", "tench"]}, the first element ("n01440764") is the name.

    Args:
        path: path of the file.

    Returns:
        The names in the order of the classes.

    Raises:
        Unavailable: if there is no such file.
        InvalidInput: if the file has a different form, or contains a name twice.
    """
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise InvalidInput(f"expected class names in {path}, got a file of more than 16 MiB")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"could not read the class names in {path} ({one_line(error)})") from error
    names = _from_json(path, text) if path.suffix == ".json" else [line.strip() for line in text.splitlines()]
    while names and not names[-1]:
        names.pop()
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if not names or "" in names or twice is not None:
        got = "none" if not names else "an empty line" if twice is None else f"{twice!r} twice"
        raise InvalidInput(f"expected a name for each class in {path}, got {got}")
    return tuple(names)


def _from_json(path: Path, text: str) -> list[str]:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not valid JSON") from error
    names: list[Any] = read if isinstance(read, list) else []
    if isinstance(read, dict):
        by_index: dict[int, Any] = {}
        for key, value in read.items():
            name = value[0] if isinstance(value, list) and value else value
            is_index = isinstance(name, int)  # {"tench": 0}
            by_index[name if is_index else int(key) if key.isdecimal() else -1] = key if is_index else name
        names = [by_index.get(index) for index in range(len(by_index))]
    if not all(isinstance(name, str) for name in names):
        raise InvalidInput(f"expected the names of classes 0, 1, ... as strings in {path}")
    return [name.strip() for name in names]


def _read(word: str, value: str) -> Any:
    if word in ("resize", "crop"):
        if value == "none":
            return 0
        if not value.isdecimal() or not 1 <= int(value) <= _LARGEST_SIDE:
            raise InvalidInput(f"expected {word} as a side in pixels, or none, got {value!r}")
        return int(value)
    if word == "interpolation":
        if value not in get_args(Interpolation):
            raise InvalidInput(f"expected interpolation as {' or '.join(get_args(Interpolation))}, got {value!r}")
        return value
    if word == "labels":
        return read_labels(expand_path(value))
    numbers = tuple(_number(word, each) for each in value.split("/"))
    if len(numbers) not in (1, 3) or (word == "std" and min(numbers) <= 0):
        wanted = f"1 or 3 numbers{' > 0' * (word == 'std')} separated by slashes"
        raise InvalidInput(f"expected {word} as {wanted}, got {value!r}")
    return numbers


def _number(word: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidInput(f"expected {word} as numbers, got {text!r}")
    return number


def _fraction(word: str, text: str) -> float:
    above, _, below = text.partition("/")
    divisor = _number(word, below) if below else 1.0
    if not re.fullmatch(r"[^/]+(/[^/]+)?", text) or divisor == 0:
        raise InvalidInput(f"expected --{word} as 0.5, 1/255, or one per channel separated by commas, got {text!r}")
    return _number(word, above) / divisor

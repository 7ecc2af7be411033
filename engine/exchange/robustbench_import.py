"""Imports numbers that RobustBench published into a results folder, from one JSON file for each model."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...adapters.parameters import parse_number
from ...errors import InvalidInput, Unavailable
from ..store.atomic_files import expand_path, read_regular_file
from ..store.imported import PublishedRow, write_published
from ..store.store import ResultsStore

SOURCE = "RobustBench"
NORMS = {"Linf": "linf", "L2": "l2", "corruptions": "corruptions"}
IMAGES = {"cifar10": 10_000, "cifar100": 10_000, "imagenet": 5_000}  # images of its test sets, as in its README
_LARGEST = 1 << 20
_TEXTS = {"title": "name", "architecture": "architecture", "venue": "venue", "authors": "authors", "link": "link"}
_PLACE = "model_info/DATASET/Linf|L2|corruptions/MODEL.json"


class PublishedImport(NamedTuple):
    """Summary of an import of RobustBench's published numbers.

    Args:
        boards: number of imported models, by data set and norm.
        refused: a message for each file that was not imported.
    """

    boards: dict[tuple[str, str], int]
    refused: list[str]


def import_robustbench(path: str | Path, folder: str | Path) -> PublishedImport:
    """Import RobustBench's JSON files into a results folder as published numbers, which are not verified.

    The norm and the data set of a model are the names of the folders that contain the file, as in RobustBench's
    repository. If the file itself names a different data set, the imported model gets a note. The robust accuracy is
    the best known one, as in RobustBench's table: field `external` if the file has it, otherwise the accuracy under
    AutoAttack. For corruptions, the robust accuracy is the mean over all corruptions.

    Args:
        path: JSON file, or a folder with such files at any depth, such as `model_info` in RobustBench's repository.
        folder: results folder, which is created if necessary.

    Raises:
        InvalidInput: If `path` contains no JSON file of RobustBench.
        Unavailable: If `path` does not exist, or if the results folder cannot be written.
    """
    place = expand_path(path)
    if not place.exists():
        raise Unavailable(f"expected a JSON file of {SOURCE}, or a folder with such files ({_PLACE}), got {path}")
    rows, refused = [], []
    for file in sorted(place.rglob("*.json")) if place.is_dir() else [place]:
        try:
            rows.append(read_model(file))
        except InvalidInput as error:
            refused.append(str(error))
    if not rows:
        why = f": {refused[0]}" if refused else ""
        raise InvalidInput(f"expected JSON files of {SOURCE} ({_PLACE}), found none in {path}{why}")
    write_published(ResultsStore(folder), rows, {"licence": "MIT, its authors"})
    boards: dict[tuple[str, str], int] = {}
    for row in rows:
        boards[row.data, row.norm] = boards.get((row.data, row.norm), 0) + 1
    return PublishedImport(boards, refused)


def read_model(file: Path) -> PublishedRow:
    """Read RobustBench's JSON file of one model, and return its published numbers.

    Raises:
        InvalidInput: If the file is not a JSON file of RobustBench in a folder for its norm.
    """
    try:
        content = json.loads(read_regular_file(file, _LARGEST).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"expected JSON of {SOURCE} in {file}, got invalid JSON ({str(error)[:80]})") from error
    norm = NORMS.get(file.resolve().parent.name)
    if norm is None:
        raise InvalidInput(f"expected a file {_PLACE}, in a folder named after the norm, got {file}")
    if not isinstance(content, dict) or not isinstance(content.get("dataset"), str) or "clean_acc" not in content:
        raise InvalidInput(
            f"expected a model of {SOURCE} (dataset, clean_acc, ...) in {file}, got a different document"
        )
    shares = {
        name: _share(content, name, file) for name in ("clean_acc", "autoattack_acc", "external", "corruptions_acc")
    }
    known = [shares["corruptions_acc"]] if norm == "corruptions" else [shares["external"], shares["autoattack_acc"]]
    robust = next((share for share in known if not math.isnan(share)), math.nan)
    if math.isnan(robust):
        raise InvalidInput(f"expected a robust accuracy of {SOURCE} in {file}, got none")
    place, stated_data = file.resolve().parent.parent.name, content["dataset"]
    data = place if place in IMAGES else stated_data  # RobustBench also uses the folder
    aside = "" if data == stated_data else f"the data set in its file is {stated_data}"
    return PublishedRow(
        source=SOURCE,
        model=file.stem,
        data=data,
        norm=norm,
        epsilon=math.nan if norm == "corruptions" else _radius(content.get("eps"), file),
        images=IMAGES.get(data, 0),
        clean=shares["clean_acc"],
        robust=robust,
        autoattack=shares["autoattack_acc"],
        unreliable=content.get("unreliable") is True,
        additional_data=content.get("additional_data") is True,
        note=" ".join(filter(None, (_text(content.get("footnote")), _text(aside)))),
        **{name: _text(content.get(theirs)) for name, theirs in _TEXTS.items()},
    )


def _share(content: Mapping[str, Any], name: str, file: Path) -> float:
    """Return a percentage in a file's content as a proportion in [0, 1]; NaN if the content lacks the percentage."""
    value = content.get(name)
    if value is None or value == "":
        return math.nan
    try:
        share = float(value) / 100
    except (TypeError, ValueError):
        share = math.nan
    if isinstance(value, bool) or not 0 <= share <= 1:
        raise InvalidInput(f"expected {name} from 0 to 100 in {file}, got {str(value)[:40]!r}")
    return share


def _radius(value: object, file: Path) -> float:
    """Convert a radius such as "8/255", "0.5" or 0.5 to a number. `file` is named in the message of an error."""
    try:
        radius = parse_number(str(value), "eps")
    except InvalidInput as error:
        raise InvalidInput(f"expected eps as 8/255 or 0.5 in {file}, got {str(value)[:40]!r}") from error
    if not 0 < radius < math.inf:
        raise InvalidInput(f"expected eps as 8/255 or 0.5 in {file}, got {str(value)[:40]!r}")
    return radius


def _text(value: object) -> str:
    """Return a text without HTML tags and control characters, cut to 500 characters; "" if `value` is not a text."""
    text = re.sub(r"<[^>]*>", " ", value) if isinstance(value, str) else ""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())[:500]


def boards_of(done: PublishedImport) -> Iterator[tuple[str, str, int, str]]:
    """Yield a table row for each leaderboard: data set, norm, number of models, number of test images."""
    for (data, norm), count in done.boards.items():
        yield data, norm, count, str(IMAGES.get(data, "unknown"))

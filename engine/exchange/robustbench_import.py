"""Imports RobustBench's leaderboards, one JSON file per model, into a results folder as published numbers."""

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
    """Number of imported models by (data set, norm), and a message for each refused file."""

    boards: dict[tuple[str, str], int]
    refused: list[str]


def import_robustbench(path: str | Path, folder: str | Path) -> PublishedImport:
    """Import RobustBench's JSON files into a results folder as published numbers, without verifying them.

    The names of the file's folders determine norm and data set, as in RobustBench's repository. A file that names a
    different data set gets a note. Robust accuracy is RobustBench's column "best known": `external` if present,
    otherwise AutoAttack's. For corruptions, it is the mean over all corruptions.

    Args:
        path: JSON file, or a folder that contains such files at any depth (`model_info` in RobustBench's repository).
        folder: results folder, created if necessary.

    Raises:
        InvalidInput: If there is no such file below the path, or none can be read.
        Unavailable: If the path does not exist, or the folder cannot be written.
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
    """Read the file of one model.

    Raises:
        InvalidInput: If it is not a file of RobustBench.
    """
    try:
        content = json.loads(read_regular_file(file, _LARGEST).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"expected JSON of {SOURCE} in {file}, got invalid JSON ({str(error)[:80]})") from error
    norm = NORMS.get(file.resolve().parent.name)
    if norm is None:
        raise InvalidInput(f"expected {_PLACE}, whose folder is the norm, got {file}")
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
    """Convert a percentage to a proportion; NaN if missing."""
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
    """Parse a radius: "8/255", "0.5" or a number."""
    try:
        radius = parse_number(str(value), "eps")
    except InvalidInput as error:
        raise InvalidInput(f"expected eps as 8/255 or 0.5 in {file}, got {str(value)[:40]!r}") from error
    if not 0 < radius < math.inf:
        raise InvalidInput(f"expected eps as 8/255 or 0.5 in {file}, got {str(value)[:40]!r}")
    return radius


def _text(value: object) -> str:
    """Remove markup and control characters from a text."""
    text = re.sub(r"<[^>]*>", " ", value) if isinstance(value, str) else ""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())[:500]


def boards_of(done: PublishedImport) -> Iterator[tuple[str, str, int, str]]:
    """Yield a table row for each leaderboard: data set, norm, number of models, number of test images."""
    for (data, norm), count in done.boards.items():
        yield data, norm, count, str(IMAGES.get(data, "unknown"))

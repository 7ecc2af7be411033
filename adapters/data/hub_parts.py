"""Splits of a Hugging Face Hub data set, from the names of its files, and the choice of one."""

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from ...errors import InvalidInput

PREFIX = "hf:"
_TESTED = ("test", "validation", "val", "valid")  # default splits, in this order
_PIECE = re.compile(r"(?P<split>.+?)-\d{5}-of-\d{5}")
_WHOLE = "all"  # the split of files without a split name


def splits_of(files: Iterable[str]) -> dict[str, list[str]]:
    """Return the Parquet and Arrow files of every split, "CONFIG/SPLIT", in their order.

    Args:
        files: paths inside the data set; other files are ignored.
    """
    parts: dict[str, list[str]] = {}
    for file in sorted(files):
        path = PurePosixPath(file)
        hidden = any(piece.startswith((".", "cache-")) for piece in path.parts)
        if path.suffix in (".parquet", ".arrow") and not hidden:
            parts.setdefault(part_of(file), []).append(file)
    return parts


def part_of(file: str) -> str:
    """Return the split of a file from its path: "default/test" for "data/test-00000-of-00001.parquet".

    It also reads "CONFIG/SPLIT/0000.parquet" (files that the hub generates), "SPLIT/data-00000-of-00001.arrow"
    (`save_to_disk`) and "SPLIT.parquet".
    """
    *folders, last = PurePosixPath(file).with_suffix("").parts
    folders = [folder for folder in folders if folder != "data"]
    piece = _PIECE.fullmatch(last)
    split = piece["split"] if piece else last
    if split == "data" or split.isdecimal():
        split = folders.pop() if folders else _WHOLE
    return f"{'/'.join(folders) or 'default'}/{split}"


def select_split(parts: Sequence[str], part: str, name: str) -> str:
    """Return the named split of a data set, or the test split.

    Args:
        parts: splits of the data set, each "CONFIG/SPLIT".
        part: "SPLIT", "CONFIG/SPLIT" or "".
        name: name of the data, for errors.

    Raises:
        InvalidInput: if there is no such split, or the name is ambiguous.
    """
    split_of = {each: each.rpartition("/")[2] for each in parts}
    fitting = [each for each in parts if part in ("", each, split_of[each])]
    if not part:
        tested = next((split for split in _TESTED if split in split_of.values()), None)
        fitting = [each for each in fitting if tested in (None, split_of[each])]
    if len(fitting) > 1:
        fitting = [each for each in fitting if each.startswith("default/")] or fitting
    if len(fitting) != 1:
        known = ", ".join(each.removeprefix("default/") for each in parts)
        whole = name.removesuffix(f":{part}")
        got = part or "no name"
        raise InvalidInput(f"expected {whole}:PART with one of the parts {known}, got {got}")
    return fitting[0]

"""The parts of a data set of Hugging Face's hub by the names of its files, and which of them is meant."""

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from ...errors import InvalidInput

PREFIX = "hf:"
_TESTED = ("test", "validation", "val", "valid")  # splits that are taken where none is named, in this order
_PIECE = re.compile(r"(?P<split>.+?)-\d{5}-of-\d{5}")
_WHOLE = "all"  # the split of files that name none


def splits_of(files: Iterable[str]) -> dict[str, list[str]]:
    """The Parquet and Arrow files of every part, "CONFIG/SPLIT", in their order.

    Args:
        files: paths inside the data set; others than these are passed over.
    """
    parts: dict[str, list[str]] = {}
    for file in sorted(files):
        path = PurePosixPath(file)
        hidden = any(piece.startswith((".", "cache-")) for piece in path.parts)
        if path.suffix in (".parquet", ".arrow") and not hidden:
            parts.setdefault(part_of(file), []).append(file)
    return parts


def part_of(file: str) -> str:
    """The part that a file belongs to, by its place: "default/test" of "data/test-00000-of-00001.parquet".

    So it is of "CONFIG/SPLIT/0000.parquet" (the hub's own files), "SPLIT/data-00000-of-00001.arrow" (`save_to_disk`)
    and "SPLIT.parquet".
    """
    *folders, last = PurePosixPath(file).with_suffix("").parts
    folders = [folder for folder in folders if folder != "data"]
    piece = _PIECE.fullmatch(last)
    split = piece["split"] if piece else last
    if split == "data" or split.isdecimal():
        split = folders.pop() if folders else _WHOLE
    return f"{'/'.join(folders) or 'default'}/{split}"


def select_split(parts: Sequence[str], part: str, name: str) -> str:
    """The part of a data set that is meant: the one that is named, or the one for testing.

    Args:
        parts: of the data set, each "CONFIG/SPLIT".
        part: "SPLIT", "CONFIG/SPLIT" or "".
        name: of the data, for errors.

    Raises:
        InvalidInput: if it is none of them, or could be several.
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
        got = part or "none of them named"
        raise InvalidInput(f"expected {whole}:PART with one of the parts {known}, got {got}")
    return fitting[0]

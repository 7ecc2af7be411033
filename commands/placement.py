"""`davylamp rank NEW --against BASELINE`: newcomers among the subjects of a baseline."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import DavylampError, as_invalid_input

_OPTIONS = {"budget": "epsilon", "scoring": "method", "model": "item-model", "method": "fit"}  # by keyword in Python
_OPTIONS |= {
    name: name
    for name in ("subjects", "norm", "knowledge", "per", "unequal", "original", "examples", "library", "items")
}
_OPTIONS |= {name: name for name in ("sensitivity", "stability", "propagate", "against", "adaptive", "width", "batch")}
_KEYWORD = re.compile(rf"`({'|'.join(_OPTIONS)})`|\b({'|'.join(_OPTIONS)})=('[\w-]*'|[A-Z]+)")


def in_options(lines: Iterable[str]) -> tuple[str, ...]:
    """What rankings say in Python's words, in those of the command: "--epsilon" for "`budget`"."""

    def option(keyword: re.Match[str]) -> str:
        value = (keyword[3] or "").strip("'")
        return f"--{_OPTIONS[keyword[1] or keyword[2]]} {value}".rstrip()

    return tuple(_KEYWORD.sub(option, line) for line in lines)


@contextmanager
def refused_in_options() -> Iterator[None]:
    """The rules of rankings stand in Python; what breaks one is named here by the option that it was typed for."""
    try:
        with as_invalid_input():
            yield
    except DavylampError as error:
        error.args = in_options(map(str, error.args))
        raise


def reworded(shown: Any) -> Any:
    """A `Ranked` or `Placed` whose notes name the command's options."""
    if hasattr(shown, "placements"):
        placements = tuple(replace(each, notes=in_options(each.notes)) for each in shown.placements)
        return replace(shown, placements=placements, notes=in_options(shown.notes))
    ranking = replace(shown.ranking, notes=in_options(shown.ranking.notes))
    return replace(shown, ranking=ranking, notes=in_options(shown.notes))


def place_folder(folder: Path, against: str, chosen: Any, options: dict[str, Any]) -> Any:
    """Per image: every subject that the baseline lacks, among those of the baseline.

    Args:
        folder: of the new subjects.
        against: the folder of the baseline.
        chosen: which results, `RankedResults`.
        options: of `rankings.place_images`.
    """
    from ..api.rankings import place_images
    from ..report.text.ranking import Placed

    placements, notes = place_images(folder, against, chosen, **options)
    return Placed(f"{folder} against {against}", placements, notes)

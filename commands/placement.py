"""What `davylamp rank NEW --against BASELINE` shows: newcomers among the subjects of a baseline."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Placed:
    """Placements of newcomers, with what they are of and what a reader should know."""

    title: str
    placements: tuple[Any, ...]
    notes: tuple[str, ...] = ()

    @property
    def frame(self) -> Any:
        """One line for each newcomer and each subject that it is placed among."""
        import pandas as pd

        return pd.concat([each.to_frame() for each in self.placements], ignore_index=True)

    @property
    def lines(self) -> tuple[str, ...]:
        """What a reader should know first."""
        return in_options(dict.fromkeys((*self.notes, *(note for each in self.placements for note in each.notes))))

    @property
    def document(self) -> dict[str, Any]:
        """Everything as one JSON document."""
        placements = [each.to_dict() for each in self.placements]
        return {"title": self.title, "notes": list(in_options(self.notes)), "placements": placements}

    def print(self, _: int, console: Any) -> None:
        """For each newcomer its notes, and a table in which it stands among the subjects of the baseline."""
        for note in in_options(self.notes):
            console.print(note, highlight=False, markup=False)
        for placed in self.placements:
            _print_one(self.title, placed, console)


def place_folder(folder: Path, against: str, chosen: Any, options: dict[str, Any]) -> Placed:
    """Per image: every subject that the baseline lacks, among those of the baseline.

    Args:
        folder: of the new subjects.
        against: the folder of the baseline.
        chosen: which results, `RankedResults`.
        options: of `rankings.place_images`.
    """
    from ..api.rankings import place_images

    placements, notes = place_images(folder, against, chosen, **options)
    return Placed(f"{folder} against {against}", placements, notes)


def _print_one(title: str, placed: Any, console: Any) -> None:
    from ..report.text.console import print_table

    for note in in_options(placed.notes):
        console.print(note, highlight=False, markup=False)
    name = placed.ranking.score_name
    columns = ("rank", "subject", name, "95 %", "ranks", "P(new above)", "mean", "ranks by bootstrap")
    rows = [
        (
            int(row["rank"]),
            row["subject"],
            f"{row['score']:.2f}",
            f"{row['low']:.2f} to {row['high']:.2f}",
            f"{row['rank_low']} - {row['rank_high']}",
            "new" if row["subject"] == placed.newcomer else f"{row['beats']:.2f}",
            f"{row['mean']:.3f}",
            f"{row['bootstrap_low']} - {row['bootstrap_high']}",
        )
        for row in placed.to_frame().to_dict("records")
    ]
    print_table(f"{placed.newcomer} of {title}: {placed.ranking.method}", columns, rows, console, keys=2)
    low, high = placed.rank_interval
    ranks = f"rank {low}" if low == high else f"ranks {low} to {high}"
    line = f"{placed.newcomer}: {ranks} of {len(rows)} (95 %); means are over what it answered"
    console.print(line, highlight=False, markup=False)
    if placed.choice is not None:
        for line in _choice_lines(placed):
            console.print(line, highlight=False, markup=False)


def _choice_lines(placed: Any) -> list[str]:
    """How many images would have been enough, and which would tell most next if they were not."""
    choice, last = placed.choice, placed.choice.steps[-1]
    ranks = f"ranks {last.rank_low} to {last.rank_high}, ability {last.low:.2f} to {last.high:.2f}"
    every = len(placed.ranking.subjects)
    if choice.width >= every - 1:
        return [f"no number of images to choose: all {placed.images} leave every rank open"]
    asked = f"an interval of {choice.width + 1} rank{'s' * (choice.width > 0)} or fewer"
    if choice.enough:
        return [f"{last.images} of {placed.images} images, chosen one batch after the other, give {asked}: {ranks}"]
    lines = [f"all {placed.images} images do not give {asked}: {ranks}"]
    if choice.further:
        lines.append(f"of the images that it lacks these would tell most: {', '.join(choice.further)}")
    return lines

"""What `davylamp rank NEW --against BASELINE` shows: newcomers among the subjects of a baseline."""

from dataclasses import dataclass
from typing import Any


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
        return tuple(dict.fromkeys((*self.notes, *(note for each in self.placements for note in each.notes))))

    @property
    def document(self) -> dict[str, Any]:
        """Everything as one JSON document."""
        placements = [each.to_dict() for each in self.placements]
        return {"title": self.title, "notes": list(self.notes), "placements": placements}

    def print(self, _: int) -> None:
        """For each newcomer its notes, and a table in which it stands among the subjects of the baseline."""
        from ..report.text.console import make_console

        console = make_console()
        for note in self.notes:
            console.print(note, highlight=False, markup=False)
        for placed in self.placements:
            _print_one(self.title, placed, console)


def _print_one(title: str, placed: Any, console: Any) -> None:
    from ..report.text.console import print_table

    for note in placed.notes:
        console.print(note, highlight=False, markup=False)
    columns = ("rank", "subject", "score", "95 %", "ranks", "P(new above)", "mean", "ranks by bootstrap")
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
    print_table(f"{placed.newcomer} of {title}: {placed.ranking.method}", columns, rows, console)
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

"""How far a run is: whether a process is at work on it, and how long the rest takes at the pace so far."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...engine.cell import Cell
from ...engine.store.store import Record
from ..parts.blocks import Said

QUIET = 60.0  # seconds without a result after which a run that holds no piece of work counts as stopped


class Spent(NamedTuple):
    """What images cost: how many, forward and backward passes of all of them, and seconds with all that is measured."""

    images: int = 0
    passes: float = 0.0
    seconds: float = 0.0

    def plus(self, other: "Spent") -> "Spent":
        """Both together."""
        return Spent(self.images + other.images, self.passes + other.passes, self.seconds + other.seconds)


class Left(NamedTuple):
    """Seconds that the rest takes; `unknown` cells of attacks that have no result yet are not in it."""

    seconds: float
    cells: int
    unknown: int


def read_spent(record: Record) -> Spent:
    """What a record of a cell, or of a part of one, says; nothing if it failed."""
    table = record.table
    if record.failed or not {"forwards", "backwards"} <= set(table.column_names):
        return Spent()
    passes = sum(float(np.nansum(table[name].to_numpy().astype(float))) for name in ("forwards", "backwards"))
    return Spent(table.num_rows, passes, float(record.meta.get("seconds", 0.0)))


def estimate_left(known: Iterable[tuple[Cell, Spent]], missing: Sequence[tuple[Cell, int]], workers: int) -> Left:
    """The time that is left, from measured seconds per pass of each model and passes per image of each attack.

    Args:
        known: what is there, cell by cell or in parts.
        missing: cells with the number of their images that have no result.
        workers: pieces of work that are in hand at once; less than 1 counts as 1.
    """
    of_model: Mapping[str, Spent] = defaultdict(Spent)
    of_attack: Mapping[tuple[Any, ...], Spent] = defaultdict(Spent)
    every = Spent()
    for cell, spent in known:
        of_model[cell.subject.key] = of_model[cell.subject.key].plus(spent)  # type: ignore[index]
        of_attack[_attack_of(cell)] = of_attack[_attack_of(cell)].plus(spent)  # type: ignore[index]
        every = every.plus(spent)
    seconds, cells, unknown = 0.0, 0, 0
    for cell, images in missing:
        attack, model = of_attack[_attack_of(cell)], of_model[cell.subject.key]
        pace = model if model.passes else every
        if not attack.images or not pace.passes:
            unknown += 1
            continue
        cells += 1
        seconds += images * attack.passes / attack.images * pace.seconds / pace.passes
    return Left(seconds / max(1, workers), cells, unknown)


def judge_pulse(claimed: int, unfinished: int, newest: float | None, *, now: float | None = None) -> Said:
    """Whether somebody is at work.

    Args:
        claimed: pieces of work that a process of this machine holds.
        unfinished: cells that were asked for and have no result.
        newest: when the last result was written, seconds since the epoch; None: there is none.
        now: the time; None: it is asked for.
    """
    age = None if newest is None else max(0.0, (time.time() if now is None else now) - newest)
    last = "no result so far" if age is None else f"last result {duration_text(age)} ago"
    if claimed:
        return Said(f"{last}.", "pass", lead=f"Running: {claimed} work unit{'' if claimed == 1 else 's'} in progress;")
    if not unfinished:
        return Said(f"{last}.", "pass", lead="Finished:")
    if age is not None and age < QUIET:
        return Said(
            f"{last}, but no process holds a work unit at this moment.", "unknown", lead="Between two work units:"
        )
    again = "The same `davylamp evaluate` resumes it; a run on another machine is not visible from here."
    return Said(f"no process is at work on the {unfinished} unfinished cells; {last}. {again}", "fail", lead="Stopped:")


def say_left(left: Left) -> str:
    """The time left in words."""
    if not left.cells:
        return "Time left: unknown until an attack has its first result" if left.unknown else ""
    text = f"About {duration_text(left.seconds)} left, by measured seconds per pass"
    return f"{text}; without {left.unknown} cells of attacks that have no result yet" if left.unknown else text


def duration_text(seconds: float) -> str:
    """A duration as a reader says it: "40 s", "12 min", "3 h 20 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _attack_of(cell: Cell) -> tuple[Any, ...]:
    """What decides how many passes an image takes."""
    settings = (*sorted((name, str(value)) for name, value in cell.parameters.items()), str(cell.grid), cell.eot)
    return (cell.attack, cell.threat_model.norm, cell.threat_model.targeted, *settings)

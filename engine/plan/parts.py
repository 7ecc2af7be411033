"""An evaluation in parts, for job arrays: each part knows its pieces from the plan alone, without asking the others."""

import heapq
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ...errors import InvalidInput
from ..cell import Cell
from ..expected_passes import passes_of_cell

if TYPE_CHECKING:
    from .make import Plan

MOST_PARTS = 100_000  # as many as a scheduler has jobs, and more


class Part(NamedTuple):
    """One of `of` parts of an evaluation, counted from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def read_part(text: str) -> Part:
    """The part that a text names: "3/64".

    Raises:
        InvalidInput: if it names none; of a count from 0 with what to tell the scheduler.
    """
    number, _, of = text.strip().partition("/")
    if not (number.isdecimal() and of.isdecimal() and len(of) < 10):
        advice = "; is the variable of the scheduler set?" if text.strip().startswith("/") else ""
        raise InvalidInput(f"expected a part as K/N with K from 1 to N (3/64), got {text!r}{advice}")
    part = Part(int(number[:10]), int(of))
    if not 1 <= part.of <= MOST_PARTS:
        raise InvalidInput(f"expected 1 to {MOST_PARTS} parts, got {text!r}")
    if not 1 <= part.number <= part.of:
        raise InvalidInput(
            f"expected a part from 1 to {part.of}, got {text!r}: parts count from 1 (Slurm: --array=1-{part.of})"
        )
    return part


def count_processes(workers: int, part: Part | None) -> int:
    """How many processes ask servers at once, each at its share of the rate, where every part has as many workers."""
    return workers if part is None else workers * part.of


def deal_pieces(cells: Iterable[Cell], of: int) -> dict[str, tuple[int, ...]]:
    """The part that each shard of each cell belongs to.

    The dearest pieces are dealt first, each to the part that has least to do so far. The cost of a piece is its images
    times the passes that one is expected to take (`expected_passes`). Equal pieces go round in the order of the plan,
    so every part gets of every model: how dear a model is need not be known.

    Args:
        cells: of a plan, in its order.
        of: number of parts.

    Returns:
        By key of the cell the number of the part, from 1, of each of its shards.
    """
    pieces = [
        (passes_of_cell(cell) * len(cell.span(shard)), cell.key, shard)
        for cell in cells
        for shard in range(cell.shards)
    ]
    pieces.sort(key=lambda piece: -piece[0])  # stable: the same on every machine
    loads = [(0.0, number) for number in range(1, of + 1)]
    parts: dict[str, dict[int, int]] = {}
    for cost, key, shard in pieces:
        load, number = loads[0]
        heapq.heapreplace(loads, (load + cost, number))
        parts.setdefault(key, {})[shard] = number
    return {key: tuple(number for _, number in sorted(of_cell.items())) for key, of_cell in parts.items()}


def take_part(plan: "Plan", part: Part) -> "Plan":
    """The plan of one part: the same cells, of which only its pieces are run.

    Every process that makes the same plan knows the same parts. Records do not say which part made them.

    Args:
        plan: of the whole evaluation.
        part: which of how many.
    """
    return replace(plan, part=part, parts=deal_pieces(plan.cells, part.of))

"""The verdict on every pair of implementations in a results folder: what the page, `check` and `compare` all print.

A comparison is the implementations of one attack on one model and its images, under one threat model, with the same
parameters. Its pairs are one family: their p-values are corrected for their number, and for no other.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from ...adapters.catalogue.lookup import accepts
from ...errors import AttackFailed
from ..cell import Cell
from ..statistics.verdict import SAME_IMAGE, Judgement, judge, not_compared
from .outcomes import Outcome, Outcomes, side_of

_NUMBERS = ("l0", "l1", "l2", "linf")  # of older records, which have no projection
_CRASHED = AttackFailed.__name__  # how the reason of a cell begins whose library is to blame


class CellResult(NamedTuple):
    """An implementation in a comparison: its cell, with an outcome or the reason why there is none."""

    cell: Cell
    outcome: Outcome | None
    reason: str = ""


class PairVerdict(NamedTuple):
    """Two implementations of one attack on one model, image by image; `agreeing`: share of the pairs that do.

    `unshared` are parameters that only one of the two has.
    """

    a: CellResult
    b: CellResult
    judgement: Judgement
    agreeing: float
    unshared: tuple[str, ...]


def verdicts_of(outcomes: Outcomes) -> list[PairVerdict]:
    """Every pair of every comparison of a folder."""
    return [verdict for sides in comparisons_of(outcomes) for verdict in judge_comparison(sides)]


def judge_comparison(sides: Sequence[CellResult]) -> list[PairVerdict]:
    """The verdict on every pair of a comparison, corrected for the number of those that both have a result."""
    pairs = count_tested(side.outcome is not None for side in sides)
    return [_judge(a, b, pairs) for a, b in combinations(sides, 2)]


def count_tested(have_results: Any) -> int:
    """How many pairs of a comparison are tested: those of two implementations that both have a result."""
    count = sum(have_results)
    return count * (count - 1) // 2


def comparisons_of(outcomes: Outcomes) -> Iterator[list[CellResult]]:
    """The comparisons of a folder, of two implementations or more; of several like cells the latest is taken.

    Two cells are comparable if every parameter that both implementations have is the same in both.
    """
    sides = [CellResult(each.cell, each) for each in outcomes.done]
    sides += [CellResult(cell, None, reason) for cell, reason in outcomes.failed]
    alike: dict[tuple[Any, ...], list[CellResult]] = {}
    for side in sides:
        alike.setdefault(_conditions(side.cell), []).append(side)
    for group in alike.values():
        latest = sorted(group, key=_written, reverse=True)
        bundles: list[list[CellResult]] = []
        for side in sorted(latest, key=lambda each: -len(each.cell.parameters)):
            for bundle in bundles:
                others = [each.cell for each in bundle]
                if all(each.attack != side.cell.attack and _are_alike(each, side.cell) for each in others):
                    bundle.append(side)
                    break
            else:
                bundles.append([side])
        places = {id(side): place for place, side in enumerate(group)}
        yield from (sorted(each, key=lambda side: places[id(side)]) for each in bundles if len(each) > 1)


def same_changes(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> np.ndarray:
    """Images that two implementations changed alike, up to float32 rounding, (n,) bool: see `RULE`.

    Args:
        a: columns "success", "adv_predicted", "linf" and "projection"; all distances where there is no projection.
        b: the same of the other.
    """
    known = "projection" in a and "projection" in b
    numbers = ("linf", "projection") if known else _NUMBERS
    relative = 0.0 if known else SAME_IMAGE
    pairs = [[each[name].astype(float) for each in (a, b)] for name in ("success", "adv_predicted")]
    same = [one == two for one, two in pairs]
    pairs = [[each[name].astype(float) for each in (a, b)] for name in numbers]
    same += [np.isclose(one, two, relative, 2 * SAME_IMAGE, equal_nan=True) for one, two in pairs]
    return np.logical_and.reduce(same)


def unshared_parameters(a: Cell, b: Cell) -> tuple[str, ...]:
    """Parameters that only one of two comparable cells has, as the other implementation has none such."""
    return tuple(sorted(set(a.parameters) ^ set(b.parameters)))


def _judge(a: CellResult, b: CellResult, pairs: int) -> PairVerdict:
    unshared = unshared_parameters(a.cell, b.cell)
    if a.outcome is None or b.outcome is None:
        failed = [side for side in (a, b) if side.outcome is None]
        broken = " and ".join(side.cell.attack for side in failed if side.reason.startswith(_CRASHED))
        why = "; ".join(f"{side.cell.attack}: {side.reason}" for side in failed)
        return PairVerdict(a, b, not_compared(broken, why), math.nan, unshared)
    first, second = a.outcome.columns, b.outcome.columns
    one, two = side_of(a.outcome), side_of(b.outcome)
    moved = (first["linf"] > 0) | (second["linf"] > 0)
    minimum = all(is_minimum_norm(side.cell) for side in (a, b))
    judgement = judge(one, two, minimum_norm=minimum, same=same_changes(first, second), moved=moved, pairs=pairs)
    paired = one.attacked & two.attacked & ~one.violated & ~two.violated
    agreeing = float((one.success == two.success)[paired].mean()) if paired.any() else math.nan
    return PairVerdict(a, b, judgement, agreeing, unshared)


def is_minimum_norm(cell: Cell) -> bool:
    """Whether a cell looks for the smallest change, so that distances count in verdicts."""
    return cell.search.attack_kind(cell.row) == "minimum-norm"


def _conditions(cell: Cell) -> tuple[Any, ...]:
    """What all cells of a comparison share beside their parameters."""
    rules = cell.planned.threat_model
    return cell.subject.key, cell.attack_title, cell.surrogate, rules, cell.target, cell.seed, cell.pixels


def _are_alike(a: Cell, b: Cell) -> bool:
    """Whether every parameter that both implementations have is the same in two cells."""
    for name in {*a.parameters, *b.parameters}:
        if name in a.parameters and name in b.parameters:
            if a.parameters[name] != b.parameters[name]:
                return False
        elif accepts((b if name in a.parameters else a).row, name):
            return False
    return True


def _written(side: CellResult) -> str:
    return "" if side.outcome is None else str(side.outcome.meta.get("written", ""))

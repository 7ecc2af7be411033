"""The cells of a model in the order that was asked for; those of one threat model as one where a success ends it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...adapters.words import threat_text
from ...errors import InvalidInput
from ..cell import Cell
from ..expected_passes import passes_of_cell
from ..searches.kinds import combinations
from ..searches.reach import warn_repeated_draws, warn_unreachable
from ..searches.worst_case import WorstCase
from .config import Config

# Of a cell: what the attacks of one may differ in.
_APART: Mapping[str, Any] = {"attack": "", "parameters": {}, "grid": {}, "version": "", "implementation": None}


def arrange(config: Config, cells: Iterable[tuple[int, Cell]]) -> list[tuple[int, Cell]]:
    """The cells of a model as `order` and `stop_when_fooled` of the config have them.

    Args:
        config: what is asked for.
        cells: each with the place of its attack in the config.

    Returns:
        The same cells, or, where a success ends it, for each threat model (and target, seed, surrogate) one cell of
        all its attacks, once for each place.
    """
    ordered = list(cells)
    if config.order == "cheap-first":
        ordered.sort(key=lambda each: passes_of_cell(each[1]))  # stable: equal ones stay as they were given
    if not config.stop_when_fooled:
        return ordered
    return [(place, whole) for group in _grouped(ordered, config) for whole in [_join(group)] for place, _ in group]


def check_stopping(config: Config, cells: Iterable[tuple[int, Cell]]) -> None:
    """Refuse what cannot stop at a success, before any model is loaded.

    Raises:
        InvalidInput: if an attack looks for the smallest change, or two runs of one attack would be one cell, or no two
            attacks are under one threat model.
        Unsupported: if an attack learns from all images, or is known as an object only.
    """
    if not config.stop_when_fooled:
        return
    groups = _grouped(cells, config)
    for group in groups:
        for _, cell in group:
            WorstCase.check_member(cell.search, cell.row, cell.threat_model)
        names = [cell.attack for _, cell in group]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise InvalidInput(
                f"expected each attack once under {threat_text(group[0][1].threat_model)} with --stop-when-fooled, got "
                f"{twice} twice"
            )
    if all(len(group) < 2 for group in groups):
        under = "; ".join(f"{cell.attack} under {threat_text(cell.threat_model)}" for ((_, cell), *_) in groups[:4])
        raise InvalidInput(
            f"expected several attacks under one threat model with --stop-when-fooled, got {under}: give --norm and "
            "--epsilon, or more attacks"
        )


def _grouped(cells: Iterable[tuple[int, Cell]], config: Config) -> list[list[tuple[int, Cell]]]:
    """The cells that differ in nothing but their attack, in order."""
    groups: dict[Any, list[tuple[int, Cell]]] = {}
    for place, cell in cells:
        blank = replace(cell, **_APART)
        groups.setdefault((blank.key, config.attacks[place].surrogate), []).append((place, cell))
    return list(groups.values())


def _join(group: Sequence[tuple[int, Cell]]) -> Cell:
    """The cell of all attacks of a group; of one alone its own."""
    cells = [cell for _, cell in group]
    if len(cells) == 1:
        return cells[0]
    search = WorstCase(",".join(cell.attack for cell in cells))
    return replace(
        cells[0],
        attack=search.name,
        parameters={cell.attack: dict(cell.parameters) for cell in cells},
        version=search.version(cells[0].row, [cell.version for cell in cells]),
        implementation=None,
    )


def list_unreachable(cells: Iterable[Cell]) -> list[str]:
    """A line for each row of a plan that cannot reach its ball, before anything is run."""
    lines = (
        warn_unreachable(cell.row, cell.threat_model, {**cell.parameters, **values})
        for cell in _members(cells)
        for values in combinations(cell.grid)
    )
    return list(dict.fromkeys(line for line in lines if line))


def list_repeated_draws(cells: Iterable[Cell]) -> list[str]:
    """A line for each row of a plan whose draws are averaged twice, before anything is run."""
    lines = (
        warn_repeated_draws(cell.row, cell.threat_model.norm, cell.parameters, cell.eot) for cell in _members(cells)
    )
    return list(dict.fromkeys(line for line in lines if line))


def _members(cells: Iterable[Cell]) -> Iterator[Cell]:
    return (member for cell in cells for member in cell.members)

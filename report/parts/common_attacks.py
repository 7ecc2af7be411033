"""Which attacks have a result on every model that is compared: only under those can models be held side by side."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...engine.cell import Cell
from ...engine.store.outcomes import Outcomes
from ...engine.tables.groups import Group


class Common(NamedTuple):
    """Rows of models with nothing left in them but what all of the models met.

    `groups` is empty where they met nothing in common; `attacks` is how many settings that is. `left` says of every
    other attack that was run, or is to be run, on any of them which models lack a result, by its name; `met` what each
    of the models met.
    """

    groups: list[Group]
    attacks: int
    left: dict[str, list[str]]
    met: dict[str, list[str]]


def common_attacks(groups: Sequence[Group], outcomes: Outcomes) -> Common:
    """Leave in rows of one threat model the attacks that have a result in all of them, as `davylamp rank` does.

    Args:
        groups: one for each model, each with a finished cell.
        outcomes: of the folder; cells without a result count as attacks that were run.
    """
    names = [group.labels["model"] for group in groups]
    done = [{attempt_of(each.cell) for part in group.parts for each in part} for group in groups]
    shared = set.intersection(*done)
    unfinished = [cell for cell, _ in outcomes.failed] + [*outcomes.running, *outcomes.waiting]
    asked = {attempt_of(cell): None for cell in unfinished if any(_belongs(cell, group) for group in groups)}
    asked |= {attempt_of(each.cell): None for group in groups for part in group.parts for each in part}
    left: dict[str, list[str]] = {}
    for attempt in asked:
        for name, attempts in zip(names, done, strict=True):
            if attempt not in attempts:
                otherwise = any(each[0] == attempt[0] for each in attempts)
                what = f"{attempt[0]} with other settings or another seed" if otherwise else attempt[0]
                left.setdefault(what, [])
                left[what] += [] if name in left[what] else [name]
    met = {
        name: list(dict.fromkeys(part[0].cell.title for part in group.parts))
        for name, group in zip(names, groups, strict=True)
    }
    settings = {attempt[:-1] for attempt in shared}
    return Common([_restrict(group, shared) for group in groups] if shared else [], len(settings), left, met)


def attempt_of(cell: Cell) -> tuple[Any, ...]:
    """What two models must share to have met the same attack, the seed last; the threat model is that of the row."""
    parameters = json.dumps(
        [dict(cell.parameters), {name: list(each) for name, each in cell.grid.items()}], sort_keys=True
    )
    return cell.title, cell.target, cell.pixels, parameters, cell.seed


def _belongs(cell: Cell, group: Group) -> bool:
    """Whether a cell without a result would stand in this row."""
    first = group.parts[0][0].cell
    alike = (cell.target, cell.pixels, cell.threat_model) == (first.target, first.pixels, first.threat_model)
    return alike and cell.subject.key == first.subject.key


def _restrict(group: Group, shared: set[tuple[Any, ...]]) -> Group:
    parts = [[each for each in part if attempt_of(each.cell) in shared] for part in group.parts]
    return group._replace(parts=[part for part in parts if part])

"""The config that makes the same cells again, from the cells themselves."""

import json
from collections.abc import Iterable

from .cell import Cell
from .config import AttackChoice, Config, Transfer


def configs_of(cells: Iterable[Cell], *, transfer: Transfer = "no") -> tuple[Config, ...]:
    """One config for each data set and set of shared settings; `make_plan` of it has these cells, key by key.

    A config is every model with every attack and seed: where a folder holds less than that, it has cells more.

    Args:
        cells: of a results folder.
        transfer: what the folder was evaluated with.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        own = cell.subject
        shared = [own.data, own.data_digest, own.images, cell.pixels, cell.measures, cell.shard_size]
        groups.setdefault(json.dumps(shared), []).append(cell)
    return tuple(_config(group, transfer) for group in groups.values())


def _config(cells: list[Cell], transfer: Transfer) -> Config:
    first = cells[0]
    choices = {json.dumps(_plain(cell), sort_keys=True): _choice(cell) for cell in cells}
    return Config(
        models=tuple(dict.fromkeys(cell.subject.model for cell in cells)),
        attacks=tuple(choices.values()),
        data=first.subject.data,
        limit=first.subject.images,
        seeds=tuple(sorted({cell.seed for cell in cells})),
        pixels=first.pixels,
        transfer=transfer,
        measures=first.measures,
        shard_size=first.shard_size,
    )


def _choice(cell: Cell) -> AttackChoice:
    """The attack with every parameter that it ran with: nothing is left to be matched."""
    own = cell.threat_model
    return AttackChoice(cell.attack, own.norm, own.epsilon, cell.target, cell.parameters, cell.grid, defaults=True)


def _plain(cell: Cell) -> list[object]:
    own = cell.threat_model
    grid = {name: list(values) for name, values in cell.grid.items()}
    return [cell.attack, own.norm, own.epsilon, cell.target, dict(cell.parameters), grid]

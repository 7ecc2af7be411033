"""What the attacks of a worst case have done, as its record has it: each on the images that those before it left."""

from collections.abc import Mapping

import numpy as np

from ..cell import Cell


def worst_case_line(cell: Cell, columns: Mapping[str, np.ndarray]) -> str:
    """How many of the images that were left to it each attack of a worst case fooled, in a line; "" for another cell.

    Args:
        cell: finished.
        columns: of its record, by name, shape (n,).
    """
    if cell.search.kind != "worst-case" or not {"winner", "tried"} <= columns.keys():
        return ""
    winner, tried, parts = columns["winner"], columns["tried"], []
    for place, member in enumerate(cell.members):
        left = int((tried > place).sum())
        parts.append(f"{member.attack} fooled {int((winner == place).sum())} of {left}{' left' if place else ''}")
    spared = int((len(cell.members) - tried[winner >= 0]).sum())
    return f"{cell.title} on {cell.subject.name}: {', '.join(parts)}; {spared} attacks on fooled images not made"

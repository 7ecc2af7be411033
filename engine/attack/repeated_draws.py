"""Attacks that average a random model's answers by themselves: what EOT averages is then averaged again."""

from collections.abc import Iterable, Mapping
from typing import Any

from ...adapters import Implementation
from ...adapters.catalogue.lookup import library_defaults
from ...errors import MissingLibrary
from ..cell import Cell

_ANSWERS = "eot_iter"  # what libraries call the answers at one point whose gradients they average


def warn_repeated_draws(row: Implementation, norm: str, parameters: Mapping[str, Any], eot: int) -> str | None:
    """A line for a row that averages answers at one point by itself, if each of them is already a mean; else None.

    Args:
        row: of any attack.
        norm: of the threat model.
        parameters: that it gets; what is not given is the library's default.
        eot: answers of the random model whose mean it is shown.
    """
    if eot < 2 or row.params.get("samples") != _ANSWERS or norm not in row.classes:
        return None
    try:
        samples = {**library_defaults(row, norm), **parameters}.get("samples")
    except (MissingLibrary, KeyError):
        return None
    if not isinstance(samples, int) or samples < 2:
        return None
    return (
        f"{row.name} averages {samples} answers by itself (samples): with --eot {eot} each of its gradients costs "
        f"{samples * eot} draws; --param samples=1 leaves {eot}, --eot 1 leaves {samples}"
    )


def list_repeated_draws(cells: Iterable[Cell]) -> list[str]:
    """A line for each row of a plan whose draws are averaged twice, before anything is run.

    Args:
        cells: of a plan.
    """
    each = (member for cell in cells for member in cell.members)
    lines = (warn_repeated_draws(cell.row, cell.threat_model.norm, cell.parameters, cell.eot) for cell in each)
    return list(dict.fromkeys(line for line in lines if line))

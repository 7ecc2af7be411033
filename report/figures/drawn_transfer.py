"""Figure of transfer between models: rate at which examples that fool their source model fool each target model."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...adapters.display_text import format_radius
from ...engine.tables.transfer_table import TransferTable
from ...errors import Unsupported

_CELL, _BESIDE = 0.3, 0.62  # inches: preferred side of a cell, space above and below
_SMALLEST, _LARGEST = 0.12, 0.42
_NUMBERED = 12  # models up to which every cell has its number
_LIGHT = 0.55  # rate from which the number in a cell is white


def draw_transfer(make: type, width: float, table: TransferTable) -> Any:
    """Draw a matrix of transfer rates for each attack. Rows are source models, and numbered columns are target models.

    Args:
        make: Matplotlib's `Figure`.
        width: width of the figure, inches.
        table: table from the result of `build_transfer`.

    Raises:
        Unsupported: If no attack has a rate.
    """
    models = table.models
    drawn = [place for place, rates in enumerate(table.rates) if any(not math.isnan(e.value) for r in rates for e in r)]
    if not drawn:
        raise Unsupported("no transfer rates: no example fools its source model")
    names = 0.062 * (max(map(len, models)) + 3) + 0.3
    columns = min(len(drawn), max(1, int((width - names) / (_CELL * len(models) + 0.15))))
    rows = -(-len(drawn) // columns)
    side = max(_SMALLEST, min(_LARGEST, ((width - names) / columns - 0.15) / len(models)))
    height = rows * (side * len(models) + _BESIDE)
    figure = make(figsize=(width, height), layout="constrained")
    image = None
    for place, attack in enumerate(drawn):
        labels = table.attacks[attack]
        axes = figure.add_subplot(rows, columns, place + 1)
        image = _draw_matrix(axes, table.rates[attack], models, first=place % columns == 0)
        radius = "" if math.isnan(labels["epsilon"]) else f" {format_radius(labels['norm'], labels['epsilon'])}"
        parts = (f"{labels['implementation']}{radius}", labels.get("setting", ""))
        axes.set_title(", ".join(filter(None, parts)), loc="left")
    if len(models) > _NUMBERED and image is not None:
        figure.colorbar(image, ax=figure.axes, label="transfer rate", shrink=0.6, pad=0.02)
    return figure


def _draw_matrix(axes: Any, rates: Sequence[Sequence[Any]], models: Sequence[str], *, first: bool) -> Any:
    shares = np.array([[entry.value for entry in line] for line in rates], dtype=float)
    image = axes.imshow(np.ma.masked_invalid(shares), cmap="Greys", vmin=0, vmax=1, aspect="equal")
    numbers = [str(place) for place in range(1, len(models) + 1)]
    axes.set_xticks(range(len(models)), numbers)
    named = [f"{name}  {number}" for name, number in zip(models, numbers, strict=True)]
    axes.set_yticks(range(len(models)), named if first else [""] * len(models))
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel("tested on")
    if first:
        axes.set_ylabel("made on")
    if len(models) > _NUMBERED:
        return image
    for row, line in enumerate(shares):
        for column, share in enumerate(line):
            text = "\u2013" if math.isnan(share) else f"{share:.2f}".removeprefix("0") if share < 1 else "1"
            colour = "white" if share >= _LIGHT else "black"
            axes.text(column, row, text, ha="center", va="center", fontsize=6.5, color=colour)
    return image

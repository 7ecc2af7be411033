"""Tables: rich on a terminal, aligned plain text in a pipe, CSV for a spreadsheet."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

_PLAIN_WIDTH = 10_000  # a pipe has no width: nothing is folded or cut


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], console: Console | None = None
) -> None:
    """Print a table: framed and coloured on a terminal, plain aligned columns in a pipe.

    Args:
        title: a line above it; empty: none.
        columns: headings.
        rows: cells, already formatted or plain values.
        console: where to; None: standard output.
    """
    console = console or make_console()
    if title:
        console.print(f"\n{title}" if console.is_terminal else title, style="bold", highlight=False, markup=False)
    table = Table(box=SIMPLE_HEAD if console.is_terminal else None, pad_edge=False, header_style="bold")
    lines = [[format_cell(cell) for cell in row] for row in rows]
    for place, column in enumerate(columns):
        numeric = all(_looks_numeric(line[place]) for line in lines)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for line in lines:
        table.add_row(*line)
    console.print(table, markup=False, highlight=False)


def make_console(*, stderr: bool = False) -> Console:
    """A console of the terminal's width; in a pipe, one that neither folds nor colours."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=_PLAIN_WIDTH, no_color=True)


def format_cell(value: Any) -> str:
    """A cell as text: three significant digits, "-" for what is undefined, lists joined."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={format_cell(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(format_cell(item) for item in value)
    return str(value)


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """The table as CSV text, numbers in full precision, undefined cells empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(
            ["" if cell is None or (isinstance(cell, float) and math.isnan(cell)) else cell for cell in row]
        )
    return text.getvalue()


def _looks_numeric(text: str) -> bool:
    return text == "-" or text[:1].isdigit() or (text[:1] in "-<" and text[1:2].isdigit())

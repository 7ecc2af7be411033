"""Tables: rich on a terminal, aligned plain text in a pipe, CSV for a spreadsheet."""

import csv
import io
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

_PLAIN_WIDTH = 10_000  # a pipe has no width: nothing is folded or cut
_FORMULA = tuple("=+-@\t\r")  # what a spreadsheet takes for the beginning of a formula


class PlainConsole(Console):
    r"""A console on which a text is only a text: no markup, no emoji names, control characters shown as `\\x1b`."""

    def __init__(self, *, stderr: bool = False, **options: Any):
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """As `Console.print`; empty lines before a text stay, every other control character is shown."""
        super().print(*(_shown(each) if isinstance(each, str) else each for each in objects), **options)


def printable(text: str) -> str:
    r"""The text with what a terminal would obey, or show in another order, written as `\x1b`, `\n`, `\u202e`.

    Names of models, images and files, and reasons, come from other people's folders.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def print_error(text: str) -> None:
    """Print a line on standard error, whatever the text holds."""
    print(printable(" ".join(text.split())), file=sys.stderr)  # noqa: T201 - standard error is for people


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
        shown = printable(title)
        console.print(f"\n{shown}" if console.is_terminal else shown, style="bold", highlight=False, markup=False)
    table = Table(box=SIMPLE_HEAD if console.is_terminal else None, pad_edge=False, header_style="bold")
    lines = [[printable(format_cell(cell)) for cell in row] for row in rows]
    for place, column in enumerate(columns):
        numeric = all(_looks_numeric(line[place]) for line in lines)
        table.add_column(printable(column), justify="right" if numeric else "left", overflow="fold")
    for line in lines:
        table.add_row(*line)
    console.print(table, markup=False, highlight=False)


def make_console(*, stderr: bool = False) -> Console:
    """A console of the terminal's width; in a pipe, one that neither folds nor colours."""
    console = PlainConsole(stderr=stderr)
    return console if console.is_terminal else PlainConsole(stderr=stderr, width=_PLAIN_WIDTH, no_color=True)


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
    """The table as CSV text, numbers in full precision, undefined cells empty.

    A text that a spreadsheet would take for a formula gets a ' in front, and control characters are shown.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_csv_cell(column) for column in columns])
    for row in rows:
        writer.writerow([_csv_cell(cell) for cell in row])
    return text.getvalue()


def frame_csv(frame: Any) -> str:
    """A pandas table as `to_csv` has it."""
    return to_csv(list(frame.columns), frame.astype(object).to_numpy().tolist())


def _csv_cell(cell: Any) -> Any:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if not isinstance(cell, str):
        return cell
    lines = "\n".join("\t".join(map(printable, line.split("\t"))) for line in cell.split("\n"))
    return f"'{lines}" if cell.lstrip(" \n").startswith(_FORMULA) and not _is_number(cell) else lines


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _shown(text: str) -> str:
    rest = text.lstrip("\n")
    return text[: len(text) - len(rest)] + printable(rest)


def _looks_numeric(text: str) -> bool:
    return text == "-" or text[:1].isdigit() or (text[:1] in "-<" and text[1:2].isdigit())

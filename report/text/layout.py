"""How a table is laid out at a width: which columns stand, and texts broken at words only."""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Literal

from rich.cells import cell_len

GAP = 2  # blanks between two columns
_SHORT = 24  # characters of a text that is not broken while there is room
_HEADING = 9  # characters of a heading that is not broken
_INDENT = "  "

Rest = Literal["drop", "stack", "blocks"]
Rows = Sequence[Sequence[str]]


@dataclass(frozen=True)
class ColumnWidth:
    """A column: the least width at which no word of it is broken, that at which it looks good, and its whole width."""

    least: int
    good: int
    whole: int
    right: bool


def measure(column: str, cells: Sequence[str]) -> ColumnWidth:
    """How much room a column takes; numbers, with their intervals, are never broken, headings and texts at blanks."""
    whole = max(map(cell_len, cells), default=0)
    heading = cell_len(column) if cell_len(column) <= _HEADING else _longest_word(column)
    if all(map(looks_numeric, cells)):
        width = max(whole, heading)
        return ColumnWidth(width, width, max(width, cell_len(column)), right=True)
    least = max(heading, *map(_longest_word, cells))
    whole = max(whole, cell_len(column))
    return ColumnWidth(least, max(least, min(whole, _SHORT)), whole, right=False)


def choose_columns(measured: Sequence[ColumnWidth], width: int, order: Sequence[int], keys: int) -> list[int]:
    """The columns that fit, in their own order; [] if not even the first ones do.

    Args:
        measured: of every column.
        width: of the terminal.
        order: of the columns that are not keys, the one that matters most first.
        keys: how many columns, from the left, stand in any case.
    """
    chosen = list(range(min(keys, len(measured))))
    used = sum(measured[place].least + GAP for place in chosen)
    if used - GAP > width:
        return []
    for place in order:
        if place < keys:
            continue
        if used + measured[place].least > width:  # what matters less does not take the place of what matters more
            break
        chosen.append(place)
        used += measured[place].least + GAP
    return sorted(chosen)


def widths_of(measured: Sequence[ColumnWidth], width: int) -> list[int]:
    """The width of each column of a table that fits: first as looks good, then what is left to those that want more."""
    widths = [each.least for each in measured]
    left = width - sum(widths) - GAP * (len(widths) - 1)
    for wanted in ([each.good for each in measured], [each.whole for each in measured]):
        for place, most in enumerate(wanted):
            open_columns = sum(widths[other] < wanted[other] for other in range(place, len(widths)))
            more = min(most - widths[place], left // open_columns) if open_columns else 0
            if more > 0:
                widths[place] += more
                left -= more
    return widths


def lay_out(
    columns: Sequence[str], rows: Rows, measured: Sequence[ColumnWidth], widths: Sequence[int]
) -> tuple[list[str], list[str]]:
    """Heading and body of a table as lines, every text broken at words."""
    heading = _lines([at_words(text, width) for text, width in zip(columns, widths, strict=True)], measured, widths)
    body: list[str] = []
    for row in rows:
        cells = [at_words(text, width) for text, width in zip(row, widths, strict=True)]
        body += _lines(cells, measured, widths)
    return heading, body


def lay_out_blocks(columns: Sequence[str], rows: Rows, width: int, keys: int) -> list[str]:
    """Each row as a block: its first cells as a line, the others below it with their names."""
    lines: list[str] = []
    label = max(map(cell_len, columns[keys:]), default=0) + GAP
    for row in rows:
        rest = [(name, text) for name, text in zip(columns[keys:], row[keys:], strict=True) if text not in ("", "-")]
        lines += at_words("  ".join(text for text in row[:keys] if text), width, hanging=2 * _INDENT)
        for name, text in rest:
            room = max(width - label - len(_INDENT), 20)
            first, *more = at_words(text, room)
            lines.append(f"{_INDENT}{name:<{label}}{first}")
            lines += [" " * (label + len(_INDENT)) + each for each in more]
    return lines


def looks_numeric(text: str) -> bool:
    """Whether a cell is a number, with whatever belongs to it, or says that there is none."""
    return text in ("-", "", "inf") or text[:1].isdigit() or (text[:1] in "-<" and text[1:2].isdigit())


def _lines(cells: Sequence[Sequence[str]], measured: Sequence[ColumnWidth], widths: Sequence[int]) -> list[str]:
    lines = []
    for place in range(max(map(len, cells), default=0)):
        parts = []
        for texts, each, width in zip(cells, measured, widths, strict=True):
            text = texts[place] if place < len(texts) else ""
            blank = " " * max(width - cell_len(text), 0)
            parts.append(blank + text if each.right else text + blank)
        lines.append((" " * GAP).join(parts).rstrip())
    return lines


def at_words(text: str, width: int, hanging: str = "") -> list[str]:
    """A text in lines of at most this width, none of its words broken; `hanging`: before all lines but the first."""
    if cell_len(text) <= width:
        return [text]
    return wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False, subsequent_indent=hanging) or [""]


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)

"""A table fitted to a terminal: which columns stand, what becomes of those that do not fit, texts broken at words."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Literal

from rich.cells import cell_len

Rest = Literal["drop", "stack", "blocks"]
Rows = Sequence[Sequence[str]]
Styled = tuple[str, str]  # a line and its style, "bold", "dim" or ""
GAP = 2  # blanks between two columns
_SHORT = 24  # characters of a text that is not broken while there is room
_HEADING = 9  # characters of a heading that is not broken
_INDENT = "  "
_TALL = 4  # lines of a row that is still read in columns
_LONG = 44  # characters of the name of a worst case that is not shortened
_MEMBER = r"(?:[^(),]|\([^()]*\))+"
_WORST_CASE = re.compile(rf"worst-case\(({_MEMBER})((?:,{_MEMBER})+)\)")


@dataclass(frozen=True)
class ColumnWidth:
    """A column: the least width at which no word of it is broken, that at which it looks good, and its whole width."""

    least: int
    good: int
    whole: int
    right: bool


@dataclass(frozen=True)
class TableText:
    """A table as texts.

    Args:
        names: headings.
        lines: cells, a row each.
        keys: columns from the left that say what a row is about, and are always shown.
        order: names of columns that matter more than the others, in this order.
        rest: what becomes of columns that do not fit: see `console.print_table`.
        common: names of columns that are written once, above the table, as keys are, if all rows have the same there.
    """

    names: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    keys: int
    order: tuple[str, ...] = ()
    rest: Rest = "drop"
    common: tuple[str, ...] = ()

    @property
    def ranked(self) -> list[int]:
        """The places of the columns, the one that matters most first."""
        first = dict.fromkeys(self.names.index(name) for name in self.order if name in self.names)
        return [*first, *(place for place in range(len(self.names)) if place not in first)]

    def part(self, places: Sequence[int]) -> "TableText":
        """The table with these columns; its keys are those among them."""
        lines = tuple(tuple(line[place] for place in places) for line in self.lines)
        keys = sum(place < self.keys for place in places)
        return replace(self, names=tuple(self.names[place] for place in places), lines=lines, keys=keys)


@dataclass(frozen=True)
class FittedTable:
    """A table as lines.

    Args:
        lines: with their styles.
        shown: headings of the columns that are in them.
        left_out: headings of those that are not.
    """

    lines: tuple[Styled, ...]
    shown: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def fit(table: TableText, width: int) -> FittedTable:
    """A table in lines that are not longer than `width`, no word broken.

    What is the same in every row is written once, above the table, where that makes room. Where nothing but keys
    would fit, each value of the first key gets a table. Rows that columns would break into many lines become blocks.
    """
    measured = _measure(table)
    ranked = table.ranked
    chosen = choose_columns(measured, width, ranked, table.keys)
    left_out = [place for place in ranked if place not in chosen and place >= table.keys]
    same = _same_everywhere(table) if left_out or not chosen else []
    if same:
        said = "; ".join(f"{table.names[place]} {table.lines[0][place]}" for place in same)
        inner = fit(table.part([place for place in range(len(table.names)) if place not in same]), width)
        heading = tuple((line, "dim") for line in at_words(said, width))
        shown = {*(table.names[place] for place in same), *inner.shown}
        return replace(inner, lines=heading + inner.lines, shown=tuple(n for n in table.names if n in shown))
    if left_out and len(chosen) == table.keys > 1:
        return _in_groups(table, width)
    if not chosen or (table.rest == "blocks" and (left_out or _is_ragged(table, width))):
        lines = lay_out_blocks(table.names, table.lines, width, table.keys)
        return FittedTable(tuple((line, "") for line in lines), table.names)
    lines = list(_in_columns(table.part(chosen), width))
    if left_out and table.rest == "stack":
        lines += _stacked(table, left_out, width)
        return FittedTable(tuple(lines), table.names)
    return FittedTable(
        tuple(lines), tuple(table.names[place] for place in chosen), tuple(table.names[place] for place in left_out)
    )


def short_name(text: str) -> str:
    """The text with each long list of attacks in a worst case as the first of them and the number of the others.

    "worst-case(foolbox:fgsm,foolbox:pgd,...)" becomes "worst-case(foolbox:fgsm+11)".
    """

    def shortened(match: re.Match[str]) -> str:
        others = len(re.findall(f",{_MEMBER}", match[2]))
        return f"worst-case({match[1]}+{others})" if len(match[0]) > _LONG else match[0]

    return _WORST_CASE.sub(shortened, text)


def _in_groups(table: TableText, width: int) -> FittedTable:
    """A table for each value of the first key, below that value: nothing but keys would fit beside it.

    What does not fit in one of them is left out of all, unless nothing would be left.
    """
    groups: dict[str, list[tuple[str, ...]]] = {}
    for first, *others in table.lines:
        groups.setdefault(first, []).append(tuple(others))
    parts = [replace(table, names=table.names[1:], lines=tuple(some), keys=table.keys - 1) for some in groups.values()]
    fitted = [fit(part, width) for part in parts]
    left_out = tuple(dict.fromkeys(name for each in fitted for name in each.left_out))
    kept = [place for place, name in enumerate(table.names) if name not in left_out]
    if left_out and len(kept) > table.keys:
        inner = _in_groups(table.part(kept), width)
        return replace(inner, left_out=(*left_out, *inner.left_out))
    lines: list[Styled] = []
    for value, each in zip(groups, fitted, strict=True):
        lines += [("", "")] if lines else []
        lines += [(line, "dim") for line in at_words(f"{table.names[0]} {value}", width)]
        lines += each.lines
    shown = {table.names[0], *(name for each in fitted for name in each.shown)}
    return FittedTable(tuple(lines), tuple(name for name in table.names if name in shown), left_out)


def _stacked(table: TableText, places: Sequence[int], width: int) -> Iterator[Styled]:
    """The columns that did not fit, beside the keys again, in as many tables as it takes, without empty rows."""
    while places:
        every = table.part([*range(table.keys), *places])
        fitting = choose_columns(_measure(every), width, range(table.keys, len(every.names)), table.keys)
        taken = len(fitting) - table.keys
        part = every.part(fitting) if taken > 0 else every
        filled = tuple(line for line in part.lines if any(cell not in ("", "-") for cell in line[part.keys :]))
        part = replace(part, lines=filled or part.lines)
        yield "", ""
        if taken > 0:
            yield from _in_columns(part, width)
        else:
            yield from ((line, "") for line in lay_out_blocks(part.names, part.lines, width, part.keys))
            return
        places = [place for number, place in enumerate(places, table.keys) if number not in fitting]


def _in_columns(table: TableText, width: int) -> Iterator[Styled]:
    measured = _measure(table)
    widths = widths_of(measured, width)
    heading, body = lay_out(table.names, table.lines, measured, widths)
    yield from ((line, "bold") for line in heading)
    yield "─" * min(sum(widths) + GAP * (len(widths) - 1), width), "dim"
    yield from ((line, "") for line in body)


def _same_everywhere(table: TableText) -> list[int]:
    """Keys and common columns with one value in all rows; one key stays in any case."""
    places = [place for place, name in enumerate(table.names) if place < table.keys or name in table.common]
    same = [place for place in places if len({line[place] for line in table.lines}) == 1]
    last = table.keys - 1
    return [place for place in same if place != last] if set(range(table.keys)) <= set(same) else same


def _is_ragged(table: TableText, width: int) -> bool:
    """Whether a row would be broken into more lines than a person reads in columns."""
    widths = widths_of(_measure(table), width)
    return any(
        len(at_words(cell, room)) > _TALL for line in table.lines for cell, room in zip(line, widths, strict=True)
    )


def _measure(table: TableText) -> list[ColumnWidth]:
    return [measure(name, [line[place] for line in table.lines]) for place, name in enumerate(table.names)]


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

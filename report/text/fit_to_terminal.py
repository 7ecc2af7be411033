"""Fits tables to the width of the terminal: selects columns, breaks lines, and moves other columns below the rows."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from textwrap import wrap
from typing import Literal

from rich.box import Box
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

Rest = Literal["drop", "stack", "blocks"]
Styled = tuple[str, str]  # a line and its style, "bold", "dim" or ""
GAP = 2  # spaces between two columns
_SHORT = 24  # characters of a text that is wrapped last
_HEADING = 9  # characters of a heading that is not wrapped
_INDENT = "  "
_NUMBER = 40  # most characters of a number with its interval
_TALL = 4  # most lines of a row in columns
_LONG = 44  # most characters of an unshortened worst-case name
_MEMBER = r"(?:[^(),]|\([^()]*\))+"
_WORST_CASE = re.compile(rf"worst-case\(({_MEMBER})((?:,{_MEMBER})+)\)")
_RULED = Box("    \n    \n ── \n    \n    \n    \n    \n    \n", ascii=False)  # a line below the headings, nothing else
_UNRULED = Box("    \n" * 8, ascii=False)


@dataclass(frozen=True)
class ColumnWidth:
    """Possible widths of a table column, in characters.

    Attributes:
        least: smallest width that breaks no word.
        good: comfortable width.
        whole: width without line breaks.
        right: whether the column is right-aligned.
    """

    least: int
    good: int
    whole: int
    right: bool


@dataclass(frozen=True)
class TableText:
    """Table whose cells are formatted texts.

    Args:
        names: headings.
        lines: cells of each row.
        keys: number of leading columns that identify a row and are always shown.
        order: columns in decreasing priority.
        rest: treatment of columns that do not fit: "drop", "stack" or "blocks" (see `console.print_table`).
        common: columns that may be printed once above the table if all rows have the same value. Key columns are
            treated in this way, too.
    """

    names: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    keys: int
    order: tuple[str, ...] = ()
    rest: Rest = "drop"
    common: tuple[str, ...] = ()

    @property
    def ranked(self) -> list[int]:
        """Column indices in decreasing priority."""
        first = dict.fromkeys(self.names.index(name) for name in self.order if name in self.names)
        return [*first, *(place for place in range(len(self.names)) if place not in first)]

    @property
    def measured(self) -> list[ColumnWidth]:
        """Possible widths of each column."""
        return [measure(name, [line[place] for line in self.lines]) for place, name in enumerate(self.names)]

    def part(self, places: Sequence[int]) -> "TableText":
        """Return the table with only the columns at some indices. Key columns remain keys."""
        lines = tuple(tuple(line[place] for place in places) for line in self.lines)
        keys = sum(place < self.keys for place in places)
        return replace(self, names=tuple(self.names[place] for place in places), lines=lines, keys=keys)


@dataclass(frozen=True)
class Lines:
    """Part of a page: heading lines that are always printed, and rows of text, of which the last may be omitted.

    Args:
        heading: heading lines with their styles.
        rows: lines of each row.
        what: noun for a row in the note on omitted rows. Empty if no row may be omitted.
    """

    heading: tuple[Styled, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    what: str = ""

    @property
    def heights(self) -> list[int]:
        """Number of lines of each row."""
        return [len(row) for row in self.rows]

    @property
    def fixed(self) -> int:
        """Number of lines of the heading."""
        return len(self.heading)

    def draw(self, rows: int) -> Iterator[RenderableType]:
        """Yield the heading and the first `rows` rows."""
        yield from (Text(line, style, overflow="ignore", no_wrap=True) for line, style in self.heading)
        yield from (Text(line, overflow="ignore", no_wrap=True) for row in self.rows[:rows] for line in row)


@dataclass(frozen=True)
class Grid:
    """Part of a page: a table with column widths that break no word.

    Args:
        table: headings and cells.
        widths: width of each column.
        measured: possible widths and alignment of each column.
        ruled: whether a line is drawn below the headings.
    """

    table: TableText
    widths: tuple[int, ...]
    measured: tuple[ColumnWidth, ...]
    ruled: bool = True
    what: str = field(default="row", init=False)

    @property
    def heights(self) -> list[int]:
        """Number of lines of each row."""
        return [self._height(line) for line in self.table.lines]

    @property
    def fixed(self) -> int:
        """Number of lines of the headings and the line below."""
        return self._height(self.table.names) + self.ruled

    def _height(self, line: Sequence[str]) -> int:
        return max((len(at_words(t, w)) for t, w in zip(line, self.widths, strict=True)), default=1)

    def draw(self, rows: int) -> Iterator[RenderableType]:
        """Yield the headings and the first `rows` rows."""
        drawn = Table(box=_RULED if self.ruled else _UNRULED, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        drawn.header_style, drawn.border_style = "bold", "dim"
        for name, width, each in zip(self.table.names, self.widths, self.measured, strict=True):
            justify = "right" if each.right else "left"
            drawn.add_column(Text(name), width=width, justify=justify, overflow="fold")
        for line in self.table.lines[:rows]:
            drawn.add_row(*map(Text, line))
        yield drawn

    def plain(self) -> Iterator[str]:
        """Yield headings and rows as lines of text, not wrapped and without a line below the headings."""
        rights = [each.right for each in self.measured]
        for line in (self.table.names, *self.table.lines):
            cells = zip(line, self.widths, rights, strict=True)
            texts = (f"{' ' * (width - cell_len(text))}{text}" if right else text + " " * (width - cell_len(text))
                     for text, width, right in cells)  # fmt: skip
            yield (" " * GAP).join(texts).rstrip()


Part = Lines | Grid


@dataclass(frozen=True)
class FittedTable:
    """Table after fitting: parts of a page, and the columns that the parts show.

    Args:
        parts: parts of the page, in order.
        shown: headings of the shown columns.
        left_out: headings of the omitted columns.
    """

    parts: tuple[Part, ...]
    shown: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def whole_table(table: TableText) -> Grid:
    """Return a table with full column widths, for output of any width."""
    measured = table.measured
    return Grid(table, tuple(each.whole for each in measured), tuple(measured), ruled=False)


def fit(table: TableText, width: int) -> FittedTable:
    """Split a table into parts that are at most `width` characters wide, without breaking words.

    If space is needed, columns with the same value in every row are printed once above the table. If only the key
    columns fit, each value of the first key gets a separate table. Rows that would need many lines become blocks.
    """
    ranked = table.ranked
    chosen = choose_columns(table.measured, width, ranked, table.keys)
    left_out = [place for place in ranked if place not in chosen and place >= table.keys]
    same = _same_everywhere(table) if left_out or not chosen else []
    if same:
        said = "; ".join(f"{table.names[place]} {table.lines[0][place]}" for place in same)
        inner = fit(table.part([place for place in range(len(table.names)) if place not in same]), width)
        shown = {*(table.names[place] for place in same), *inner.shown}
        parts = (_heading(said, width), *inner.parts)
        return replace(inner, parts=parts, shown=tuple(name for name in table.names if name in shown))
    if left_out and len(chosen) == table.keys > 1:
        return _in_groups(table, width)
    if not chosen or (table.rest == "blocks" and (left_out or _is_ragged(table, width))):
        return FittedTable((as_blocks(table, width),), table.names)
    parts = (_in_columns(table.part(chosen), width),)
    if left_out and table.rest == "stack":
        return FittedTable((*parts, *_stacked(table, left_out, width)), table.names)
    shown, hidden = (tuple(table.names[place] for place in places) for places in (chosen, left_out))
    return FittedTable(parts, shown, hidden)


def fit_pipe(table: TableText, width: int) -> FittedTable:
    """Return a table with only the columns that fit `width` characters, for a pipe. Cells are not wrapped."""
    for narrower in range(width, 0, -2):  # the gaps between its columns are wider
        fitted = fit(table, narrower)
        grid = whole_table(table.part([table.names.index(name) for name in fitted.shown]))
        if max(map(len, grid.plain())) <= width:
            return replace(fitted, parts=(grid,))
    return FittedTable((whole_table(table),), table.names)


def short_name(text: str) -> str:
    """Shorten long worst-case names in a text to the first attack and the number of other attacks.

    "worst-case(foolbox:fgsm,foolbox:pgd,...)" becomes "worst-case(foolbox:fgsm+11)".
    """

    def shortened(match: re.Match[str]) -> str:
        others = len(re.findall(f",{_MEMBER}", match[2]))
        return f"worst-case({match[1]}+{others})" if len(match[0]) > _LONG else match[0]

    return _WORST_CASE.sub(shortened, text)


def shorten(parts: Sequence[Part], limit: int) -> list[int]:
    """Return the number of rows to show of each part, so that the page has at most `limit` lines if possible.

    The longest parts are shortened first. The limit includes the line with the number of omitted rows in each shortened
    part.
    """
    heights = [part.heights for part in parts]
    fixed = sum(part.fixed for part in parts)
    most = max(map(sum, heights), default=0)

    def rows_within(room: int) -> list[int]:
        counts = []
        for part, each in zip(parts, heights, strict=True):
            fitting = sum(height <= room - 1 for height in accumulate(each))  # and the line with the omitted number
            counts.append(len(each) if sum(each) <= room or not part.what else max(1, fitting))
        return counts

    def lines_of(counts: Sequence[int]) -> int:
        return fixed + sum(sum(each[:rows]) + (rows < len(each)) for each, rows in zip(heights, counts, strict=True))

    return next((rows for room in range(most, 2, -1) if lines_of(rows := rows_within(room)) <= limit), rows_within(3))


def _heading(text: str, width: int) -> Lines:
    return Lines(tuple((line, "dim") for line in at_words(text, width)))


def _in_groups(table: TableText, width: int) -> FittedTable:
    """Split a table into one table for each value of the first key. Without this key, other columns have more space.

    A column that does not fit into one of the tables is omitted from all tables, unless no column would remain.
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
    drawn: list[Part] = []
    for value, each in zip(groups, fitted, strict=True):
        drawn += [Lines((("", ""),))] if drawn else []
        drawn += [_heading(f"{table.names[0]} {value}", width), *each.parts]
    shown = {table.names[0], *(name for each in fitted for name in each.shown)}
    return FittedTable(tuple(drawn), tuple(name for name in table.names if name in shown), left_out)


def _stacked(table: TableText, places: Sequence[int], width: int) -> Iterator[Part]:
    """Yield further tables with the keys and the columns that did not fit. Rows without a value are omitted."""
    while places:
        every = table.part([*range(table.keys), *places])
        fitting = choose_columns(every.measured, width, range(table.keys, len(every.names)), table.keys)
        part = every.part(fitting) if len(fitting) > table.keys else every
        filled = tuple(line for line in part.lines if any(cell not in ("", "-") for cell in line[part.keys :]))
        part = replace(part, lines=filled or part.lines)
        yield Lines((("", ""),))
        if part is every or len(fitting) <= table.keys:
            yield as_blocks(part, width)
            return
        yield _in_columns(part, width)
        places = [place for number, place in enumerate(places, table.keys) if number not in fitting]


def _in_columns(table: TableText, width: int) -> Grid:
    measured = table.measured
    return Grid(table, tuple(widths_of(measured, width)), tuple(measured))


def _same_everywhere(table: TableText) -> list[int]:
    """Return the indices of key and common columns that have the same value in all rows.

    At least one key stays in the table.
    """
    places = [place for place, name in enumerate(table.names) if place < table.keys or name in table.common]
    same = [place for place in places if len({line[place] for line in table.lines}) == 1]
    last = table.keys - 1
    return [place for place in same if place != last] if set(range(table.keys)) <= set(same) else same


def _is_ragged(table: TableText, width: int) -> bool:
    """Return whether a row would wrap to so many lines that its columns are hard to read."""
    return max(_in_columns(table, width).heights, default=0) > _TALL


def measure(column: str, cells: Sequence[str]) -> ColumnWidth:
    """Return the possible widths of a column from its heading and cells. Numbers with intervals are never broken."""
    whole = max(map(cell_len, cells), default=0)
    heading = cell_len(column) if cell_len(column) <= _HEADING else _longest_word(column)
    if all(map(looks_numeric, cells)):
        width = max(whole, heading)
        return ColumnWidth(width, width, max(width, cell_len(column)), right=True)
    least = max(heading, *map(_longest_word, cells))
    whole = max(whole, cell_len(column))
    return ColumnWidth(least, max(least, min(whole, _SHORT)), whole, right=False)


def choose_columns(measured: Sequence[ColumnWidth], width: int, order: Iterable[int], keys: int) -> list[int]:
    """Return the indices of the columns that fit, in table order. Empty if the key columns do not fit.

    Args:
        measured: widths of every column.
        width: width of the terminal, characters.
        order: columns other than keys, in decreasing priority.
        keys: number of leading columns that are always shown.
    """
    chosen = list(range(min(keys, len(measured))))
    used = sum(measured[place].least + GAP for place in chosen)
    if used - GAP > width:
        return []
    for place in order:
        if place < keys:
            continue
        if used + measured[place].least > width:  # columns of lower priority are not used instead
            break
        chosen.append(place)
        used += measured[place].least + GAP
    return sorted(chosen)


def widths_of(measured: Sequence[ColumnWidth], width: int) -> list[int]:
    """Return the column widths of a table that fits `width`.

    Comfortable widths are assigned first, then the remaining space.
    """
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


def as_blocks(table: TableText, width: int) -> Lines:
    """Format each row as a block of lines: the keys on the first line, and the other cells with headings below."""
    blocks = []
    label = max(map(cell_len, table.names[table.keys :]), default=0) + GAP
    for row in table.lines:
        lines = at_words("  ".join(text for text in row[: table.keys] if text), width, hanging=2 * _INDENT)
        for name, text in zip(table.names[table.keys :], row[table.keys :], strict=True):
            if text in ("", "-"):
                continue
            first, *more = at_words(text, max(width - label - len(_INDENT), 20))
            lines.append(f"{_INDENT}{name:<{label}}{first}")
            lines += [" " * (label + len(_INDENT)) + each for each in more]
        blocks.append(tuple(lines))
    return Lines(rows=tuple(blocks), what="row")


def looks_numeric(text: str) -> bool:
    """Return whether a cell is a number, possibly with an interval, or a sign for an undefined value such as "-"."""
    is_number = text[:1].isdigit() or (text[:1] in "-<" and text[1:2].isdigit())
    return text in ("-", "", "inf") or (is_number and len(text) <= _NUMBER)


def at_words(text: str, width: int, hanging: str = "") -> list[str]:
    """Wrap a text between words into lines of at most `width` characters.

    All lines except the first are indented by the text `hanging`.
    """
    if cell_len(text) <= width:
        return [text]
    return wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False, subsequent_indent=hanging) or [""]


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)

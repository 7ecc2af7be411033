"""Console output: paged tables on a terminal, aligned plain text in a pipe, CSV for spreadsheets."""

import csv
import io
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from rich.console import Console
from rich.text import Text

from ...adapters.display_text import counted, merge_alike
from ...errors import UnknownName
from .fit_to_terminal import (
    Grid,
    Lines,
    Part,
    Rest,
    TableText,
    at_words,
    fit,
    fit_pipe,
    short_name,
    shorten,
    whole_table,
)

_PLAIN_WIDTH = 10_000  # output to a pipe is neither wrapped nor cut
_NARROW = 80  # columns of a terminal
LONGEST = 38  # lines of a page, unless the user requests more
KEPT = "\N{NO-BREAK SPACE}"  # printed as a space without a line break
_HEADINGS = {"cells": "runs", "violations": "invalid", "passes": "queries"}
_FORMULA = tuple("=+-@\t\r")  # characters that start a formula in a spreadsheet


@dataclass
class Page:
    """Output of a command, which is collected and printed when the command ends.

    Args:
        columns: headings of the columns to show, in all tables. Empty means that each table shows the columns that fit.
        wide: whether to show every column, regardless of the terminal width.
        verbose: whether to show all notes and columns.
        seen: headings of all columns of the tables so far.
        left_out: headings of the columns that did not fit.
        parts: collected output.
        short: whether to limit the output to one screen.
    """

    columns: tuple[str, ...] = ()
    wide: bool = False
    verbose: bool = False
    seen: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    short: bool = False

    def collect(self, lines: Sequence[str], style: str) -> None:
        """Add lines of text. Consecutive notes (lines that begin with "- ") form one part of the page."""
        if not lines[0].startswith("- "):
            self.parts.append(Lines(tuple((line, style) for line in lines)))
            return
        last = self.parts[-1] if self.parts else None
        if isinstance(last, Lines) and last.what == "note":
            self.parts[-1] = replace(last, rows=(*last.rows, tuple(lines)))
        else:
            self.parts.append(Lines(rows=(tuple(lines),), what="note"))


class PlainConsole(Console):
    r"""Console that prints text literally: no markup, no emoji names, and control characters as `\\x1b`.

    Args:
        page: page that collects the output. If None, output is printed immediately, and omitted columns are listed
            after each table.
    """

    def __init__(self, *, stderr: bool = False, page: Page | None = None, **options: Any):
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, **options)
        self.page = page

    @property
    def has_screen(self) -> bool:
        """Whether the width of lines is limited: on a terminal, or if COLUMNS is set."""
        return self.is_terminal or "COLUMNS" in os.environ

    @property
    def verbose(self) -> bool:
        """Whether the user requested verbose output."""
        return self.page is not None and self.page.verbose

    def print(self, *objects: Any, **options: Any) -> None:
        """Print text like rich's `Console.print`, but keep leading blank lines and escape other control characters.

        On a terminal, text is wrapped between words, and list items ("- ...") are indented.
        """
        shown = [_shown(each) if isinstance(each, str) else each for each in objects]
        if len(shown) == 1 and isinstance(shown[0], str):
            text = shown[0].lstrip("\n")
            broken = self._broken(text) if self.has_screen and not options.get("soft_wrap") else [text]
            lines = [line.replace(KEPT, " ") for line in (*[""] * (len(shown[0]) - len(text)), *broken)]
            if self.page is not None:
                self.page.collect(lines, str(options.get("style") or ""))
                return
            shown, options["soft_wrap"] = ["\n".join(lines)], True
        super().print(*(each.replace(KEPT, " ") if isinstance(each, str) else each for each in shown), **options)

    def show(self, page: Page) -> None:
        """Print the parts of a page, then the omitted columns and the numbers of omitted rows.

        On a terminal, at most one screen is printed unless the user requested more.
        """
        counts = [len(part.heights) for part in page.parts]
        if self.has_screen and page.short:
            counts = shorten(page.parts, LONGEST)
        hidden: Counter[str] = Counter()
        for part, rows in zip(page.parts, counts, strict=True):
            self._draw(part, rows)
            if more := len(part.heights) - rows:
                hidden[part.what] += more
                super().print(f"  ... {counted(more, f'more {part.what}')}", style="dim", soft_wrap=True)
        said = []
        if page.left_out:
            said.append(f"columns {', '.join(dict.fromkeys(page.left_out))} (--wide, --columns)")
        if hidden:
            said.append(f"{', '.join(counted(count, what) for what, count in hidden.items())} (-v)")
        if said:
            super().print("\n".join(at_words(f"not shown: {'; '.join(said)}", self.width)), style="dim", soft_wrap=True)

    def _draw(self, part: Part, rows: int) -> None:
        if isinstance(part, Grid) and not self.has_screen:
            for place, text in enumerate(part.plain()):
                super().print(text, style=None if place else "bold", soft_wrap=True)
            return
        for each in part.draw(rows):
            for segments in self.render_lines(each, pad=False):
                line = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
                line.rstrip()
                super().print(line, soft_wrap=True)

    def _broken(self, text: str) -> list[str]:
        return at_words(short_name(text), self.width, "  " if text.startswith("- ") else "")


@contextmanager
def open_page(columns: Sequence[str] = (), *, wide: bool = False, verbose: bool = False) -> Iterator[PlainConsole]:
    """Yield a console that collects the output of a command and prints it on exit.

    Args:
        columns: headings of the columns to show. Empty means the columns that fit.
        wide: whether to show every column, regardless of the terminal width.
        verbose: whether to show all notes and columns.

    Raises:
        UnknownName: If none of the tables has a requested column.
    """
    page = Page(tuple(map(heading, columns)), wide, verbose, short=not (columns or wide or verbose))
    console = make_console(page=page)
    yield console
    for name in page.columns:
        if name not in page.seen and page.seen:
            raise UnknownName("column", name, dict.fromkeys(page.seen))
    console.page = None  # later output is printed immediately
    console.show(page)


def escape_control_characters(text: str) -> str:
    r"""Escape control characters, and characters that reorder text, as `\x1b`, `\n`, `\u202e`.

    Names and error messages may come from folders of other people, and could otherwise change the terminal.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def print_error(text: str) -> None:
    """Print a message to standard error, with control characters escaped."""
    make_console(stderr=True).print(" ".join(text.split()))


def print_table(  # noqa: PLR0913 - options of a table
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    console: Console | None = None,
    *,
    keys: int = 1,
    order: Sequence[str] = (),
    rest: Rest = "drop",
    common: Sequence[str] = (),
    narrow: bool = False,
) -> list[str]:
    """Print a table.

    On a terminal, only the columns that fit are printed, without breaking words. In a pipe, all columns are printed.

    Args:
        title: heading of the table. Empty means no heading.
        columns: headings of the columns.
        rows: cells of each row. Values that are not texts are formatted (see `format_cell`).
        console: output console. None means standard output.
        keys: number of leading columns that identify a row and are always shown.
        order: columns in decreasing priority. Columns that are not listed have the lowest priority.
        rest: treatment of columns that do not fit. "drop" omits these columns and lists their names, "stack" prints
            another table below, and "blocks" prints each row as a block of lines.
        common: columns that may be printed once above the table if all rows have the same value. Key columns are
            treated in this way, too.
        narrow: whether to omit columns beyond 80 characters in a pipe, too, unless the user requested more.

    Returns:
        Headings of the printed columns.
    """
    to = console if isinstance(console, PlainConsole) else make_console()
    if console is not None and to is not console:
        to = PlainConsole(file=console.file, width=console.width)
    names = tuple(escape_control_characters(heading(column)) for column in columns)
    lines = tuple(tuple(escape_control_characters(format_cell(cell)) for cell in row) for row in rows)
    order, common = tuple(map(heading, order)), tuple(map(heading, common))
    table, page = TableText(names, lines, min(keys, len(names)), order, rest, common), to.page or Page()
    page.seen += names
    if page.columns:
        if not set(names) & set(page.columns):
            return []
        table = table.part([place for place, name in enumerate(names) if place < keys or name in page.columns])
    if (page.columns or page.wide or page.verbose) and rest == "drop":
        table = replace(table, rest="stack")
    if title:
        wrapped = (
            at_words(escape_control_characters(title), to.width)
            if to.has_screen
            else [escape_control_characters(title)]
        )
        page.parts.append(Lines((*[("", "")] * to.is_terminal, *((line, "bold") for line in wrapped))))
    shown = table.names
    if to.has_screen:
        fitted = fit(replace(table, lines=tuple(tuple(map(short_name, line)) for line in table.lines)), to.width)
        shown, page.left_out, page.parts = (
            fitted.shown,
            [*page.left_out, *fitted.left_out],
            [*page.parts, *fitted.parts],
        )
    elif narrow and not (page.columns or page.wide or page.verbose):
        fitted = fit_pipe(table, _NARROW)
        shown, page.left_out = fitted.shown, [*page.left_out, *fitted.left_out]
        page.parts += fitted.parts
    else:
        page.parts.append(whole_table(table))
    if to.page is None:
        to.show(page)
    return list(shown)


def heading(column: str) -> str:
    """Return the heading under which a column is displayed. The stored name of a column may be an older term."""
    return _HEADINGS.get(column, column)


def print_notes(notes: Iterable[str], console: Console) -> None:
    """Print notes as a list. Notes that differ only in their subject become one, unless the console is verbose."""
    verbose = isinstance(console, PlainConsole) and console.verbose
    for line in dict.fromkeys(notes) if verbose else merge_alike(notes):
        console.print(f"- {line}")


def make_console(*, stderr: bool = False, page: Page | None = None) -> PlainConsole:
    """Build a console with the width of the terminal. In a pipe, the console neither wraps nor colours text."""
    console = PlainConsole(stderr=stderr, page=page)
    if console.is_terminal:
        return console
    width = console.width if console.has_screen else _PLAIN_WIDTH
    return PlainConsole(stderr=stderr, page=page, width=width, no_color=True)


def format_cell(value: Any) -> str:
    """Format a value as text: three significant digits, "-" if undefined, commas between the items of a list."""
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


def interval_text(value: float, low: float, high: float) -> str:
    """Format an estimate with its interval, such as "0.639 [0.47, 0.79]". Without an interval, only the value is shown.

    The number of decimals follows from two significant digits of the interval's width.
    """
    shown, *ends = interval_texts(value, low, high)
    return f"{shown} [{', '.join(ends)}]" if ends else shown


def interval_texts(value: float, low: float, high: float) -> list[str]:
    """Format a value and the bounds of its interval as separate texts, rounded as in `interval_text`.

    If a bound is NaN, only the value is returned.
    """
    if math.isnan(low) or math.isnan(high):
        return [format_cell(value)]
    width = high - low
    if not 0 < width < math.inf:
        return [format_cell(each) for each in (value, low, high)]
    places = max(0, 1 - math.floor(math.log10(width)))
    shown = format_cell(value)
    shown = f"{value:.{places}f}" if len(shown.partition(".")[2]) < places or "e" in shown else shown
    return [shown, f"{low:.{places}f}", f"{high:.{places}f}"]


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as CSV, with numbers in full precision. Undefined cells are empty.

    If a spreadsheet would read a text as a formula, the text gets a leading apostrophe. Control characters are escaped.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_csv_cell(column) for column in columns])
    for row in rows:
        writer.writerow([_csv_cell(cell) for cell in row])
    return text.getvalue()


def frame_csv(frame: Any) -> str:
    """Return a pandas data frame as CSV, in the format of `to_csv`."""
    return to_csv(list(frame.columns), frame.astype(object).to_numpy().tolist())


def _csv_cell(cell: Any) -> Any:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if not isinstance(cell, str):
        return cell
    lines = "\n".join("\t".join(map(escape_control_characters, line.split("\t"))) for line in cell.split("\n"))
    return f"'{lines}" if cell.lstrip(" \n").startswith(_FORMULA) and not _is_number(cell) else lines


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _shown(text: str) -> str:
    rest = text.lstrip("\n")
    return text[: len(text) - len(rest)] + KEPT.join(map(escape_control_characters, rest.split(KEPT)))

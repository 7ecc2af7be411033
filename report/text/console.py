"""Tables: rich on a terminal, aligned plain text in a pipe, CSV for a spreadsheet."""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from ...errors import UnknownName
from .fitting import Rest, Styled, TableText, at_words, fit, lay_out, measure, short_name

_PLAIN_WIDTH = 10_000  # a pipe has no width: nothing is folded or cut
KEPT = "\N{NO-BREAK SPACE}"  # shown as a blank at which no line is broken
_FORMULA = tuple("=+-@\t\r")  # what a spreadsheet takes for the beginning of a formula


@dataclass
class View:
    """Which columns of the tables of a command are wanted, and what came of it.

    Args:
        columns: only these, of whichever table has them; none: those that fit.
        wide: every column, whatever the width of the terminal.
    """

    columns: tuple[str, ...] = ()
    wide: bool = False
    seen: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


class PlainConsole(Console):
    r"""A console on which a text is only a text: no markup, no emoji names, control characters shown as `\\x1b`.

    Args:
        view: which columns are wanted; None: those that fit, and each table says what it lacks.
    """

    def __init__(self, *, stderr: bool = False, view: View | None = None, **options: Any):
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, **options)
        self.view = view

    def print(self, *objects: Any, **options: Any) -> None:
        """As `Console.print`; empty lines before a text stay, every other control character is shown.

        On a terminal a text is broken between words only; what begins with "- " goes on under its first word.
        """
        shown = [_shown(each) if isinstance(each, str) else each for each in objects]
        if self.is_terminal and len(shown) == 1 and isinstance(shown[0], str) and not options.get("soft_wrap"):
            text = shown[0].lstrip("\n")
            blank = shown[0][: len(shown[0]) - len(text)]
            text = short_name(text)
            shown = [blank + "\n".join(at_words(text, self.width, "  " if text.startswith("- ") else ""))]
            options["soft_wrap"] = True
        super().print(*(each.replace(KEPT, " ") if isinstance(each, str) else each for each in shown), **options)


@contextmanager
def open_tables(columns: Sequence[str] = (), *, wide: bool = False) -> Iterator[PlainConsole]:
    """A console for the tables of a command; at the end it says once what did not fit.

    Raises:
        UnknownName: if a column that was asked for is in none of the tables.
    """
    view = View(tuple(columns), wide)
    console = make_console(view=view)
    yield console
    for name in view.columns:
        if name not in view.seen and view.seen:
            raise UnknownName("column", name, dict.fromkeys(view.seen))
    if view.left_out:
        _say_left_out(list(dict.fromkeys(view.left_out)), console)


def printable(text: str) -> str:
    r"""The text with what a terminal would obey, or show in another order, written as `\x1b`, `\n`, `\u202e`.

    Names of models, images and files, and reasons, come from other people's folders.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def print_error(text: str) -> None:
    """Print a line on standard error, whatever the text holds; a terminal gets as many as it takes."""
    make_console(stderr=True).print(" ".join(text.split()))


def print_table(  # noqa: PLR0913 - what can be said of a table
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    console: Console | None = None,
    *,
    keys: int = 1,
    order: Sequence[str] = (),
    rest: Rest = "drop",
    common: Sequence[str] = (),
) -> list[str]:
    """Print a table: as many of its columns as the terminal is wide, all of them in a pipe; no word is ever broken.

    Args:
        title: a line above it; empty: none.
        columns: headings.
        rows: cells, already formatted or plain values.
        console: where to; None: standard output.
        keys: columns from the left that say what a row is about, and are always shown.
        order: names of columns that matter more than the others, in this order.
        rest: of the columns that do not fit: "drop" them and say so, "stack" them in a table below, or write each row
            as a block of lines.
        common: names of columns that are written once, above the table, as keys are, if that makes room and all rows
            have the same there.

    Returns:
        The names of the columns that were printed.
    """
    console = console or make_console()
    lines = [[printable(format_cell(cell)) for cell in row] for row in rows]
    names = [printable(column) for column in columns]
    view: View | None = getattr(console, "view", None)
    if view is not None:
        view.seen += names
        if view.columns:
            kept = [place for place, name in enumerate(names) if place < keys or name in view.columns]
            if all(name not in view.columns for name in names):
                return []
            names, lines = [names[place] for place in kept], [[line[place] for place in kept] for line in lines]
    _say_title(title, console)
    if not console.is_terminal:
        measured = [measure(name, [line[place] for line in lines]) for place, name in enumerate(names)]
        heading, body = lay_out(names, lines, measured, [each.whole for each in measured])
        _print_lines([*((line, "bold") for line in heading), *((line, "") for line in body)], console)
        return names
    if view is not None and (view.wide or view.columns):
        rest = "stack" if rest == "drop" else rest
    texts = tuple(tuple(map(short_name, line)) for line in lines)
    fitted = fit(
        TableText(tuple(names), texts, min(keys, len(names)), tuple(order), rest, tuple(common)), console.width
    )
    _print_lines(fitted.lines, console)
    if fitted.left_out and view is None:
        _say_left_out(fitted.left_out, console)
    elif view is not None:
        view.left_out += fitted.left_out
    return list(fitted.shown)


def _print_lines(lines: Iterable[Styled], console: Console) -> None:
    for line, style in lines:
        console.print(line, style=style or None, soft_wrap=True)


def _say_title(title: str, console: Console) -> None:
    if title:
        shown = printable(title)
        console.print(f"\n{shown}" if console.is_terminal else shown, style="bold", highlight=False, markup=False)


def _say_left_out(names: Sequence[str], console: Console) -> None:
    console.print(f"columns not shown: {', '.join(names)}; --wide shows all, --columns A,B only these", style="dim")


def make_console(*, stderr: bool = False, view: View | None = None) -> PlainConsole:
    """A console of the terminal's width; in a pipe, one that neither folds nor colours."""
    console = PlainConsole(stderr=stderr, view=view)
    if console.is_terminal:
        return console
    return PlainConsole(stderr=stderr, view=view, width=_PLAIN_WIDTH, no_color=True)


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


def interval_text(value: float, low: float, high: float) -> str:
    """An estimate with its interval, "0.639 [0.47, 0.79]": ends to two digits of the interval's width; NaN: no ends."""
    shown, *ends = interval_texts(value, low, high)
    return f"{shown} [{', '.join(ends)}]" if ends else shown


def interval_texts(value: float, low: float, high: float) -> list[str]:
    """The value and both ends of `interval_text`, each by itself; without an interval the value alone."""
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
    return text[: len(text) - len(rest)] + KEPT.join(map(printable, rest.split(KEPT)))

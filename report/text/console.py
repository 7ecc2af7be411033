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
from .layout import GAP, ColumnWidth, Rest, at_words, choose_columns, lay_out, lay_out_blocks, measure, widths_of

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


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    console: Console | None = None,
    *,
    keys: int = 1,
    order: Sequence[str] = (),
    rest: Rest = "drop",
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
    everything = view is not None and (view.wide or bool(view.columns))
    _say_title(title, console)
    measured = [measure(name, [line[place] for line in lines]) for place, name in enumerate(names)]
    if not console.is_terminal:
        _print_columns(names, lines, measured, [each.whole for each in measured], console)
        return names
    ranked = [names.index(name) for name in order if name in names]
    ranked += [place for place in range(len(names)) if place not in ranked]
    keys = min(keys, len(names))
    chosen = choose_columns(measured, console.width, ranked, keys)
    left_out = [place for place in ranked if place not in chosen and place >= keys]
    if not chosen or (left_out and rest == "blocks"):
        _print_blocks(names, lines, keys, console)
        return names
    _print_part(names, lines, measured, chosen, console)
    if left_out and (everything or rest == "stack"):
        _print_stacked(names, lines, measured, left_out, keys, console)
        return names
    if left_out:
        missing = [names[place] for place in left_out]
        if view is None:
            _say_left_out(missing, console)
        else:
            view.left_out += missing
    return [names[place] for place in chosen]


def _print_stacked(
    names: Sequence[str],
    lines: Sequence[Sequence[str]],
    measured: Sequence[ColumnWidth],
    places: Sequence[int],
    keys: int,
    console: Console,
) -> None:
    """The columns that did not fit, beside the first ones again, in as many tables as it takes."""
    while places:
        every = (*range(keys), *places)
        part = choose_columns([measured[place] for place in every], console.width, range(keys, len(every)), keys)
        shown = [every[place] for place in part]
        console.print("")
        if len(shown) > keys:
            _print_part(names, lines, measured, shown, console)
        else:
            shown = list(every)
            some = [[line[place] for place in shown] for line in lines]
            _print_blocks([names[place] for place in shown], some, keys, console)
        places = [place for place in places if place not in shown]


def _print_blocks(names: Sequence[str], lines: Sequence[Sequence[str]], keys: int, console: Console) -> None:
    for line in lay_out_blocks(names, lines, console.width, keys):
        console.print(line, soft_wrap=True)


def _say_title(title: str, console: Console) -> None:
    if title:
        shown = printable(title)
        console.print(f"\n{shown}" if console.is_terminal else shown, style="bold", highlight=False, markup=False)


def _print_part(
    names: Sequence[str],
    lines: Sequence[Sequence[str]],
    measured: Sequence[ColumnWidth],
    shown: Sequence[int],
    console: Console,
) -> None:
    chosen = [measured[place] for place in shown]
    some = [[line[place] for place in shown] for line in lines]
    _print_columns([names[place] for place in shown], some, chosen, widths_of(chosen, console.width), console)


def _print_columns(
    names: Sequence[str],
    lines: Sequence[Sequence[str]],
    measured: Sequence[ColumnWidth],
    widths: Sequence[int],
    console: Console,
) -> None:
    heading, body = lay_out(names, lines, measured, widths)
    for line in heading:
        console.print(line, style="bold", soft_wrap=True)
    if console.is_terminal:
        console.print("─" * min(sum(widths) + GAP * (len(widths) - 1), console.width), style="dim", soft_wrap=True)
    for line in body:
        console.print(line, soft_wrap=True)


def _say_left_out(names: Sequence[str], console: Console) -> None:
    console.print(
        f"not shown, for want of room: {', '.join(names)}; --wide shows all, --columns A,B these", style="dim"
    )


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
    if math.isnan(low) or math.isnan(high):
        return format_cell(value)
    width = high - low
    if not 0 < width < math.inf:
        return f"{format_cell(value)} [{format_cell(low)}, {format_cell(high)}]"
    places = max(0, 1 - math.floor(math.log10(width)))
    shown = format_cell(value)
    shown = f"{value:.{places}f}" if len(shown.partition(".")[2]) < places or "e" in shown else shown
    return f"{shown} [{low:.{places}f}, {high:.{places}f}]"


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

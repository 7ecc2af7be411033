"""What a page is made of: sections of paragraphs, tables, figures, facts. The template turns each into HTML."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from ...engine.finding import finite
from ...engine.statistics.bootstrap import Estimate
from ..text.console import format_cell, interval_texts
from ..text.fit_to_terminal import short_name


class TableCell(NamedTuple):
    """A cell of a table: what is shown, and what is sorted and copied.

    `low`, `high` are an interval around the value, `kind` a style ("pass", "warn", "fail", "unknown", "code", "best"),
    `title` is shown beside the pointer, `picture` names the clean image of the gallery that stands beside the text.
    """

    text: str
    value: Any = None
    low: float | None = None
    high: float | None = None
    kind: str = ""
    title: str = ""
    picture: str = ""

    @property
    def ends(self) -> str:
        """Both ends of the interval, in as many digits as its width allows."""
        low, high = (math.nan if end is None else end for end in (self.low, self.high))
        return " to ".join(interval_texts(math.nan, low, high)[1:])


class Column(NamedTuple):
    """A heading and its explanation; `spare`: hidden until the reader asks for it, where the page runs its script."""

    label: str
    title: str = ""
    spare: bool = False


@dataclass(frozen=True)
class PageTable:
    """A table that sorts, filters and copies. `name` is unique on the page; `filters`: whether a filter pays."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    note: str = ""
    kind: str = "table"

    @property
    def filters(self) -> bool:
        """Whether there are enough rows to look for one."""
        return len(self.rows) > 7


@dataclass(frozen=True)
class Text:
    """A paragraph; `style`: "", "note", "warn" or "lead"."""

    text: str
    style: str = ""
    kind: str = "text"


@dataclass(frozen=True)
class Figure:
    """A drawing with what it shows."""

    name: str
    svg: Markup
    caption: str
    kind: str = "figure"


@dataclass(frozen=True)
class DefinitionList:
    """Terms and what they are: a list of (term, text)."""

    items: tuple[tuple[str, str], ...]
    cards: bool = False
    kind: str = "facts"


@dataclass(frozen=True)
class Code:
    """Text to copy as it is."""

    name: str
    label: str
    text: str
    kind: str = "code"


class Statement(NamedTuple):
    """A sentence of an answer: `state` is "", "pass", "warn", "fail" or "unknown", `link` the section that says more.

    `lead` stands before the sentence in bold, `proof` after it in small print: the test and what it could show.
    """

    text: str
    state: str = ""
    link: str = ""
    lead: str = ""
    proof: str = ""


class KeyQuestion(NamedTuple):
    """A question and what the folder says to it."""

    question: str
    lines: tuple[Statement, ...]


@dataclass(frozen=True)
class Questions:
    """Questions with their answers, the first thing on a page."""

    items: tuple[KeyQuestion, ...]
    kind: str = "answers"


class Bar(NamedTuple):
    """A value with its interval: all as shares of the axis; `text` is written beside it, `mark` is a second value."""

    label: str
    value: float
    low: float | None
    high: float | None
    text: str
    mark: float | None = None
    faint: bool = False
    title: str = ""


@dataclass(frozen=True)
class Bars:
    """Values with their intervals, one below the other, drawn by the page's style alone: it fits any width.

    Args:
        name: unique on the page.
        caption: what it shows.
        bars: in order, from the top.
        ticks: place on the axis, as a share, and its text.
        legend: kind of mark ("bar", "mark", "faint") and what it means.
        shown: how many stand there before the reader asks for the rest.
    """

    name: str
    caption: str
    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, str], ...]
    legend: tuple[tuple[str, str], ...] = ()
    shown: int = 10
    kind: str = "bars"


@dataclass(frozen=True)
class TwoColumns:
    """Blocks in two columns where the page is wide."""

    left: tuple[Any, ...]
    right: tuple[Any, ...]
    kind: str = "beside"


@dataclass(frozen=True)
class Panels:
    """Drawings beside each other, to be compared; those after the first `shown` stand behind a line that opens them."""

    figures: tuple[Any, ...]
    shown: int = 6
    kind: str = "panels"


@dataclass(frozen=True)
class Collapsible:
    """Blocks behind a line that opens them."""

    title: str
    blocks: tuple[Any, ...]
    kind: str = "fold"


@dataclass(frozen=True)
class HeatMap:
    """Models by attacks, in one metric at a time: `data` holds all of them for the page's script."""

    name: str
    caption: str
    table: PageTable
    choices: tuple[tuple[str, str], ...]
    data: Any
    kind: str = "heat"


@dataclass(frozen=True)
class Picture:
    """An example under attack: `clean` names its clean image in the gallery, `uris` hold the rest.

    `change` says by how much the picture of the change is amplified, or why there is none.
    """

    model: str
    attack: str
    image: str
    outcome: str
    clean: str
    uris: dict[str, str]
    lines: tuple[str, ...]
    change: str = "change"

    @property
    def style(self) -> Markup:
        """The data URIs as CSS custom properties; base64 holds nothing that could end an attribute."""
        return style_of(self.uris)


@dataclass(frozen=True)
class Gallery:
    """Pictures that can be chosen by model, attack and image; `clean`: data URIs by clean image."""

    pictures: tuple[Picture, ...]
    clean: dict[str, dict[str, str]]
    note: str
    kind: str = "gallery"

    def names(self, field_name: str) -> list[str]:
        """The different values of "model", "attack", "image" or "outcome", in order."""
        return list(dict.fromkeys(getattr(picture, field_name) for picture in self.pictures))

    @property
    def styles(self) -> list[tuple[str, Markup]]:
        """Class and custom properties of each clean image: written once, however many attacks there are on it."""
        return [(key, style_of(uris)) for key, uris in self.clean.items()]


class Thumbnail(NamedTuple):
    """A small picture: what it shows, and the picture itself as a data URI."""

    title: str
    uri: str


@dataclass(frozen=True)
class PictureGrid:
    """Rows of small pictures, each row with a name."""

    name: str
    caption: str
    rows: tuple[tuple[str, tuple[Thumbnail, ...]], ...]
    kind: str = "pictures"


def style_of(uris: dict[str, str]) -> Markup:
    """Data URIs as CSS custom properties."""
    return Markup(";".join(f"--{name}:url({uri})" for name, uri in uris.items()))


@dataclass(frozen=True)
class Section:
    """A part of the page that the navigation names; `badge` is a short count beside it."""

    name: str
    title: str
    lead: str
    blocks: tuple[Any, ...] = field(default=())
    badge: str = ""


def entry(value: Any, *, kind: str = "", title: str = "") -> TableCell:
    """A cell from a value: text as it is, numbers with three digits, an estimate with its interval."""
    if isinstance(value, TableCell):
        return value
    value = short_name(value) if isinstance(value, str) else value
    if isinstance(value, Estimate):
        n = f"n = {value.n}"
        return TableCell(
            interval_texts(float(value.value), float(value.low), float(value.high))[0],
            finite(value.value),
            finite(value.low),
            finite(value.high),
            kind,
            f"{title}; {n}" if title else n,
        )
    if isinstance(value, np.generic):
        value = value.item()
    number = finite(value) if isinstance(value, float) else value
    return TableCell(format_cell(value), number, kind=kind, title=title)


def make_table(
    name: str, caption: str, columns: Iterable[str | Column], rows: Iterable[Sequence[Any]], *, note: str = ""
) -> PageTable:
    """A table from plain values."""
    heads = tuple(Column(column) if isinstance(column, str) else column for column in columns)
    return PageTable(name, caption, heads, tuple(tuple(entry(value) for value in row) for row in rows), note)


def list_table(
    name: str,
    caption: str,
    items: Iterable[Any],
    columns: Sequence[tuple[str | Column, Callable[[Any], Any]]],
    *,
    note: str = "",
) -> PageTable:
    """A table with a row for each item; a column is its heading and what it shows of an item."""
    rows = [[show(item) for _, show in columns] for item in items]
    return make_table(name, caption, [head for head, _ in columns], rows, note=note)


def badge(state: str, text: str = "") -> TableCell:
    """A word with a colour and a sign: pass, warn, fail or unknown."""
    return TableCell(text or state, state, kind=state)

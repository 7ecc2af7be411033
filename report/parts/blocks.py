"""Page elements: sections of paragraphs, tables, figures and definitions, which the template renders as HTML."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from ...engine.finding import finite
from ...engine.statistics.bootstrap import Estimate
from ..text.console import format_cell, heading, interval_texts
from ..text.fit_to_terminal import short_name


class TableCell(NamedTuple):
    """Table cell: the displayed text, and the value for sorting and copying.

    `low` and `high` are an interval around the value. `kind` is a style: "pass", "warn", "fail", "unknown", "code" or
    "best". `title` is a tooltip. `picture` names the clean image that is shown next to the text.
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
        """Both bounds of the interval as text, with as many digits as the interval's width supports."""
        low, high = (math.nan if end is None else end for end in (self.low, self.high))
        return " to ".join(interval_texts(math.nan, low, high)[1:])


class Column(NamedTuple):
    """Column heading and its explanation.

    The page's script hides a `spare` column until the reader shows it. It hides a `wide` column on narrow screens.
    """

    label: str
    title: str = ""
    spare: bool = False
    wide: bool = False


@dataclass(frozen=True)
class PageTable:
    """Table with sorting, filters and copying. `name` is unique on the page."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    note: str = ""
    kind: str = "table"

    @property
    def filters(self) -> bool:
        """Whether the table has enough rows to need a filter."""
        return len(self.rows) > 7


@dataclass(frozen=True)
class Text:
    """Paragraph. `style` is "", "note", "warn" or "lead"."""

    text: str
    style: str = ""
    kind: str = "text"


@dataclass(frozen=True)
class Figure:
    """Drawing with its caption."""

    name: str
    svg: Markup
    caption: str
    kind: str = "figure"


@dataclass(frozen=True)
class DefinitionList:
    """Definition list of (term, text) pairs."""

    items: tuple[tuple[str, str], ...]
    cards: bool = False
    kind: str = "facts"


@dataclass(frozen=True)
class Code:
    """Preformatted text to copy."""

    name: str
    label: str
    text: str
    kind: str = "code"


class Statement(NamedTuple):
    """One sentence of an answer.

    `state` is "", "pass", "warn", "fail" or "unknown". `link` names the section with details. `lead` is printed in bold
    before the sentence. `proof` is the test and its power, printed in small type after the sentence.
    """

    text: str
    state: str = ""
    link: str = ""
    lead: str = ""
    proof: str = ""


class KeyQuestion(NamedTuple):
    """Key question with the statements that answer it."""

    question: str
    lines: tuple[Statement, ...]


@dataclass(frozen=True)
class Questions:
    """Key questions with their answers, at the top of a page."""

    items: tuple[KeyQuestion, ...]
    kind: str = "answers"


class Bar(NamedTuple):
    """Value with its interval, as fractions of the axis. `text` is the label, and `mark` a second value."""

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
    """Horizontal bars with intervals, drawn with CSS only, so that they fit any width.

    Args:
        name: name, which is unique on the page.
        caption: caption of the chart.
        bars: bars from top to bottom.
        ticks: ticks of the axis: position as a fraction, and label.
        legend: legend entries: kind of mark ("bar", "mark", "faint") and its meaning.
        shown: number of bars that are visible initially.
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
    """Blocks in two columns on wide pages."""

    left: tuple[Any, ...]
    right: tuple[Any, ...]
    kind: str = "beside"


@dataclass(frozen=True)
class Panels:
    """Drawings side by side. Those after the first `shown` are collapsed under `more`, which states their number."""

    figures: tuple[Any, ...]
    shown: int = 6
    more: str = "More drawings ({})"
    kind: str = "panels"


@dataclass(frozen=True)
class Collapsible:
    """Blocks under a heading, hidden until the reader expands them."""

    title: str
    blocks: tuple[Any, ...]
    kind: str = "fold"


@dataclass(frozen=True)
class HeatMap:
    """Matrix of models and attacks that shows one metric at a time.

    `data` has the values of all metrics for the page's script.
    """

    name: str
    caption: str
    table: PageTable
    choices: tuple[tuple[str, str], ...]
    data: Any
    kind: str = "heat"


@dataclass(frozen=True)
class Picture:
    """Adversarial example. `clean` names its clean image in the gallery, and `uris` are its data URIs.

    `change` is the amplification factor of the perturbation picture, or empty if there is no such picture.
    """

    model: str
    attack: str
    image: str
    outcome: str
    clean: str
    uris: dict[str, str]
    lines: tuple[str, ...]
    change: str = ""

    @property
    def style(self) -> Markup:
        """Data URIs as CSS custom properties. Base64 has no character that could end an HTML attribute."""
        return style_of(self.uris)


@dataclass(frozen=True)
class Gallery:
    """Pictures that the reader can filter by model, attack and image. `clean` maps clean images to data URIs."""

    pictures: tuple[Picture, ...]
    clean: dict[str, dict[str, str]]
    note: str
    kind: str = "gallery"

    def names(self, field_name: str) -> list[str]:
        """Return the distinct values of "model", "attack", "image" or "outcome", in order."""
        return list(dict.fromkeys(getattr(picture, field_name) for picture in self.pictures))

    @property
    def styles(self) -> list[tuple[str, Markup]]:
        """CSS class and custom properties of each clean image. They are written once and shared by all attacks."""
        return [(key, style_of(uris)) for key, uris in self.clean.items()]


class Thumbnail(NamedTuple):
    """Small picture as a data URI, with its description."""

    title: str
    uri: str


@dataclass(frozen=True)
class PictureGrid:
    """Named rows of small pictures."""

    name: str
    caption: str
    rows: tuple[tuple[str, tuple[Thumbnail, ...]], ...]
    kind: str = "pictures"


def style_of(uris: dict[str, str]) -> Markup:
    """Return data URIs as CSS custom properties."""
    return Markup(";".join(f"--{name}:url({uri})" for name, uri in uris.items()))


@dataclass(frozen=True)
class Section:
    """Section of the page, with a navigation entry. `badge` is a short count in the navigation."""

    name: str
    title: str
    lead: str
    blocks: tuple[Any, ...] = field(default=())
    badge: str = ""


def entry(value: Any, *, kind: str = "", title: str = "") -> TableCell:
    """Build a table cell. Text is unchanged, numbers get three digits, and estimates get intervals."""
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


def label_column(label: str) -> Column:
    """Return the column for a label of a results table, with its displayed heading."""
    return Column(heading(label))


def make_table(
    name: str, caption: str, columns: Iterable[str | Column], rows: Iterable[Sequence[Any]], *, note: str = ""
) -> PageTable:
    """Build a table from plain values."""
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
    """Build a table with one row per item. Each column is a heading and a function that returns an item's cell."""
    rows = [[show(item) for _, show in columns] for item in items]
    return make_table(name, caption, [head for head, _ in columns], rows, note=note)


def badge(state: str, text: str = "") -> TableCell:
    """Build a coloured label: pass, warn, fail or unknown."""
    return TableCell(text or state, state, kind=state)

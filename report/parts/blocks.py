"""Elements of a report page, such as sections, tables and figures. The page's template renders them as HTML."""

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
    """Cell of a table.

    Args:
        text: displayed text.
        value: value for sorting and copying.
        low: lower bound of the interval around the value. None if there is no interval.
        high: upper bound of the interval around the value.
        kind: style of the cell: "pass", "warn", "fail", "unknown", "code", "best" or "".
        title: tooltip.
        picture: name of the clean image that is shown next to the text. "" for no image.
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
        """Both bounds of the interval as text, with as many digits as the width of the interval supports."""
        low, high = (math.nan if end is None else end for end in (self.low, self.high))
        return " to ".join(interval_texts(math.nan, low, high)[1:])


class Column(NamedTuple):
    """Column of a table.

    Args:
        label: heading.
        title: explanation of the column, shown as a tooltip.
        spare: whether the column is hidden until the reader of the page shows it.
        wide: whether the column is hidden on narrow screens.
    """

    label: str
    title: str = ""
    spare: bool = False
    wide: bool = False


@dataclass(frozen=True)
class PageTable:
    """Table that the reader of the page can sort, filter and copy. `note` is the text below the table.

    `name` identifies the table and is unique on the page.
    """

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
    """Paragraph of text. `style` is "", "note", "warn" or "lead"."""

    text: str
    style: str = ""
    kind: str = "text"


@dataclass(frozen=True)
class Figure:
    """Drawing as SVG, with a caption."""

    name: str
    svg: Markup
    caption: str
    kind: str = "figure"


@dataclass(frozen=True)
class DefinitionList:
    """List of terms and their explanations."""

    items: tuple[tuple[str, str], ...]
    cards: bool = False
    kind: str = "facts"


@dataclass(frozen=True)
class Code:
    """Preformatted text, such as a command, that the reader of the page can copy."""

    name: str
    label: str
    text: str
    kind: str = "code"


class Statement(NamedTuple):
    """One sentence of the answer to a key question.

    Args:
        text: sentence.
        state: "", "pass", "warn", "fail" or "unknown", which selects the colour.
        link: name of the section with details.
        lead: text in bold before the sentence.
        proof: test and its power, in small type after the sentence.
    """

    text: str
    state: str = ""
    link: str = ""
    lead: str = ""
    proof: str = ""


class KeyQuestion(NamedTuple):
    """Key question of the report, with the statements that answer the question."""

    question: str
    lines: tuple[Statement, ...]


@dataclass(frozen=True)
class Questions:
    """Key questions with their answers, at the top of a page."""

    items: tuple[KeyQuestion, ...]
    kind: str = "answers"


class Bar(NamedTuple):
    """Bar with an interval, as part of `Bars`.

    Args:
        label: name next to the bar.
        value: length of the bar, as a fraction of the axis.
        low: lower bound of the interval, as a fraction of the axis. None if there is no interval.
        high: upper bound of the interval, as a fraction of the axis.
        text: value and interval as text.
        mark: position of a second value on the axis. None if there is no second value.
        faint: whether the bar is drawn in a faint colour.
        title: tooltip.
    """

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
    """Chart of horizontal bars with intervals. The chart is drawn with CSS only, so that it fits any width.

    Args:
        name: name of the chart, which is unique on the page.
        caption: caption of the chart.
        bars: bars from top to bottom.
        ticks: ticks of the axis: position as a fraction, and label.
        legend: legend entries: kind of mark ("bar", "mark", "faint") and its meaning.
        shown: number of bars that are visible at first.
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
    """Blocks that are arranged in two columns on wide pages."""

    left: tuple[Any, ...]
    right: tuple[Any, ...]
    kind: str = "beside"


@dataclass(frozen=True)
class Panels:
    """Drawings side by side. Only the first `shown` drawings are visible at first.

    `more` is the heading under which the other drawings are collapsed. "{}" is replaced by their number.
    """

    figures: tuple[Any, ...]
    shown: int = 6
    more: str = "More drawings ({})"
    kind: str = "panels"


@dataclass(frozen=True)
class Collapsible:
    """Blocks under a heading. The blocks are hidden until the reader of the page expands them."""

    title: str
    blocks: tuple[Any, ...]
    kind: str = "fold"


@dataclass(frozen=True)
class HeatMap:
    """Matrix of models and attacks that shows one metric at a time.

    Args:
        name: name, which is unique on the page.
        caption: caption.
        table: matrix with the values of the first metric.
        choices: symbol and description of each metric.
        data: values of all metrics, for the script of the page.
    """

    name: str
    caption: str
    table: PageTable
    choices: tuple[tuple[str, str], ...]
    data: Any
    kind: str = "heat"


@dataclass(frozen=True)
class Picture:
    """Adversarial example in a gallery.

    Args:
        model: name of the model.
        attack: name of the attack run.
        image: name of the image.
        outcome: "fooled", "robust", "invalid" or "wrong when clean".
        clean: name of the clean image in the gallery.
        uris: data URIs of the pictures: adversarial image, amplified change, activation map.
        lines: lines of text below the picture.
        change: amplification factor as text. "" if there is no picture of the change.
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
        """Pictures as CSS custom properties, which contain the data URIs."""
        return style_of(self.uris)


@dataclass(frozen=True)
class Gallery:
    """Pictures of adversarial examples. The reader of the page can filter by model, attack and image.

    `clean` has the data URIs of each clean image, by name of the image. `note` is the text below the pictures.
    """

    pictures: tuple[Picture, ...]
    clean: dict[str, dict[str, str]]
    note: str
    kind: str = "gallery"

    def names(self, field_name: str) -> list[str]:
        """Return the distinct values of a field of the pictures: "model", "attack", "image" or "outcome"."""
        return list(dict.fromkeys(getattr(picture, field_name) for picture in self.pictures))

    @property
    def styles(self) -> list[tuple[str, Markup]]:
        """CSS class and custom properties of each clean image. All attacks on an image share these pictures."""
        return [(key, style_of(uris)) for key, uris in self.clean.items()]


class Thumbnail(NamedTuple):
    """Small picture as a data URI, with a description."""

    title: str
    uri: str


@dataclass(frozen=True)
class PictureGrid:
    """Rows of small pictures. Each row has a name."""

    name: str
    caption: str
    rows: tuple[tuple[str, tuple[Thumbnail, ...]], ...]
    kind: str = "pictures"


def style_of(uris: dict[str, str]) -> Markup:
    """Return CSS custom properties that contain data URIs, by name of the property."""
    return Markup(";".join(f"--{name}:url({uri})" for name, uri in uris.items()))


@dataclass(frozen=True)
class Section:
    """Section of the page, with an entry in the navigation. `name` is unique on the page.

    `lead` is an introduction. `badge` is a short count next to the entry in the navigation.
    """

    name: str
    title: str
    lead: str
    blocks: tuple[Any, ...] = field(default=())
    badge: str = ""


def entry(value: Any, *, kind: str = "", title: str = "") -> TableCell:
    """Build a table cell from a value. Numbers are shown with three digits, and estimates get an interval.

    Args:
        value: text, number or estimate. A table cell is returned unchanged.
        kind: style of the cell.
        title: tooltip.
    """
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
    """Return the table column for a label of a results table."""
    return Column(heading(label))


def make_table(
    name: str, caption: str, columns: Iterable[str | Column], rows: Iterable[Sequence[Any]], *, note: str = ""
) -> PageTable:
    """Build a table from plain values. The format of a value is described in `entry`."""
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
    """Build a table with one row per item. A column is a heading and a function that returns the value for an item."""
    rows = [[show(item) for _, show in columns] for item in items]
    return make_table(name, caption, [head for head, _ in columns], rows, note=note)


def badge(state: str, text: str = "") -> TableCell:
    """Build a coloured table cell for a state: "pass", "warn", "fail" or "unknown". The default text is the state."""
    return TableCell(text or state, state, kind=state)

"""Arranges davylamp's numbers and the published numbers in the rows and columns of the paper's table."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.console import Console

from ...errors import InvalidInput
from ...report.text.console import format_cell, print_table
from .paper_numbers import load_published
from .paper_result import print_first

METRIC = "metric"  # in a layout: the paper's column
Side = Literal["both", "ours", "published"]


class GridCell(NamedTuple):
    """A cell of a paper's table.

    Args:
        ours: number computed by davylamp. None if there is none.
        published: published number. None if there is none.
    """

    ours: float | None = None
    published: float | None = None

    def show(self, side: Side) -> str:
        """Format the cell.

        Args:
            side: "both" for both numbers as "OURS / PUBLISHED", or "ours" or "published" for one number.
        """
        texts = {"ours": _text(self.ours), "published": _text(self.published)}
        if side != "both":
            return texts[side]
        return "" if self == GridCell() else f"{texts['ours'] or '-'} / {texts['published'] or '-'}"


class GridPart(NamedTuple):
    """A part of a paper's table, such as "(a) CIFAR-10".

    Args:
        title: title of the part. "" if the table has one part.
        keys: headings of the first columns, which contain the names of the rows.
        columns: headings of the columns with numbers.
        rows: the names and the cells of each row.
    """

    title: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[GridCell, ...]], ...]

    def records(self, side: Literal["ours", "published"]) -> list[dict[str, Any]]:
        """Return a dictionary for each row: title of the part, names of the row, and numbers by column."""
        return [
            {
                "part": self.title,
                **dict(zip(self.keys, names, strict=True)),
                **{name: getattr(cell, side) for name, cell in zip(self.columns, cells, strict=True)},
            }
            for names, cells in self.rows
        ]

    def texts(self, side: Side) -> list[list[str]]:
        """Return each row as a list of texts: first the names, then the cells, formatted by `GridCell.show`."""
        return [[*names, *(cell.show(side) for cell in cells)] for names, cells in self.rows]


def build_grid(table: str | Path, lines: Iterable[Mapping[str, Any]] = ()) -> list[GridPart]:
    """Arrange published numbers and computed numbers as in the paper's table.

    The JSON file of the table may have an entry `layout`. It lists the labels that distinguish "parts", "rows" and
    "columns" of the table. The label "metric" is the name of the published column. Without a layout, the labels of a
    published row are the names of the row, and each column has one metric.

    Args:
        table: name of the published table, or path of a JSON file (see `load_published`).
        lines: computed numbers, as the "lines" in a result of `SettingRun.report`. Empty for published numbers only.

    Raises:
        InvalidInput: If the paper prints no numbers, or if no computed number belongs to a cell of the table.
    """
    document = load_published(table)
    rows, lines = document["rows"], list(lines)
    layout = document.get("layout") or _default_layout(rows)
    theirs = [({**_labels(row), METRIC: name}, value) for row in rows for name, value in _numbers(row).items()]
    if not theirs or any("statement" in row for row in rows):
        raise InvalidInput(f"{Path(table).stem} has no published table: the paper prints a figure or a text")
    placed = [({**labels, METRIC: line["column"]}, line["ours"]) for line, labels in _placed(lines, rows)]
    if lines and not placed:
        raise InvalidInput(f"no computed number belongs to a cell of {Path(table).stem}")
    known = [labels for labels, _ in (*theirs, *placed)]
    cells: dict[Any, GridCell] = {}
    for labels, value in theirs:
        cells[_place(labels, layout)] = GridCell(None, value)
    for labels, value in placed:
        place = _place(labels, layout)
        cells[place] = cells.get(place, GridCell())._replace(ours=value)
    return [_part(title, known, layout, cells) for title in dict.fromkeys(_at(each, layout, "parts") for each in known)]


def _part(
    title: tuple[str, ...], known: Sequence[Mapping[str, str]], layout: Mapping[str, Any], cells: Mapping[Any, GridCell]
) -> GridPart:
    inside = [labels for labels in known if _at(labels, layout, "parts") == title]
    columns = list(dict.fromkeys(_at(labels, layout, "columns") for labels in inside))
    names = list(dict.fromkeys(_at(labels, layout, "rows") for labels in inside))
    rows = tuple((name, tuple(cells.get((title, name, column), GridCell()) for column in columns)) for name in names)
    keys = tuple(layout["rows"])
    used = [place for place in range(len(keys)) if any(name[place] for name in names)]
    return GridPart(
        " ".join(title),
        tuple(keys[place] for place in used),
        tuple(" ".join(filter(None, column)) for column in columns),
        tuple((tuple(name[place] for place in used), numbers) for name, numbers in rows),
    )


def _at(labels: Mapping[str, str], layout: Mapping[str, Any], part: str) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in layout.get(part, ()))


def _place(labels: Mapping[str, str], layout: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    return tuple(_at(labels, layout, part) for part in ("parts", "rows", "columns"))


def _placed(
    lines: Iterable[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> list[tuple[Mapping[str, Any], dict[str, str]]]:
    """Return the computed lines that belong to a published row, each with all labels of the published row.

    If several evaluated models correspond to the same model of the paper, the label "model" also has the name of the
    evaluated model, so that each evaluated model gets its own row.
    """
    labelled = [line for line in lines if line["labels"]]
    ours: dict[Any, set[str]] = {}
    for line in labelled:
        ours.setdefault((*sorted(line["labels"].items()), line["column"]), set()).add(line["model"] or "")
    shared = {dict(key[:-1]).get("model") for key, models in ours.items() if len(models) > 1}
    placed = []
    for line in labelled:
        labels = dict(line["labels"])
        matching = [_labels(row) for row in rows if labels.items() <= row.items()]
        if len(matching) == 1:
            labels = matching[0]
        if "model" in labels and labels["model"] in shared:
            labels["model"] = f"{line['model']} ({labels['model']})"
        placed.append((line, labels))
    return placed


def _default_layout(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"parts": [], "rows": [*dict.fromkeys(name for row in rows for name in _labels(row))], "columns": [METRIC]}


def _labels(row: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in row.items() if isinstance(value, str)}


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    numeric = {name: value for name, value in row.items() if isinstance(value, (int, float))}
    return {name: value for name, value in numeric.items() if not isinstance(value, bool)}


def _text(value: float | None) -> str:
    return "" if value is None else format_cell(float(value))


def print_grid(result: Mapping[str, Any], parts: Sequence[GridPart], side: Side, console: Console) -> None:
    """Print numbers in the form of the paper's table.

    Args:
        result: result of the reproduction, or of `PaperTable.published_result`.
        parts: parts of the table, from `build_grid`.
        side: which numbers to print: "ours", "published" or "both".
        console: output console.
    """
    if "stand_ins" in result and side != "published":
        print_first(result, console)
    for part in parts:
        title = f"{result['table']} {part.title}".strip() + (": ours / published" if side == "both" else f": {side}")
        columns = [*part.keys, *part.columns]
        print_table(title, columns, part.texts(side), console, keys=len(part.keys), rest="stack")
    for text in (result["source"], result["unit"]):
        console.print(f"- {text}", highlight=False, markup=False)
    if "images" in result and side != "published":
        console.print(f"- {result['images']} images; the long form has intervals", highlight=False, markup=False)

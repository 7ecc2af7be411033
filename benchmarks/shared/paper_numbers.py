"""Loads the published numbers of papers, from `PAPER/published/*.json` or from a user's JSON file."""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

from ...errors import InvalidInput, Unavailable


def load_published(table: str | Path) -> dict[str, Any]:
    """Load a published table from a JSON file.

    Args:
        table: path of a JSON file, or a name such as "canary_table4" for `canary/published/table4.json`.

    Returns:
        The content of the file, with these keys:

        - "source": the paper and the place in the paper;
        - "unit" or "note": meaning of the numbers;
        - "rows": a dictionary for each row. Texts are labels of the row, such as "model" and "attack". Numbers are
          columns. A number that the paper does not print is missing or None.

    Raises:
        Unavailable: If the file cannot be read.
        InvalidInput: If the file is not valid JSON, or has no source, unit or rows.
    """
    path: Any = Path(table)
    if isinstance(table, str) and path.suffix != ".json":
        paper, _, name = table.partition("_")
        path = files("davylamp.benchmarks").joinpath(f"{paper}/published/{name}.json")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Unavailable(f"expected a JSON file with published numbers at {path}, got: {error.strerror}") from error
    except ValueError as error:
        raise InvalidInput(f"expected JSON in {path}, got: {error}") from error
    _check(document, path)
    return document


def _check(table: Any, path: Any) -> None:
    if not isinstance(table, Mapping):
        raise InvalidInput(f"expected an object with source, unit and rows in {path}, got {type(table).__name__}")
    if not (isinstance(table.get("source"), str) and table["source"].strip()):
        raise InvalidInput(f'{path}: expected "source", the paper and the place in it, got {table.get("source")!r:.60}')
    if not (table.get("unit") or table.get("note")):
        raise InvalidInput(f'{path}: expected "unit" (such as "fractions") or "note", got neither')
    rows = table.get("rows")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise InvalidInput(f'{path}: expected "rows", a list of objects, got {rows!r:.60}')


def load_rows(table: str | Path) -> list[dict[str, Any]]:
    """Return the rows of a published table (see `load_published`)."""
    return load_published(table)["rows"]


def find_place(table: str | Path, **labels: Any) -> int:
    """Return the index of the first published row with given labels. If there is none, return the number of rows."""
    rows = load_rows(table)
    return next((i for i, row in enumerate(rows) if labels.items() <= row.items()), len(rows))


def find_value(table: str | Path, symbol: str, **labels: Any) -> float | None:
    """Return the number in a column of the first published row with given labels; None if there is no such number."""
    return next((row[symbol] for row in load_rows(table) if labels.items() <= row.items() and symbol in row), None)


def find_beside(table: str | Path, symbol: str, **labels: Any) -> tuple[float | None, str]:
    """Return the published number with which a computed number is compared.

    Args:
        table: name or path of the published table.
        symbol: name of the published column.
        **labels: labels of the published rows. Without the label `model`, several rows may match; their mean is taken.

    Returns:
        The number, or None if no row has this number. Then a description of its origin: the name of a model, or "mean
        of N models".
    """
    rows = [row for row in load_rows(table) if labels.items() <= row.items() and row.get(symbol) is not None]
    if len(rows) > 1:
        return fmean(row[symbol] for row in rows), f"mean of {len(rows)} models"
    model = rows[0].get("model", "the paper's") if rows else labels.get("model", "-")
    return (rows[0][symbol] if rows else None), model

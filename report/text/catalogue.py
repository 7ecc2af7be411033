"""The catalogue as a table or as JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .console import format_cell, make_console, print_table

_COLUMNS = (
    "attack", "implementation", "class", "norms", "knowledge", "kind", "targeted", "status", "defaults", "findings",
)  # fmt: skip


def catalogue_json(rows: Sequence[Mapping[str, Any]]) -> str:
    """One JSON list, a record per implementation."""
    return json.dumps([_plain(dict(row)) for row in rows], indent=2, allow_nan=False)


def print_catalogue(
    rows: Sequence[Mapping[str, Any]], findings: Mapping[str, str], parameters: Mapping[str, str]
) -> None:
    """Print the implementations; for few of them also what repairs, findings and parameters mean.

    Args:
        rows: a record per implementation, see `adapters.describe`.
        findings: id -> sentence.
        parameters: canonical name -> meaning.
    """
    console = make_console()
    cells = [[row[column] for column in _COLUMNS] for row in rows]
    print_table("", _COLUMNS, cells, console)
    if len({row["attack"] for row in rows}) > 1:
        shown = sorted({key for row in rows for key in row["findings"]})
        console.print("\nKnown findings (the row runs as the library ships it):", style="bold")
        for key in shown:
            console.print(f"  {key}: {findings[key]}", highlight=False, markup=False)
        return
    for row in rows:
        for kind, lines in (("repair", row["repairs"]), ("finding", [findings[key] for key in row["findings"]])):
            for line in lines:
                console.print(f"{row['implementation']}: {kind}: {line}", highlight=False, markup=False)
        if row["broken"]:
            console.print(f"{row['implementation']}: broken: {row['broken']}", highlight=False, markup=False)
    names = dict.fromkeys(name for row in rows for name in row["parameters"])
    print_table("Parameters", ("name", "meaning"), [(name, parameters[name]) for name in names], console)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else format_cell(value)

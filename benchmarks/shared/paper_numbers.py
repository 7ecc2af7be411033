"""The numbers of the papers: `PAPER/published/*.json`, with their sources."""

import json
from importlib.resources import files
from typing import Any


def load_published(table: str) -> dict[str, Any]:
    """A published table: `source`, `rows`, and `unit` or `note`.

    Args:
        table: "canary_table4" is `canary/published/table4.json`.
    """
    paper, _, name = table.partition("_")
    path = files("davylamp.benchmarks").joinpath(f"{paper}/published/{name}.json")
    return json.loads(path.read_text(encoding="utf-8"))


def find_place(table: str, **labels: Any) -> int:
    """Where a published row is in its table; past the end if it is not there."""
    rows = load_published(table)["rows"]
    return next((i for i, row in enumerate(rows) if labels.items() <= row.items()), len(rows))


def find_value(table: str, symbol: str, **labels: Any) -> float | None:
    """The published number of a row, None if there is no such row or it has no such number."""
    rows = load_published(table)["rows"]
    return next((row[symbol] for row in rows if labels.items() <= row.items() and symbol in row), None)

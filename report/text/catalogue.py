"""Prints the catalogue of attacks as a table or as JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...adapters.display_text import format_radius
from .console import PlainConsole, format_cell, print_notes, print_table

SHORT = ("attack", "libraries", "norms", "knowledge", "kind", "title")
_COLUMNS = (
    "attack", "implementation", "class", "norms", "knowledge", "kind", "targeted", "status", "defaults", "findings",
)  # fmt: skip


def catalogue_json(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the records of implementations as a JSON list."""
    return json.dumps([_plain(dict(row)) for row in rows], indent=2, allow_nan=False)


def print_attacks(attacks: Sequence[Mapping[str, Any]], console: PlainConsole) -> None:
    """Print a list of attacks.

    On a terminal, the names are grouped by kind of attack. Otherwise, each attack has a line with its libraries and
    norms.

    Args:
        attacks: one record per attack, with the fields attack, title, norms, knowledge, kind and libraries.
        console: output console.
    """
    page = console.page
    if console.has_screen and page is not None and page.short:
        groups: dict[str, list[str]] = {}
        for attack in attacks:
            groups.setdefault(f"{attack['knowledge']}, {attack['kind']}", []).append(attack["attack"])
        for group, names in groups.items():
            console.print(f"{group} ({len(names)})", style="bold")
            console.print(", ".join(names))
        console.print("-v: one line per attack, with libraries and norms")
    else:
        print_table("", SHORT, [[attack[column] for column in SHORT] for attack in attacks], console)
    ending = "`davylamp attacks NAME`: parameters, defaults and known issues of an attack; --wide: every implementation"
    console.print(f"\n{len(attacks)} attacks. {ending}")


def print_catalogue(
    rows: Sequence[Mapping[str, Any]], findings: Mapping[str, str], parameters: Mapping[str, str], console: PlainConsole
) -> None:
    """Print a table of implementations and their known issues.

    If all implementations belong to the same attack, patches and parameters are also explained.

    Args:
        rows: one record per implementation, from `adapters.describe`.
        findings: descriptions of all known issues, by id.
        parameters: meaning of each canonical parameter.
        console: output console.
    """
    several = len({row["attack"] for row in rows}) > 1
    columns = _COLUMNS if several else tuple(name for name in ("implementation", *_COLUMNS[2:-1]))
    cells = [[_cell(row, column) for column in columns] for row in rows]
    print_table("", columns, cells, console, keys=2 if several else 1, rest="blocks")
    if several:
        shown = sorted({key for row in rows for key in row["findings"]})
        console.print("\nKnown issues (the implementation runs as the library ships it):", style="bold")
        print_notes([f"{key}: {findings[key]}" for key in shown], console)
        return
    for row in rows:
        remarks = [("broken", row["broken"])] if row["broken"] else []
        remarks += [("known issue", findings[key]) for key in row["findings"]]
        remarks += [("patch", text) for text in row["repairs"]]
        print_notes([f"{row['implementation']}: {kind}: {text}" for kind, text in remarks], console)
    names = dict.fromkeys(name for row in rows for name in row["parameters"])
    print_table("Parameters", ("name", "meaning"), [(name, parameters[name]) for name in names], console)


def _cell(row: Mapping[str, Any], column: str) -> Any:
    """Return the value of a table cell. Defaults that depend on the norm become text, grouped by norm."""
    value = row[column]
    if column == "defaults" and isinstance(value, Mapping):
        value = _with_radii(value)
    if (
        column == "defaults"
        and isinstance(value, Mapping)
        and any(isinstance(each, Mapping) for each in value.values())
    ):
        return "; ".join(f"{norm}: {format_cell(each)}" for norm, each in value.items())
    return value


def _with_radii(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return defaults with step sizes formatted like radii. Keys are parameters, or norms with parameters below."""
    shown: dict[str, Any] = {}
    for name, value in defaults.items():
        if isinstance(value, Mapping):
            shown[name] = _with_radii(value)
        else:
            shown[name] = format_radius("linf", value) if name == "step_size" and isinstance(value, float) else value
    return shown


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else format_cell(value)

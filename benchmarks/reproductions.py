"""Finds the tables that `davylamp reproduce` can run: davylamp's own, those of other packages, and those in user files.

Listing the tables imports neither torch nor an attack library.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import wraps
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from typing import Any, NamedTuple

from ..errors import InvalidInput, UnknownName
from .shared.paper_table import PaperTable

ENTRY_POINTS = "davylamp.paper_tables"
PAPERS = ("canary", "aisafety", "fooling", "robic", "hikdeepsec")  # each a folder with tables.py and checks.py
_CHECKS = PaperTable(
    "checks",
    "the papers' tables against each other, their text and their equations",
    compare=".shared.paper_checks:check_papers",
    show=".shared.paper_checks:print_result",
    runs_models=False,
)


class Collection(NamedTuple):
    """Tables of davylamp and of other packages.

    Args:
        tables: the tables, by name.
        refused: reason why the tables of a package cannot be used, by name of the package's entry point.
    """

    tables: dict[str, PaperTable]
    refused: dict[str, str]


def list_tables() -> dict[str, PaperTable]:
    """Return davylamp's own tables by name, in the order of `davylamp reproduce`."""
    modules = [import_module(f".{paper}.tables", __package__) for paper in PAPERS]
    return {table.name: table for table in (_CHECKS, *(table for module in modules for table in module.TABLES))}


def collect_tables() -> Collection:
    """Return davylamp's own tables, and the tables that other packages provide by entry points."""
    tables, refused = list_tables(), {}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        try:
            for table in _tables_of(point):
                if table.name in tables:
                    raise ValueError(f"there is a table {table.name} already")
                tables[table.name] = table
        except Exception as error:
            refused[point.name] = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
    return Collection(tables, refused)


def measured_seconds() -> dict[str, dict[str, float]]:
    """Return the CPU time that each table needs, in seconds, by name of the table and by size ("default" or "quick").

    The times were measured with one thread and one process. Tables without a measurement are missing.
    """
    file = files("davylamp.benchmarks").joinpath("shared/measured_seconds.json")
    return json.loads(file.read_text(encoding="utf-8"))["seconds"]


def find_table(name: str) -> PaperTable:
    """Return the table with a given name, or a table in a user's file.

    Args:
        name: name of the table, or "path/to/file.py:TABLE".

    Raises:
        UnknownName: If no table has this name.
        Unavailable: If the file does not exist.
        ModelFailed: If the file raises an error.
        InvalidInput: If the object in the file is not a `PaperTable`, or if the table of a package cannot be used.
    """
    known = list_tables()
    if name in known:
        return known[name]
    if ".py:" in name:
        return _table_of_file(name)
    known, refused = collect_tables()
    if name in known:
        return known[name]
    if name in refused:
        raise InvalidInput(f"the table {name} of another package cannot be used: {refused[name]}")
    raise UnknownName("reproduction", name, [*known, "path/to/file.py:TABLE"])


def _tables_of(point: EntryPoint) -> Iterator[PaperTable]:
    loaded = point.load()
    for table in loaded if isinstance(loaded, Iterable) else (loaded,):
        if not isinstance(table, PaperTable):
            raise TypeError(f"expected PaperTable at {point.value}, got {type(table).__name__}")
        yield table


def _table_of_file(name: str) -> PaperTable:
    """Return a table from a user's file.

    Errors in the functions of the table become one-line errors. The functions can import modules from the folder of the
    file.
    """
    from ..adapters.paths import split_file_name
    from ..adapters.user_file import load_object  # loads torch

    path, inside = split_file_name(name)
    table, surroundings = load_object(path, inside, "a paper table")
    if not isinstance(table, PaperTable):
        raise InvalidInput(f"expected a PaperTable as {name}, got {type(table).__name__}")
    if not isinstance(table.compare, str):
        table = replace(table, compare=_walled(table.compare, name, surroundings))
    if not isinstance(table.show, str):
        table = replace(table, show=_shown(_walled(table.show, name, surroundings)))
    return table


def _walled(function: Callable[..., Any], name: str, surroundings: AbstractContextManager[Any]) -> Callable[..., Any]:
    from ..adapters.user_code_guard import guard_user_code

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        with surroundings, guard_user_code(name):
            return function(*arguments, **options)

    return call


def _shown(show: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that prints what `show` prints, although the standard output of user code is suppressed."""

    @wraps(show)
    def print_result(result: Any, console: Any) -> None:
        with console.capture() as capture:
            show(result, console)
        console.file.write(capture.get())

    return print_result

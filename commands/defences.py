"""Command that lists the named defences and training methods."""

import json
from typing import Annotated, Any

import typer

from .options import Json
from .table_options import TableOptions


def list_defences(
    *,
    defence: Annotated[str | None, typer.Argument(help="show only this defence or method, with its parameters")] = None,
    view: TableOptions,
    as_json: Json = False,
) -> None:
    """List every defence (MODEL+NAME:key=value) and every training method of `davylamp harden`."""
    from ..adapters.models.defences.catalogue import LEFT_OUT, ROWS
    from ..adapters.models.defences.names import known_defences
    from ..engine.training.methods import METHODS, describe_method
    from ..errors import UnknownName

    view.check("json" if as_json else "")
    chosen = [row for row in ROWS if defence in (None, row.name, row.full_name)]
    training = [row for row in METHODS.values() if defence in (None, row.name)]
    if not chosen and not training:
        raise UnknownName("defence", str(defence), [*known_defences(), *METHODS])
    rows, methods = [_describe(row) for row in chosen], [describe_method(row) for row in training]
    if as_json:
        document = {"defences": rows, "training": methods, "left_out": dict(LEFT_OUT)}
        print(json.dumps(document, indent=2))  # noqa: T201 - the product
        return
    with view.open() as console:
        _print_defences(rows, methods, console, chosen=chosen if defence else [])
        for name, reason in {} if defence is not None else LEFT_OUT.items():
            console.print(f"not available: {name}: {reason}", highlight=False, markup=False)


def _print_defences(rows: list[Any], methods: list[Any], console: Any, *, chosen: list[Any]) -> None:
    """Print defences and training methods. For those in `chosen`, the parameters are explained."""
    from ..report.text.console import print_table

    if rows:
        shown = ("defence", "title", "defaults", "gradients", "random", "source")
        cells = [[row[name] for name in shown] for row in rows]
        print_table("", shown, cells, console, rest="blocks" if chosen else "drop")
    if methods:
        print_methods(methods, console, explained=bool(chosen) or not rows)
    for row in rows:
        for finding in row["findings"]:
            console.print(f"{row['defence']}: known issue: {finding}", highlight=False, markup=False)
    if chosen:
        meanings = {name: parameter.meaning for row in chosen for name, (parameter, _) in row.params.items()}
        if meanings:  # an ensemble has a model instead
            print_table("Parameters", ("name", "meaning"), list(meanings.items()), console)


def print_methods(methods: list[dict[str, Any]], console: Any, *, explained: bool) -> None:
    """Print training methods, followed by the parameters that all methods have."""
    from ..engine.training.methods import describe_parameter
    from ..engine.training.settings import LOOP
    from ..report.text.console import print_table

    rows = []
    for method in methods:
        numbers = {word: value for word, value in method["defaults"].items() if LOOP.get(word) != value}
        rows.append([method["method"], method["title"], numbers, " ".join(method["norms"]), method["source"]])
    print_table(
        "davylamp harden MODEL --with METHOD", ("method", "title", "defaults", "norms", "source"), rows, console
    )
    shared = ", ".join(f"{word} {value}" for word, value in LOOP.items())
    console.print(f"common defaults: {shared}", highlight=False, markup=False)
    if explained:
        words = {word: describe_parameter(word) for method in methods for word in method["defaults"]}
        print_table("Parameters", ("name", "meaning"), list(words.items()), console)
    for method in methods:
        if method["called"]:
            console.print(f"{method['method']}: {method['called']}", highlight=False, markup=False)


def _describe(row: Any) -> dict[str, Any]:
    return {
        "defence": row.full_name,
        "name": row.name,
        "library": row.library,
        "title": row.title,
        "defaults": {name: default for name, (_, default) in row.params.items()},
        "gradients": list(row.gradients),
        "random": row.random,
        "source": row.source,
        "findings": list(row.findings),
    }

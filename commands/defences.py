"""The command that lists the defences which have a name."""

import json
from typing import Annotated, Any

import typer

from .options import Json


def list_defences(
    defence: Annotated[str | None, typer.Argument(help="only this one, with its parameters explained")] = None,
    as_json: Json = False,
) -> None:
    """List every defence: MODEL+NAME:key=value is a model with it; its parameters, and how gradients pass it."""
    from ..adapters.models.defences.names import known_defences
    from ..adapters.models.defences.rows import LEFT_OUT, ROWS
    from ..errors import UnknownName
    from ..report.text.console import make_console, print_table

    chosen = [row for row in ROWS if defence in (None, row.name, row.full_name)]
    if not chosen:
        raise UnknownName("defence", str(defence), known_defences())
    rows = [_describe(row) for row in chosen]
    if as_json:
        print(json.dumps({"defences": rows, "left_out": dict(LEFT_OUT)}, indent=2))  # noqa: T201 - the product
        return
    console = make_console()
    shown = ("defence", "title", "defaults", "gradients", "random", "source")
    print_table("", shown, [[row[name] for name in shown] for row in rows], console)
    for row in rows:
        for finding in row["findings"]:
            console.print(f"{row['defence']}: finding: {finding}", highlight=False, markup=False)
    if defence is not None:
        meanings = {name: parameter.meaning for row in chosen for name, (parameter, _) in row.params.items()}
        print_table("Parameters", ("name", "meaning"), list(meanings.items()), console)
        return
    for name, reason in LEFT_OUT.items():
        console.print(f"not here: {name}: {reason}", highlight=False, markup=False)


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

"""The command that reproduces published tables: a name, a module of `benchmarks`, ours beside theirs."""

import json
from importlib import import_module
from typing import Annotated

import typer

from ..errors import UnknownName
from .options import Json

# Name: module of `benchmarks` with `run(quick=, seed=) -> dict` and `print_result(result, console)`, and its title.
REPRODUCTIONS = {
    "canary-table9": ("canary_table9", "IRT scores and ranks of 15 models, from Tables 7 and 8"),
}


def reproduce(
    name: Annotated[str | None, typer.Argument(help="of a reproduction; without it they are listed")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="a small part: does it run?")] = False,
    seed: Annotated[int, typer.Option(min=0, help="of every random choice")] = 0,
    as_json: Json = False,
) -> None:
    """Compute a published table again and set it beside the published numbers."""
    from ..report.tables import make_console, print_table

    if name is None:
        rows = [(key, title) for key, (_, title) in REPRODUCTIONS.items()]
        if as_json:
            print(json.dumps(dict(rows), indent=1))  # noqa: T201 - standard output is the product
        else:
            print_table("", ("name", "what"), rows, make_console())
        return
    if name not in REPRODUCTIONS:
        raise UnknownName("reproduction", name, REPRODUCTIONS)
    module = import_module(f"..benchmarks.{REPRODUCTIONS[name][0]}", __package__)
    result = module.run(quick=quick, seed=seed)
    if as_json:
        print(json.dumps(result, indent=1, allow_nan=False))  # noqa: T201
    else:
        module.print_result(result, make_console())

"""The commands about corruptions: the list of them, and how models bear them."""

import json
from typing import Annotated

import typer

from .options import Json


def list_corruptions(
    corruption: Annotated[str | None, typer.Argument(help="only this one")] = None,
    as_json: Json = False,
) -> None:
    """List every corruption: DATA+NAME:severity is the data with it; severities are 1 to 5."""
    from ..adapters.data.corruptions.published import CORRUPTIONS, find_corruption
    from ..report.text.console import make_console, print_table

    rows = list(CORRUPTIONS.values()) if corruption is None else [find_corruption(corruption)]
    if as_json:
        print(json.dumps({"corruptions": [row._asdict() for row in rows]}, indent=2))  # noqa: T201 - the product
        return
    console = make_console()
    lines = [[row.name, row.title, row.kind, row.alexnet, "no" if row.coloured else "yes"] for row in rows]
    print_table("", ("corruption", "title", "kind", "AlexNet's error", "grey images"), lines, console)
    text = "AlexNet's error: published, top-1 on ImageNet-C, mean of the five severities; -: no part of the mean"
    console.print(text, highlight=False, markup=False)

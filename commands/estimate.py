"""The option `--estimate` of commands that run attacks. It prints the expected time, memory and price."""

import json
from collections.abc import Callable
from typing import Annotated, Any

import typer

from .options import OUTPUT

EstimateOnly = Annotated[
    bool, typer.Option("--estimate", rich_help_panel=OUTPUT, help="estimate time, memory and price, and exit")
]


def print_estimate(verb: Callable[..., Any], *arguments: Any, as_json: bool, **keywords: Any) -> None:
    """Print the estimated time, memory and price of a call of `evaluate` or `robust_accuracy`."""
    from ..adapters.display_text import duration
    from ..api.estimating import estimate
    from ..report.text.console import make_console, print_notes, print_table

    result = estimate(verb, *arguments, **keywords)
    if as_json:
        print(json.dumps(result.to_dict(), indent=2, allow_nan=False))  # noqa: T201 - standard output is the product
        return
    console = make_console()
    console.print(result.headline)
    columns = ("model", "images", "runs", "passes", "time", "memory", "price")
    rows = [
        [
            *(each.model, each.images, each.runs, f"{each.passes:.3g}"),
            "-" if each.seconds != each.seconds else duration(each.seconds),
            "-" if each.memory != each.memory else f"{each.memory / 1e9:.1f} GB",
            f"{each.price:.6g}" if each.price else "-",
        ]
        for each in result.made
    ]
    print_table("", columns, rows, console)
    print_notes(result.notes, console)

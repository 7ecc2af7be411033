"""Command that ranks results among RobustBench's published entries."""

import json
from typing import Annotated

import typer

from .merge import Results, open_results_arguments
from .options import Json, split_models
from .table_options import TableOptions


def show_standing(
    *,
    context: typer.Context,
    folder: Results,
    model: Annotated[list[str] | None, typer.Option(help="only this model (repeatable)")] = None,
    test_set: Annotated[
        str,
        typer.Option(
            help="test set of the images, if the name of the data does not show it: cifar10, cifar100, imagenet"
        ),
    ] = "",
    neighbours: Annotated[int, typer.Option(min=1, help="published entries to show on each side")] = 4,
    view: TableOptions,
    as_json: Json = False,
) -> None:
    """Rank models among RobustBench's published entries with the same test set, norm, radius and attack."""
    from ..api.placing import standing
    from ..report.text.console import interval_text, print_notes, print_table

    view.check("json" if as_json else "")
    opened = open_results_arguments(context, [folder])
    result = standing(opened, model=split_models(model), test_set=test_set, neighbours=neighbours)
    if as_json:
        print(json.dumps(result.to_dict(), indent=2, allow_nan=False))  # noqa: T201 - standard output is the product
        return
    columns = ("rank", "model", "under AutoAttack [95 %]", "separated", "best known", "clean", "architecture", "venue")
    rows = [
        [
            *(row["rank"], row["model"], interval_text(row["autoattack"], row["low"], row["high"])),
            *("-" if row[name] is None else row[name] for name in ("separated", "best known", "clean")),
            *(row[name] or "-" for name in ("architecture", "venue")),
        ]
        for row in result.rows
    ]
    with view.open() as console:
        for line in result.headline.splitlines():
            console.print(line)
        print_table("", columns, rows, console, keys=2, order=columns[2:])
        print_notes(result.notes, console)

"""Command that checks requirements on a results folder, for continuous integration."""

import json
from pathlib import Path
from typing import Annotated

import typer

from .errors import USAGE, exits_with
from .merge import Results, open_named
from .options import OUTPUT, Json, one_format, split_models
from .table_options import TableOptions


def gate_results(
    *,
    context: typer.Context,
    folder: Results,
    require: Annotated[
        list[str],
        typer.Option(
            metavar="TEXT",
            help='requirement on a metric, with >=, >, <= or <: "RA >= 0.5", "RA >= 0.5 @ linf 8/255" (repeatable)',
        ),
    ],
    against: Annotated[
        Path | None, typer.Option(help="also fail if a metric is more than --margin worse than in this folder")
    ] = None,
    margin: Annotated[float, typer.Option(min=0, max=1, help="--against: largest accepted loss, from 0 to 1")] = 0.05,
    model: Annotated[list[str] | None, typer.Option(help="only this model (repeatable)")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="also fail if an indicator of `davylamp check` fails")
    ] = False,
    junit: Annotated[
        Path | None, typer.Option(rich_help_panel=OUTPUT, help="also write JUnit XML into this file")
    ] = None,
    sarif: Annotated[
        Path | None, typer.Option(rich_help_panel=OUTPUT, help="also write SARIF 2.1.0 into this file")
    ] = None,
    view: TableOptions,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", rich_help_panel=OUTPUT, help="print Markdown, for a pull request")
    ] = False,
    as_json: Json = False,
) -> None:
    """Decide whether a results folder meets requirements such as "RA >= 0.5", by 95 % intervals.

    Exit codes: 0 if all requirements are met, 1 if one is not met, 3 if there are too few images, 2 for wrong usage.
    """
    from .. import __version__
    from ..api.gating import gate
    from ..engine.store.atomic_files import write_atomic
    from ..report.text.gate import gate_junit, gate_markdown, gate_sarif, print_gate

    form = one_format({"markdown": as_markdown, "json": as_json})
    view.check(form)
    for file in (junit, sarif):  # that of an earlier job must not be taken for the result of this one
        if file is not None and file.is_file():
            file.unlink()
    with exits_with(USAGE):
        opened, before, titles = open_named(context, [folder], None if against is None else str(against))
        result = gate(opened, require, against=before, margin=margin, model=split_models(model), strict=strict)
    document = {**result.to_dict(), "folder": str(folder)}
    document["notes"] = notes = [*map(titles, result.notes)]
    headline = titles(result.headline)
    if junit is not None:
        write_atomic(junit, gate_junit(result.made), advice="choose another file for --junit")
    if sarif is not None:
        text = gate_sarif(result.made, document, __version__)
        write_atomic(sarif, text, advice="choose another file for --sarif")
    if form == "json":
        print(json.dumps(document, indent=2, allow_nan=False))  # noqa: T201 - standard output is the product
    elif form == "markdown":
        print(gate_markdown(headline, result.made, notes), end="")  # noqa: T201
    else:
        with view.open() as console:
            print_gate(headline, result.made, notes, console)
    if document["code"]:
        raise typer.Exit(document["code"])

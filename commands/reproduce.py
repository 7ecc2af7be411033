"""Command that reproduces published tables and compares ours with the published numbers."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ..benchmarks.reproductions import collect_tables
from ..errors import InvalidInput, Unavailable
from .errors import print_interrupted
from .options import Json, Latex, LatexWords, latex_style, one_format, split_models
from .table_options import TableOptions


def reproduce(
    *,
    name: Annotated[str | None, typer.Argument(help="a table, or FILE.py:TABLE; without it, list them")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="a small part, as a smoke test")] = False,
    full: Annotated[bool, typer.Option("--full", help="the paper's budgets and number of images")] = False,
    models: Annotated[list[str] | None, typer.Option(help="models instead of the default ones (repeatable)")] = None,
    data: Annotated[str | None, typer.Option(help="data instead of the default images; digits: scikit-learn's")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="use at most this many images")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="folder for the results; an interrupted run resumes from it")
    ] = None,
    device: Annotated[str | None, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = None,
    seed: Annotated[int, typer.Option(min=0, help="random seed")] = 0,
    view: TableOptions,
    as_latex: Latex = False,
    latex_words: LatexWords = None,
    as_json: Json = False,
) -> None:
    """Recompute a published table and compare it with the published numbers."""
    from ..report.text.console import make_console

    form, style = one_format({"latex": as_latex, "json": as_json}), latex_style(latex_words)
    view.check(form)
    if name is None:
        _list_tables(as_json, view)
        return
    from ..api.measuring import reproduce as recompute

    with make_console(stderr=True).status("starting") as status:
        given = {"models": split_models(models), "data": data, "limit": limit, "out": out, "device": device}
        more = {"quick": quick, "full": full, "seed": seed, "progress": lambda attack, _: status.update(attack)}
        try:
            done = recompute(name, **given, **more)  # type: ignore[arg-type]
        except KeyboardInterrupt:
            print_interrupted(out, "use -o FOLDER to store finished results and resume from them")
            raise
    result, table = done.document, done.made
    if form == "latex":
        from ..report.text.latex_documents import reproduction_latex

        text = reproduction_latex(result, style)
        if not text:
            raise InvalidInput(f"{name} has no measured rows next to published numbers for --latex; use --json")
        print(text, end="")  # noqa: T201
    elif form == "json":
        print(json.dumps(done.document, indent=1, allow_nan=False))  # noqa: T201
    else:
        with view.open() as console:
            table.print(result, console)
    failed = [note for note in result.get("notes", ()) if str(note).startswith("failed")]
    if failed and not result.get("lines"):
        raise Unavailable(f"no results of {name}: {failed[0]}")


def _list_tables(as_json: bool, view: TableOptions) -> None:
    from ..report.text.console import make_console, print_table

    tables, refused = collect_tables()
    titles = {table.name: table.title for table in tables.values()}
    if as_json:
        print(json.dumps(titles, indent=1))  # noqa: T201 - standard output is the product
    else:
        with view.open() as console:
            print_table("", ("name", "what"), list(titles.items()), console)
    for package, reason in refused.items():
        make_console(stderr=True).print(f"omitted: {package}: {reason}", highlight=False, markup=False)

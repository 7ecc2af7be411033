"""Command that recomputes published tables and compares them with the published numbers."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..benchmarks.reproductions import collect_tables, measured_seconds
from ..errors import InvalidInput, Unavailable
from .errors import print_interrupted
from .options import OUTPUT, Json, Latex, LatexWords, latex_style, one_format, split_models
from .table_options import TableOptions

_SIZES = ("default", "--quick")
_SIDES = {"grid": "both", "ours": "ours", "published": "published"}


def reproduce(
    *,
    name: Annotated[str | None, typer.Argument(help="a table, or FILE.py:TABLE; without it, list them")] = None,
    listed: Annotated[bool, typer.Option("--list", help="list the tables, and how long each takes")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="quick trial with few images and steps")] = False,
    full: Annotated[bool, typer.Option("--full", help="the paper's budgets and number of images")] = False,
    models: Annotated[list[str] | None, typer.Option(help="models instead of the default ones (repeatable)")] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            "--as",
            help="name in the paper = your model or data set (repeatable): PAT=mine.pt+FILE.py:net, "
            "CIFAR-10=torchvision:cifar10",
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="data instead of the default images, such as digits (scikit-learn's data set)")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="use at most this many images")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="folder for the results; an interrupted run resumes from it")
    ] = None,
    device: Annotated[str | None, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = None,
    seed: Annotated[int, typer.Option(min=0, help="random seed")] = 0,
    as_grid: Annotated[
        bool,
        typer.Option(
            "--grid",
            rich_help_panel=OUTPUT,
            help="print the paper's rows and columns, with recomputed / published numbers",
        ),
    ] = False,
    only_ours: Annotated[
        bool,
        typer.Option(
            "--ours", rich_help_panel=OUTPUT, help="print the paper's rows and columns, with the recomputed numbers"
        ),
    ] = False,
    only_published: Annotated[
        bool,
        typer.Option(
            "--published",
            rich_help_panel=OUTPUT,
            help="print the paper's own numbers; runs nothing",
        ),
    ] = False,
    view: TableOptions,
    as_latex: Latex = False,
    latex_words: LatexWords = None,
    as_json: Json = False,
) -> None:
    """Recompute a published table and compare it with the published numbers."""
    from ..report.text.console import make_console

    form = one_format({"latex": as_latex, "json": as_json})
    view.check(form)
    side = one_format({"grid": as_grid, "ours": only_ours, "published": only_published})
    if side and form == "json" and side != "published":
        raise InvalidInput(
            f"--{side} and --json cannot be combined: JSON always has every number, with its row and column"
        )
    if listed and name is not None:
        raise InvalidInput(f"expected --list without a table, got {name}")
    if name is None:
        _list_tables(as_json, view)
        return
    style = latex_style(latex_words)
    from ..api.measuring import reproduce as recompute

    with make_console(stderr=True).status("starting") as status:
        given = {"models": split_models(models), "data": data, "rows": _read_rows(rows), "limit": limit, "out": out}
        more = {"quick": quick, "full": full, "seed": seed, "published": only_published, "device": device}
        try:
            done = recompute(name, **given, **more, progress=lambda attack, _: status.update(attack))  # type: ignore[arg-type]
        except KeyboardInterrupt:
            print_interrupted(out, "use -o FOLDER to store finished results and resume from them")
            raise
    _print(done, name, form, _SIDES.get(side), style, view)
    failed = [note for note in done.document.get("notes", ()) if str(note).startswith("failed")]
    if failed and not done.document.get("lines"):
        raise Unavailable(f"no results of {name}: {failed[0]}")


def _print(done: Any, name: str, form: str, side: Any, style: Any, view: TableOptions) -> None:
    """Print a recomputed table in a format. If `side` is given, it is arranged as in the paper, otherwise as a list."""
    result, table = done.document, done.made
    if form == "json":
        print(json.dumps(result, indent=1, allow_nan=False))  # noqa: T201
    elif form == "latex":
        from ..report.text.latex_documents import grid_latex, reproduction_latex

        text = grid_latex(result, table.grid(result), side, style) if side else reproduction_latex(result, style)
        if not text:
            raise InvalidInput(
                f"{name} has no measured rows that --latex could compare with published ones; use --json"
            )
        print(text, end="")  # noqa: T201
    elif side:
        from ..benchmarks.shared.paper_grid import print_grid

        parts = table.grid(result)
        with view.open() as console:
            print_grid(result, parts, side, console)
    else:
        with view.open() as console:
            table.print(result, console)


def _read_rows(texts: list[str] | None) -> dict[str, str]:
    """Convert texts such as "PAPER'S NAME=OWN NAME" to a dict."""
    pairs = [text.partition("=") for text in texts or []]
    for text, (paper, sign, ours) in zip(texts or [], pairs, strict=True):
        if not (paper.strip() and sign and ours.strip()):
            raise InvalidInput(f"expected --as NAME=MODEL, the paper's name and yours, got {text[:60]!r}")
    rows = {paper.strip(): ours.strip() for paper, _, ours in pairs}
    if len(rows) < len(pairs):
        raise InvalidInput("--as gives a name of the paper twice; give each name once")
    return rows


def _minutes(took: dict[str, dict[str, float]], name: str, size: str) -> str:
    """Format the time that computing a table took, for one of its sizes. "-" if the time was not measured."""
    seconds = took.get(name, {}).get(size.removeprefix("--"))
    if seconds is None:
        return "-"
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _list_tables(as_json: bool, view: TableOptions) -> None:
    from ..report.text.console import make_console, print_table

    tables, refused = collect_tables()
    titles = {table.name: table.title for table in tables.values()}
    if as_json:
        print(json.dumps(titles, indent=1))  # noqa: T201 - standard output is the product
    else:
        with view.open() as console:
            took = measured_seconds()
            rows = [(name, title, *(_minutes(took, name, size) for size in _SIZES)) for name, title in titles.items()]
            print_table("", ("name", "what", *_SIZES), rows, console)
            text = "default, --quick: measured CPU time on one core; -: not measured"
            console.print(text, highlight=False, markup=False)
    for package, reason in refused.items():
        make_console(stderr=True).print(f"omitted: {package}: {reason}", highlight=False, markup=False)

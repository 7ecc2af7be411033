"""Commands for results: tables and curves of a folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..errors import InvalidInput
from .merge import ManyResults, open_results_arguments
from .options import (
    Json,
    Knowledge,
    LatexWords,
    latex_style,
    one_format,
    say_defaults,
    split_list,
    split_models,
    versions_of,
)
from .table_options import TableOptions

Bootstrap = Annotated[int, typer.Option(min=0, help="bootstrap replicates; 0 for no intervals")]
Seed = Annotated[int, typer.Option(min=0, help="random seed of the bootstrap")]
Csv = Annotated[bool, typer.Option("--csv", help="print CSV")]


By = Literal["attacks", "models", "pairs", "classes"]


def show_table(
    *,
    context: typer.Context,
    folders: ManyResults,
    by: Annotated[
        By, typer.Option(help="rows: one per attack, per model, per pair of both, or per model and true class")
    ] = "attacks",
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "--metrics", help="metric from `davylamp metrics`: MR, FR@10, RA, l2 (repeatable)"),
    ] = None,
    transfer: Annotated[
        bool, typer.Option("--transfer", help="rates of examples made on one model that fool another, for each attack")
    ] = False,
    defence: Annotated[
        tuple[str, str] | None, typer.Option(help="undefended model, and defended model to compare with it")
    ] = None,
    pool_images: Annotated[
        bool, typer.Option("--pool-images", help="average over images instead of over runs")
    ] = False,
    knowledge: Annotated[Knowledge | None, typer.Option(help="only these attacks")] = None,
    all_threat_models: Annotated[
        bool, typer.Option("--all-threat-models", help="--by models: one row per model over all threat models")
    ] = False,
    with_imported: Annotated[
        bool, typer.Option("--with-imported", help="also show imported results, and the smallest imported distances")
    ] = False,
    with_leaderboard: Annotated[
        bool, typer.Option("--with-leaderboard", help="also show published rows, such as RobustBench's")
    ] = False,
    bootstrap: Bootstrap = 1000,
    seed: Seed = 0,
    view: TableOptions,
    as_csv: Csv = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="print a Markdown table")] = False,
    as_latex: Annotated[bool, typer.Option("--latex", help="print a LaTeX table (booktabs) with caption")] = False,
    latex_words: LatexWords = None,
    as_json: Json = False,
) -> None:
    """Show a table of metrics of a results folder, with the number of images and 95 % intervals over images."""
    from ..report.text.latex_metrics import table_latex, usual_part
    from ..report.text.tables import FORMATS, print_results, print_transfer

    asked = {"csv": as_csv, "markdown": as_markdown, "latex": as_latex, "json": as_json}
    form = one_format(asked)
    style = latex_style(latex_words)
    view.check(form)
    drawing: dict[str, Any] = {"bootstrap": bootstrap, "seed": seed}
    plain = not (defence or metric or pool_images or knowledge or all_threat_models) and by == "attacks"
    sides = {"--with-leaderboard": with_leaderboard, "--with-imported": with_imported, "--transfer": transfer}
    chosen_sides = [name for name, given in sides.items() if given]
    if chosen_sides and (len(chosen_sides) > 1 or not plain):
        first, *rest = chosen_sides
        others = f" and {rest[0]}" if rest else ""
        options = "--by, --metric, --pool-images, --knowledge, --all-threat-models, --defence"
        raise InvalidInput(f"{first} cannot be combined with {options}{others}")
    if with_leaderboard and as_latex:
        raise InvalidInput(
            "--with-leaderboard and --latex cannot be combined: rows over different images have no common best value"
        )
    folder = open_results_arguments(context, folders)
    if with_leaderboard:
        from ..engine.tables.imported_table import build_published

        table = build_published(folder, **drawing)
    elif with_imported:
        from ..engine.tables.imported_table import build_references

        table = build_references(folder, **drawing)
    elif transfer:
        from ..engine.tables.transfer_table import build_transfer, transfer_long_format

        rates = build_transfer(folder, **drawing)
        if not form:
            with view.open() as console:
                print_transfer(rates, console)
            return
        table = transfer_long_format(rates)
    else:
        chosen = {"pool_images": pool_images, "all_threat_models": all_threat_models, "knowledge": knowledge}
        table = _build(folder, by, split_list("--metric", metric), defence, chosen, **drawing)
    if not form:
        with view.open() as console:
            print_results(table, console, asked=bool(metric))
        return
    if form == "latex":
        text = table_latex(table if metric or defence else usual_part(table), versions_of(folder), style)
    else:
        text = FORMATS[form](table)
    print(text, end="" if form != "json" else "\n")  # noqa: T201 - the product
    if form != "json":
        _warn(table.notes)


def show_curves(
    *,
    context: typer.Context,
    folders: ManyResults,
    x_axis: Annotated[
        Literal["epsilon", "grey-levels", "queries", "passes"],
        typer.Option(help="x axis: epsilon, queries, or passes (median distance by number of passes)"),
    ] = "epsilon",
    norm: Annotated[str | None, typer.Option(help="only this norm: linf, l2, l1, l0 or unrestricted")] = None,
    model: Annotated[list[str] | None, typer.Option(help="only this model (repeatable)")] = None,
    budget: Annotated[
        list[str] | None, typer.Option(help="radius or number of queries to show as a column: 4/255 (repeatable)")
    ] = None,
    bootstrap: Bootstrap = 1000,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="draw the curves: FILE.svg, .png or .pdf")] = None,
    view: TableOptions,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """Show a table of accuracy as a function of the radius or the number of queries. With -o, draw the curves."""
    from ..api.folders import curves as compute_curves
    from ..report.text import tables
    from ..report.text.console import frame_csv

    form = one_format({"csv": as_csv, "json": as_json})
    view.check(form)
    folder, budgets = open_results_arguments(context, folders), split_list("--budget", budget)
    drawing: dict[str, Any] = {"bootstrap": bootstrap, "seed": seed, "out": out}
    curves: Any = compute_curves(folder, x_axis=x_axis, norm=norm, model=split_models(model), budget=budgets, **drawing)
    of_passes = x_axis == "passes"
    if not of_passes:
        say_defaults(context, ("x_axis", "bootstrap", "seed"))
    if form == "json":
        print(tables.distances_json(curves) if of_passes else tables.curves_json(curves))  # noqa: T201
    elif form == "csv":
        print(frame_csv(curves.to_frame()), end="")  # noqa: T201
        _warn(curves.notes)
    else:
        with view.open() as console:
            if of_passes:
                tables.print_distances(curves, console)
            else:
                tables.print_curves(curves, console, asked=bool(budget))


def _build(
    folder: Path,
    by: By,
    metric: list[str] | None,
    defence: tuple[str, str] | None,
    chosen: dict[str, Any],
    **drawing: Any,
) -> Any:
    if chosen["all_threat_models"] and by != "models":
        raise InvalidInput(f"--all-threat-models needs --by models, got --by {by}")
    if defence is None:
        from ..engine.tables.table import build_table

        return build_table(folder, by=by, metrics=metric, **chosen, **drawing)
    if any(chosen.values()) or by != "attacks":
        options = "--by, --pool-images, --knowledge and --all-threat-models"
        raise InvalidInput(f"--defence cannot be combined with {options}: its rows are the attacks on both models")
    from ..engine.tables.defence_table import build_defence

    return build_defence(folder, *defence, metrics=metric, **drawing)


def _warn(notes: Sequence[str]) -> None:
    from ..report.text.console import print_error

    for line in notes:
        print_error(f"- {line}")

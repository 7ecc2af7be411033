"""Commands for corruptions: list them, and measure robustness to them."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..report.text.progress import show_progress
from .config_options import Given
from .errors import print_interrupted
from .input_options import InputOptions
from .loading import LOADING, loading_keywords
from .options import Json, one_format, read_whole, split_list, split_models
from .results import Bootstrap, Csv
from .table_options import TableOptions


def list_corruptions(
    *,
    corruption: Annotated[str | None, typer.Argument(help="show this corruption")] = None,
    view: TableOptions,
    as_json: Json = False,
) -> None:
    """List corruptions and perturbation sequences. DATA+NAME:severity applies a corruption, with severity 1 to 5."""
    from ..adapters.data.corruptions.published import CORRUPTIONS, find_corruption
    from ..adapters.data.corruptions.sequences import SEQUENCES

    view.check("json" if as_json else "")
    rows = list(CORRUPTIONS.values()) if corruption is None else [find_corruption(corruption)]
    sequences = [] if corruption is not None else list(SEQUENCES.values())
    if as_json:
        frames = [{"name": each.name, "frames": each.frames, "finding": each.finding} for each in sequences]
        listed = {"corruptions": [row._asdict() for row in rows], "sequences": frames}
        print(json.dumps(listed, indent=2))  # noqa: T201 - the product
        return
    with view.open() as console:
        _print_listed(rows, sequences, console)


def _print_listed(rows: list[Any], sequences: list[Any], console: Any) -> None:
    from ..report.text.console import print_table

    lines = [[row.name, row.title, row.kind, row.alexnet, "no" if row.coloured else "yes"] for row in rows]
    print_table("", ("corruption", "title", "kind", "AlexNet's error", "grey images"), lines, console)
    text = "AlexNet's error: published top-1 error on ImageNet-C, mean of the five severities; -: not part of mCE"
    console.print(text, highlight=False, markup=False)
    if sequences:
        shown = [[each.name, each.frames, "the first" if each.noise else "the previous"] for each in sequences]
        print_table("Sequences (corruptions run --sequence)", ("sequence", "frames", "compared with"), shown, console)
    for each in sequences:
        if each.finding:
            console.print(f"{each.name}: {each.finding}", highlight=False, markup=False)


def tabulate_corruptions(
    *,
    models: Annotated[
        list[str] | None, typer.Argument(help="models, as in evaluate; without models, show the tables of the folder")
    ] = None,
    seen: InputOptions,
    data: Annotated[str, typer.Option(help="clean images, or imagenet-c:PATH, cifar-10-c:PATH")] = "demo:imagenet",
    clean: Annotated[
        str, typer.Option(help="clean images, if --data is an already corrupted data set; needed for RmCE")
    ] = "",
    corruption: Annotated[
        list[str] | None,
        typer.Option(help="corruption: fog, ..., or all for all 19 (repeatable; default: the 15 of the benchmark)"),
    ] = None,
    severity: Annotated[list[str] | None, typer.Option(help="severity from 1 to 5 (repeatable; default: all)")] = None,
    sequence: Annotated[
        list[str] | None, typer.Option(help="perturbation sequence for FP and mFR: translate, ..., or all (repeatable)")
    ] = None,
    baseline: Annotated[
        str, typer.Option(help="baseline model by which CE and FP are divided, or alexnet (default on ImageNet)")
    ] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="use at most this many images")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="results folder")] = Path("results"),
    by: Annotated[
        Literal["models", "corruptions"] | None,
        typer.Option(help="print only one table, with a row per model or corruption"),
    ] = None,
    device: Annotated[str, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = "cpu",
    how: Annotated[Given, LOADING],
    seed: Annotated[int, typer.Option(min=0, help="random seed of corruptions and bootstrap")] = 0,
    view: TableOptions,
    bootstrap: Bootstrap = 1000,
    as_csv: Csv = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="print a Markdown table")] = False,
    as_latex: Annotated[bool, typer.Option("--latex", help="print a LaTeX table (booktabs) with caption")] = False,
    as_json: Json = False,
) -> None:
    """Measure the errors of models on corrupted images: by severity, and as CE, mCE, RmCE, FP and mFR."""
    from ..api.corrupting import corrupt_table
    from ..engine.plan.config import Config
    from ..engine.plan.config_file import expand_models
    from ..engine.tables.corruption_table import ALEXNET
    from ..report.text.console import print_error
    from ..report.text.tables import FORMATS, print_corruptions

    form = one_format({"csv": as_csv, "markdown": as_markdown, "latex": as_latex, "json": as_json})
    view.check(form)
    names = split_models(models) or []
    if names:
        names = [seen.of(name) for name in expand_models(Config(models=tuple(names), data=data)).models]
        baseline = seen.of(baseline) if baseline not in ("", ALEXNET) else baseline
    drawing: dict[str, Any] = {"baseline": baseline, "bootstrap": bootstrap, "seed": seed, "out": out}
    asked = {"corruption": split_list("--corruption", corruption), "severity": read_whole("--severity", severity)}
    asked |= {"sequence": split_list("--sequence", sequence) or (), "clean": clean, "limit": limit}
    first = by or "models"
    where = {"data": data, "device": device, "progress": show_progress, **loading_keywords(how)}
    try:
        tables = [corrupt_table(names, by=first, **drawing, **asked, **where)]  # type: ignore[arg-type]
    except KeyboardInterrupt:
        print_interrupted(out)
        raise
    if form:
        print(FORMATS[form](tables[0]), end="" if form != "json" else "\n")  # noqa: T201 - the product
        for note in tables[0].notes if form != "json" else ():
            print_error(f"- {note}")
        return
    tables += [] if by else [corrupt_table(by="corruptions", **drawing)]
    with view.open() as console:
        print_corruptions(tables, console)

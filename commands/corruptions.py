"""The commands about corruptions: the list of them, and how models bear them."""

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidInput
from .config_options import Given
from .failures import say_interrupted
from .input_options import InputOptions
from .loading import LOADING, loading_from, say_traffic
from .options import Json, all_failed, one_format, read_whole, split_list, split_models
from .progress import show_progress
from .results import Bootstrap, Csv
from .table_options import TableOptions


class CorruptionRows(str, Enum):
    """What a row of the table is about."""

    models = "models"
    corruptions = "corruptions"


def list_corruptions(
    *,
    corruption: Annotated[str | None, typer.Argument(help="show this corruption")] = None,
    view: TableOptions,
    as_json: Json = False,
) -> None:
    """List every corruption: DATA+NAME:severity is the data with it; severities are 1 to 5. Then the sequences."""
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
    text = "AlexNet's error: published, top-1 on ImageNet-C, mean of the five severities; -: no part of the mean"
    console.print(text, highlight=False, markup=False)
    if sequences:
        shown = [[each.name, each.frames, "the first" if each.noise else "the one before"] for each in sequences]
        print_table("Sequences (corrupt-table --sequence)", ("sequence", "frames", "compared with"), shown, console)
    for each in sequences:
        if each.finding:
            console.print(f"{each.name}: {each.finding}", highlight=False, markup=False)


def tabulate_corruptions(
    *,
    models: Annotated[
        list[str] | None, typer.Argument(help="models, as in evaluate; without any, show the tables of the folder")
    ] = None,
    seen: InputOptions,
    data: Annotated[str, typer.Option(help="clean images, or imagenet-c:PATH, cifar-10-c:PATH")] = "demo:imagenet",
    clean: Annotated[str, typer.Option(help="clean images of a corrupted set on disk, for RmCE")] = "",
    corruption: Annotated[
        list[str] | None, typer.Option(help="fog, ..., or all 19: all (repeatable; default: the 15 of the benchmark)")
    ] = None,
    severity: Annotated[list[str] | None, typer.Option(help="1 to 5 (repeatable; default: all)")] = None,
    sequence: Annotated[
        list[str] | None, typer.Option(help="perturbation sequence for FP and mFR: translate, ..., or all (repeatable)")
    ] = None,
    baseline: Annotated[str, typer.Option(help="reference model of CE and FP, or alexnet (default on ImageNet)")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="use at most this many images")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="results folder")] = Path("results"),
    by: Annotated[
        CorruptionRows | None, typer.Option(help="one table only, with a row per model or corruption")
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
    """Measure robustness to corruptions: errors by severity, CE, mCE, RmCE, FP and mFR, into a folder."""
    from ..engine.store.store import ResultsStore
    from ..engine.tables.corruption_table import ALEXNET, build_corruptions
    from ..report.text.tables import FORMATS, print_corruptions

    form = one_format({"csv": as_csv, "markdown": as_markdown, "latex": as_latex, "json": as_json})
    view.check(form)
    names = split_models(models) or []
    if names and baseline not in ("", ALEXNET, *names):
        names.append(baseline)
        baseline = seen.of(baseline)
    if names:
        plan = _plan(
            data,
            clean,
            split_list("--corruption", corruption),
            read_whole("--severity", severity),
            sequence,
            limit,
            seed,
        )
        _measure(names, plan, ResultsStore(out), device, seen, how)
    chosen = [by.value] if by else (["models"] if form else ["models", "corruptions"])
    tables = [
        build_corruptions(out, by=each, baseline=baseline, bootstrap=bootstrap, seed=seed)  # type: ignore[arg-type]
        for each in chosen
    ]
    if not form:
        with view.open() as console:
            print_corruptions(tables, console)
        return
    print(FORMATS[form](tables[0]), end="" if form != "json" else "\n")  # noqa: T201 - the product
    if form != "json":
        from ..report.text.console import print_error

        for note in tables[0].notes:
            print_error(f"- {note}")


def _plan(
    data: str,
    clean: str,
    corruptions: list[str] | None,
    severities: list[int] | None,
    sequences: list[str] | None,
    limit: int | None,
    seed: int,
) -> Any:
    """What is to be measured, checked."""
    from ..adapters.data.corruptions.corrupted_sets import list_sets
    from ..adapters.data.corruptions.published import BENCHMARK, CORRUPTIONS, find_corruption
    from ..adapters.data.corruptions.sequences import SEQUENCES
    from ..engine.run.corruptions import CorruptionPlan

    on_disk = list_sets(data)
    known = on_disk or tuple(CORRUPTIONS)
    asked = split_list("--sequence", sequences) or []
    chosen = tuple(SEQUENCES) if asked == ["all"] else tuple(name.replace("-", "_") for name in asked)
    if corruptions is None:
        # Of a published set without the four that its authors keep for tuning, unless there is nothing else.
        meant = tuple(name for name in on_disk if name in BENCHMARK or name not in CORRUPTIONS)
        named = meant or on_disk or (() if chosen and not severities else BENCHMARK)
    else:
        named = known if corruptions == ["all"] else tuple(corruptions)
    if not on_disk:
        named = tuple(find_corruption(name).name for name in named)
    if clean and not on_disk:
        raise InvalidInput(f"expected --clean with imagenet-c:PATH or cifar-10-c:PATH, got --data {data}: it is clean")
    levels = tuple(dict.fromkeys(severities or (1, 2, 3, 4, 5)))
    plan = CorruptionPlan(data, tuple(dict.fromkeys(named)), levels, chosen, clean, limit, seed)
    plan.check()
    return plan


def _measure(names: list[str], plan: Any, store: Any, device: str, seen: InputOptions, how: Given) -> None:
    """Let the models predict what the folder lacks; those that cannot be loaded cost themselves only."""
    from fnmatch import fnmatch

    from ..adapters.models.zoo.load import list_models
    from ..engine.run.corruptions import count_images, measure_corruptions
    from ..errors import DavylampError
    from ..report.text.console import print_error

    expanded = [
        match
        for name in names
        for match in ([n for n in list_models(name) if fnmatch(n, name)] if "*" in name else [name])
    ]
    expanded = [seen.of(name) for name in expanded]
    loading = loading_from(how, expanded, folder=store.folder)
    models, failed = {}, {}
    for name in dict.fromkeys(expanded):
        try:
            models[name] = loading.load(name, device)
        except DavylampError as error:
            failed[name] = str(error)
    if models:
        try:
            with show_progress(count_images(models, plan)) as progress:
                summary = measure_corruptions(models, plan, store, progress)
        except KeyboardInterrupt:
            say_interrupted(store.folder)
            raise
        failed |= summary.failed
        say_traffic(models.values())
        print_error(f"{summary.done} records made, {summary.kept} were there: {store.folder}")
    for name, reason in failed.items():
        print_error(f"- {name}: {reason}")
    if all_failed(list(failed.values()), len(dict.fromkeys(expanded)), "models"):
        raise typer.Exit(1)

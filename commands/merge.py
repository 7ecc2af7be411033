"""Command that merges results folders, and functions with which other commands read several folders as one."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ..errors import InvalidInput
from .options import Json

Results = Annotated[Path, typer.Argument(help="a results folder of `davylamp evaluate`, or BUNDLE.zip")]
ManyResults = Annotated[list[Path], typer.Argument(help="results folders or BUNDLE.zip; several are read as one")]


def open_results_arguments(context: typer.Context, sources: Sequence[Path]) -> Path:
    """Return the path of a results folder for the folders and bundles that the user gave.

    A single folder is returned unchanged. Several folders, or a bundle, are merged into a temporary folder, which is
    deleted when the command ends.
    """
    from ..engine.sharing.open_results import open_results

    return context.with_resource(open_results(*sources))


def open_named(
    context: typer.Context, results: Sequence[Path], against: str | None
) -> tuple[Path, str | None, Callable[[str], str]]:
    """Return the results folder and the baseline that the user gave. Several folders are merged into a temporary one.

    Returns:
        The path of the results folder, the path of the baseline (None if not given), and a function for titles. The
        function replaces the path of a temporary folder by the names that the user gave.
    """
    from ..engine.sharing.open_results import is_bundle

    tables = [str(path) for path in results if path.suffix == ".csv"]
    if tables and len(results) > 1:
        raise InvalidInput(f"a CSV table must be the only path, got {len(results)} paths, including {tables[0]}")
    folder = open_results_arguments(context, results) if len(results) > 1 or is_bundle(results[0]) else results[0]
    names = {str(folder): " + ".join(map(str, results))}
    if against is not None and is_bundle(against):
        names[str(place := open_results_arguments(context, [Path(against)]))] = against
        against = str(place)

    def titles(text: str) -> str:
        for place, name in names.items():
            text = text.replace(place, name)
        return text

    return folder, against, titles


def merge_results(
    context: typer.Context,
    folders: Annotated[list[Path], typer.Argument(help="two or more results folders or bundles")],
    out: Annotated[Path, typer.Option("--out", "-o", help="the new folder")],
    prefer: Annotated[
        str | None, typer.Option(help="if records conflict, use those of this folder, or newest (default: stop)")
    ] = None,
    link: Annotated[bool, typer.Option("--link", help="hard-link files instead of copying them")] = False,
    as_json: Json = False,
) -> None:
    """Merge results folders into a new folder. Conflicts between the folders are reported."""
    from ..engine.sharing.merge import describe_counts, merge_folders
    from ..report.text.console import make_console

    opened = [open_results_arguments(context, [folder]) for folder in folders]
    places = {str(folder): place for folder, place in zip(folders, opened, strict=True)}
    whose = None if prefer is None else places.get(prefer, prefer)
    merged = merge_folders(opened, out, prefer=whose, link=link)
    if as_json:
        print(json.dumps({"folder": str(out), "records": merged.records, "notes": merged.notes}, indent=2))  # noqa: T201
        return
    console = make_console()
    for line in merged.notes:
        console.print(f"- {line}", highlight=False, markup=False)
    console.print(
        f"{out}: {describe_counts(merged.records)} of {len(folders)} folders",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )

"""The commands between davylamp and other programs: their results into a folder, a folder for their tools."""

import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ..errors import InvalidInput
from .evaluate import Folder
from .options import Json


class Program(str, Enum):
    """Whose files."""

    attackbench = "attackbench"


DataAgain = Annotated[str | None, typer.Option(help="where the images of the folder are now; else as it was evaluated")]


def import_results(
    program: Annotated[Program, typer.Argument(help="whose results")],
    path: Annotated[Path, typer.Argument(help="a JSON file of its protocol 2, or a folder of them")],
    out: Annotated[Path, typer.Option("--out", "-o", help="a results folder with the same model and images")],
    model: Annotated[str | None, typer.Option(help="of the folder; else the one with the file's predictions")] = None,
    data: DataAgain = None,
    as_json: Json = False,
) -> None:
    """Put another program's results beside those of a folder, as references: not judged, and none of ours changes."""
    from ..engine.exchange.attackbench_import import import_attackbench
    from ..report.text.console import make_console, print_error, print_table

    done, refused = import_attackbench(path, out, model=model, data=data)
    if as_json:
        print(json.dumps({"imported": [vars(each) for each in done], "refused": refused}, indent=2))  # noqa: T201
        return
    columns = ("attack", "norm", "model", "images", "left out", "fooled", "crashed", "file")
    print_table(f"{len(done)} runs of {program.value} in {out}", columns, [[*vars(each).values()] for each in done])
    console = make_console()
    if any(each.left_out for each in done):
        text = "left out: images that the folder has not, or on which its model decides otherwise"
        console.print(f"- {text}", highlight=False, markup=False)
    if any(each.crashed for each in done):
        text = "crashed: the attack raised or never asked the model: no result, not one that fooled nothing"
        console.print(f"- {text}", highlight=False, markup=False)
    console.print(f"- `davylamp table {out} --references` sets them beside ours", highlight=False, markup=False)
    for line in refused:
        print_error(f"- refused: {line}")


def export_results(
    program: Annotated[Program, typer.Argument(help="whose format")],
    folder: Folder,
    out: Annotated[Path, typer.Option("--out", "-o", help="a folder for the files, one for each cell")],
    data: DataAgain = None,
) -> None:
    """Write the cells of a folder in another program's format, so that its tools read them."""
    from ..engine.exchange.attackbench_export import export_attackbench
    from ..report.text.console import make_console

    if out.resolve() == folder.resolve():
        raise InvalidInput(f"expected another folder than the results, got {out}")
    exported = export_attackbench(folder, out, data=data)
    console = make_console()
    for file in exported.files:
        console.print(str(file), highlight=False, markup=False, soft_wrap=True)
    for line in exported.notes:
        console.print(f"- {line}", highlight=False, markup=False)
    console.print(f"- {len(exported.files)} files for {program.value}", highlight=False, markup=False)

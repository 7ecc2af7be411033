"""The commands between davylamp and others: results handed on as one file, other programs' results and formats."""

import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ..errors import InvalidInput
from .options import Json

WHOSE = ("attackbench",)


class Form(str, Enum):
    """What a folder is written as."""

    attackbench = "attackbench"


DataAgain = Annotated[
    str | None, typer.Option(help="AttackBench: where the images of the folder are now; else as it was evaluated")
]


def import_results(
    what: Annotated[str, typer.Argument(help="BUNDLE.zip; or whose results: attackbench")],
    out: Annotated[Path, typer.Option("--out", "-o", help="bundle: a new folder; else a results folder")],
    path: Annotated[Path | None, typer.Argument(help="of another program: its file, or a folder of them")] = None,
    model: Annotated[
        str | None, typer.Option(help="AttackBench: of the folder; else by the file's predictions")
    ] = None,
    data: DataAgain = None,
    as_json: Json = False,
) -> None:
    """Read a bundle into a folder, or put other programs' results beside ours: not judged, none of ours changes."""
    if what not in WHOSE:
        if path is not None or model is not None or data is not None:
            named = ", ".join(WHOSE)
            raise InvalidInput(f"expected BUNDLE.zip alone, or one of {named} with a path, got {what!r} and more")
        _import_bundle(Path(what), out, as_json=as_json)
        return
    if path is None:
        raise InvalidInput(f"expected the files of {what}: davylamp import {what} PATH -o FOLDER")
    _import_attackbench(path, out, model, data, as_json=as_json)


def export_results(  # noqa: PLR0913, PLR0917 - one argument per option
    what: Annotated[str, typer.Argument(help="a results folder; or the format: attackbench")],
    where: Annotated[Path, typer.Argument(help="BUNDLE.zip to write; with a format: the results folder")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="with a format: a folder for its files")] = None,
    licence: Annotated[str, typer.Option(help="of the results, an SPDX identifier as CC-BY-4.0")] = "",
    creator: Annotated[str, typer.Option(help="who made them")] = "",
    name: Annotated[str, typer.Option(help="of the data set; else models and data")] = "",
    description: Annotated[str, typer.Option(help="a sentence; else what is in it")] = "",
    images: Annotated[bool, typer.Option(help="bundle: with the adversarial images that were kept")] = True,
    data: DataAgain = None,
) -> None:
    """Pack a folder into one file with tables, card, licence and checksums; or write it in another program's format."""
    from ..engine.sharing.describe import Terms

    terms = Terms(licence, creator, name, description)
    if what not in {form.value for form in Form}:
        if out is not None or data is not None:
            raise InvalidInput("expected davylamp export FOLDER BUNDLE.zip without -o and --data")
        _export_bundle(Path(what), where, terms, images=images)
        return
    if out is None:
        raise InvalidInput(f"expected -o with a format: davylamp export {what} FOLDER -o FILES")
    if out.resolve() == where.resolve():
        raise InvalidInput(f"expected another folder than the results, got {out}")
    if terms != Terms() or not images:
        raise InvalidInput(f"expected {what} without --licence, --creator, --name, --description and --no-images")
    _export_attackbench(where, out, data)


def _import_bundle(path: Path, out: Path, *, as_json: bool) -> None:
    from ..engine.sharing.unpack import unpack_bundle
    from ..report.text.console import make_console

    merged = unpack_bundle(path, out)
    if as_json:
        print(json.dumps({"folder": str(out), "records": merged.records, "notes": merged.notes}, indent=2))  # noqa: T201
        return
    console = make_console()
    for line in merged.notes:
        console.print(f"- {line}", highlight=False, markup=False)
    text = f"{out}: {_counted(merged.records)}; every checksum is right"
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _export_bundle(folder: Path, path: Path, terms: object, *, images: bool) -> None:
    from ..engine.sharing.bundle import write_bundle
    from ..report.text.console import make_console

    bundled = write_bundle(folder, path, terms=terms, images=images)  # type: ignore[arg-type]
    console = make_console()
    for line in bundled.notes:
        console.print(f"- {line}", highlight=False, markup=False)
    if not terms.licence:  # type: ignore[attr-defined]
        console.print(
            "- no licence is stated, and the bundle says so: --licence CC-BY-4.0", highlight=False, markup=False
        )
    size = bundled.path.stat().st_size / 1e6
    text = f"{bundled.path}: {size:.1f} MB, {_counted(bundled.records)}; `davylamp import` reads it"
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _counted(records: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in records.items())


def _import_attackbench(path: Path, out: Path, model: str | None, data: str | None, *, as_json: bool) -> None:
    from ..engine.exchange.attackbench_import import import_attackbench
    from ..report.text.console import make_console, print_error, print_table

    done, refused = import_attackbench(path, out, model=model, data=data)
    if as_json:
        print(json.dumps({"imported": [vars(each) for each in done], "refused": refused}, indent=2))  # noqa: T201
        return
    columns = ("attack", "norm", "model", "images", "left out", "fooled", "crashed", "file")
    print_table(f"{len(done)} runs of attackbench in {out}", columns, [[*vars(each).values()] for each in done])
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


def _export_attackbench(folder: Path, out: Path, data: str | None) -> None:
    from ..engine.exchange.attackbench_export import export_attackbench
    from ..report.text.console import make_console

    exported = export_attackbench(folder, out, data=data)
    console = make_console()
    for file in exported.files:
        console.print(str(file), highlight=False, markup=False, soft_wrap=True)
    for line in exported.notes:
        console.print(f"- {line}", highlight=False, markup=False)
    console.print(f"- {len(exported.files)} files for attackbench", highlight=False, markup=False)

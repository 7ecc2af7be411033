"""The commands between davylamp and others: results handed on as one file, other programs' results and formats."""

import json
import shlex
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidInput, UnknownName
from .merge import open_sources
from .options import Json

WHOSE = ("attackbench", "robustbench")


class Form(str, Enum):
    """What a folder is written as."""

    attackbench = "attackbench"


DataAgain = Annotated[
    str | None, typer.Option(help="AttackBench: the images of the folder (default: as in its evaluation)")
]


def import_results(
    what: Annotated[str, typer.Argument(help="BUNDLE.zip, or a format: attackbench, robustbench")],
    out: Annotated[Path, typer.Option("--out", "-o", help="a new folder for a bundle, else a results folder")],
    path: Annotated[Path | None, typer.Argument(help="the other program's file, or a folder of them")] = None,
    model: Annotated[
        str | None, typer.Option(help="AttackBench: model of the folder (default: matched by predictions)")
    ] = None,
    data: DataAgain = None,
    as_json: Json = False,
) -> None:
    """Read a bundle into a folder, or add other programs' results for comparison; they are not judged."""
    if what not in WHOSE:
        if path is not None or model is not None or data is not None:
            named = ", ".join(WHOSE)
            raise InvalidInput(f"expected BUNDLE.zip alone, or one of {named} with a path, got {what!r} and more")
        _import_bundle(Path(what), out, as_json=as_json)
        return
    if path is None:
        raise InvalidInput(f"expected the files of {what}: davylamp import {what} PATH -o FOLDER")
    if what == "robustbench":
        if model is not None or data is not None:
            raise InvalidInput("expected robustbench without --model and --data: its rows are about its own models")
        _import_robustbench(path, out, as_json=as_json)
        return
    _import_attackbench(path, out, model, data, as_json=as_json)


def export_results(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help="a results folder, or a format: attackbench")],
    where: Annotated[Path, typer.Argument(help="BUNDLE.zip to write; with a format, the results folder")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="with a format: folder for its files")] = None,
    licence: Annotated[str, typer.Option(help="licence of the results, an SPDX identifier: CC-BY-4.0")] = "",
    creator: Annotated[str, typer.Option(help="author of the results")] = "",
    name: Annotated[str, typer.Option(help="title of the data set (default: models and data)")] = "",
    description: Annotated[str, typer.Option(help="description in a sentence (default: a summary)")] = "",
    images: Annotated[bool, typer.Option(help="bundle: include the kept adversarial images")] = True,
    data: DataAgain = None,
) -> None:
    """Pack a folder into one file with tables, card, licence and checksums, or write another program's format."""
    from ..engine.sharing.describe import Terms

    terms = Terms(licence, creator, name, description)
    formats = {form.value for form in Form}
    if what not in formats:
        if out is not None and not Path(what).exists():
            raise UnknownName("format", what, formats)
        if out is not None or data is not None:
            raise InvalidInput("expected davylamp export FOLDER BUNDLE.zip without -o and --data")
        _export_bundle(open_sources(context, [Path(what)]), where, terms, images=images)
        return
    if out is None:
        raise InvalidInput(f"expected -o with a format: davylamp export {what} FOLDER -o FILES")
    if out.resolve() == where.resolve():
        raise InvalidInput(f"expected another folder than the results, got {out}")
    _refuse_terms(terms, images=images)
    _export_attackbench(open_sources(context, [where]), out, data)


def _refuse_terms(terms: Any, *, images: bool) -> None:
    """Refuse options that AttackBench's files have no place for."""
    wrong = [f"--{name}" for name in ("licence", "creator", "name", "description") if getattr(terms, name)]
    wrong += [] if images else ["--no-images"]
    if wrong:
        raise InvalidInput(f"expected attackbench without {', '.join(wrong)}")


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


def _export_bundle(folder: Path, path: Path, terms: Any, *, images: bool) -> None:
    from ..engine.sharing.bundle import write_bundle
    from ..report.text.console import make_console

    bundled = write_bundle(folder, path, terms=terms, images=images)
    console = make_console()
    for line in bundled.notes:
        console.print(f"- {line}", highlight=False, markup=False)
    if not terms.licence:
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
    text = f"`davylamp table {shlex.quote(str(out))} --references` sets them beside ours"
    console.print(f"- {text}", highlight=False, markup=False, soft_wrap=True)
    for line in refused:
        print_error(f"- refused: {line}")


def _import_robustbench(path: Path, out: Path, *, as_json: bool) -> None:
    from ..engine.exchange.robustbench_import import boards_of, import_robustbench
    from ..report.text.console import make_console, print_error, print_table

    done = import_robustbench(path, out)
    lines = [*boards_of(done)]
    columns = ("data", "norm", "models", "images")
    if as_json:
        boards = [dict(zip(columns, line, strict=True)) for line in lines]
        print(json.dumps({"imported": boards, "refused": done.refused}, indent=2))  # noqa: T201
        return
    print_table(f"RobustBench, published rows in {out}", columns, [list(line) for line in lines])
    beside = f"`davylamp table {shlex.quote(str(out))} --published` sets them beside ours"
    text = f"not judged by davylamp, no answers to single images: {beside}"
    make_console().print(f"- {text}", highlight=False, markup=False, soft_wrap=True)
    for line in done.refused:
        print_error(f"- refused: {line}")


def _export_attackbench(folder: Path, out: Path, data: str | None) -> None:
    from ..engine.exchange.attackbench_export import export_attackbench
    from ..report.text.console import make_console

    exported = export_attackbench(folder, out, data=data)
    console = make_console()
    for file in exported.files:
        console.print(str(file), highlight=False, markup=False)
    for line in exported.notes:
        console.print(f"- {line}", highlight=False, markup=False)
    count = len(exported.files)
    console.print(f"- {count} file{'' if count == 1 else 's'} for AttackBench", highlight=False, markup=False)

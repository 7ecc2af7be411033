"""Commands that export a results folder for others, import results, and check verdict files."""

import json
import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidInput, UnknownName
from .config_options import Given, in_options
from .errors import USAGE, exits_with
from .input_options import InputOptions
from .loading import LOADING, loading_keywords
from .merge import open_results_arguments
from .options import Json

DataAgain = Annotated[
    str | None, typer.Option(help="AttackBench, --verdict: data with the images of the folder (default: as evaluated)")
]


def import_results(
    what: Annotated[str, typer.Argument(help="BUNDLE.zip, or a format: attackbench, robustbench")],
    out: Annotated[Path, typer.Option("--out", "-o", help="results folder to write; for a bundle, it must be new")],
    path: Annotated[Path | None, typer.Argument(help="the other program's file, or a folder of such files")] = None,
    model: Annotated[
        str | None, typer.Option(help="AttackBench: model of the folder (default: matched by predictions)")
    ] = None,
    data: DataAgain = None,
    as_json: Json = False,
) -> None:
    """Import a bundle, or results of AttackBench or RobustBench. Imported examples are not checked on a model."""
    from ..api.folders import FORMATS
    from ..api.folders import import_results as read_results
    from ..report.text.console import make_console, print_error, print_table

    if what not in FORMATS:
        if path is not None or model is not None or data is not None:
            named = ", ".join(FORMATS)
            raise InvalidInput(f"PATH, --model and --data can be used only with the formats {named}, got {what!r}")
        done = read_results(what, out)
    elif path is None:
        raise InvalidInput(f"{what} needs a path: davylamp import {what} PATH -o FOLDER")
    else:
        done = read_results(path, out, form=what, model=model, data=data)
    if as_json:
        print(json.dumps(done.to_dict(), indent=2))  # noqa: T201 - the product
        return
    if what in FORMATS:
        columns = [name.replace("_", " ") for name in done.rows[0]]
        print_table(done.headline, columns, [[*row.values()] for row in done.rows])
    _print_notes(done, out)
    if what not in FORMATS:
        make_console().print(done.headline)
    for line in done.document.get("refused", ()):
        print_error(f"- refused: {line}")


def export_results(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help="a results folder, or a format: attackbench")],
    where: Annotated[
        Path | None,
        typer.Argument(
            help=(
                "BUNDLE.zip to write (with --verdict, RESULTS.verdict.zip by default); with a format, the results "
                "folder"
            )
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="folder for the files of a format")] = None,
    licence: Annotated[str, typer.Option(help="licence of the results, an SPDX identifier: CC-BY-4.0")] = "",
    creator: Annotated[str, typer.Option(help="author of the results")] = "",
    name: Annotated[str, typer.Option(help="title of the data set (default: models and data)")] = "",
    description: Annotated[str, typer.Option(help="description in a sentence (default: a summary)")] = "",
    images: Annotated[bool, typer.Option(help="bundle: include the stored adversarial images")] = True,
    data: DataAgain = None,
    verdict: Annotated[
        bool, typer.Option("--verdict", help="write the examples that fooled a model (of evaluate --keep-images)")
    ] = False,
    model: Annotated[str | None, typer.Option(help="--verdict: the model, if the folder has several")] = None,
    key: Annotated[
        Path | None, typer.Option(help="--verdict: file with the Ed25519 private key that signs it (PEM)")
    ] = None,
) -> None:
    """Write a results folder to one ZIP file, write a verdict that others can check, or write files for AttackBench."""
    from ..api.folders import export
    from ..report.text.console import make_console

    terms: dict[str, Any] = {"licence": licence, "creator": creator, "name": name, "description": description}
    signing = {"model": model, "key": key}
    if verdict:
        if out is not None:
            raise InvalidInput(
                "-o cannot be used with --verdict; give the file after the folder: davylamp export FOLDER FILE.zip "
                "--verdict"
            )
        target = where or Path(f"{Path(what).resolve().name.removesuffix('.zip')}.verdict.zip")
        folder = open_results_arguments(context, [Path(what)])
        done = export(folder, target, form="verdict", images=images, data=data, **signing, **terms)
    elif where is None:
        raise InvalidInput("expected davylamp export FOLDER BUNDLE.zip, got no file to write")
    elif what == "attackbench":
        if out is None:
            raise InvalidInput(f"{what} needs -o: davylamp export {what} FOLDER -o FILES")
        folder = open_results_arguments(context, [where])
        done = export(folder, out, form=what, images=images, data=data, **signing, **terms)
    else:
        if out is not None and not Path(what).exists():
            raise UnknownName("format", what, ("attackbench",))
        if out is not None or data is not None:
            raise InvalidInput("-o and --data cannot be used with davylamp export FOLDER BUNDLE.zip")
        done = export(open_results_arguments(context, [Path(what)]), where, images=images, **signing, **terms)
    console = make_console()
    for file in done.document.get("files", ()):
        console.print(file, highlight=False, markup=False)
    _print_notes(done, Path(what))
    dash = "- " if what == "attackbench" else ""
    console.print(f"{dash}{done.headline}")


def verify_verdict(
    *,
    file: Annotated[Path, typer.Argument(help="a file of `davylamp export --verdict`")],
    model: Annotated[
        str | None, typer.Option(help="your model; without it, the command prints the model's name in the file")
    ] = None,
    seen: InputOptions,
    data: Annotated[
        str | None,
        typer.Option(
            help="data with which the clean images and labels of the file are compared (default: not compared)"
        ),
    ] = None,
    key: Annotated[str, typer.Option(help="public key of the author, 64 hexadecimal digits")] = "",
    device: Annotated[str, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = "cpu",
    how: Annotated[Given, LOADING],
    as_json: Json = False,
) -> None:
    """Count how many examples of a verdict file fool your model. The exit code is 1 if fewer than the file claims."""
    from ..api.verifying import verify
    from ..report.text.console import make_console

    named = None if model is None else seen.of(model)
    with exits_with(USAGE) if model is None else nullcontext():
        done = verify(file, named, data=data, key=key, device=device, **loading_keywords(how))
    if as_json:
        print(json.dumps(done.to_dict(), indent=2))  # noqa: T201 - the product
    else:
        make_console().print(done.headline)
        _print_notes(done, file)
    if not done.document["holds"]:
        raise typer.Exit(1)


def _print_notes(done: Any, folder: Path) -> None:
    from ..report.text.console import make_console

    for line in done.notes:
        if not line.startswith("refused: "):  # printed on standard error
            text = in_options(line).replace("FOLDER", shlex.quote(str(folder)))
            make_console().print(f"- {text}")

"""Commands for papers: BibTeX, and figures at column width."""

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import typer

from ..errors import InvalidInput
from .config_options import in_options
from .evaluate import Folder
from .options import Json, one_format, split_models

Out = Annotated[Path | None, typer.Option("--out", "-o", help="file to write, refs.bib (default: standard output)")]


class Kind(str, Enum):  # Typer has no lists of Literal
    """Kinds of figures that `davylamp figure` draws."""

    accuracy = "accuracy"
    passes = "passes"
    rates = "rates"
    ranking = "ranking"
    transfer = "transfer"
    fr_at_k = "fr-at-k"
    thresholds = "thresholds"
    extremes = "extremes"
    similarities = "similarities"


def draw_figures(
    folder: Folder,
    kinds: Annotated[
        list[Kind] | None,
        typer.Argument(help="kind of figure (default: all of the first five kinds for which the folder has data)"),
    ] = None,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="FILE.pdf, .svg or .png; several figures become FILE-KIND.pdf"),
    ] = Path("figure.pdf"),
    width: Annotated[
        str, typer.Option(help="width: column (3.25 in), text (6.75 in), or 3.5in, 8.5cm, 246pt")
    ] = "column",
    style: Annotated[Literal["sans", "serif"], typer.Option(help="typeface, like Helvetica or like Times")] = "sans",
    norm: Annotated[
        str | None, typer.Option(help="accuracy, passes: only this norm: linf, l2, l1, l0 or unrestricted")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="only this model (repeatable; not for ranking and transfer)")
    ] = None,
    metric: Annotated[
        str, typer.Option(help="rates: the metric, from `davylamp metrics`: QI_Wup, QI_Vis, ALMS")
    ] = "MR",
    subjects: Annotated[
        Literal["models", "attacks", "implementations", "defences"],
        typer.Option(help="ranking: kind of subject to rank"),
    ] = "models",
) -> None:
    """Draw figures for a paper, with intervals, embedded fonts and colours that are legible in greyscale."""
    from ..report.figures.figure import write_figures
    from ..report.text.console import make_console, print_error

    if out.suffix.lower() not in (".pdf", ".svg", ".png"):
        raise InvalidInput(f"expected a file that ends in .pdf, .svg or .png, got {out}")
    options = {"width": width, "style": style, "norm": norm, "subjects": subjects, "metric": metric}
    written, missing = write_figures(
        folder, [kind.value for kind in kinds or []], out, models=split_models(model), **options
    )
    for path in written:
        make_console().print(str(path), highlight=False, markup=False, soft_wrap=True)
    for kind, why in missing.items():
        print_error(f"- no {kind} figure: {in_options(str(why))}")


def cite_sources(
    what: Annotated[
        list[str],
        typer.Argument(
            help="results folders, or names: pgd, foolbox:pgd, foolbox, MR, jpeg, trades, cifar10, timm:NAME"
        ),
    ],
    out: Out = None,
    keys: Annotated[bool, typer.Option("--keys", help="print a table of the citation keys")] = False,
    as_json: Json = False,
) -> None:
    """Write BibTeX entries for all attacks, libraries, metrics, data and models of a folder, or for given names."""
    from ..report.citations.cite import cite
    from ..report.text.console import make_console, print_error, print_table

    form = one_format({"keys": keys, "json": as_json})
    cited = cite(*what)
    if out is not None:
        make_console().print(f"{cited.write(out)}: {len(cited.entries)} entries", highlight=False, markup=False)
    if form == "json":
        entries = [
            {"key": entry.key, "type": entry.kind, "for": uses, "fields": dict(entry.fields)}
            for entry, uses in cited.entries
        ]
        print(json.dumps({"entries": entries, "without": cited.missing}, indent=2))  # noqa: T201 - the product
        return
    if form == "keys":
        print_table("", ("cited for", "keys"), [(use, ", ".join(named)) for use, named in cited.keys.items()])
    elif out is None:
        print(cited.text, end="")  # noqa: T201 - the product
    if form == "keys" or out is not None:
        for line in cited.missing:
            print_error(f"- no entry: {line}")

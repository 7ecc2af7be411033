"""The commands for papers: BibTeX of what was used."""

import json
from pathlib import Path
from typing import Annotated

import typer

from .options import Json, one_format

Out = Annotated[Path | None, typer.Option("--out", "-o", help="write a file: refs.bib; else to standard output")]


def cite_sources(
    what: Annotated[
        list[str],
        typer.Argument(
            help="results folders, or names: pgd, foolbox:pgd, foolbox, MR, jpeg, trades, cifar10, timm:NAME"
        ),
    ],
    out: Out = None,
    keys: Annotated[bool, typer.Option("--keys", help="what \\cite takes for each thing, as a table")] = False,
    as_json: Json = False,
) -> None:
    """Write BibTeX of every attack, library, metric, data set, defence and model of a folder, or of names."""
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

"""Command that lists which topics of standards, taxonomies and laws were measured."""

import json
from pathlib import Path
from typing import Annotated

import typer

from .merge import ManyResults, open_results_arguments
from .options import Json, check_file
from .table_options import TableOptions


def show_evidence(
    *,
    context: typer.Context,
    folders: ManyResults,
    model: Annotated[str, typer.Option(help="the model, if the folder has several")] = "",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="write the evidence as FILE.md, a section for a model card, or as FILE.html"),
    ] = None,
    view: TableOptions,
    as_json: Json = False,
) -> None:
    """List which topics of ISO/IEC 24029, NIST AI 100-2, MITRE ATLAS, the AI Act and the FDA draft were measured."""
    from ..api.evidence import evidence
    from ..engine.store.atomic_files import write_atomic
    from ..report.page.evidence_page import evidence_page
    from ..report.text.evidence import evidence_markdown, print_evidence

    view.check("json" if as_json else "")
    check_file(out, (".md", ".html"))
    opened = open_results_arguments(context, folders)
    result = evidence(opened, model=model)
    parts = (result.headline, result.rows, result.notes)
    if out is not None:
        source = ", ".join(map(str, folders))
        page = evidence_markdown(*parts) if out.suffix.lower() == ".md" else evidence_page(*parts, source=source)
        write_atomic(out, page)
    if as_json:
        print(json.dumps(result.to_dict(), indent=2, allow_nan=False))  # noqa: T201 - standard output is the product
        return
    with view.open() as console:
        print_evidence(result, console)
        if out is not None:
            console.print(f"written: {out}")

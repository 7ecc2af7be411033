"""Command for contributors: runs implementations on deliberately misbehaving models."""

import json
from typing import Annotated, Any

import typer

from ..errors import UnknownName
from .options import Json, Libraries, choose_rows, read_parameters
from .table_options import TableOptions


def check_rows(
    *,
    rows: Annotated[
        list[str] | None, typer.Argument(help="attacks or implementations: pgd, foolbox:pgd (default: all)")
    ] = None,
    library: Libraries = None,
    plant: Annotated[list[str] | None, typer.Option(help="only this misbehaving model (repeatable)")] = None,
    first_norm: Annotated[
        bool, typer.Option("--first-norm", help="test one norm of each implementation instead of all")
    ] = False,
    param: Annotated[
        list[str] | None, typer.Option(help="parameter name=value, for implementations that have it (repeatable)")
    ] = None,
    view: TableOptions,
    as_json: Json = False,
) -> None:
    """Run implementations on misbehaving models (NaN, saturated, random...); exit code 1 on a false result."""
    from ..adapters.catalogue.lookup import find_implementation
    from ..adapters.contract.misbehaving_models import PLANTS, run_misbehaving_model_checks
    from ..report.text.checks import print_conformance
    from ..report.text.console import make_console

    view.check("json" if as_json else "")
    for name in plant or []:
        if name not in PLANTS:
            raise UnknownName("planted model", name, PLANTS)
    chosen: list[Any] = []
    for name in rows or [None]:
        matching = [find_implementation(name)] if name and ":" in name else choose_rows(name, library, fixed=True)
        chosen += [row for row in matching if row not in chosen]
    console = make_console(stderr=True)
    findings = []
    for finding in run_misbehaving_model_checks(
        chosen, plants=plant, every_norm=not first_norm, parameters=read_parameters({}, param or [])
    ):
        findings.append(finding)
        if finding.complaint:
            console.print(f"{finding.implementation} {finding.norm}, {finding.plant}: {finding.complaint}")
    wrong = [finding for finding in findings if finding.complaint]
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings], indent=1))  # noqa: T201 - the product
    else:
        with view.open() as shown_on:
            print_conformance(findings, shown_on)
    if wrong:
        raise typer.Exit(1)

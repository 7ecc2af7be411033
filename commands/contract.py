"""Command for contributors: checks that attacks keep the rules of the contract, and runs misbehaving models."""

import json
from typing import Annotated, Any

import typer

from ..errors import InvalidInput, UnknownName
from .loading import tell
from .options import Json, Libraries, choose_rows, read_parameters
from .table_options import TableOptions


def check_attacks(
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="attacks, implementations, FILE.py:ATTACK, or a whole library: pgd, foolbox:pgd, foolbox (default "
            "with --misbehaving: all)"
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(help="attack parameter name=value, instead of the values that make tests fast (repeatable)"),
    ] = None,
    norm: Annotated[list[str] | None, typer.Option(help="only this norm: linf, l2, l1, l0 (repeatable)")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="skip the misbehaving models")] = False,
    misbehaving: Annotated[
        bool,
        typer.Option(
            "--misbehaving",
            help="test only on misbehaving models (which return NaN, are constant, ...), with one row for each",
        ),
    ] = False,
    library: Libraries = None,
    plant: Annotated[
        list[str] | None, typer.Option(help="--misbehaving: only this misbehaving model (repeatable)")
    ] = None,
    first_norm: Annotated[
        bool, typer.Option("--first-norm", help="--misbehaving: one norm of each implementation instead of all")
    ] = False,
    view: TableOptions,
    as_json: Json = False,
) -> None:
    """Check that attacks keep the rules of the contract, such as staying within the radius.

    The attacks run on a linear model with known smallest perturbations, and on models that misbehave on purpose. The
    exit code is 1 if an attack breaks a rule, or if a false success or false robustness is reported.
    """
    view.check("json" if as_json else "")
    if misbehaving:
        if norm or quick:
            raise InvalidInput(f"--misbehaving and {'--norm' if norm else '--quick'} cannot be combined")
        wrong = _run_misbehaving_models(
            names, library, plant, param or [], view, first_norm=first_norm, as_json=as_json
        )
    else:
        given = {"--library": library, "--plant": plant, "--first-norm": first_norm}
        if alone := [option for option, value in given.items() if value]:
            raise InvalidInput(f"{alone[0]} needs --misbehaving")
        if not names:
            raise InvalidInput("expected an attack, such as foolbox:pgd, or --misbehaving, got neither")
        wrong = _check_contracts(names, param or [], norm or [], view, quick=quick, as_json=as_json)
    if wrong:
        raise typer.Exit(1)


def _check_contracts(
    names: list[str], param: list[str], norm: list[str], view: TableOptions, *, quick: bool, as_json: bool
) -> bool:
    """Run the contract checks and print the results. Returns whether an attack breaks a rule."""
    from ..adapters import LIBRARIES
    from ..adapters.contract.contract_checks import check_contracts
    from ..adapters.threat_model import NORMS
    from ..engine.plan.choices import assumed_texts
    from ..report.text.checks import print_promises
    from ..report.text.console import make_console

    for each in norm:
        if each not in NORMS:
            raise UnknownName("norm", each, NORMS)
    rows: list[Any] = []
    for name in names:
        matching = list(LIBRARIES[name].attacks) if name in LIBRARIES else choose_rows(name, None, fixed=True)
        rows += [row for row in matching if row not in rows and not row.broken]
    have = dict.fromkeys(each for row in rows for each in row.classes)
    rows = [row for row in rows if not norm or {*norm} & {*row.classes}]
    if not rows and norm:
        raise InvalidInput(
            f"{', '.join(names)}: the norm {', '.join(norm)} is not supported; supported: {', '.join(have)}"
        )
    for line in assumed_texts(rows):
        tell(line)
    parameters = read_parameters({}, param, names) or None
    with make_console(stderr=True).status("") as status:
        promises = check_contracts(rows, norms=norm, parameters=parameters, quick=quick, progress=status.update)
    if as_json:
        print(json.dumps([promise._asdict() for promise in promises], indent=1))  # noqa: T201 - the product
    else:
        with view.open() as console:
            print_promises(promises, len(rows), console)
    return any(promise.state == "failed" for promise in promises)


def _run_misbehaving_models(
    names: list[str] | None,
    library: list[str] | None,
    plant: list[str] | None,
    param: list[str],
    view: TableOptions,
    *,
    first_norm: bool,
    as_json: bool,
) -> bool:
    """Run implementations on misbehaving models and print the results. Returns whether a reported result is false."""
    from ..adapters import LIBRARIES
    from ..adapters.catalogue.lookup import find_implementation
    from ..adapters.contract.misbehaving_models import PLANTS, run_misbehaving_model_checks
    from ..report.text.checks import print_conformance
    from ..report.text.console import make_console

    for name in plant or []:
        if name not in PLANTS:
            raise UnknownName("misbehaving model", name, PLANTS)
    chosen: list[Any] = []
    for name in names or [None]:
        if name is not None and name in LIBRARIES:
            matching = list(LIBRARIES[name].attacks)
        else:
            matching = [find_implementation(name)] if name and ":" in name else choose_rows(name, library, fixed=True)
        chosen += [row for row in matching if row not in chosen]
    console = make_console(stderr=True)
    findings = []
    for finding in run_misbehaving_model_checks(
        chosen, plants=plant, every_norm=not first_norm, parameters=read_parameters({}, param)
    ):
        findings.append(finding)
        if finding.complaint:
            console.print(f"{finding.implementation} {finding.norm}, {finding.plant}: {finding.complaint}")
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings], indent=1))  # noqa: T201 - the product
    else:
        with view.open() as shown_on:
            print_conformance(findings, shown_on)
    return any(finding.complaint for finding in findings)

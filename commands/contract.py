"""Command for contributors: tests attacks against their contract."""

import json
from typing import Annotated, Any

import typer

from ..errors import InvalidInput, UnknownName
from .loading import tell
from .options import Json, choose_rows, read_parameters
from .table_options import TableOptions


def check_promises(
    *,
    names: Annotated[
        list[str], typer.Argument(help="implementations, FILE.py:ATTACK, or a whole library: foolbox:pgd, foolbox")
    ],
    param: Annotated[
        list[str] | None, typer.Option(help="parameter name=value instead of the fast test values (repeatable)")
    ] = None,
    norm: Annotated[list[str] | None, typer.Option(help="only this norm: linf, l2, l1, l0 (repeatable)")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="skip the deliberately misbehaving models")] = False,
    view: TableOptions,
    as_json: Json = False,
) -> None:
    """Test attacks against their contract, on a model with a known optimum and on deliberately misbehaving models.

    The exit code is 1 if an attack violates the contract, or reports a false success or false robustness.
    """
    from ..adapters import LIBRARIES
    from ..adapters.contract.contract_checks import check_contracts
    from ..adapters.threat_model import NORMS
    from ..engine.plan.choices import assumed_texts
    from ..report.text.checks import print_promises
    from ..report.text.console import make_console

    view.check("json" if as_json else "")
    for each in norm or []:
        if each not in NORMS:
            raise UnknownName("norm", each, NORMS)
    rows: list[Any] = []
    for name in names:
        matching = list(LIBRARIES[name].attacks) if name in LIBRARIES else choose_rows(name, None, repaired=True)
        rows += [row for row in matching if row not in rows and not row.broken]
    have = dict.fromkeys(each for row in rows for each in row.classes)
    rows = [row for row in rows if not norm or {*norm} & {*row.classes}]
    if not rows and norm:
        raise InvalidInput(f"expected a norm of {', '.join(names)} ({', '.join(have)}), got {', '.join(norm)}")
    for line in assumed_texts(rows):
        tell(line)
    parameters = read_parameters({}, param or [], names) or None
    with make_console(stderr=True).status("") as status:
        promises = check_contracts(rows, norms=norm or (), parameters=parameters, quick=quick, progress=status.update)
    broken = [promise for promise in promises if promise.state == "broken"]
    if as_json:
        print(json.dumps([promise._asdict() for promise in promises], indent=1))  # noqa: T201 - the product
    else:
        with view.open() as console:
            print_promises(promises, len(rows), console)
    if broken:
        raise typer.Exit(1)

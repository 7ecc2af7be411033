"""Commands that compute failure indicators and further metrics for a results folder."""

from pathlib import Path
from typing import Annotated

import typer

from ..errors import InvalidInput, Unavailable
from ..report.text.progress import show_progress
from .config_options import FromConfig, Given
from .loading import LOADING, loading_keywords
from .options import Json, split_models
from .table_options import TableOptions


def check_results(
    *,
    folder: Annotated[Path, typer.Argument(help="a results folder of `davylamp evaluate`")],
    probe: Annotated[
        bool, typer.Option("--probe", help="also run each attack again on a few images, for indicators that need it")
    ] = False,
    model: Annotated[list[str] | None, typer.Option(help="only this model (repeatable)")] = None,
    limit: Annotated[int, typer.Option("--limit", "--images", min=1, help="images per run with --probe")] = 8,
    device: Annotated[str, typer.Option(help="device for --probe: cpu, cuda, cuda:1, mps")] = "cpu",
    how: Annotated[Given, LOADING],
    strict: Annotated[bool, typer.Option("--strict", help="exit with code 2 if an indicator fails")] = False,
    view: TableOptions,
    as_json: Json = False,
) -> None:
    """Check whether the numbers in a results folder can be trusted: masked gradients, weak attacks, wrong models."""
    import json

    from ..api.folders import check
    from ..report.text.checks import print_checks

    view.check("json" if as_json else "")
    where = {"model": split_models(model), "limit": limit, "device": device, "progress": show_progress}
    done = check(folder, probe=probe, **where, **loading_keywords(how))
    findings, probed = done.made
    if as_json:
        print(json.dumps(done.to_dict(), indent=2))  # noqa: T201 - standard output is the product
    else:
        with view.open() as console:
            print_checks(findings, str(folder), done.notes, console)
    if probed is not None and probed.notes and not probed.done + probed.kept:
        raise Unavailable(f"no run can be repeated: {probed.notes[0]}")
    if strict and done.document["counts"]["fail"]:
        raise typer.Exit(2)


def measure_results(
    *,
    folder: Annotated[Path, typer.Argument(help="a results folder of `davylamp evaluate --keep-images`")],
    what: Annotated[Given, FromConfig(("measures", "neuron_profile", "hierarchy"))],
    model: Annotated[list[str] | None, typer.Option(help="only this model (repeatable)")] = None,
    device: Annotated[str, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = "cpu",
    how: Annotated[Given, LOADING],
    strict: Annotated[bool, typer.Option("--strict", help="exit with code 2 if a run could not be measured")] = False,
    as_json: Json = False,
) -> None:
    """Compute further metrics for finished runs, from the examples that a results folder stores."""
    import json

    from ..api.folders import measure
    from ..report.text.console import print_error

    if not (metrics := what.pop("measures", ())):
        raise InvalidInput("expected --metric NAME, such as --metric ALMS or --metric all, got none")
    where = {"model": split_models(model), "device": device, "progress": show_progress}
    done = measure(folder, metrics, **what, **where, **loading_keywords(how))
    if as_json:
        print(json.dumps(done.to_dict(), indent=2))  # noqa: T201 - standard output is the product
    else:
        print(done.headline)  # noqa: T201
        for line in done.notes:
            print_error(f"- {line}")
    if strict and any(row["state"] == "refused" for row in done.rows):
        raise typer.Exit(2)

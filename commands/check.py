"""The command about trust: the failure indicators of a results folder."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import Unavailable
from .config_options import Given
from .loading import LOADING, loading_from
from .options import Json, split_models
from .progress import show_progress
from .table_options import TableOptions


def check_results(
    *,
    folder: Annotated[Path, typer.Argument(help="a results folder of `davylamp evaluate`")],
    run: Annotated[bool, typer.Option("--run", help="also rerun each cell on a few images")] = False,
    model: Annotated[list[str] | None, typer.Option(help="only this model (repeatable)")] = None,
    limit: Annotated[int, typer.Option("--limit", "--images", min=1, help="images per cell with --run")] = 8,
    device: Annotated[str, typer.Option(help="device for --run: cpu, cuda, cuda:1, mps")] = "cpu",
    how: Annotated[Given, LOADING],
    strict: Annotated[bool, typer.Option("--strict", help="exit with code 2 if an indicator fails")] = False,
    view: TableOptions,
    as_json: Json = False,
) -> None:
    """Run failure indicators on a results folder: masked gradients, weak or broken attacks, wrong models."""
    import json

    from ..engine.checks.check_folder import STATES, check_folder, describe_folder
    from ..engine.store.outcomes import read_outcomes
    from ..report.text.checks import print_checks

    view.check("json" if as_json else "")
    model = split_models(model)
    outcomes = read_outcomes(folder, ["OTR"])
    probed = _probe(outcomes, model, limit, device, how) if run else None
    notes = probed.notes if probed else []
    checks = check_folder(outcomes, models=model)
    counts = Counter(check.state for check in checks)
    if as_json:
        document = {
            "counts": {state: counts[state] for state in STATES},
            "checks": [check.document() for check in checks],
            **describe_folder(outcomes),
        }
        print(json.dumps({**document, "notes": notes}, indent=2))  # noqa: T201 - standard output is the product
    else:
        said = (*notes, *filter(None, [probed.traffic.line] if probed else []))
        with view.open() as console:
            for line in outcomes.unsteady:
                console.print(line)
            print_checks(checks, str(folder), said, console)
    if probed is not None and notes and not probed.done + probed.kept:
        raise Unavailable(f"expected cells that can be run again, got none: {notes[0]}")
    if strict and counts["fail"]:
        raise typer.Exit(2)


def _probe(outcomes: Any, models: list[str] | None, images: int, device: str, how: Given) -> Any:
    from ..engine.probes.probe_folder import probe_folder

    asked = [outcome.cell.subject.model for outcome in outcomes.done]
    asked = [name for name in asked if models is None or name in models]
    loading = loading_from(how, dict.fromkeys(asked), folder=outcomes.store.folder)
    with show_progress(len(asked)) as progress:
        return probe_folder(outcomes, only=models, images=images, device=device, loading=loading, progress=progress)

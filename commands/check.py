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

_COLUMNS = ("state", "indicator", "subject", "images", "detail", "what to do")


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
    from ..report.text.console import print_table

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
        title = ", ".join(f"{counts[state]} {state}" for state in ("pass", "warn", "fail", "unknown"))
        with view.open() as console:
            for line in outcomes.unsteady:
                console.print(line, highlight=False, markup=False)
            print_table(f"{folder}: {title}", _COLUMNS, _rows(checks), console, keys=3, rest="blocks")
            for note in (*notes, *filter(None, [probed.traffic.line] if probed else [])):
                console.print(f"- {note}", highlight=False, markup=False)
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


def _rows(checks: list[Any]) -> list[list[Any]]:
    """The worst first; what is unknown for one reason, and what passes, in one line for each indicator."""
    from ..engine.checks.check_folder import STATES

    rows: list[list[Any]] = []
    for state in STATES:
        in_state = [check for check in checks if check.state == state]
        groups: dict[Any, list[Any]] = {}
        for check in in_state:
            folded = {"pass": check.name, "unknown": (check.name, check.detail, check.advice)}
            groups.setdefault(folded.get(state, len(groups)), []).append(check)
        for group in groups.values():
            first, one = group[0], len(group) == 1
            subject = first.subject if one else f"{len(group)} subjects"
            detail = first.detail if one or state == "unknown" else ""
            rows.append([state, first.title, subject, len(first.images) or None, detail or "-", first.advice or "-"])
    return rows

"""Command that shows the state of an evaluation."""

import json
from typing import Annotated, Any

import typer

from .evaluate import Folder
from .options import Json
from .table_options import TableOptions


def show_status(
    *,
    folder: Folder,
    verify: Annotated[
        bool, typer.Option("--verify", help="verify the checksum of every file (default: read the headers only)")
    ] = False,
    view: TableOptions,
    as_json: Json = False,
) -> None:
    """Show the state of each run in a results folder (done, failed, running or waiting), and damaged files."""
    from collections import Counter
    from dataclasses import asdict

    from ..adapters.models.remote.answer_cache import format_usage
    from ..adapters.paths import expand_path
    from ..engine.store.notes import repair_hint
    from ..engine.store.plan_records import find_failed, list_parts, survey_folder
    from ..engine.store.sequence import read_sequence
    from ..engine.store.store import ResultsStore
    from ..report.text.console import print_notes

    view.check("json" if as_json else "")
    states, damaged = survey_folder(folder, headers=not verify)
    store = ResultsStore(folder, create=False)
    left_out, parts = find_failed(store), list_parts(store)
    rows, sequence = [_status_row(state) for state in states], read_sequence(store)
    if as_json:
        document = {"cells": rows, "damaged": damaged, "left_out": left_out}
        document |= {} if sequence is None else {"sequence": asdict(sequence)}
        print(json.dumps({**document, "parts": [part._asdict() for part in parts]}, indent=2))  # noqa: T201
        return
    counts = Counter(state.status for state in states)
    with view.open() as console:
        _print_cells(rows, console)
        lines = [*_lines_of_parts(parts), *([] if sequence is None else [sequence.sentence])]
        lines += [f"omitted: {name}: {reason}" for name, reason in left_out.items()]
        lines += [*format_usage(expand_path(folder)), *(f"{line}{repair_hint(line)}" for line in damaged)]
        print_notes(lines, console)
        counted = ", ".join(f"{number} {status}" for status, number in sorted(counts.items())) or "no runs"
        console.print(f"{folder}: {counted}")


def _lines_of_parts(parts: list[Any]) -> list[str]:
    """Return a line for each unfinished part of a job array, with the number of missing shards."""
    return [
        f"part {part.number}/{part.of}: {part.missing} of {part.pieces} shards missing"
        f"{f', {part.running} running' if part.running else '; run its command again to resume'}"
        for part in parts
        if part.missing
    ]


def _status_row(state: Any) -> dict[str, Any]:
    cell = state.cell
    return {
        "cell": state.key,
        "model": cell.subject.name,
        "attack": cell.title,
        "norm": cell.threat_model.norm,
        "epsilon": cell.threat_model.epsilon,
        "images": cell.subject.images,
        "seed": cell.seed,
        "status": state.status,
        "seconds": state.meta.get("seconds"),
        "reason": state.reason,
    }


def _print_cells(rows: list[dict[str, Any]], console: Any) -> None:
    from ..adapters.display_text import format_radius
    from ..report.text.console import print_notes, print_table

    names = ("attack", "model", "status", "norm", "epsilon", "images", "seed", "seconds", "cell")
    lines = []
    for row in sorted(rows, key=lambda row: row["status"] == "done"):
        epsilon = None if row["epsilon"] is None else format_radius(row["norm"], row["epsilon"])
        lines.append([{**row, "epsilon": epsilon}[name] for name in names])
    order = ("status", "norm", "epsilon", "images", "seconds", "seed", "cell")
    print_table("", names, lines, console, keys=2, order=order)
    reasons = [(f"{row['attack']} on {row['model']}: {row['status']}", row["reason"]) for row in rows]
    print_notes([f"{about}: {reason}" for about, reason in reasons if reason], console)

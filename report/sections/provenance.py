"""Where the numbers come from: settings, versions, hashes, what failed, and how to run it again."""

import json
import shlex
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ...adapters.words import threat_text
from ...engine.plan.config import write_config
from ...engine.plan.rerun import configs_of, transfer_of
from ...engine.store.notes import remedy
from ...engine.store.plans import CellState
from ..parts.blocks import Code, Entry, Facts, Fold, PageTable, Section, Text, badge, make_table
from ..parts.reading import Folder

_STATE: Mapping[str, str] = {"done": "pass", "failed": "fail", "running": "unknown"}


def write_provenance(folder: Folder, version: str) -> Section:
    """Everything that is needed to trust a number or to make it again.

    Args:
        folder: the results.
        version: of davylamp, now.
    """
    states = list(folder.states.values())
    failed = [state for state in states if state.status == "failed"]
    blocks: list[Any] = [Facts(_facts(folder, states, version)), *_rerun_blocks(folder)]
    blocks.append(_subjects(folder))
    if failed:
        rows = [
            (s.cell.title, s.cell.subject.name, threat_text(s.cell.threat_model), s.cell.seed, s.reason) for s in failed
        ]
        columns = ("implementation", "model", "threat model", "seed", "reason")
        blocks.append(make_table("failed-cells", "Failed cells", columns, rows))
    else:
        blocks.append(Text("No cell failed.", "note"))
    blocks += [Text(f"{line}{remedy(line)}.", "warn") for line in folder.outcomes.damaged]
    blocks.append(Fold(f"All {len(states)} cells", (_cells(states),)))
    return Section(
        "provenance", "Provenance", "How these numbers were computed, and how to reproduce them.", tuple(blocks)
    )


def collect(states: list[CellState], name: str) -> str:
    """The values of an entry of the cells' records: one, or several with how many cells have each."""
    counts = Counter(str(state.meta.get(name, "")) for state in states)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{value} ({number} cells)" for value, number in counts.most_common())


def collect_versions(states: list[CellState]) -> dict[str, str]:
    """Library -> version, or several with how many cells have each."""
    versions: dict[str, Counter[str]] = {}
    for state in states:
        for name, version in state.meta.get("versions", {}).items():
            versions.setdefault(name, Counter())[version] += 1
    return {
        name: ", ".join(v if len(counts) == 1 else f"{v} ({number} cells)" for v, number in counts.most_common())
        for name, counts in versions.items()
    }


def _facts(folder: Folder, states: list[CellState], version: str) -> tuple[tuple[str, str], ...]:
    states = [state for state in states if state.meta]  # cells under way have no record yet
    written = sorted(str(state.meta["written"]) for state in states)
    seconds = sum(float(state.meta.get("seconds", 0)) for state in states)
    versions = collect_versions(states)
    seeds = sorted({state.cell.seed for state in states})
    return (
        ("results folder", str(folder.path)),
        ("written", f"{written[0]} to {written[-1]}" if written else ""),
        ("computing time", f"{seconds / 60:.1f} minutes in all cells together"),
        ("seeds", ", ".join(map(str, seeds))),
        ("device", collect(states, "device")),
        *([("GPU", gpus)] if (gpus := collect([state for state in states if "gpu" in state.meta], "gpu")) else []),
        ("machine", f"{collect(states, 'platform')}, Python {collect(states, 'python')}"),
        ("versions", ", ".join(f"{name} {each}" for name, each in versions.items())),
        ("preset", collect(states, "preset") or "none"),
        ("page made by", f"davylamp {version}"),
    )


def _rerun_blocks(folder: Folder) -> list[Any]:
    """The config that makes the same cells, and the line that runs it."""
    cells = [state.cell for state in folder.states.values()]
    outcomes = folder.outcomes
    tested = transfer_of([outcome.cell for outcome in outcomes.done], outcomes.transfers or {}, outcomes.subjects)
    shown = {"examples": tested.examples, "defended": tested.defended}
    configs = configs_of(cells, transfer=tested.rule, first=tested.first, **shown)
    blocks: list[Any] = []
    if tested.tested < tested.asked:
        text = f"{tested.tested} of {tested.asked} transfer runs are here; this configuration makes all."
        blocks.append(Text(text, "note"))
    for place, config in enumerate(configs):
        name = "again.toml" if len(configs) == 1 else f"again-{place + 1}.toml"
        label = f"Configuration: save as {name}. Every parameter that the cells ran with is in it"
        blocks.append(Code(f"config-{place}", label, write_config(config)))
        devices = Counter(str(state.meta.get("device", "cpu")) for state in folder.states.values() if state.meta)
        line = ["davylamp", "evaluate", name, "--device", devices.most_common(1)[0][0], "-o", "again"]
        blocks.append(Code(f"command-{place}", "Run it again", shlex.join(line)))
    return blocks


def _subjects(folder: Folder) -> PageTable:
    rows = [
        (
            folder.models[key],
            Entry(subject.model_digest, subject.model_digest, kind="code"),
            subject.data,
            Entry(subject.data_digest, subject.data_digest, kind="code"),
            subject.images,
        )
        for key, subject in folder.outcomes.subjects.items()
    ]
    columns = (
        "model",
        "hash of code, attributes, weights, preprocessing",
        "data",
        "hash of pixels and labels",
        "images",
    )
    return make_table("subjects", "Models and data", columns, rows)


def _cells(states: list[CellState]) -> PageTable:
    rows = [
        (
            badge(_STATE.get(state.status, "unknown"), state.status),
            state.cell.subject.name,
            state.cell.title,
            threat_text(state.cell.threat_model),
            state.cell.seed,
            json.dumps(dict(state.cell.parameters)),
            float(state.meta.get("seconds", 0)),
            state.cell.version,
            Entry(state.key, state.key, kind="code"),
        )
        for state in states
    ]
    columns = ("state", "model", "implementation", "threat model", "seed", "parameters", "seconds", "library", "key")
    return make_table("cells", "Cells", columns, rows)

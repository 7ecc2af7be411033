"""Sections on the origin of the results (settings, versions, hashes, failures, commands to repeat the runs).

The last section explains the terms of the report.
"""

import json
import shlex
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ...adapters.display_text import format_threat_model
from ...engine.plan.config_file import write_config
from ...engine.plan.rerun import configs_of, transfer_of
from ...engine.store.notes import repair_hint
from ...engine.store.plan_records import CellState
from ...engine.store.sequence import read_sequence
from ..parts.blocks import Code, Collapsible, DefinitionList, PageTable, Section, TableCell, Text, badge, list_table
from ..parts.report_data import ReportData

_TERMS = (
    ("adversarial example", "an image changed within the threat model so that the classifier misclassifies it"),
    ("attack", "an algorithm that searches for adversarial examples, whatever the library: PGD, C&W, Square"),
    ("attacked", "an image that the model classifies correctly when clean; MR and distances are over these"),
    ("attack run", "one implementation with fixed parameters, threat model and seed, on one model and one data set"),
    ("confidence interval", "a 95 % interval. Proportions: Clopper and Pearson's, with the effective number of images "
     "if the same images count several times. Other means: bootstrap over at least 5 images. Runs that stopped when a "
     "question was decided (--until): a betting interval, which holds at every number of images"),
    ("decision-based, score-based, white-box", "what an attack uses: the predicted class, the outputs, or everything"),
    ("epsilon", "the radius of the ball that bounds the change, on pixels in [0, 1]"),
    ("equivalent", "success rates at most 5 points apart (equivalence test: two one-sided tests at 5 %) and, for a "
     "minimum-norm attack, a median ratio of distances within 5 % of 1"),
    ("failure indicator", "a sign that an evaluation went wrong, so that robustness is only apparent"),
    ("fooled", "an attacked image that the model misclassifies afterwards (or classifies as the target, if any)"),
    ("implementation", "one library's version of an attack: foolbox:pgd"),
    ("interval of a rank", "the ranks that remain plausible (95 %) given the uncertainty of the scores"),
    ("item response theory", "a model in which each image has a difficulty and each subject an ability, in logits"),
    ("no difference found", "the images show no difference, which does not mean that there is none: see equivalent"),
    ("queries", "images sent through the model, forward or backward, counted by davylamp, not by the library"),
    ("robust accuracy (RA)", "proportion of all images correct when clean and not fooled by any attack of the threat "
     "model (the worst case), or by one given attack; an invalid result is not robust"),
    ("mean robust accuracy (RA_mean)", "the mean over the attacks of the robust accuracy under each alone"),
    ("minimum-norm attack", "an attack without a radius, which searches for the nearest adversarial example"),
    ("threat model", "what the attacker may do: norm, epsilon, targeted or not"),
    ("tie group", "subjects that share a letter do not differ significantly at 95 %, corrected over all pairs"),
    ("undecided", "so few images that no outcome could have been significant"),
    ("invalid result", "NaN, a black image, or one outside [0, 1] or the radius; counts as neither fooled nor robust"),
    ("worst case", "an image counts as robust only if it stays correct under every attack of the threat model"),
)  # fmt: skip
_FACTS = 4  # facts that are shown at once
_STATE: Mapping[str, str] = {"done": "pass", "failed": "fail", "running": "unknown"}


def write_provenance(folder: ReportData, version: str) -> Section:
    """Build the section on provenance: settings, versions, failed runs, and the commands that repeat the runs.

    Args:
        folder: data of the report.
        version: version of davylamp that makes the page.
    """
    states = list(folder.states.values())
    failed = [state for state in states if state.status == "failed"]
    facts = _facts(folder, states, version)
    blocks: list[Any] = [DefinitionList(facts[:_FACTS]), Collapsible("Models and data", (_subjects(folder),))]
    more = (DefinitionList(facts[_FACTS:]), *_rerun_blocks(folder))
    blocks.append(Collapsible("Versions, machine, configuration and command that repeat these runs", more))
    if failed:
        columns = (
            ("implementation", lambda state: state.cell.title),
            ("model", lambda state: state.cell.subject.name),
            ("threat model", lambda state: format_threat_model(state.cell.threat_model)),
            ("seed", lambda state: state.cell.seed),
            ("reason", lambda state: state.reason),
        )
        blocks.append(list_table("failed-cells", "Failed runs", failed, columns))
    blocks += [Text(f"{line}{repair_hint(line)}.", "warn") for line in folder.outcomes.damaged]
    blocks.append(Collapsible(f"All {len(states)} runs", (_cells(states),)))
    return Section(
        "provenance", "Provenance", "How these numbers were computed, and how to reproduce them.", tuple(blocks)
    )


def collect(states: list[CellState], name: str) -> str:
    """Summarise a field of the metadata of all runs: the common value, or each value with its number of runs."""
    counts = Counter(str(state.meta.get(name, "")) for state in states)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{value} ({number} runs)" for value, number in counts.most_common())


def collect_versions(states: list[CellState]) -> dict[str, str]:
    """Return the version of each library. If runs used several versions, each version has its number of runs."""
    versions: dict[str, Counter[str]] = {}
    for state in states:
        for name, version in state.meta.get("versions", {}).items():
            versions.setdefault(name, Counter())[version] += 1
    return {
        name: ", ".join(v if len(counts) == 1 else f"{v} ({number} runs)" for v, number in counts.most_common())
        for name, counts in versions.items()
    }


def _facts(folder: ReportData, states: list[CellState], version: str) -> tuple[tuple[str, str], ...]:
    states = [state for state in states if state.meta]  # running runs have no record yet
    written = sorted(str(state.meta["written"]) for state in states)
    seconds = sum(float(state.meta.get("seconds", 0)) for state in states)
    versions = collect_versions(states)
    seeds = sorted({state.cell.seed for state in states})
    return (
        ("results folder", str(folder.path)),
        ("written", f"{written[0]} to {written[-1]}" if written else ""),
        ("computing time", f"{seconds / 60:.1f} minutes in total over all runs"),
        ("seeds", ", ".join(map(str, seeds))),
        ("device", collect(states, "device")),
        *([("GPU", gpus)] if (gpus := collect([state for state in states if "gpu" in state.meta], "gpu")) else []),
        ("machine", f"{collect(states, 'platform')}, Python {collect(states, 'python')}"),
        ("versions", ", ".join(f"{name} {each}" for name, each in versions.items())),
        ("preset", collect(states, "preset") or "none"),
        ("page made by", f"davylamp {version}"),
    )


def _rerun_blocks(folder: ReportData) -> list[Any]:
    """Return blocks with the configuration that repeats the runs, and the command that evaluates it."""
    cells = [state.cell for state in folder.states.values()]
    outcomes = folder.outcomes
    tested = transfer_of([outcome.cell for outcome in outcomes.done], outcomes.transfers or {}, outcomes.subjects)
    shown = {"examples": tested.examples, "defended": tested.defended}
    configs = configs_of(cells, transfer=tested.rule, first=tested.first, **shown)
    blocks: list[Any] = []
    if tested.tested < tested.asked:
        text = f"{tested.tested} of {tested.asked} transfer runs are finished; this configuration runs all."
        blocks.append(Text(text, "note"))
    for place, config in enumerate(configs):
        name = "again.toml" if len(configs) == 1 else f"again-{place + 1}.toml"
        label = f"Configuration with every parameter of the runs; save as {name}"
        blocks.append(Code(f"config-{place}", label, write_config(config)))
        devices = Counter(str(state.meta.get("device", "cpu")) for state in folder.states.values() if state.meta)
        line = ["davylamp", "evaluate", name, "--device", devices.most_common(1)[0][0], "-o", "again"]
        sequence = read_sequence(outcomes.store) if any(cell.subject.drawn for cell in cells) else None
        line += [] if sequence is None else ["--until", sequence.until]
        blocks.append(Code(f"command-{place}", "Run it again", shlex.join(line)))
    return blocks


def _subjects(folder: ReportData) -> PageTable:
    columns = (
        ("model", lambda subject: folder.models[subject.key]),
        ("hash of code, attributes, weights, preprocessing", lambda subject: _code(subject.model_digest)),
        ("data", lambda subject: subject.data_name),
        ("hash of pixels and labels", lambda subject: _code(subject.data_digest)),
        ("images", lambda subject: subject.images),
    )
    return list_table("subjects", "Models and data", folder.outcomes.subjects.values(), columns)


def _code(text: str) -> TableCell:
    return TableCell(text, text, kind="code")


def _cells(states: list[CellState]) -> PageTable:
    columns = (
        ("state", lambda state: badge(_STATE.get(state.status, "unknown"), state.status)),
        ("model", lambda state: state.cell.subject.name),
        ("implementation", lambda state: state.cell.title),
        ("threat model", lambda state: format_threat_model(state.cell.threat_model)),
        ("seed", lambda state: state.cell.seed),
        ("parameters", lambda state: json.dumps(dict(state.cell.parameters))),
        ("seconds", lambda state: float(state.meta.get("seconds", 0))),
        ("library", lambda state: state.cell.version),
        ("key", lambda state: _code(state.key)),
    )
    return list_table("cells", "Runs", states, columns)


def write_glossary() -> Section:
    """Build the section that explains the terms of the report."""
    terms = Collapsible(f"{len(_TERMS)} terms of this page", (DefinitionList(_TERMS),))
    return Section("glossary", "Glossary", "", (terms,))

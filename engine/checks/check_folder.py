"""Everything that is to be said about a results folder: its failure indicators, and what is missing in it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...intervals import proportion_interval
from ..attack_run import ModelOnData
from ..finding import STATES, Finding, plain
from ..store.plan_records import find_failed
from ..store.record_validation import read_records
from ..store.results import CleanResult, Results, as_results, check_models
from .cell_checks import indicators_from_probes, indicators_from_record
from .cross_checks import cross_checks
from .indicators import INDICATORS, Judged, find, judged
from .model_checks import model_checks
from .standings import rank_attacks, rank_models
from .verdicts import verdicts_of

__all__ = ["INDICATORS", "STATES", "check_completeness", "check_folder", "describe_folder", "models_at_chance"]

_FEW = 0.1  # half the interval of a share of one half: with more images it is narrower
_NAMED = 3  # cells whose failure is told


def check_folder(folder: str | Path | Results, *, models: Sequence[str] | None = None) -> list[Finding]:
    """Every indicator of every model, finished cell and attack of a folder; nothing is run.

    What only a run can tell (`probe_folder`) is "unknown" until it was run. Failed cells have no checks: `status` and
    `table` name them.

    Args:
        folder: a results folder, or what was read of it.
        models: only these; None: all.

    Returns:
        Model by model; for each the checks of the model, then of its cells, then of its attacks over several cells.

    Raises:
        Unavailable: if there is no such folder, or neither a finished nor a failed cell in it.
        StoreMismatch: if it was written in another format.
        UnknownName: if a model is not in the folder.
    """
    outcomes = as_results(folder, ["OTR"])
    check_models(outcomes, models)
    records = read_records(outcomes.store, "checks")
    probes = {key: record.meta["probes"] for key, record in records}
    subject_of = {outcome.cell.key: outcome.cell.subject.key for outcome in outcomes.done}
    over_cells = cross_checks(outcomes)
    findings = []
    for key, subject in outcomes.subjects.items():
        if models is None or subject.is_called(models):
            findings += _of_model(outcomes, key, subject, probes)
            findings += [each for each in over_cells if subject_of[each.cell] == key]
    return findings


def _of_model(outcomes: Results, key: str, subject: ModelOnData, probes: dict[str, Any]) -> Iterator[Finding]:
    """The checks of a model and of its cells; probes of the model lie beside its clean predictions, or apart."""
    clean = outcomes.clean.get(key)
    stored = None if clean is None else clean.meta.get("probes")
    names = [] if clean is None else clean.columns["image"].tolist()
    yield from model_checks(subject.name, stored or probes.get(key), names, outcomes.refused.get(key, ""))
    for outcome in outcomes.done:
        if outcome.cell.subject.key == key:
            yield from indicators_from_record(outcome, clean)
            yield from indicators_from_probes(outcome, probes.get(outcome.cell.key))


def check_completeness(outcomes: Results) -> list[Finding]:
    """All that forbids to read the folder as a finished evaluation of sound models, on enough images."""
    known = [("unsteady", Judged("warn", f"{line}.")) for line in _details(outcomes, "unsteady")]

    def say(code: str, sentence: str, **numbers: Any) -> None:
        known.append((code, judged("warn", sentence, **numbers)))

    done, failed, damaged = (len(each) for each in (outcomes.done, outcomes.failed, outcomes.damaged))
    missing = len(outcomes.running) + len(outcomes.waiting)
    left_out = find_failed(outcomes.store)
    if not (missing or failed or damaged or left_out):
        known.append(("complete", judged("pass", "No cell is missing: all {done} have a result.", done=done)))
    if missing:
        text = "Not finished: {missing} of {every} cells have no result yet; what this page says may change."
        say("unfinished", text, missing=missing, every=done + failed + missing)
    if damaged:
        say("damaged", f"{{count}} damaged file{'' if damaged == 1 else 's'} left out; evaluate again.", count=damaged)
    names = {key: subject.name for key, subject in outcomes.subjects.items()}
    if failed:
        reasons = [line.removeprefix("failed: ") for line in _details(outcomes, "failed")]
        more = f"; and {len(reasons) - _NAMED} more" if len(reasons) > _NAMED else ""
        verb = " failed and is" if failed == 1 else "s failed and are"
        examples = "; ".join(reasons[:_NAMED]) + more
        say("failed", f"{{count}} cell{verb} not counted ({{examples}}).", count=failed, examples=examples)
    finished = {outcome.cell.subject.key for outcome in outcomes.done}
    for key in dict.fromkeys(cell.subject.key for cell, _ in outcomes.failed if cell.subject.key not in finished):
        say("no-result", "{model}: no cell has a result, so nothing is known of its robustness.", model=names[key])
    for key in models_at_chance(outcomes):
        low, high, right = _right(clean := outcomes.clean[key])
        text = (
            "{model}: right on {right} of {count} clean images ({low:.2g} to {high:.2g}), not distinguishable from "
            "guessing one of {classes} classes, so attacks on it say nothing."
        )
        numbers = {"right": right, "count": len(clean.columns["label"]), "classes": clean.logits.shape[1]}
        say("at-chance", text, model=names[key], low=low, high=high, **numbers)
    for name, reason in left_out.items():
        say("left-out", "Left out: {name}: {reason}.", name=name, reason=reason)
    fewest = min((outcome.cell.subject.images for outcome in outcomes.done), default=0)
    low, high = proportion_interval(fewest / 2, fewest)
    if fewest and (high - low) / 2 > _FEW:
        text = "Few images: with {fewest}, the 95 % interval of a share near 50 % is ±{half:.0f} points."
        say("few-images", text, fewest=fewest, half=50 * (high - low))
    return [find(code, judgement, "") for code, judgement in known]


def describe_folder(outcomes: Results) -> dict[str, Any]:
    """What `check --json` prints beside the indicators: what a folder lacks, verdicts on pairs, and who is first.

    Args:
        outcomes: of the folder.
    """
    known = {each.name for each in outcomes.findings}
    more = [each for each in check_completeness(outcomes) if each.name not in known]
    standings = {"models": rank_models(outcomes, models_at_chance(outcomes)), "attacks": rank_attacks(outcomes)}
    return {
        "folder": [_with_numbers(each) for each in (*outcomes.findings, *more)],
        "verdicts": [_with_numbers(pair.finding) for pair in verdicts_of(outcomes)],
        "standings": {name: [each.document() for each in some] for name, some in standings.items()},
    }


def _details(outcomes: Results, name: str) -> list[str]:
    """The sentences of the findings with this code, each once."""
    return list(dict.fromkeys(each.detail for each in outcomes.findings if each.name == name))


def _with_numbers(finding: Finding) -> dict[str, Any]:
    return finding.document() | {"numbers": plain(finding.numbers)}


def models_at_chance(outcomes: Results) -> list[str]:
    """Keys of the subjects whose clean accuracy cannot be told from guessing, or is below it."""
    return [key for key, clean in outcomes.clean.items() if _right(clean)[0] <= 1 / clean.logits.shape[1]]


def _right(clean: CleanResult) -> tuple[float, float, int]:
    """The interval of a model's clean accuracy, and how many images it gets right."""
    right = clean.columns["predicted"] == clean.columns["label"]
    return (*proportion_interval(int(right.sum()), len(right)), int(np.sum(right)))

"""Failure indicators and completeness of a results folder."""

from collections.abc import Iterator, Sequence
from os import PathLike
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

_FEW = 0.1  # half-width of the interval of a rate of 1/2; narrower with more images
_NAMED = 3  # most runs whose failure is described


def check_folder(folder: str | PathLike[str] | Results, *, models: Sequence[str] | None = None) -> list[Finding]:
    """Compute the failure indicators of every model, finished run and attack in a folder. No model or attack is run.

    Some indicators need extra runs, which `probe_folder` makes. Without these runs, such indicators are "unknown".
    Failed runs have no indicators; `status` and `table` list failed runs.

    Args:
        folder: path of a results folder, or its `Results`.
        models: names of models. None for all.

    Returns:
        Findings by model: first about the model, then about its runs, then about its attacks over several runs.

    Raises:
        Unavailable: if there is no such folder, or it has neither a finished nor a failed run.
        StoreMismatch: if the folder was written in a different format.
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
    clean = outcomes.clean.get(key)
    stored = None if clean is None else clean.meta.get("probes")
    names = [] if clean is None else clean.columns["image"].tolist()
    yield from model_checks(subject.name, stored or probes.get(key), names, outcomes.refused.get(key, ""))
    for outcome in outcomes.done:
        if outcome.cell.subject.key == key:
            yield from indicators_from_record(outcome, clean)
            yield from indicators_from_probes(outcome, probes.get(outcome.cell.key))


def check_completeness(outcomes: Results) -> list[Finding]:
    """Return warnings on unfinished and failed runs, models at chance accuracy, and small numbers of images."""
    known = [("unsteady", Judged("warn", f"{line}.")) for line in _details(outcomes, "unsteady")]

    def say(code: str, sentence: str, **numbers: Any) -> None:
        known.append((code, judged("warn", sentence, **numbers)))

    done, failed, damaged = (len(each) for each in (outcomes.done, outcomes.failed, outcomes.damaged))
    missing = len(outcomes.running) + len(outcomes.waiting)
    left_out = find_failed(outcomes.store)
    if not (missing or failed or damaged or left_out):
        known.append(("complete", judged("pass", "No run is missing: all {done} have a result.", done=done)))
    if missing:
        text = "Not finished: {missing} of {every} runs have no result yet, so this page may change."
        say("unfinished", text, missing=missing, every=done + failed + missing)
    if damaged:
        say("damaged", f"{{count}} damaged file{'' if damaged == 1 else 's'} omitted; evaluate again.", count=damaged)
    names = {key: subject.name for key, subject in outcomes.subjects.items()}
    if failed:
        reasons = [line.removeprefix("failed: ") for line in _details(outcomes, "failed")]
        more = f"; and {len(reasons) - _NAMED} more" if len(reasons) > _NAMED else ""
        verb = " failed and is" if failed == 1 else "s failed and are"
        examples = "; ".join(reasons[:_NAMED]) + more
        say("failed", f"{{count}} run{verb} not counted ({{examples}}).", count=failed, examples=examples)
    finished = {outcome.cell.subject.key for outcome in outcomes.done}
    for key in dict.fromkeys(cell.subject.key for cell, _ in outcomes.failed if cell.subject.key not in finished):
        say("no-result", "{model}: no run has a result, so its robustness is unknown.", model=names[key])
    for key in models_at_chance(outcomes):
        low, high, right = _right(clean := outcomes.clean[key])
        text = (
            "{model}: {right} of {count} clean images correct ({low:.2g} to {high:.2g}), not distinguishable from "
            "guessing one of {classes} classes, so attacks on it are meaningless."
        )
        numbers = {"right": right, "count": len(clean.columns["label"]), "classes": clean.logits.shape[1]}
        say("at-chance", text, model=names[key], low=low, high=high, **numbers)
    for name, reason in left_out.items():
        say("left-out", "Omitted: {name}: {reason}.", name=name, reason=reason)
    fewest = min((outcome.cell.subject.images for outcome in outcomes.done), default=0)
    low, high = proportion_interval(fewest / 2, fewest)
    if fewest and (high - low) / 2 > _FEW:
        text = "Few images: with {fewest}, the 95 % interval of a rate near 50 % is ±{half:.0f} points."
        say("few-images", text, fewest=fewest, half=50 * (high - low))
    return [find(code, judgement, "") for code, judgement in known]


def describe_folder(outcomes: Results) -> dict[str, Any]:
    """Return the fields of `check --json` other than the indicators: warnings, comparisons and rankings."""
    known = {each.name for each in outcomes.findings}
    more = [each for each in check_completeness(outcomes) if each.name not in known]
    standings = {"models": rank_models(outcomes, models_at_chance(outcomes)), "attacks": rank_attacks(outcomes)}
    return {
        "folder": [_with_numbers(each) for each in (*outcomes.findings, *more)],
        "verdicts": [_with_numbers(pair.finding) for pair in verdicts_of(outcomes)],
        "standings": {name: [each.document() for each in some] for name, some in standings.items()},
    }


def _details(outcomes: Results, name: str) -> list[str]:
    return list(dict.fromkeys(each.detail for each in outcomes.findings if each.name == name))


def _with_numbers(finding: Finding) -> dict[str, Any]:
    return finding.document() | {"numbers": plain(finding.numbers)}


def models_at_chance(outcomes: Results) -> list[str]:
    """Return the keys of models on data whose clean accuracy is not significantly better than guessing."""
    return [key for key, clean in outcomes.clean.items() if _right(clean)[0] <= 1 / clean.logits.shape[1]]


def _right(clean: CleanResult) -> tuple[float, float, int]:
    """Return the lower and upper bound of a model's clean accuracy, and the number of correctly classified images."""
    right = clean.columns["predicted"] == clean.columns["label"]
    return (*proportion_interval(int(right.sum()), len(right)), int(np.sum(right)))

"""Notes on a results folder: missing results, how searches ended, and how model outputs were interpreted."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...adapters.display_text import format_radius
from ...adapters.models.extract_logits import explain_accuracy
from ...adapters.models.remote.address import is_address
from ...adapters.result import UNSTEADY
from ...errors import DavylampError, InvalidInput
from ..attack_run import AttackRun, ModelOnData, is_foreign
from ..cell_defaults import ALL_MEASURES
from ..finding import Finding, State, note
from ..measure_groups import group_names
from .columns import logits_of
from .image_results import NOT_MISCLASSIFIED, results_of
from .imported import notes_of
from .record_validation import read_records, usable_record
from .sequence import read_sequence
from .store import WRONG_ONE, Kind, Record, ResultsStore

if TYPE_CHECKING:
    from .results import Results, RunResult


def find_notes(outcomes: "Results") -> Iterator[Finding]:
    """Yield all notes on a folder: missing results, how searches ended, how model outputs were interpreted."""
    yield from (note("unsteady", line, state="warn") for line in unsteady_models(outcomes))
    yield from version_notes(outcomes)
    yield from _about_cells(outcomes)
    yield from (note("counted-once", line) for line in outcomes.left_out)
    if outcomes.lacking:
        yield note("parts", outcomes.lacking, state="warn")
    yield from (note("damaged", f"omitted: {line}{repair_hint(line)}", state="warn") for line in outcomes.damaged)
    yield from sequence_notes(outcomes)
    yield from _about_models(outcomes)
    yield from _detected(outcomes)
    yield from _silent_transfers(outcomes)
    yield from notes_of(outcomes.references)


def version_notes(outcomes: "Results") -> Iterator[Finding]:
    """Yield a note for each name of several models or of several data sets, which count as different ones."""
    versions: dict[str, dict[str, None]] = {}
    for subject in outcomes.subjects.values():
        versions.setdefault(subject.model, {})[subject.full_name] = None
    sentence = (
        "{subject}: {count} versions ({names}) with different weights, code or settings count as different "
        "models, also in means over models. For a table of the last version only, evaluate into a new folder"
    )
    for model, names in versions.items():
        if len(names) > 1:
            yield note("versions", sentence, state="warn", subject=model, count=len(names), names=", ".join(names))
    yield from _data_notes(outcomes)


def _data_notes(outcomes: "Results") -> Iterator[Finding]:
    names: dict[str, dict[str, None]] = {}
    for subject in outcomes.subjects.values():
        if subject.data_called:
            names.setdefault(subject.data, {})[subject.data_name] = None
    sentence = (
        "{subject}: {count} data sets with different images or labels have this name ({names}) and count as different "
        "data, also in means; evaluate into a new folder for a table of the last one only"
    )
    for data, contents in names.items():
        yield note(
            "data-versions", sentence, state="warn", subject=data, count=len(contents), names=", ".join(contents)
        )


def sequence_notes(outcomes: "Results") -> Iterator[Finding]:
    """Yield notes on images that were drawn at random until a question was decided."""
    drawn = {each.cell.subject.population for each in outcomes.done} - {None}
    if not drawn:
        return
    record = read_sequence(outcomes.store)
    if record is not None and record.population in drawn:
        yield note("sequence", record.sentence)
    sentence = (
        "the images were drawn in random order from {population}. Intervals of rates over all images are "
        "intervals of the mean over all {population}, valid for any number of drawn images. Other intervals, "
        "ranks and tests assume a fixed number of images"
    )
    for population in sorted(filter(None, drawn)):
        yield note("drawn-images", sentence, population=population)


def _about_cells(outcomes: "Results") -> Iterator[Finding]:
    """Yield notes on runs: those without a result, with the reasons, and how searches ended."""
    for cell, reason in outcomes.failed:
        yield _about(cell, "failed", "failed: {subject}: {reason}", "warn", reason=reason)
    searched = [("saturation", each.cell, saturation_line(each.cell, each.meta)) for each in outcomes.done]
    searched += [("worst-case", each.cell, _worst_case_line(each.cell, each.columns)) for each in outcomes.done]
    yield from (_about(cell, name, line) for name, cell, line in searched if line)
    for cell, why in outcomes.unknown:
        yield _about(cell, "unknown-attack", "omitted: {why}, on {model}", "warn", why=why, model=cell.subject.name)
    foreign = {each.cell.attack for each in outcomes.done if is_foreign(each.cell) and not each.cell.row.is_user_attack}
    for attack in sorted(foreign):
        yield note(
            "not-in-catalogue",
            "{attack} is not in the catalogue of this davylamp; the names and settings come from its records",
            attack=attack,
        )
    for cell in outcomes.running:
        yield _about(cell, "not-finished", "unfinished, omitted: {subject}", "warn", seed=cell.seed)
    if count := len(outcomes.waiting):
        sentence = "not run yet, omitted: {count} runs; `davylamp status` lists them"
        yield note("not-run", sentence, state="warn", count=count)


def _about_models(outcomes: "Results") -> Iterator[Finding]:
    """Yield notes on models: missing clean predictions, images selected by name, and how outputs were interpreted."""
    attacked = {each.cell.subject.key for each in outcomes.done}
    for key, subject in outcomes.subjects.items():
        if key not in outcomes.clean and key in attacked:
            sentence = (
                "no clean predictions for {subject} on {data} (clean/{key}), so metrics that need them are omitted; "
                "run `davylamp evaluate` again to recreate them"
            )
            yield note("no-clean", sentence, state="warn", subject=subject.name, data=subject.data, key=key)
    chosen: dict[str, set[str]] = {}
    for each in outcomes.done:
        chosen.setdefault(each.cell.subject.name, set()).update(each.cell.subject.chosen)
    sentence = "{subject}: evaluated on {count} images selected by name; the results may not hold for other images"
    for model, names in chosen.items():
        if names:
            yield note("chosen-images", sentence, subject=model, count=len(names))
    yield from (note("outputs", line) for line in _output_lines(each.meta for each in outcomes.clean.values()))


def _about(cell: AttackRun, name: str, sentence: str, state: State = "note", **numbers: Any) -> Finding:
    return note(name, sentence, state=state, subject=f"{cell.title} on {cell.subject.name}", cell=cell.key, **numbers)


def repair_hint(line: str) -> str:
    """Return advice for a message on an omitted file. "" if the message already contains advice."""
    return "" if line.endswith(WRONG_ONE) or "could not read" in line else "; run `davylamp evaluate` to recompute it"


def unmeasured_line(cells: Iterable[AttackRun], folder: str | PathLike[str], *, kept: bool) -> str:
    """Return a sentence on metrics that runs lack, with the command that adds them.

    Args:
        cells: runs.
        folder: results folder of the runs.
        kept: whether the folder has the examples of the runs.

    Returns:
        The sentence. "" if the runs have all metrics of the usual groups.
    """
    measured = [group_names(cell.measured) for cell in cells]
    lacking = [name for name in ALL_MEASURES if any(name not in each for each in measured)]
    if not lacking or not measured:
        return ""
    named = f"not measured: {', '.join(lacking)}"
    add = f"`davylamp measure {quote(str(folder))} --metric all`"
    later = f"add --metrics all to the evaluation, or add --keep-images and run {add} later"
    return f"{named}; {add} adds them" if kept else f"{named}; {later}"


def unsteady_models(outcomes: "Results") -> list[str]:
    """Return a message for each model that is not declared random but returns different outputs for the same image."""
    return _unsteady_lines(subject.model for subject in unsteady_subjects(outcomes).values())


def unsteady_subjects(outcomes: "Results") -> dict[str, ModelOnData]:
    """Return the models that are not declared random but return different outputs for the same image, by key."""
    known = [each.subject for each in outcomes.clean.values() if answers_change(each.meta)]
    known += [each.cell.subject for each in outcomes.done if each.results.is_unsteady]
    return {subject.key: subject for subject in known}


def omit_undeclared(outcomes: "Results") -> tuple["Results", tuple[str, ...]]:
    """Omit models that are not declared random but return different outputs for the same image, with notes.

    Raises:
        InvalidInput: if no finished run of another model is left.
    """
    subjects, notes = unsteady_subjects(outcomes), tuple(unsteady_models(outcomes))
    if not subjects:
        return outcomes, ()
    left = outcomes.of_subjects(lambda subject: subject.key not in subjects)
    if not left.done:
        raise InvalidInput(f"not judged: {notes[0]}")
    return left, tuple(f"omitted: {note}" for note in notes)


def list_unsteady(
    store: ResultsStore, subjects: Iterable[tuple[ModelOnData, Any]], cells: Iterable[AttackRun]
) -> list[str]:
    """Return `unsteady_models` for a plan. Only the needed parts of files are read.

    Args:
        store: results.
        subjects: models with their data in the plan.
        cells: runs of the plan.
    """
    models = []
    for subject, _ in subjects:
        record = _read_header(store, "clean", subject.key)
        models += [subject.model] if record and answers_change(record.meta) else []
    for cell in cells:
        record = _read_header(store, "cells", cell.key)
        if record and record.more and not record.failed:
            results = results_of({"violations": record.more(["violations"])["violations"].to_numpy()})
            models += [cell.subject.model] if results.is_unsteady else []
    return _unsteady_lines(models)


def list_model_hints(store: ResultsStore, subjects: Iterable[tuple[ModelOnData, Any]]) -> list[str]:
    """Return notes on how each model's outputs were interpreted, and on models at chance accuracy.

    Args:
        store: results, with the predictions on the clean images.
        subjects: models with their data in a plan.
    """
    known = {subject.key: subject for subject, _ in subjects}
    records = {key: record for key in known if (record := usable_record(store, "clean", key)) is not None}
    lines = _output_lines(records[key].meta for key in sorted(records))
    for key, record in records.items():
        if not record.failed:
            answers = logits_of(record.table, "logits"), torch.tensor(record.table["label"].to_numpy())
            hint = explain_accuracy(*answers)
            lines += [f"{known[key].model}: {hint}"] if hint else []
    return lines


def list_changed(store: ResultsStore, subjects: Iterable[tuple[ModelOnData, Any]]) -> list[str]:
    """Return a message for each model whose weights, code or outputs have changed since its results were written."""
    known: dict[str, set[str]] = {}
    for _, record in read_records(store, "clean", (), headers=True):
        subject = ModelOnData(**record.meta["subject"])
        known.setdefault(subject.model, set()).add(subject.model_digest)
    return [
        f"{subject.model}: {_what_changed(subject.model)} have changed since this folder was written (now "
        f"{subject.model_digest[:6]}, before {', '.join(sorted(digest[:6] for digest in known[subject.model]))}); "
        "starting new runs"
        for subject, _ in subjects
        if subject.model in known and subject.model_digest not in known[subject.model]
    ]


def describe_saturation(result: Any) -> dict[str, Any]:
    """Return the metadata of a search for the saturation radius.

    The metadata are the radius, whether success stopped growing there, the radii that were run, and the rate of fooled
    images at each. `saturation_line` makes a sentence from the metadata.

    Args:
        result: result of `engine.searches.saturation`.
    """
    search = result.saturation
    return {
        "radius": result.radius,
        "seen": search.epsilon is not None,
        "radii": list(search.budgets),
        "shares": list(search.ratios),
        "violations": list(search.violations),
        "threshold": search.threshold,
        "attacked": search.attacked,
        "failed": [[radius, why] for radius, why in result.failed.items()],
    }


def list_saturations(store: ResultsStore, cells: Iterable[AttackRun]) -> list[str]:
    """Return a sentence for each finished run at saturation, with its radius and the reason for this radius."""
    saturated = [cell for cell in cells if cell.search.kind == "at-saturation"]
    metas = [store.read("cells", cell.key).meta for cell in saturated if store.path("cells", cell.key).is_file()]
    return [line for meta in metas if (line := saturation_line(AttackRun.from_record(meta), meta))]


def saturation_line(cell: AttackRun, meta: Mapping[str, Any]) -> str:
    """Return a sentence on a run at saturation: its radius, the reason for this radius, and the radii tried.

    "" for any other run.
    """
    search = meta.get("saturation")
    if not (cell.search.kind == "at-saturation" and isinstance(search, Mapping)):
        return ""
    norm, shares = cell.threat_model.norm, dict(zip(search["radii"], search["shares"], strict=True))
    radius, n = search["radius"], search["attacked"]
    share = f"{_count(shares[radius] * n)} of {n} images fooled"
    most = _count(max(shares.values()) * n)
    if not max(shares.values()):
        why = "the largest radius tried; no image was fooled at any radius"
    elif not search["seen"]:
        why = f"the largest radius tried ({share}); the rate was still rising"
    else:
        why = (
            f"the smallest radius whose rate ({share}) is within {search['threshold']:g} of the highest ({most} of {n})"
        )
    searched = ", ".join(format_radius(norm, each) for each in shares)
    if nothing := sum(search.get("violations", ())):
        searched += f"; {nothing} results at these radii are invalid and count as not fooled"
    if lost := search.get("failed"):
        searched += f"; it crashed at {', '.join(format_radius(norm, each) for each, _ in lost)}: {lost[0][1]}"
    return f"{cell.title} on {cell.subject.name}: {norm} {format_radius(norm, radius)}, {why}; tried: {searched}"


def _worst_case_line(cell: AttackRun, columns: Mapping[str, np.ndarray]) -> str:
    """Return a sentence on the number of images that each attack of a worst case fooled. "" for any other run."""
    if cell.search.kind != "worst-case" or not {"winner", "tried"} <= columns.keys():
        return ""
    winner, tried, parts = columns["winner"], columns["tried"], []
    for place, member in enumerate(cell.members):
        left = int((tried > place).sum())
        parts.append(f"{member.attack} fooled {int((winner == place).sum())} of {left}{' left' if place else ''}")
    spared = int((len(cell.members) - tried[winner >= 0]).sum())
    return (
        f"{cell.title} on {cell.subject.name}: {', '.join(parts)}; {spared} attacks on already fooled images were "
        "skipped"
    )


def _detected(outcomes: "Results") -> Iterator[Finding]:
    """Yield a note for each model with a detector, on the number of detected examples and how they count."""
    counts: dict[str, np.ndarray] = {}
    for each in outcomes.done:
        if each.results.has_detector:
            here = np.array([each.results.detected.sum(), each.results.attacked.sum()])
            counts[each.cell.subject.name] = counts.get(each.cell.subject.name, 0) + here
    sentence = (
        "{subject}: {detected} of {attacked} examples are detected and count as not misclassified in "
        f"{', '.join(NOT_MISCLASSIFIED)}"
    )
    for model, (detected, attacked) in counts.items():
        if detected:
            yield note("detected", sentence, subject=model, detected=int(detected), attacked=int(attacked))


def least_of_estimates(rows: Sequence[tuple[str, Sequence["RunResult"]]]) -> list[Finding]:
    """Return notes on models whose worst case has a bias, because it takes the lowest of several estimated rates.

    Args:
        rows: the name of each model, with the runs in its worst case.
    """
    several = (sum(len(each.cell.members) for each in cells if each.is_random) > 1 for _, cells in rows)
    models = dict.fromkeys(model for (model, _), is_low in zip(rows, several, strict=True) if is_low)
    sentence = (
        "{models}: for a random model the worst case takes the lowest of several estimated rates per image, which is "
        "biased low; more --judge-samples reduce the bias"
    )
    return [note("least-of-draws", sentence, models=", ".join(models))] if models else []


def _silent_transfers(outcomes: "Results") -> Iterator[Finding]:
    """Yield a note for each model that returns non-finite logits for examples of other models, with their number."""
    counts: dict[str, int] = {}
    for predictions in (outcomes.transfers or {}).values():
        for tested, predicted in predictions.items():
            counts[tested] = counts.get(tested, 0) + int(np.isnan(predicted).sum())
    sentence = (
        "omitted from transfer rates: {count} examples for which {subject} returns NaN or infinite logits; they count "
        "neither as transferred nor as not transferred"
    )
    for key, count in counts.items():
        if count:
            model = outcomes.subjects[key].model if key in outcomes.subjects else key
            yield note("silent-transfers", sentence, subject=model, count=count)


def _output_lines(metas: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a note for each model whose output was not a plain tensor of logits."""
    notes = {str(meta.get("output_note", "")): str(meta.get("subject", {}).get("model", "")) for meta in metas}
    return [note if model in note else f"{model}: {note}" for note, model in notes.items() if note]


def answers_change(meta: Mapping[str, Any]) -> bool:
    """Whether a model returned different outputs for the same image without being declared random.

    Args:
        meta: metadata of the model's record of clean images.
    """
    probe = meta.get("probes", {}).get("deterministic", {})
    return bool(probe.get("changed") or probe.get("differs")) and not probe.get("random")


def _unsteady_lines(models: Iterable[str]) -> list[str]:
    return [f"{model}: {UNSTEADY}" for model in dict.fromkeys(models)]


def _what_changed(model: str) -> str:
    if is_address(model):
        return "the server's outputs or metadata"
    return "its weights, code, settings or version"


def _count(images: float) -> str:
    """Format a number of images. For random models, it may be fractional."""
    return f"{images:.0f}" if abs(images - round(images)) < 1e-6 else f"{images:.1f}"


def _read_header(store: ResultsStore, kind: Kind, key: str) -> Record | None:
    """Return the metadata of a record. None if the record is unusable, which other code reports."""
    with suppress(DavylampError):
        return usable_record(store, kind, key, headers=True)
    return None

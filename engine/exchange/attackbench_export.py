"""Writes runs of a results folder as AttackBench files (protocol 2)."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...adapters.data.datasets import Data
from ...adapters.paths import expand_path
from ...adapters.result import SURROGATE_PASSES
from ...errors import Unavailable, Unsupported
from ..attack_run import AttackRun
from ..checks.verdicts import paired_outcomes
from ..sources import LoadedCache, load_subject_images
from ..store.atomic_files import write_atomic
from ..store.results import CleanResult, RunResult, read_outcomes
from .attackbench_file import NORMS, PROTOCOL, SEMANTICS
from .image_hashes import hash_images

_OUTSIDE = "out-of-bounds"  # invalid reason for pixels outside [0, 1]


class Exported(NamedTuple):
    """The written files, and a note for each omitted run and for results that the format cannot represent exactly."""

    files: list[Path]
    notes: list[str]


def export_attackbench(folder: str | Path, path: str | Path, *, data: Data | str | None = None) -> Exported:
    """Write the finished runs that AttackBench's format can represent: untargeted, in linf, l2, l1 or l0.

    For minimum-norm attacks and searches, the distances are those of the nearest examples. For a fixed-budget attack,
    they are the distances of its examples, infinite if an example did not succeed. Every image is written as a batch,
    and an invalid result as a failed batch. Failed runs are omitted, because AttackBench would count them as a success
    rate of 0. `final_distances` equal `distances`, because one example per image is stored.

    Args:
        folder: results folder of `davylamp evaluate`.
        path: output folder; it is created if its parent exists.
        data: images of the folder, or a different name for them. None for the evaluated name.

    Raises:
        Unavailable: If there is no such folder, the images cannot be loaded, or a file cannot be written.
        Unsupported: If no run can be written.
    """
    outcomes = read_outcomes(folder)
    notes = [f"omitted: {cell.title} on {cell.subject.model}: it failed ({why})" for cell, why in outcomes.failed]
    chosen: list[RunResult] = []
    for outcome in outcomes.done:
        reason = _why_not(outcome.cell, outcomes.clean.get(outcome.cell.subject.key))
        if reason:
            notes.append(f"omitted: {outcome.cell.title} on {outcome.cell.subject.model}: {reason}")
        else:
            chosen.append(outcome)
    if not chosen:
        raise Unsupported(f"no run can be written in AttackBench's format: {notes[0] if notes else 'no finished run'}")
    target, bench, hashes = _make_folder(path), LoadedCache(), {}
    names = _names([outcome.cell for outcome in chosen])
    files = []
    for outcome, name in zip(chosen, names, strict=True):
        subject = outcome.cell.subject
        if subject.data_digest not in hashes:
            hashes[subject.data_digest] = hash_images(load_subject_images(subject, data, bench).inputs)
        document = _document(outcome, name, hashes[subject.data_digest])
        about = document["metadata"]
        parts = [about[part] for part in ("dataset", "threat_model", "model_name", "attack_name", "attack_lib")]
        file = f"{'-'.join(_plain(part) for part in parts)}-{subject.images}.json"
        files.append(
            write_atomic(target / file, json.dumps(document, indent=2), advice="choose a different folder for `out`")
        )
        if violated := int(outcome.results.violated.sum()):
            notes.append(
                f"{outcome.cell.title} on {subject.model}: {violated} invalid results are written as failed batches"
            )
    return Exported(files, notes)


def _why_not(cell: AttackRun, clean: CleanResult | None) -> str:
    """Return the reason why AttackBench's format cannot represent a run; "" if it can."""
    if cell.threat_model.norm not in NORMS:
        return f"the format has no norm {cell.threat_model.norm}"
    if cell.threat_model.targeted:
        return "the format cannot represent targeted attacks"
    if cell.pixels:
        return "its distances were measured on 8-bit images"
    return "" if clean is not None else "no clean predictions of its model are stored"


def _document(outcome: RunResult, name: str, hashes: list[str]) -> dict[str, Any]:
    cell, columns, side = outcome.cell, outcome.columns, paired_outcomes(outcome)
    success, attacked = columns["success"], columns["attacked"]
    rules, subject = cell.threat_model, cell.subject
    distances = {norm: _distances(columns[norm], success, attacked) for norm in NORMS}
    distances[rules.norm] = columns["distance"].tolist()
    spent = {
        kind: (columns[kind] + columns.get(more, 0)).tolist()
        for kind, more in zip(("forwards", "backwards"), SURROGATE_PASSES, strict=True)
    }
    budget = cell.parameters.get("max_queries")
    facts = {"dataset": subject.data, "model_name": subject.model, "attack_name": name, "attack_lib": cell.row.library}
    return {
        "distances": distances,
        "final_distances": distances,
        "adv_success": (success | ~attacked).tolist(),
        "ori_success": (~attacked).tolist(),
        "correct": attacked.tolist(),
        "hashes": hashes,
        "original_predictions": columns["predicted"].tolist(),
        "adversarial_predictions": columns["adv_predicted"].tolist(),
        "num_forwards": spent["forwards"],
        "num_backwards": spent["backwards"],
        "times": np.nan_to_num(columns["seconds"]).tolist(),
        "box_failures": [_OUTSIDE in kinds for kinds in side.violations],
        "batch_failures": side.invalid_by().tolist(),
        "targeted": False,
        "query_budget": budget,
        "threat_model": rules.norm,
        "metadata": {
            **facts,
            "threat_model": rules.norm,
            "n_samples": subject.images,
            "query_budget": budget,
            "protocol_version": PROTOCOL,
            "distance_semantics": SEMANTICS,
            "source": f"davylamp, cell {cell.key}",
        },
        "ASR": float((success | ~attacked).mean()),
        "accuracy": float(attacked.mean()),
    }


def _distances(measured: np.ndarray, success: np.ndarray, attacked: np.ndarray) -> list[float]:
    return np.where(attacked, np.where(success, measured, np.inf), 0.0).tolist()


def _names(cells: list[AttackRun]) -> list[str]:
    """Return attack names for files, made unique within a model and library by the radius and then the run's key."""
    names = []
    for cell in cells:
        title = cell.attack_title + (f"@{cell.row.variant}" if cell.row.variant else "")
        radius = cell.threat_model.epsilon
        names.append(_plain(title if radius is None else f"{title}-eps{radius:.6g}"))
    places = [
        (cell.subject.model, cell.threat_model.norm, cell.row.library, name)
        for cell, name in zip(cells, names, strict=True)
    ]
    return [
        name if places.count(place) == 1 else f"{name}-{cell.key[:6]}"
        for cell, name, place in zip(cells, names, places, strict=True)
    ]


def _plain(text: str) -> str:
    """Replace characters that are not valid in file names on every system."""
    return re.sub(r"[^A-Za-z0-9_.@+-]+", "_", text).strip("_") or "_"


def _make_folder(path: str | Path) -> Path:
    target = expand_path(path)
    try:
        target.mkdir(exist_ok=True)
    except OSError as error:
        raise Unavailable(
            f"could not make {target} ({error.strerror or error}); choose a different folder for `out`"
        ) from error
    return target

"""Exports attack runs of a results folder to JSON files in AttackBench's format (protocol 2)."""

import json
import re
from os import PathLike
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
    """Summary of an export to AttackBench's format.

    Args:
        files: the written files.
        notes: a note for each omitted run, and for each run with invalid results.
    """

    files: list[Path]
    notes: list[str]


def export_attackbench(folder: str | PathLike[str], path: str | Path, *, data: Data | str | None = None) -> Exported:
    """Export the finished attack runs of a results folder to AttackBench's JSON format, one file for each run.

    The format can represent untargeted runs in linf, l2, l1 or l0. Other runs are omitted. Failed runs are omitted as
    well, because AttackBench would count a failed run as a success rate of 0. In the files:

    - `distances` and `final_distances` are both the distance of the stored example of each image. For a minimum-norm
      attack, this is the nearest example. The distance is infinite if the example does not fool the model.
    - Each image is its own batch. An invalid result is a failed batch.

    Args:
        folder: results folder of `davylamp evaluate`.
        path: output folder, which is created if its parent folder exists.
        data: the evaluated images, or a name that loads them. None uses the name in the results folder.

    Raises:
        Unavailable: If the results folder does not exist, the images cannot be loaded, or a file cannot be written.
        Unsupported: If the format can represent none of the runs.
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
    """Return the reason why AttackBench's format cannot represent a run; "" if the run can be exported."""
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
    """Return a name of the attack for each run. Fixed-budget attacks include the radius in the name.

    If runs of the same model, norm and library have equal names, the first digits of the run's key are appended.
    """
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
    """Replace characters that some operating systems do not allow in file names by underscores."""
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

"""Imports AttackBench results into a results folder for comparison, matched by images and clean predictions."""

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from ...adapters.data.datasets import Data
from ...adapters.paths import expand_path
from ...errors import DavylampError, InvalidInput, Unavailable
from ..attack_run import ModelOnData
from ..sources import LoadedCache, load_subject_images
from ..store.results import CleanResult, Results, check_models, read_outcomes
from .attackbench_file import AttackBenchRun, read_folder
from .image_hashes import hash_images, places_of

SOURCE = "AttackBench"
_OTHERWISE = 0.01  # rate of images whose prediction may differ between machines


@dataclass(frozen=True)
class ImportedRun:
    """Summary of an imported run.

    Args:
        attack: "foolbox:fmn".
        norm: norm of its distances.
        model: name of the attacked model in the folder.
        images: number of the folder's images for which it has a result.
        left_out: number of its images that are not in the folder, or that the model classifies differently.
        fooled: number of fooled images among those correct when clean.
        crashed: number of images on which the attack failed.
        file: file name.
    """

    attack: str
    norm: str
    model: str
    images: int
    left_out: int
    fooled: int
    crashed: int
    file: str


@dataclass(frozen=True, eq=False)
class _KnownImages:
    """A model of the folder with its clean predictions and the hashes of its images."""

    subject: ModelOnData
    clean: CleanResult
    hashes: list[str]


def import_attackbench(
    path: str | Path, folder: str | Path, *, model: str | None = None, data: Data | str | None = None
) -> tuple[list[ImportedRun], list[str]]:
    """Import AttackBench results into a results folder, next to its records (`references/`), which do not change.

    A file that names a model of the folder is matched with this model only, and its clean predictions must agree with
    the model's. Any other file is matched with the model whose clean predictions it contains. Images are identified by
    SHA-512. Importing a file again replaces the earlier import.

    Args:
        path: JSON file (protocol 2: of one run, or an envelope by hash), or a folder with such files.
        folder: results folder of `davylamp evaluate` with the same model and images.
        model: attacked model's name in the folder. None to match predictions. Files that name a different model of the
            folder are omitted.
        data: images of the folder, or a different name for them. None for the evaluated name.

    Returns:
        The imported runs, and a message for each file that was not imported (one for all files of other models).

    Raises:
        Unavailable: If there is no such path or folder, or the images cannot be loaded.
        InvalidInput: If no file is usable, with the reason of the first.
        UnknownName: If there is no such model in the folder.
    """
    outcomes = read_outcomes(folder)
    check_models(outcomes, [model] if model else None)
    sides = _sides(outcomes, model, data)
    done, refused, others = [], [], list[str]()
    for file, runs in read_folder(expand_path(path)):
        if isinstance(runs, str):
            refused.append(runs)
            continue
        for run in runs:
            if model is not None and (named := _model_named(outcomes, run)) not in ("", model):
                others.append(named)
                continue
            try:
                done.append(_keep(outcomes, run, sides))
            except InvalidInput as error:
                refused.append(f"{file.name}: {error}")
    if others:
        names = ", ".join(sorted(set(others)))
        refused.append(f"{len(others)} runs belong to other models in the folder, not to {model}: {names}")
    if not done:
        raise InvalidInput(
            refused[0] if len(refused) == 1 else f"none of {len(refused)} files can be imported: {refused[0]}"
        )
    return done, refused


def _sides(outcomes: Results, model: str | None, data: Data | str | None) -> list[_KnownImages]:
    """Return the models in the folder that a file may belong to."""
    bench, reasons, sides = LoadedCache(), [], []
    hashes: dict[str, list[str]] = {}
    for clean in outcomes.clean.values():
        subject = clean.subject
        if model not in (None, subject.model):
            continue
        try:
            if subject.data_digest not in hashes:
                hashes[subject.data_digest] = hash_images(load_subject_images(subject, data, bench).inputs)
        except DavylampError as error:
            reasons.append(str(error))
            continue
        sides.append(_KnownImages(subject, clean, hashes[subject.data_digest]))
    if not sides:
        raise Unavailable(reasons[0] if reasons else "the folder has no clean predictions; evaluate it again")
    return sides


def _model_named(outcomes: Results, run: AttackBenchRun) -> str:
    """Return the model in the folder that has the name in the file; "" if there is none."""
    named = run.names["model"]
    return named if any(subject.model == named for subject in outcomes.subjects.values()) else ""


def _keep(outcomes: Results, run: AttackBenchRun, sides: list[_KnownImages]) -> ImportedRun:
    fitting, reasons = [], []
    named = _model_named(outcomes, run)
    for side in sides:
        if named not in ("", side.subject.model):
            continue
        try:
            fitting.append((side, _agreeing_places(run, side)))
        except InvalidInput as error:
            reasons.append(str(error))
    if not fitting:
        raise InvalidInput(reasons[0] if reasons else f"the folder has no clean predictions of {named}")
    if len(fitting) > 1:
        names = ", ".join(side.subject.model for side, _ in fitting)
        raise InvalidInput(f"the file's predictions match {names}; choose one with `model`")
    side, places = fitting[0]
    table = _table(run, side, places)
    about = {
        "source": SOURCE,
        "attack": run.attack,
        "norm": run.norm,
        "file": run.path.name,
        "images": len(run.hashes),
        "seconds": None if math.isnan(run.seconds) else run.seconds,
        "query_budget": run.budget,
        **run.names,
    }
    key = f"{side.subject.key}-{_digest(run)}"
    meta = {"key": key, "subject": side.subject.spec, "status": "done", "reason": "", "reference": about}
    outcomes.store.write("references", key, table, meta)
    columns = {name: table[name].to_numpy() for name in ("covered", "attacked", "distance", "crashed")}
    return ImportedRun(
        run.attack,
        run.norm,
        side.subject.model,
        int(columns["covered"].sum()),
        len(run.hashes) - int(columns["covered"].sum()),
        int((columns["attacked"] & np.isfinite(columns["distance"])).sum()),
        int(columns["crashed"].sum()),
        run.path.name,
    )


def _agreeing_places(run: AttackBenchRun, side: _KnownImages) -> np.ndarray:
    """Return the position of each image of a run in the model's data; -1 if it is missing or classified differently.

    Raises:
        InvalidInput: If no image is in the data, or more predictions differ than rounding explains.
    """
    places = places_of(run.hashes, side.hashes)
    met = places >= 0
    columns = side.clean.columns
    right = (columns["predicted"] == columns["label"])[places]
    said = np.where(run.predicted >= 0, run.predicted != columns["predicted"][places], run.correct != right)
    other = met & (said | (run.correct != right))
    if other.sum() > _OTHERWISE * met.sum():
        raise InvalidInput(
            f"the clean predictions differ from those of {side.subject.model} on {int(other.sum())} of "
            f"{int(met.sum())} images: different model, labels or preprocessing"
        )
    return np.where(other, -1, places)


def _table(run: AttackBenchRun, side: _KnownImages, places: np.ndarray) -> pa.Table:
    """Build a table with a row per image of the model; NaN and False if the run has no result for the image."""
    n, met = side.subject.images, places >= 0
    columns = {
        "distance": run.distance,
        "final_distance": run.final_distance,
        **run.passes,
        "attacked": run.correct,
        "crashed": run.crashed,
        "box_failure": run.box_failure,
    }
    placed = {"index": np.arange(n), "hash": np.array(side.hashes), "covered": np.isin(np.arange(n), places[met])}
    for name, values in columns.items():
        column = np.full(n, False) if values.dtype == bool else np.full(n, math.nan)
        column[places[met]] = values[met]
        placed[name] = column
    return pa.table({name: pa.array(values.tolist() if name == "hash" else values) for name, values in placed.items()})


def _digest(run: AttackBenchRun) -> str:
    """Return 20 hexadecimal digits of a hash of the run, so that importing the same file again replaces it."""
    content = hashlib.sha256(f"{run.attack} {run.norm} {run.budget}".encode())
    content.update("".join(run.hashes).encode() + run.distance.tobytes() + run.passes["forwards"].tobytes())
    return content.hexdigest()[:20]

"""Imports results of AttackBench into a results folder, to compare them with the folder's own runs."""

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
    """Summary of a run of AttackBench that was imported into a results folder.

    Args:
        attack: library and attack, such as "foolbox:fmn".
        norm: norm of the distances.
        model: name of the attacked model in the results folder.
        images: number of images of the results folder for which the run has a result.
        left_out: number of images of the run that were omitted. These images are not in the results folder, or their
            clean prediction in the run differs from the clean prediction in the results folder.
        fooled: number of fooled images, among the images that are classified correctly when clean.
        crashed: number of images on which the attack failed.
        file: name of the imported file.
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
    """A model of the results folder."""

    subject: ModelOnData
    clean: CleanResult
    hashes: list[str]


def import_attackbench(
    path: str | Path, folder: str | Path, *, model: str | None = None, data: Data | str | None = None
) -> tuple[list[ImportedRun], list[str]]:
    """Import results of AttackBench into a results folder.

    The results are stored in the subfolder `references/`. The other files of the folder do not change. Importing a file
    again replaces the earlier import. Images are identified by their SHA-512 hash.

    The attacked model is determined as follows. If a file names a model of the folder, the results belong to this
    model, and the clean predictions in the file must agree with those in the folder. Any other file is matched with the
    model of the folder that has the same clean predictions.

    Args:
        path: JSON file of AttackBench (protocol 2), or a folder with such files.
        folder: results folder of `davylamp evaluate` with the same model and images.
        model: name of the attacked model in the results folder. Files that name a different model of the folder are
            omitted. None finds the model for each file.
        data: the evaluated images, or a name that loads them. None uses the name in the results folder.

    Returns:
        The imported runs. Then a message for each file that was not imported, with one message for all files of other
        models.

    Raises:
        Unavailable: If `path` or `folder` does not exist, or if the images cannot be loaded.
        InvalidInput: If no file can be imported. The message has the reason for the first file.
        UnknownName: If the results folder has no model of this name.
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
    """Return the model's name in the file if the results folder has a model of this name, otherwise ""."""
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
    """Return the position in the model's data for each image of an imported run.

    The position is -1 if the image is not in the data, or if the clean prediction in the run differs from the clean
    prediction of the model.

    Raises:
        InvalidInput: If no image of the run is in the data, or if more than 1 % of the clean predictions differ.
    """
    places = places_of(run.hashes, side.hashes)
    met = places >= 0
    columns = side.clean.columns
    right = (columns["predicted"] == columns["label"])[places]
    said = np.where(run.predicted >= 0, run.predicted != columns["predicted"][places], run.correct != right)
    other = met & (said | (run.correct != right))
    if other.sum() > _OTHERWISE * met.sum():
        raise InvalidInput(
            f"the clean predictions in the file differ from those of {side.subject.model} on {int(other.sum())} of "
            f"{int(met.sum())} images: the model, labels or preprocessing is different"
        )
    return np.where(other, -1, places)


def _table(run: AttackBenchRun, side: _KnownImages, places: np.ndarray) -> pa.Table:
    """Build the table of an imported run that is stored, with one row for each image of the model.

    If the run has no result for an image, numbers are NaN and flags are False.
    """
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
    """Return a hash of an imported run as 20 hexadecimal digits. Importing the same run again gives the same hash."""
    content = hashlib.sha256(f"{run.attack} {run.norm} {run.budget}".encode())
    content.update("".join(run.hashes).encode() + run.distance.tobytes() + run.passes["forwards"].tobytes())
    return content.hexdigest()[:20]

"""AttackBench's results as references of a results folder: matched image by image, and by what the model predicts."""

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
from ..sources import LoadedCache
from ..store.results import CleanResult, Results, check_models, read_outcomes
from .attackbench_file import AttackBenchRun, read_folder
from .image_hashes import hash_images, load_subject_images, places_of

SOURCE = "AttackBench"
_OTHERWISE = 0.01  # share of the images on which two machines may see a model decide differently


@dataclass(frozen=True)
class ImportedRun:
    """A run that is in the folder now.

    Args:
        attack: "foolbox:fmn".
        norm: of its distances.
        model: of the folder, that it was run on.
        images: of the folder that it covers.
        left_out: images of its file that the folder has not, or on which the model decides otherwise.
        fooled: of those that were right when clean.
        crashed: images of which it knows nothing.
        file: its name.
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
    """A model of the folder: its clean predictions and the hashes of its images."""

    subject: ModelOnData
    clean: CleanResult
    hashes: list[str]


def import_attackbench(
    path: str | Path, folder: str | Path, *, model: str | None = None, data: Data | str | None = None
) -> tuple[list[ImportedRun], list[str]]:
    """Put AttackBench's results into a results folder as references (`references/`); none of ours changes.

    A file that names a model of the folder is of that model alone, also if another predicts the same; any other file is
    of the model whose clean predictions it reports, which those of the named model have to be, too. An image is known
    by its SHA-512. A file that is there already is replaced by itself.

    Args:
        path: a JSON file of it (protocol 2: of one run, or an envelope by hash), or a folder of them.
        folder: made by `davylamp evaluate`, with the same model and images.
        model: the name in the folder of the model that was attacked; None: whose predictions are those of the file.
            Files that name another model of the folder are left out.
        data: the images of the folder, or another name of them; None: as they were evaluated.

    Returns:
        The runs that were put there, and a line for each file that was not, one for all those of other models.

    Raises:
        Unavailable: if there is no such path or folder, or the images cannot be loaded again.
        InvalidInput: if no file can be used, with the reason of the first.
        UnknownName: if there is no such model in the folder.
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
        refused.append(f"expected runs of {model}, got {len(others)} that name other models of the folder: {names}")
    if not done:
        raise InvalidInput(refused[0] if len(refused) == 1 else f"none of {len(refused)} files: {refused[0]}")
    return done, refused


def _sides(outcomes: Results, model: str | None, data: Data | str | None) -> list[_KnownImages]:
    """The models that a file may be about."""
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
        raise Unavailable(
            reasons[0] if reasons else "expected clean predictions in the folder, got none: evaluate it again"
        )
    return sides


def _model_named(outcomes: Results, run: AttackBenchRun) -> str:
    """The model of the folder that a run says it attacked; "": it names none of them."""
    named = run.names["model"]
    return named if any(subject.model == named for subject in outcomes.subjects.values()) else ""


def _keep(outcomes: Results, run: AttackBenchRun, sides: list[_KnownImages]) -> ImportedRun:
    """Write a run beside the side that it is about."""
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
        raise InvalidInput(reasons[0] if reasons else f"expected clean predictions of {named} in the folder, got none")
    if len(fitting) > 1:
        names = ", ".join(side.subject.model for side, _ in fitting)
        raise InvalidInput(
            f"expected one model whose predictions are those of the file, got {names}; `model` says which"
        )
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
    """Where each image of a run is among a model's, -1 where nowhere or where the model decides otherwise.

    Raises:
        InvalidInput: if none is there, or the model decides otherwise on more of them than rounding explains.
    """
    places = places_of(run.hashes, side.hashes)
    met = places >= 0
    columns = side.clean.columns
    right = (columns["predicted"] == columns["label"])[places]
    said = np.where(run.predicted >= 0, run.predicted != columns["predicted"][places], run.correct != right)
    other = met & (said | (run.correct != right))
    if other.sum() > _OTHERWISE * met.sum():
        raise InvalidInput(
            f"expected the clean predictions of {side.subject.model}, got others on {int(other.sum())} of "
            f"{int(met.sum())} images: another model, other labels or other preprocessing"
        )
    return np.where(other, -1, places)


def _table(run: AttackBenchRun, side: _KnownImages, places: np.ndarray) -> pa.Table:
    """A row for each image of the subject; NaN and False where the run does not cover it."""
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
    """20 hexadecimal digits of a hash over what a run says: the same file again is the same reference."""
    content = hashlib.sha256(f"{run.attack} {run.norm} {run.budget}".encode())
    content.update("".join(run.hashes).encode() + run.distance.tobytes() + run.passes["forwards"].tobytes())
    return content.hexdigest()[:20]

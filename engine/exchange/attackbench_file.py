"""Reads and validates JSON files of AttackBench (protocol 2), each with the results of one attack on one model."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InvalidInput, Unavailable
from ..store.atomic_files import read_regular_file

PROTOCOL = 2
SEMANTICS = "best_observed"  # distances of the nearest point that fooled the model, whatever the attack returned
NORMS = ("linf", "l2", "l1", "l0")
_HEXADECIMAL = frozenset("0123456789abcdef")
_TOLERANCE = 1e-5  # rounding tolerance for linf distances above 1


@dataclass(frozen=True, eq=False)
class AttackBenchRun:
    """Results of one attack on one model, from a file of AttackBench. Arrays have shape (n,), in the order of images.

    Args:
        path: path of the file.
        attack: library and attack, such as "foolbox:fmn". "envelope" if the distances are the smallest over many
            attacks.
        norm: norm of the distances.
        names: names of the data and the model in the file, with the keys "dataset" and "model".
        budget: number of passes that the attack may use for an image. None if unlimited or unknown.
        hashes: SHA-512 hash of each image.
        distance: distance of the nearest point that fooled the model. 0 if the clean image is misclassified, inf if no
            point fooled the model.
        final_distance: distance of the point that the attack returned. NaN if unknown.
        correct: whether the clean image is classified correctly.
        predicted: predicted class of the clean image. -1 if unknown.
        passes: number of forward and backward passes for each image, with the keys "forwards" and "backwards". NaN if
            unknown.
        box_failure: whether the attack returned pixels outside [0, 1].
        crashed: whether the attack failed on the image: the clean image is correct, no point fooled the model, and the
            attack raised an error or never queried the model.
        seconds: time of the attack for all images together. NaN if unknown.
    """

    path: Path
    attack: str
    norm: str
    names: Mapping[str, str]
    budget: int | None
    hashes: tuple[str, ...]
    distance: np.ndarray
    final_distance: np.ndarray
    correct: np.ndarray
    predicted: np.ndarray
    passes: Mapping[str, np.ndarray]
    box_failure: np.ndarray
    crashed: np.ndarray
    seconds: float


def read_runs(path: Path) -> list[AttackBenchRun]:
    """Read the runs in a file of AttackBench.

    An ordinary file contains one run. An envelope, which has the smallest distances over many attacks, contains one run
    for each norm.

    Raises:
        Unavailable: If the file cannot be read.
        InvalidInput: If the file is not valid JSON of AttackBench, has a different protocol, or is a targeted run.
    """
    try:
        document = json.loads(read_regular_file(path))
    except OSError as error:
        raise Unavailable(f"could not read {path} ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"expected a JSON file of AttackBench, got {path} ({str(error)[:80]})") from error
    if not isinstance(document, dict) or not isinstance(document.get("metadata", {}), dict):
        raise InvalidInput(f"{path} is not a JSON file of AttackBench")
    about = document.get("metadata", {})
    stated = about.get("protocol_version")
    if stated != PROTOCOL or about.get("distance_semantics", SEMANTICS) != SEMANTICS:
        got = "none" if stated is None else f"{stated!r}, {about.get('distance_semantics')!r}"
        raise InvalidInput(
            f"expected AttackBench's protocol {PROTOCOL} with distances 'best_observed' in {path}, got {got}; use "
            "AttackBench 2.x"
        )
    if document.get("targeted"):
        raise InvalidInput(
            f"the run in {path} is targeted and cannot be imported, because the file does not contain the targets"
        )
    distances = document.get("distances")
    if not isinstance(distances, dict) or not distances:
        raise InvalidInput(f"expected distances in {path}, got none")
    if about.get("format") == "hash_based":
        return [_envelope(path, about, norm, distances[norm]) for norm in NORMS if norm in distances]
    return [_run(path, document, about, distances)]


def read_folder(path: Path) -> Iterator[tuple[Path, list[AttackBenchRun] | str]]:
    """Yield each JSON file of a folder, with its runs or with the reason why the file cannot be used.

    If the path is a single file, this file is yielded.

    Raises:
        Unavailable: If the path does not exist, if the folder has no JSON file, or if a single file cannot be read.
        InvalidInput: If the path is a single file that is not a usable file of AttackBench.
    """
    if path.is_file():
        yield path, read_runs(path)
        return
    files = sorted(path.glob("*.json")) if path.is_dir() else []
    if not files:
        raise Unavailable(f"expected a JSON file of AttackBench, or a folder with such files, got {path}")
    for file in files:
        try:
            yield file, read_runs(file)
        except (InvalidInput, Unavailable) as error:
            yield file, str(error)


def _run(path: Path, document: Mapping[str, Any], about: Mapping[str, Any], distances: Any) -> AttackBenchRun:
    norm = str(about.get("threat_model") or document.get("threat_model") or "")
    if norm not in NORMS or norm not in distances:
        got = norm or "no threat model"
        raise InvalidInput(f"expected distances in linf, l2, l1 or l0, got {got} in {path}")
    hashes = _hashes(path, document.get("hashes"))
    n = len(hashes)
    distance = _distances(path, distances[norm], norm, n)
    final = (document.get("final_distances") or {}).get(norm, [math.nan] * n)
    numbers = {
        name: _numbers(path, name, document.get(name), n)
        for name in ("correct", "original_predictions", "num_forwards", "num_backwards", "box_failures")
    }
    correct = numbers["correct"]
    correct = distance > 0 if np.isnan(correct).any() else correct.astype(bool)
    predicted = np.nan_to_num(numbers["original_predictions"], nan=-1).astype(int)
    times = document.get("times")
    times = times if isinstance(times, list) and times and all(_is_number(each) for each in times) else [math.nan]
    asked = numbers["num_forwards"] != 0
    raised = failed_batches(document.get("batch_failures"), n)
    return AttackBenchRun(
        path=path,
        attack=f"{_text(about, 'attack_lib')}:{_text(about, 'attack_name')}",
        norm=norm,
        names={"dataset": _text(about, "dataset"), "model": _text(about, "model_name")},
        budget=budget if isinstance(budget := document.get("query_budget"), int) else None,
        hashes=hashes,
        distance=np.where(correct, distance, 0.0),
        final_distance=_numbers(path, "final_distances", final, n),
        correct=correct,
        predicted=predicted,
        passes={"forwards": numbers["num_forwards"], "backwards": numbers["num_backwards"]},
        box_failure=np.nan_to_num(numbers["box_failures"]).astype(bool),
        crashed=correct & np.isinf(distance) & (raised | ~asked),
        seconds=float(sum(times)),
    )


def _envelope(path: Path, about: Mapping[str, Any], norm: str, distances: Any) -> AttackBenchRun:
    if not isinstance(distances, dict):
        raise InvalidInput(f"expected a distance for each image hash in {path}, got {type(distances).__name__}")
    hashes = _hashes(path, [*distances])
    distance, missing = _distances(path, [*distances.values()], norm, len(hashes)), np.full(len(hashes), math.nan)
    return AttackBenchRun(
        path=path,
        attack="envelope",
        norm=norm,
        names={"dataset": _text(about, "dataset"), "model": _text(about, "model_name")},
        budget=None,
        hashes=hashes,
        distance=distance,
        final_distance=missing,
        correct=distance > 0,
        predicted=np.full(len(hashes), -1),
        passes={"forwards": missing, "backwards": missing},
        box_failure=np.zeros(len(hashes), bool),
        crashed=np.zeros(len(hashes), bool),
        seconds=math.nan,
    )


def failed_batches(failures: Any, images: int) -> np.ndarray:
    """Return whether each image may have been in a batch on which the attack raised an error, (images,) bool.

    A file of AttackBench contains the number of batches, but not the batch size. An image counts if it is in a failed
    batch for at least one possible batch size.
    """
    if not isinstance(failures, list) or not any(failures):
        return np.zeros(images, bool)
    batches, places = len(failures), np.arange(images)
    sizes = [size for size in range(1, images + 1) if -(-images // size) == batches]
    if not sizes:
        return np.ones(images, bool)
    return np.any([np.array(failures, bool)[places // size] for size in sizes], axis=0)


def _hashes(path: Path, hashes: Any) -> tuple[str, ...]:
    if not isinstance(hashes, list) or not hashes:
        raise InvalidInput(f"{path} has no hashes, so its images cannot be identified")
    for text in hashes:
        if not isinstance(text, str) or len(text) != 128 or set(text) - _HEXADECIMAL:
            raise InvalidInput(f"expected the SHA-512 hash of each image in {path}, got {str(text)[:20]!r}")
    return tuple(hashes)


def _distances(path: Path, values: Any, norm: str, count: int) -> np.ndarray:
    distances = _numbers(path, f"{norm} distances", values, count)
    if np.isnan(distances).any() or (distances < 0).any():
        raise InvalidInput(
            f"expected distances >= 0 in {path}, got {'NaN' if np.isnan(distances).any() else 'a negative distance'}"
        )
    if norm == "linf" and (np.isfinite(distances) & (distances > 1 + _TOLERANCE)).any():
        raise InvalidInput(f"expected linf distances of pixels in [0, 1] in {path}, got {distances.max():.4g}")
    return distances


def _numbers(path: Path, name: str, values: Any, count: int) -> np.ndarray:
    """Convert a field of a file to a float64 array, (count,), with NaN for all images if the file lacks the field."""
    if values is None or values == []:
        return np.full(count, math.nan)
    if not isinstance(values, Sequence) or len(values) != count or not all(_is_number(each) for each in values):
        got = f"{len(values)} values" if isinstance(values, Sequence) else type(values).__name__
        raise InvalidInput(f"expected {name} as {count} numbers in {path}, one for each hash, got {got}")
    return np.array(values, float)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _text(about: Mapping[str, Any], name: str) -> str:
    return str(about.get(name) or "?")

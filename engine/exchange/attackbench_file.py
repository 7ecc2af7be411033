"""Reads and validates AttackBench result files (protocol 2), which contain one attack on one model."""

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
    """Results of one attack on one model, shape (n,) each, in the file's order of images.

    Args:
        path: file.
        attack: "foolbox:fmn"; "envelope" for the smallest distance over many attacks.
        norm: norm of the attack.
        names: `dataset` and `model` in the file.
        budget: passes allowed per image. None if unlimited or unknown.
        hashes: SHA-512 of each image.
        distance: distance of the nearest point that fooled the model; 0 if misclassified when clean, inf if not fooled.
        final_distance: distance of the returned point; NaN if unknown.
        correct: whether the clean image is classified correctly.
        predicted: class of the clean image; -1 if unknown.
        passes: `forwards` and `backwards` of each image; NaN if unknown.
        box_failure: whether pixels outside [0, 1] were returned.
        crashed: whether the clean image is correct, the example did not fool the model, and the attack raised an error
            or never queried the model.
        seconds: total time; NaN if unknown.
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
    """Read the runs in a file: one, or for an envelope one per norm.

    Raises:
        Unavailable: If it cannot be read.
        InvalidInput: If it is not JSON, has a different protocol, is targeted, has no distances, or is inconsistent.
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
        raise InvalidInput(f"expected AttackBench's protocol {PROTOCOL} in {path}, got {got}; use AttackBench 2.x")
    if document.get("targeted"):
        raise InvalidInput(
            f"{path} is a targeted run, which cannot be imported because its targets are not in the file"
        )
    distances = document.get("distances")
    if not isinstance(distances, dict) or not distances:
        raise InvalidInput(f"expected distances in {path}, got none")
    if about.get("format") == "hash_based":
        return [_envelope(path, about, norm, distances[norm]) for norm in NORMS if norm in distances]
    return [_run(path, document, about, distances)]


def read_folder(path: Path) -> Iterator[tuple[Path, list[AttackBenchRun] | str]]:
    """Yield every JSON file of a folder with its runs, or with the reason why it is unusable.

    A path to a single file yields that file.

    Raises:
        Unavailable: If there is no such path, or it contains no JSON file.
        DavylampError: As for `read_runs`, if the path is a file.
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
        raise InvalidInput(f"expected distances by hash in {path}, got {type(distances).__name__}")
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
    """Return whether an image may have been in a batch on which the attack raised an error, (images,) bool.

    The file has the number of batches, but not their size. The result is True if the image is in a failed batch for at
    least one possible size.
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
            raise InvalidInput(f"expected SHA-512 of each image in {path}, got {str(text)[:20]!r}")
    return tuple(hashes)


def _distances(path: Path, values: Any, norm: str, count: int) -> np.ndarray:
    distances = _numbers(path, f"{norm} distances", values, count)
    if np.isnan(distances).any() or (distances < 0).any():
        raise InvalidInput(f"expected distances >= 0 in {path}, got {'NaN' if np.isnan(distances).any() else 'less'}")
    if norm == "linf" and (np.isfinite(distances) & (distances > 1 + _TOLERANCE)).any():
        raise InvalidInput(f"expected linf distances of pixels in [0, 1] in {path}, got {distances.max():.4g}")
    return distances


def _numbers(path: Path, name: str, values: Any, count: int) -> np.ndarray:
    """Convert a column to float64, (count,); NaN if the file does not have it."""
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

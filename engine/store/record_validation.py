"""Validation of records, their columns and metadata. A file may come from a different program."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from ...adapters import canonical_attack
from ...errors import UnknownName
from ..attack_run import AttackRun, ModelOnData
from .checksummed import DamagedRecordError, Record, TableShape
from .store import Kind, ResultsStore

_IMAGES = {"index": pa.types.is_integer, "label": pa.types.is_integer, "image": pa.types.is_string}
_FLAGS = dict.fromkeys(("attacked", "success", "success_8bit", "violated", "robust"), pa.types.is_boolean)
_COUNTS = dict.fromkeys(("predicted", "adv_predicted", "forwards", "backwards"), pa.types.is_integer)
_SIZES = dict.fromkeys(("seconds", "distance", "l0", "l1", "l2", "linf"), pa.types.is_floating)
_LOGITS = pa.types.is_fixed_size_list
_COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "clean": {
        **_IMAGES,
        "predicted": pa.types.is_integer,
        "CA": pa.types.is_floating,
        "CC": pa.types.is_floating,
        "logits": _LOGITS,
    },
    "cells": {**_IMAGES, **_FLAGS, **_COUNTS, **_SIZES, "violations": pa.types.is_string, "adv_logits": _LOGITS},
    "transfer": {"index": pa.types.is_integer, "adv_predicted": pa.types.is_integer},
    "detections": {
        "index": pa.types.is_integer,
        "score": pa.types.is_floating,
        "adv_score": pa.types.is_floating,
        "seen": pa.types.is_boolean,
    },
    "references": {
        "index": pa.types.is_integer,
        "hash": pa.types.is_string,
        **dict.fromkeys(("covered", "attacked", "crashed", "box_failure"), pa.types.is_boolean),
        **dict.fromkeys(("distance", "final_distance", "forwards", "backwards"), pa.types.is_floating),
    },
}
_COLUMNS = {**_COLUMNS, "parts": _COLUMNS["cells"]}
NEEDED = tuple(name for name in _COLUMNS["cells"] if name != "adv_logits")  # numeric columns of every finished run
_OF_CELLS = ("cells", "parts", "transfer", "detections")
_OF_SUBJECTS = ("clean", "transfer", "references")
_ABOUT = ("source", "attack", "norm", "file", "model", "dataset")  # texts of a reference
# Types of any other column: a number or flag for each image, pictures and maps, or nothing.
_OTHERS = (
    pa.types.is_floating,
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_nested,
    pa.types.is_binary,
    pa.types.is_null,
)


def read_records(
    store: ResultsStore,
    kind: Kind,
    columns: Collection[str] | None = None,
    *,
    headers: bool = False,
    keys: Collection[str] | None = None,
    damaged: list[str] | None = None,
) -> Iterator[tuple[str, Record]]:
    """Yield every usable record of a kind, with its key.

    Args:
        store: the folder.
        kind: kind of the records.
        columns: see `ResultsStore.read_all`.
        headers: see `ResultsStore.read_all`.
        keys: see `ResultsStore.read_all`.
        damaged: list to which a message is appended for each unusable record. None to skip unusable records silently.
    """
    for key, record in store.read_all(kind, columns, headers=headers, keys=keys):
        if isinstance(record, DamagedRecordError):
            why = str(record)
        elif why := record_error(kind, key, record):
            why = f"{store.path(kind, key)} is damaged ({why})"
        else:
            yield key, record
            continue
        if damaged is not None:
            damaged.append(why)


def usable_record(store: ResultsStore, kind: Kind, key: str, *, headers: bool = False) -> Record | None:
    """Return a record by its key. None if the record is missing or damaged.

    Args:
        store: the folder.
        kind: kind of the record.
        key: key of the record.
        headers: see `ResultsStore.read_all`.

    Raises:
        StoreMismatch: if the file was written in a different format.
        Unavailable: if the file cannot be read.
    """
    try:
        record = store.read(kind, key, headers=headers)
    except (FileNotFoundError, DamagedRecordError):
        return None
    return None if record_error(kind, key, record) else record


def record_error(kind: Kind, key: str, record: Record) -> str:
    """Return the reason why a record cannot be used. "" if it can be used."""
    meta = record.meta
    try:
        cell = AttackRun.from_record(meta) if kind in _OF_CELLS else None
        subject = ModelOnData(**meta["subject"]) if kind in _OF_SUBJECTS else cell and cell.subject
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"its metadata cannot be read: {type(error).__name__} {str(error)[:100]}"
    if (cell is not None and not _is_sane(cell)) or (subject is not None and not _is_sanely_drawn(subject)):
        return "its metadata cannot be read: its spec has wrong types"
    stated = cell.key if cell is not None else subject.key if subject is not None else key
    if key.partition("-")[0] != stated:
        return "its metadata do not match its file name"
    if why := _find_silence(kind, meta):
        return why
    if record.failed or subject is None:
        return ""
    return _find_gap(kind, record.shape, meta, subject.images)


def _find_silence(kind: Kind, meta: Mapping[str, Any]) -> str:
    """Return a message if the metadata of a record do not name its evaluation, program or detector. "" if they do."""
    made = meta.get("identity", {})
    if not isinstance(made, dict) or not isinstance(made.get("plan", ""), str):
        return "its metadata do not name its evaluation"
    if kind == "references" and not _has_texts(meta.get("reference"), _ABOUT):
        return "its metadata do not name the program that made it"
    if kind == "detections":
        about = meta.get("detector")
        named = isinstance(meta.get("examples_of"), str) and _has_texts(about, ("file", "digest", "name"))
        scores = about.get("calibration") if isinstance(about, Mapping) else None
        if not (named and isinstance(scores, list) and scores and all(type(each) is float for each in scores)):
            return "its metadata do not describe its detector"
    return ""


def _has_texts(about: Any, names: Iterable[str]) -> bool:
    return isinstance(about, Mapping) and all(isinstance(about.get(name), str) for name in names)


def unknown_attack(cell: AttackRun) -> str:
    """Return a message if this version of davylamp does not have the attack of a run. "" if it does."""
    try:
        canonical_attack(cell.row)
    except UnknownName as error:
        return f"unknown attack: {cell.attack} ({error})"
    return ""


def edited_since(cells: Iterable[tuple[AttackRun, Mapping[str, Any]]]) -> dict[str, str]:
    """Find runs of user attacks whose code was edited after the run.

    The current code is that of the attack's latest result. Results within one second count as simultaneous.

    Args:
        cells: runs with the `meta` of their records.

    Returns:
        A message for each such run, by key.
    """
    latest: dict[str, list[tuple[str, str, AttackRun]]] = {}
    for cell, meta in cells:
        if cell.row.is_user_attack:
            latest.setdefault(cell.attack, []).append((str(meta.get("written", "")), _code_of(cell), cell))
    edited = {}
    for attack, known in latest.items():
        last = max(written for written, _, _ in known)
        codes = {code for written, code, _ in known if written == last}
        old = [cell for _, code, cell in known if code not in codes]
        edited |= {cell.key: f"a result of {attack} before its code was edited" for cell in old}
    return edited


def _code_of(cell: AttackRun) -> str:
    return cell.version.partition(",")[0]


def order_of(cell: AttackRun) -> tuple[str, str, str]:
    """Return the key by which the runs of a folder are sorted: model, attack, key of the run."""
    return cell.subject.model, cell.attack, cell.key


def _is_sane(cell: AttackRun) -> bool:
    """Whether the fields in the spec of a run have the expected types."""
    texts = cell.attack, cell.target, cell.version, cell.torch, cell.device, cell.subject.model, cell.subject.data
    texts = (*texts, *(text for each in cell.surrogate for text in (each.model, each.model_digest)))
    if cell.fitted_on is not None:
        texts = (*texts, cell.fitted_on.data, cell.fitted_on.data_digest)
    numbers = cell.seed, cell.shard_size, cell.rules, cell.subject.images
    radius = cell.threat_model.epsilon
    return (
        bool(cell.attack)
        and all(isinstance(text, str) for text in texts)
        and all(type(number) is int for number in numbers)
        and (radius is None or type(radius) in (int, float))
        and cell.shard_size > 0 < cell.subject.images
        and isinstance(cell.parameters, Mapping)
        and (cell.search.kind != "worst-case" or _names_its_attacks(cell))
        and isinstance(cell.grid, Mapping)
    )


def _is_sanely_drawn(subject: ModelOnData) -> bool:
    """Whether images in random order have the number of all images and a seed in their spec."""
    drawn = subject.drawn
    return not drawn or (
        len(drawn) == 2
        and all(type(number) is int for number in drawn)
        and 0 < subject.images <= drawn[0]
        and drawn[1] >= 0
    )


def _names_its_attacks(cell: AttackRun) -> bool:
    """Whether the parameters of a worst case belong to exactly its attacks."""
    return sorted(cell.parameters) == sorted(cell.search.members) and all(
        isinstance(each, Mapping) for each in cell.parameters.values()
    )


def _find_gap(kind: Kind, shape: TableShape, meta: Mapping[str, Any], images: int) -> str:
    """Return the reason why the table of a finished record is invalid: its columns, types, missing values or rows.

    "" if the table is valid.
    """
    if not isinstance(meta.get("unmeasured", {}), dict):
        return "its metadata have no valid `unmeasured`"
    try:
        if fault := next(_faults_of_columns(kind, shape), ""):
            return fault
    except OSError as error:  # a column that is read for the check
        return f"its columns cannot be read: {' '.join(str(error).split())[:100]}"
    return "" if kind == "parts" or shape.rows == images else f"it has {shape.rows} of {images} images"


def _faults_of_columns(kind: Kind, shape: TableShape) -> Iterator[str]:
    needed, names = _COLUMNS[kind], set(shape.schema.names)
    yield from (f"it has no column {name}" for name in needed if name not in names)
    if len(names) < len(shape.schema):
        yield "it has two columns with the same name"
    for place, field in enumerate(shape.schema):
        name = field.name
        fitting = [needed[name]] if name in needed else _OTHERS
        if not any(fits(field.type) for fits in fitting):
            yield f"its column {name} has the type {field.type}"
        # A prediction in "transfer" may be missing: the model returned no finite logits.
        elif (pa.types.is_boolean(field.type) or (name in needed and kind != "transfer")) and shape.gaps(place):
            yield f"its column {name} has missing values"

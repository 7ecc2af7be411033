"""Selects the file of every record from several results folders, and finds conflicts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import Unavailable
from ..attack_run import AttackRun, ModelOnData
from ..store.checksummed import ConflictingRecordsError, Record, differing_columns
from ..store.record_validation import record_error
from ..store.sequence import FILE as SEQUENCE
from ..store.sequence import read_sequence
from ..store.store import KINDS, Kind, ResultsStore, read_files, select_record
from .image_files import list_images, same_images, why_unreadable

OF_CELLS = ("transfer", "checks", "detections")  # about the examples of a run: they belong to one result of it
NEWEST = "newest"
# Files of an unpacked bundle; older ones include Croissant metadata.
BESIDE = ("README.md", "LICENSE.txt", "SHA256SUMS", "bundle.json", "croissant.json", "data")


class Disagreement(NamedTuple):
    """Two folders that contain different records under one key.

    Args:
        kind: kind of the records.
        key: key that both records have.
        title: description of the record.
        reason: columns that differ, and the files.
    """

    kind: str
    key: str
    title: str
    reason: str

    @property
    def line(self) -> str:
        """The conflict in one line."""
        return f"{self.kind}/{self.key} ({self.title}): {self.reason}"


@dataclass
class MergePlan:
    """Combined content of several folders.

    Args:
        folders: folders in the given order.
        files: selected file by its path in a results folder: "cells/KEY.CONTENT.parquet".
        conflicts: records on which two folders disagree.
        damaged: message for every damaged file.
        notes: notes on automatic choices and omissions.
        failed: models and implementations that could not be evaluated, with the reason.
    """

    folders: list[Path]
    files: dict[str, Path] = field(default_factory=dict)
    conflicts: list[Disagreement] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


class _Chosen(NamedTuple):
    """The selected file for a key, the folders with the same result, and whether the result is a failure."""

    path: Path
    agreeing: frozenset[int]
    title: str
    failed: bool


def gather(folders: Sequence[str | Path], prefer: str | Path | None = None) -> MergePlan:
    """Inspect every file of several results folders, without writing anything.

    If several folders have equal records, up to rounding, the first folder's file is used. A result takes precedence
    over a failure, and a replacement takes precedence over the record that it replaces. Records about a run's examples
    are taken only from folders with the selected result of this run.

    Args:
        folders: results folders of `davylamp evaluate`.
        prefer: folder whose record is used on conflicts: one of `folders`, or "newest" (by time of writing). None to
            report conflicts.

    Raises:
        StoreMismatch: If one was written in a different format.
        Unavailable: If one does not exist or cannot be read.
    """
    stores = [ResultsStore(folder, create=False) for folder in folders]
    gathered = MergePlan([store.folder for store in stores])
    chosen: dict[Kind, dict[str, _Chosen]] = {}
    order: list[Kind] = ["cells", *(kind for kind in KINDS if kind != "cells")]
    for kind in order:
        chosen[kind] = {}
        for key in sorted({key for store in stores for key in store.keys(kind)}):
            if kind == "plans" and key == "failed" and len(stores) > 1:
                gathered.failed = _join_failures(stores, gathered.damaged)
                continue
            cell = chosen["cells"].get(key.partition("-")[0])
            # Shards of a finished run are not needed; those of a failed run may be newer than the failure.
            if kind != "parts" or cell is None or cell.failed:
                counts = _choose(stores, kind, key, prefer, gathered, cell if kind in OF_CELLS else None)
                if counts is not None:
                    chosen[kind][key] = counts
                    gathered.files[f"{kind}/{counts.path.name}"] = counts.path
    _gather_images(stores, chosen, gathered)
    sequences = {record: store.folder / SEQUENCE for store in stores if (record := read_sequence(store)) is not None}
    if len(sequences) > 1:
        gathered.notes.append(f"omitted: {SEQUENCE}: the folders have different questions (--until) or answers")
    elif sequences:
        gathered.files[SEQUENCE] = next(iter(sequences.values()))
    gathered.notes += _notes_on_folders(stores)
    return gathered


def _choose(
    stores: Sequence[ResultsStore],
    kind: Kind,
    key: str,
    prefer: str | Path | None,
    gathered: MergePlan,
    cell: _Chosen | None,
) -> _Chosen | None:
    """Return the selected file for a key; None if no file is usable, or if a conflict is unresolved."""
    origin = {path: place for place, store in enumerate(stores) for path in store.files(kind, key)}
    records = _sound(origin, kind, key, gathered)
    if cell is not None:
        kept = {path: each for path, each in records.items() if origin[path] in cell.agreeing}
        if len(kept) < len(records):
            gathered.notes.append(f"omitted: {kind}/{key}: it belongs to a different result of its run ({cell.title})")
        records = kept
    if not records:
        return None
    title = title_of(kind, key, next(iter(records.values())).meta)
    try:
        path = select_record(records)
    except ConflictingRecordsError as conflict:
        path = _prefer(records, origin, stores, prefer)
        if path is None:
            reason = str(conflict).partition(": ")[2].rpartition(";")[0]
            where = " and ".join(dict.fromkeys(str(stores[origin[each]].folder) for each in records))
            gathered.conflicts.append(Disagreement(kind, key, title, f"{reason} between {where}"))
            return None
        whose = stores[origin[path]].folder
        gathered.notes.append(
            f"{kind}/{key} ({title}): the folders disagree; as requested, the record of {whose} was used"
        )
    record = records[path]
    same = (place for each, place in origin.items() if each in records and _agrees(records[each], record))
    return _Chosen(path, frozenset(same), title, record.failed)


def _sound(origin: Mapping[Path, int], kind: Kind, key: str, gathered: MergePlan) -> dict[Path, Record]:
    """Return the usable records with a key. Damaged ones are added to `damaged`."""
    records, damaged = read_files(origin, f"{kind}/{key}")
    gathered.damaged += map(str, damaged.values())
    for path, each in [*records.items()]:
        if why := record_error(kind, key, each):
            gathered.damaged.append(f"{path} is damaged ({why})")
            del records[path]
    return records


def _agrees(one: Record, other: Record) -> bool:
    return one.failed == other.failed and not differing_columns(one.table, other.table)


def _prefer(
    records: Mapping[Path, Record],
    origin: Mapping[Path, int],
    stores: Sequence[ResultsStore],
    prefer: str | Path | None,
) -> Path | None:
    """Return the file that the user's preference selects; None without a preference, or if it selects no file."""
    if prefer is None:
        return None
    if prefer == NEWEST:
        written = {path: str(each.meta.get("written", "")) for path, each in records.items()}
        latest = [path for path, text in written.items() if text and text == max(written.values())]
        return latest[0] if len(latest) == 1 else None
    theirs = {path: each for path, each in records.items() if stores[origin[path]].folder.samefile(prefer)}
    try:
        return select_record(theirs) if theirs else None
    except ConflictingRecordsError:
        return None


def title_of(kind: str, key: str, meta: Mapping[str, Any]) -> str:
    """Describe a record by its attack and model, or by its key if these are unknown."""
    try:
        if "spec" in meta and kind != "corruptions":
            cell = AttackRun.from_record(meta)
            return f"{cell.title} on {cell.subject.model}, {cell.subject.data}, seed {cell.seed}"
        subject = ModelOnData(**meta["subject"])
        return f"{subject.model} on {subject.data}"
    except (KeyError, TypeError, ValueError, AttributeError):
        return key


def _join_failures(stores: Sequence[ResultsStore], damaged: list[str]) -> dict[str, str]:
    reasons: dict[str, dict[str, None]] = {}
    for store in stores:
        records, bad = read_files(store.files("plans", "failed"), "plans/failed")
        damaged += map(str, bad.values())
        for each in records.values():
            for name, reason in dict(each.meta.get("failed", {})).items():
                reasons.setdefault(str(name), {})[str(reason)] = None
    return {name: "; ".join(given) for name, given in reasons.items()}


def _gather_images(
    stores: Sequence[ResultsStore], chosen: Mapping[Kind, Mapping[str, _Chosen]], gathered: MergePlan
) -> None:
    """Select the stored images. Images of a run are taken only from folders with the run's selected result."""
    everywhere = [list_images(store.folder) for store in stores]
    for name in sorted({name for names in everywhere for name in names}):
        record = chosen["cells"].get(name.partition("-")[0]) or chosen["parts"].get(name)
        places = [
            place
            for place, names in enumerate(everywhere)
            if name in names and (record is None or place in record.agreeing)
        ]
        paths = [everywhere[place][name] for place in places]
        wrong = [f"{path} is damaged ({why})" for path in paths if (why := why_unreadable(path))]
        gathered.damaged += wrong
        if wrong or not paths:
            continue
        for other in paths[1:]:
            if not same_images(paths[0], other):
                title = record.title if record else name
                gathered.conflicts.append(Disagreement("images", name, title, f"{paths[0]} and {other} differ"))
                break
        else:
            gathered.files[f"images/{name}.npz"] = paths[0]


def _notes_on_folders(stores: Sequence[ResultsStore]) -> Iterator[str]:
    """Yield notes on running evaluations, and on files that do not belong to a results folder."""
    known = {*KINDS, "images", "locks", "davylamp.json", SEQUENCE}
    for store in stores:
        if store.claimed():
            yield f"an evaluation is running in {store.folder}; its later results are not included"
        try:
            others = sorted(each.name for each in store.folder.iterdir() if each.name not in known)
        except OSError as error:
            raise Unavailable(f"could not read {store.folder} ({error})") from error
        others = [name for name in others if name not in BESIDE and not name.startswith(("answers.sqlite", "."))]
        if others:
            yield f"ignored in {store.folder} (not part of a results folder): {', '.join(others[:5])}"

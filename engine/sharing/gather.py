"""Compares several results folders before a merge: selects one file for each record, and finds conflicts."""

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
    """A conflict: two folders contain different records with the same key.

    Args:
        kind: kind of the records, such as "cells".
        key: key that both records have.
        title: description of the record, such as its attack and model.
        reason: in words, the columns that differ and the folders or files that disagree.
    """

    kind: str
    key: str
    title: str
    reason: str

    @property
    def line(self) -> str:
        """One line of text that describes the conflict."""
        return f"{self.kind}/{self.key} ({self.title}): {self.reason}"


@dataclass
class MergePlan:
    """Result of `gather`: the files that a merge of several results folders would contain, and the problems found.

    Args:
        folders: the results folders, in the order of the user.
        files: the selected files, by path in the merged folder, such as "cells/KEY.CONTENT.parquet".
        conflicts: records on which two folders disagree.
        damaged: a message for each damaged file.
        notes: notes on files that were selected automatically or omitted.
        failed: reason why a model or an implementation could not be evaluated, by its name.
    """

    folders: list[Path]
    files: dict[str, Path] = field(default_factory=dict)
    conflicts: list[Disagreement] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


class _Chosen(NamedTuple):
    """The file that was selected for a key, with the positions of the folders that contain the same result."""

    path: Path
    agreeing: frozenset[int]
    title: str
    failed: bool


def gather(folders: Sequence[str | Path], prefer: str | Path | None = None) -> MergePlan:
    """Select one file for each record of several results folders, and list conflicts. No file is written.

    If several folders have equal records, up to rounding, the file of the first folder is selected. A result takes
    precedence over a failure. A replacement takes precedence over the record that it replaces. Transfer results, checks
    and detections describe the examples of one run. They are taken only from folders whose result of that run is the
    selected one.

    Args:
        folders: results folders of `davylamp evaluate`.
        prefer: the folder whose record is selected in a conflict, which must be one of `folders`. "newest" selects the
            record that was written last. None selects no record, and lists the conflict.

    Raises:
        StoreMismatch: If a folder was written in a different format.
        Unavailable: If a folder does not exist or cannot be read.
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
    """Select the file for a key. Conflicts, damaged files and notes are added to `gathered`.

    Returns:
        The selected file. None if no file is usable, or if `prefer` does not resolve a conflict.
    """
    origin = {path: place for place, store in enumerate(stores) for path in store.files(kind, key)}
    records = _sound(origin, kind, key, gathered)
    if cell is not None:
        kept = {path: each for path, each in records.items() if origin[path] in cell.agreeing}
        if len(kept) < len(records):
            gathered.notes.append(
                f"omitted: {kind}/{key}: it belongs to a result of the run {cell.title} that was not selected"
            )
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
    """Read the records of the files in `origin`, and return the valid ones. Damaged files are added to `gathered`."""
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
    """Return the file that the user's preference selects. None if there is no preference, or if no file matches."""
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
    """Describe a record by its attack, model and data. If the metadata lack them, return the key."""
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
    """Select the files of stored images. Images of a run come only from folders that have its selected result."""
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
    """Yield a note for each folder with a running evaluation, or with files that do not belong to a results folder."""
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

"""What several results folders hold together: for every record the file that counts, and where they disagree."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import Unavailable
from ..attack_run import AttackRun, ModelOnData
from ..store.checksummed import ConflictingRecordsError, Record, differing_columns
from ..store.record_validation import record_error
from ..store.store import KINDS, Kind, ResultsStore, read_files, select_record
from .image_files import list_images, same_images, why_unreadable

OF_CELLS = ("transfer", "checks", "detections")  # about the examples of a cell: they belong to one result of it
NEWEST = "newest"
# Of an unpacked bundle; older ones have the metadata of Croissant.
BESIDE = ("README.md", "LICENSE.txt", "SHA256SUMS", "bundle.json", "croissant.json", "data")


class Disagreement(NamedTuple):
    """Two folders that say different things of one key.

    Args:
        kind: of the records.
        key: of the record.
        title: what it is about, for a reader.
        reason: which columns differ, and where the files are.
    """

    kind: str
    key: str
    title: str
    reason: str

    @property
    def line(self) -> str:
        """One line."""
        return f"{self.kind}/{self.key} ({self.title}): {self.reason}"


@dataclass
class MergePlan:
    """What folders hold together.

    Args:
        folders: in the order that was given.
        files: the file that counts, by its path in a results folder: "cells/KEY.CONTENT.parquet".
        conflicts: records on which two folders disagree.
        damaged: a line for every file that cannot be trusted.
        notes: what was chosen for the user, and what was left out.
        failed: models and implementations that could not take part, with the reason.
    """

    folders: list[Path]
    files: dict[str, Path] = field(default_factory=dict)
    conflicts: list[Disagreement] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


class _Chosen(NamedTuple):
    """Of a key: the file that counts, the folders whose result of it is the same, and whether it is a failure."""

    path: Path
    agreeing: frozenset[int]
    title: str
    failed: bool


def gather(folders: Sequence[str | Path], prefer: str | Path | None = None) -> MergePlan:
    """Look at every file of several results folders; nothing is written.

    Of a record that several have the first folder's file counts if all say the same, up to rounding; a result counts
    beside a failure, and what replaces another beside what it replaces. Whatever is about the examples of a cell
    comes only from folders with the cell's result that counts.

    Args:
        folders: each made by `davylamp evaluate`.
        prefer: whose record counts where they disagree: one of `folders`, or "newest" (by the time each was written);
            None: nobody's, it is a conflict.

    Raises:
        StoreMismatch: if one was written in another format.
        Unavailable: if one is not there or cannot be read.
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
            # Pieces of what is whole elsewhere are not needed; beside a failure they may have been made after it.
            if kind != "parts" or cell is None or cell.failed:
                counts = _choose(stores, kind, key, prefer, gathered, cell if kind in OF_CELLS else None)
                if counts is not None:
                    chosen[kind][key] = counts
                    gathered.files[f"{kind}/{counts.path.name}"] = counts.path
    _gather_images(stores, chosen, gathered)
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
    """The file of a key that counts; None if there is none, or none that can be chosen."""
    origin = {path: place for place, store in enumerate(stores) for path in store.files(kind, key)}
    records = _sound(origin, kind, key, gathered)
    if cell is not None:
        kept = {path: each for path, each in records.items() if origin[path] in cell.agreeing}
        if len(kept) < len(records):
            gathered.notes.append(f"left out: {kind}/{key}: made of another result of its cell ({cell.title})")
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
        gathered.notes.append(f"{kind}/{key} ({title}): the folders disagree; that of {whose} counts, as asked")
    record = records[path]
    same = (place for each, place in origin.items() if each in records and _agrees(records[each], record))
    return _Chosen(path, frozenset(same), title, record.failed)


def _sound(origin: Mapping[Path, int], kind: Kind, key: str, gathered: MergePlan) -> dict[Path, Record]:
    """The records of a key that can be used; a line in `damaged` for each of the others."""
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
    """The file that the user's rule chooses; None if it chooses none."""
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
    """What a record is about, for a reader: the attack, the model; the key where it does not say."""
    try:
        if "spec" in meta and kind != "corruptions":
            cell = AttackRun.from_record(meta)
            return f"{cell.title} on {cell.subject.model}, {cell.subject.data}, seed {cell.seed}"
        subject = ModelOnData(**meta["subject"])
        return f"{subject.model} on {subject.data}"
    except (KeyError, TypeError, ValueError, AttributeError):
        return key


def _join_failures(stores: Sequence[ResultsStore], damaged: list[str]) -> dict[str, str]:
    """Who could not take part in any of the folders, with every reason that was given."""
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
    """The kept images: those of a cell come from folders with the result of it that counts."""
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
    """Who is at work, and what is no part of a results folder."""
    known = {*KINDS, "images", "locks", "davylamp.json"}
    for store in stores:
        if store.claimed():
            yield f"an evaluation is at work in {store.folder}: what it finishes from now on is not in"
        try:
            others = sorted(each.name for each in store.folder.iterdir() if each.name not in known)
        except OSError as error:
            raise Unavailable(f"could not read {store.folder} ({error})") from error
        others = [name for name in others if name not in BESIDE and not name.startswith(("answers.sqlite", "."))]
        if others:
            yield f"left out, as no part of a results folder: {', '.join(others[:5])} in {store.folder}"

"""Merges results folders atomically. Every conflict is reported, and none is resolved silently."""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from filelock import FileLock, Timeout

from ...adapters.display_text import counted
from ...adapters.models.remote.answer_cache import FILE as ANSWERS
from ...adapters.models.remote.answer_cache import merge_answers
from ...errors import InvalidInput, Unavailable
from ..store.atomic_files import expand_path, read_regular_file, replace_file
from ..store.plan_records import forget_finished, join_all
from ..store.store import FORMAT, KINDS, ResultsStore
from .gather import NEWEST, MergePlan, gather

_NOUNS = {  # files of a results folder, by kind
    "clean": "clean record",
    "cells": "run",
    "parts": "shard",
    "transfer": "transfer record",
    "fits": "fitted attack",
    "checks": "probe record",
    "corruptions": "corruption record",
    "references": "imported record",
    "detections": "detector record",
    "published": "leaderboard",
    "images": "image file",
}

_SHOWN = 8  # most conflicts or damaged files named in a message


class MergeSummary(NamedTuple):
    """Summary of a results folder that was merged or unpacked.

    Args:
        folder: the new results folder.
        records: number of files in the new folder, by kind, such as "cells".
        notes: notes on files that were selected automatically or omitted.
    """

    folder: Path
    records: dict[str, int]
    notes: list[str]


class FoldersDisagree(InvalidInput):
    """Raised if results folders contain different records with the same key."""


def merge_folders(
    folders: Sequence[str | Path], out: str | Path, *, prefer: str | Path | None = None, link: bool = False
) -> MergeSummary:
    """Merge results folders into a new one.

    The new folder is filled under a temporary name next to `out` and renamed when it is complete. If the merge is
    interrupted, the next call reuses its files. The sources are not changed.

    Args:
        folders: at least two results folders. Bundles must be opened with `open_results` first.
        out: the new results folder. If the folder exists, it must be empty.
        prefer: the folder whose record is used in a conflict, which must be one of `folders`. "newest" uses the record
            that was written last. None raises FoldersDisagree in a conflict.
        link: whether files are hard links instead of copies. If the file system has no hard links, files are copied.

    Raises:
        FoldersDisagree: If two folders have different records with the same key, and `prefer` does not select a record.
        InvalidInput: If a file is damaged, or `out` is one of the folders.
        Unavailable: If a folder cannot be read, or `out` cannot be written or is not empty.
    """
    if len(folders) < 2:
        raise InvalidInput(f"expected at least two results folders to merge, got {len(folders)}")
    _check_preference(folders, prefer)
    if any(expand_path(out).resolve() == expand_path(folder).resolve() for folder in folders):
        raise InvalidInput(f"the output folder must differ from the merged folders, got {out}")
    target = check_target(out)
    gathered = check_mergeable(gather(folders, prefer))
    draft = target.with_name(f".{target.name}.merging")
    lock = FileLock(target.with_name(f".{target.name}.merging.lock"), thread_local=False)
    try:
        with lock.acquire(timeout=0):
            notes = _fill(draft, gathered, link_file if link else copy_file)
            if target.is_dir():
                target.rmdir()  # empty, or this fails; Windows moves no folder onto another
            draft.rename(target)
        Path(lock.lock_file).unlink(missing_ok=True)
    except Timeout as error:
        raise Unavailable(f"a different process is merging into {target}; wait until it finishes") from error
    except OSError as error:
        if isinstance(error, Unavailable):
            raise
        raise Unavailable(
            f"could not write {target} ({error}); free disk space and run the command again to resume"
        ) from error
    return MergeSummary(target, _count_files(target), [*gathered.notes, *notes])


def check_mergeable(gathered: MergePlan) -> MergePlan:
    """Check that a merge plan has no damaged files and no conflicts, and return the plan unchanged.

    Raises:
        InvalidInput: If files are damaged. The message names these files.
        FoldersDisagree: If folders conflict. The message names the records that differ.
    """
    if gathered.damaged:
        advice = "run `davylamp evaluate` to recompute them, or move them away"
        raise InvalidInput(f"damaged files ({len(gathered.damaged)}): {_join(gathered.damaged)}; {advice}")
    if gathered.conflicts:
        lines = _join([each.line for each in gathered.conflicts])
        count = len(gathered.conflicts)
        raise FoldersDisagree(
            f"the folders have different contents for {count} record{'s' * (count > 1)}: {lines}; "
            f"choose a folder with `davylamp merge --prefer FOLDER`, or `--prefer {NEWEST}`"
        )
    return gathered


def place_files(draft: Path, gathered: MergePlan, place: Callable[[Path, Path], object]) -> None:
    """Copy or link every selected file into an existing folder, and mark this folder as a results folder.

    Files that an interrupted merge left in the folder are reused if they are still selected, and deleted otherwise.

    Args:
        draft: the folder to fill.
        gathered: the selected files.
        place: function that copies or links a file. Called with the source and the new path.
    """
    for old in sorted(draft.rglob("*")):
        name = old.relative_to(draft).as_posix()
        if old.is_file() and not (name in gathered.files and _is_same(gathered.files[name], old)):
            old.unlink()
    for name, source in gathered.files.items():
        path = draft / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            replace_file(path, lambda new, source=source: place(source, new))
    text = json.dumps({"format": FORMAT}) + "\n"
    replace_file(draft / "davylamp.json", lambda path: path.write_text(text, encoding="utf-8"))
    if gathered.failed:
        table = pa.table({"cell": pa.array([], pa.string()), "spec": pa.array([], pa.string())})
        meta = {"key": "failed", "kind": "plan", "status": "failed", "reason": "", "failed": gathered.failed}
        ResultsStore(draft).write("plans", "failed", table, meta)


def copy_file(source: Path, new: Path) -> None:
    """Copy the file `source` to the path `new`."""
    shutil.copyfile(source, new)


def link_file(source: Path, new: Path) -> None:
    """Create a hard link `new` to the file `source`. If the file system has no hard links, copy the file."""
    try:
        os.link(source, new)
    except OSError:
        shutil.copyfile(source, new)


def join_parts(folder: Path) -> None:
    """Join the shards of each run whose shards are all present in a merged folder.

    Shards are in separate folders before the merge if the parts of an evaluation ran separately.
    """
    store = ResultsStore(folder)
    if join_all(store):
        forget_finished(store)


def count_records(gathered: MergePlan) -> dict[str, int]:
    """Return the number of selected files by kind, such as "cells"."""
    counts: dict[str, int] = {}
    for name in gathered.files:
        kind, is_record, _ = name.partition("/")
        if not is_record:
            continue
        counts[kind] = counts.get(kind, 0) + 1
    return counts


def describe_counts(counts: Mapping[str, int]) -> str:
    """Describe numbers of files by kind: "34 runs, 1 clean record"."""
    return ", ".join(counted(count, _NOUNS.get(kind, kind.removesuffix("s"))) for kind, count in counts.items())


def _count_files(folder: Path) -> dict[str, int]:
    counts = {kind: len([*(folder / kind).glob("[!.]*")]) for kind in ("cells", *KINDS, "images")}
    return {kind: count for kind, count in counts.items() if count}


def _fill(draft: Path, gathered: MergePlan, place: Callable[[Path, Path], object]) -> list[str]:
    """Fill the temporary folder of a merge.

    Returns:
        A note for each model server whose number of queries was summed over the merged folders.
    """
    draft.mkdir(exist_ok=True)
    place_files(draft, gathered, place)
    join_parts(draft)
    answers = [folder / ANSWERS for folder in gathered.folders if (folder / ANSWERS).is_file()]
    return merge_answers(answers, draft / ANSWERS) if answers else []


def _check_preference(folders: Sequence[str | Path], prefer: str | Path | None) -> None:
    if prefer is None or prefer == NEWEST:
        return
    there = [folder for folder in map(expand_path, folders) if folder.exists()]
    wanted = expand_path(prefer)
    if not wanted.exists() or not any(folder.samefile(wanted) for folder in there):
        names = ", ".join(map(str, folders))
        raise InvalidInput(f"expected `prefer={NEWEST}` or one of the folders ({names}), got {prefer}")


def check_target(out: str | Path) -> Path:
    """Check that a results folder can be created at `out`, and return the absolute path.

    Raises:
        Unavailable: If `out` exists and is not an empty folder, or if its parent folder does not exist.
    """
    target = expand_path(out).resolve()
    if target.is_dir() and not any(target.iterdir()):
        return target
    if target.exists() or target.is_symlink():
        raise Unavailable(f"expected a new or an empty folder, got {out}; choose a different one for `out`")
    if not target.parent.is_dir():
        raise Unavailable(f"could not make {out} ({target.parent} is not a folder); create it first")
    return target


def _is_same(source: Path, placed: Path) -> bool:
    if placed.is_symlink() or source.stat().st_size != placed.stat().st_size:
        return False
    return source.samefile(placed) or read_regular_file(source) == read_regular_file(placed)


def _join(lines: Sequence[str]) -> str:
    more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return "; ".join(lines[:_SHOWN]) + more

"""Bundles a results folder into one file: unchanged records, plain tables, card, licence and checksums."""

import hashlib
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ...errors import InvalidInput, Unavailable
from ..store.atomic_files import check_output_path, read_regular_file, replace_file
from ..store.store import FORMAT
from .describe import SharedTables, SharingTerms, card_of, licence_text, manifest_of
from .flat_tables import flat_tables, parquet_bytes
from .gather import gather
from .merge import check_mergeable, count_records

CHECKSUMS = "SHA256SUMS"
_DAY = (1980, 1, 1, 0, 0, 0)  # date of every file in a bundle, for reproducible bytes


class BundleSummary(NamedTuple):
    """A written bundle.

    Args:
        path: the bundle file.
        records: number of records of each kind.
        notes: notes on omitted files.
    """

    path: Path
    records: dict[str, int]
    notes: list[str]


def write_bundle(
    folder: str | Path, path: str | Path, *, terms: SharingTerms | None = None, images: bool = True
) -> BundleSummary:
    """Bundle a results folder. The same folder, terms and versions give the same bytes.

    The servers' answer cache, which may be private, and lock files are omitted.

    Args:
        folder: results folder of `davylamp evaluate`, which is not changed.
        path: ZIP file.
        terms: licence, creator, name and description. None to leave them unstated.
        images: whether to include stored adversarial images.

    Raises:
        InvalidInput: If a file of the folder is damaged, two files conflict, or the path does not end in `.zip`.
        Unavailable: If there is no such folder, it is empty, or the file cannot be written.
    """
    place = check_output_path(path, advice="choose a different file")
    if place.suffix.lower() != ".zip":
        raise InvalidInput(f"expected a bundle name NAME.zip, got {path}")
    gathered = check_mergeable(gather([folder]))
    sources = {name: each for name, each in gathered.files.items() if images or not name.startswith("images/")}
    if not sources:
        raise Unavailable(f"no results in {folder} (it is empty)")
    counts = count_records(gathered)
    notes = list(gathered.notes)
    if not images and counts.get("images"):
        notes.append(f"omitted as requested: {counts.pop('images')} files of adversarial images")
    if (gathered.folders[0] / "answers.sqlite").is_file():
        notes.append("omitted: the servers' answer cache, which may be private")
    shared = share_tables(folder, terms or SharingTerms(), counts)
    texts = describe_files(shared)
    texts["davylamp.json"] = (json.dumps({"format": FORMAT}) + "\n").encode()
    texts["bundle.json"] = (json.dumps(manifest_of(shared), indent=1, sort_keys=True) + "\n").encode()
    try:
        replace_file(place.resolve(), lambda draft: _write(draft, texts, sources))
    except OSError as error:
        raise Unavailable(f"could not write {place} ({error.strerror or error}); choose a different file") from error
    return BundleSummary(place, counts, notes)


def share_tables(folder: str | Path, terms: SharingTerms, records: Mapping[str, int] | None = None) -> SharedTables:
    """Build the tables of a results folder that any program can read, with their description."""
    tables = flat_tables(folder)
    return SharedTables(tables, {name: parquet_bytes(table) for name, table in tables.items()}, terms, records or {})


def describe_files(shared: SharedTables) -> dict[str, bytes]:
    """Return all files of a bundle except records, by path: tables, card, licence."""
    texts = {f"data/{name}.parquet": content for name, content in shared.files.items()}
    texts["README.md"] = card_of(shared).encode()
    texts["LICENSE.txt"] = licence_text(shared.terms).encode()
    return texts


def _write(draft: Path, texts: Mapping[str, bytes], sources: Mapping[str, Path]) -> None:
    sums = []
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED, allowZip64=True) as bundle:
        for name, content in _contents(texts, sources):
            bundle.writestr(reproducible_entry(name), content)
            sums.append(f"{hashlib.sha256(content).hexdigest()}  {name}\n")
        bundle.writestr(reproducible_entry(CHECKSUMS), "".join(sums))


def _contents(texts: Mapping[str, bytes], sources: Mapping[str, Path]) -> Iterator[tuple[str, bytes]]:
    """Yield all files sorted by path, with only one in memory at a time."""
    for name in sorted({*texts, *sources}):
        yield name, texts[name] if name in texts else read_regular_file(sources[name])


def reproducible_entry(name: str) -> zipfile.ZipInfo:
    """Return the ZIP entry of a file with a fixed date and fixed permissions, so that equal files have equal bytes."""
    entry = zipfile.ZipInfo(name, _DAY)
    entry.create_system, entry.external_attr = 3, 0o100644 << 16
    return entry

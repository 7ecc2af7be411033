"""A results folder as one file: its records byte for byte, plain tables, a card, a licence, and a checksum of each."""

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
_DAY = (1980, 1, 1, 0, 0, 0)  # of every file in a bundle, so that the same folder gives the same bytes


class BundleSummary(NamedTuple):
    """A bundle that was written.

    Args:
        path: of the file.
        records: number of records of each kind.
        notes: what was left out.
    """

    path: Path
    records: dict[str, int]
    notes: list[str]


def write_bundle(
    folder: str | Path, path: str | Path, *, terms: SharingTerms | None = None, images: bool = True
) -> BundleSummary:
    """Pack a results folder; the same folder, terms and versions give the same bytes.

    Kept answers of servers stay behind, as they may be private; so do locks.

    Args:
        folder: made by `davylamp evaluate`; it is only read.
        path: the ZIP file.
        terms: licence, creator, name and description; None: nothing is stated, and the bundle says so.
        images: False: without the adversarial images that were kept.

    Raises:
        InvalidInput: if a file of the folder is damaged or two disagree, or the path is no `.zip`.
        Unavailable: if there is no such folder, nothing is in it, or the file cannot be written.
    """
    place = check_output_path(path, advice="choose another file")
    if place.suffix.lower() != ".zip":
        raise InvalidInput(f"expected a bundle called NAME.zip, got {path}")
    gathered = check_mergeable(gather([folder]))
    sources = {name: each for name, each in gathered.files.items() if images or not name.startswith("images/")}
    if not sources:
        raise Unavailable(f"expected results in {folder}, found none (it is empty)")
    counts = count_records(gathered)
    notes = list(gathered.notes)
    if not images and counts.get("images"):
        notes.append(f"left out, as asked: {counts.pop('images')} files of adversarial images")
    if (gathered.folders[0] / "answers.sqlite").is_file():
        notes.append("left out: the kept answers of servers, which may be private")
    shared = share_tables(folder, terms or SharingTerms(), counts)
    texts = describe_files(shared)
    texts["davylamp.json"] = (json.dumps({"format": FORMAT}) + "\n").encode()
    texts["bundle.json"] = (json.dumps(manifest_of(shared), indent=1, sort_keys=True) + "\n").encode()
    try:
        replace_file(place.resolve(), lambda draft: _write(draft, texts, sources))
    except OSError as error:
        raise Unavailable(f"could not write {place} ({error.strerror or error}); choose another file") from error
    return BundleSummary(place, counts, notes)


def share_tables(folder: str | Path, terms: SharingTerms, records: Mapping[str, int] | None = None) -> SharedTables:
    """The plain tables of a folder, with what is said of them."""
    tables = flat_tables(folder)
    return SharedTables(tables, {name: parquet_bytes(table) for name, table in tables.items()}, terms, records or {})


def describe_files(shared: SharedTables) -> dict[str, bytes]:
    """Every file that is not a record, by its path: the tables, the card, the licence."""
    texts = {f"data/{name}.parquet": content for name, content in shared.files.items()}
    texts["README.md"] = card_of(shared).encode()
    texts["LICENSE.txt"] = licence_text(shared.terms).encode()
    return texts


def _write(draft: Path, texts: Mapping[str, bytes], sources: Mapping[str, Path]) -> None:
    sums = []
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED, allowZip64=True) as bundle:
        for name, content in _contents(texts, sources):
            bundle.writestr(_entry(name), content)
            sums.append(f"{hashlib.sha256(content).hexdigest()}  {name}\n")
        bundle.writestr(_entry(CHECKSUMS), "".join(sums))


def _contents(texts: Mapping[str, bytes], sources: Mapping[str, Path]) -> Iterator[tuple[str, bytes]]:
    """Every file by its path, sorted, one in memory at a time."""
    for name in sorted({*texts, *sources}):
        yield name, texts[name] if name in texts else read_regular_file(sources[name])


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _DAY)
    entry.create_system, entry.external_attr = 3, 0o100644 << 16
    return entry

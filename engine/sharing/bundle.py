"""Writes bundles: a results folder in one ZIP file, with records, plain tables, data card, licence and checksums."""

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
    """Summary of a bundle that `write_bundle` wrote.

    Args:
        path: the bundle file.
        records: number of records in the bundle, by kind, such as "cells".
        notes: notes for the user, such as which files of the results folder are not in the bundle.
    """

    path: Path
    records: dict[str, int]
    notes: list[str]


def write_bundle(
    folder: str | Path, path: str | Path, *, terms: SharingTerms | None = None, images: bool = True
) -> BundleSummary:
    """Write a results folder into one ZIP file, and return a summary of this bundle.

    The same folder, terms and versions of davylamp and PyArrow give the same bytes. The bundle does not contain the
    cached answers of model servers, which may be private.

    Args:
        folder: results folder of `davylamp evaluate`. The folder is not changed.
        path: the bundle file, whose name ends in ".zip".
        terms: licence, creator, name and description of the results. None leaves all of these unstated.
        images: whether the bundle contains the adversarial images that the folder stores.

    Raises:
        InvalidInput: If a file of the folder is damaged, if two files of the folder conflict, or if the path does not
            end in `.zip`.
        Unavailable: If the folder does not exist or is empty, or if the bundle cannot be written.
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
    """Build the tables that are shared with a results folder."""
    tables = flat_tables(folder)
    return SharedTables(tables, {name: parquet_bytes(table) for name, table in tables.items()}, terms, records or {})


def describe_files(shared: SharedTables) -> dict[str, bytes]:
    """Return the content of the tables, the data card and the licence file of a bundle, by path in the bundle."""
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
    """Yield the path and the content of each file, sorted by path. Only one record is in memory at a time."""
    for name in sorted({*texts, *sources}):
        yield name, texts[name] if name in texts else read_regular_file(sources[name])


def reproducible_entry(name: str) -> zipfile.ZipInfo:
    """Return a ZIP entry with a fixed date and fixed permissions, so that archives of equal files have equal bytes."""
    entry = zipfile.ZipInfo(name, _DAY)
    entry.create_system, entry.external_attr = 3, 0o100644 << 16
    return entry

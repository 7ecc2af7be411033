"""Signs the results of finished tasks with an Ed25519 key of the server, and verifies exported tasks."""

import json
import time
import zipfile
from pathlib import Path
from typing import IO, Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from ... import __version__
from ...engine.sharing.signed_archive import SIGNATURE, canonical_json, check_files, check_signature, sign
from ...engine.store.store import DamagedRecordError, ResultsStore
from ...errors import InvalidInput, Unavailable
from ..database.records import CellRow, TaskRow
from ..folder import ServerFolder
from .ingest import file_digest, result_files

MANIFEST = "manifest.json"
_LARGEST_MANIFEST = 256 << 20


def sign_task(session: Session, folder: ServerFolder, task: TaskRow) -> str:
    """Sign a finished task, and return the signature (128 hexadecimal digits).

    The files `manifest.json` and `signature.json` are written into the folder of the task. The manifest lists settings,
    components, runs, versions, seeds, and the hash of every result file.
    """
    text = canonical_json(_manifest(session, folder, task))
    stated = sign(text, folder.read_key("signing.key"))
    place = folder.task(task.id)
    (place / MANIFEST).write_bytes(text)
    (place / SIGNATURE).write_text(json.dumps(stated) + "\n", encoding="utf-8")
    return stated["signature"]


def public_key(folder: ServerFolder) -> str:
    """Return the public key with which anyone can verify the signatures of a server (64 hexadecimal digits)."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(folder.read_key("signing.key")).public_key().public_bytes_raw().hex()


def export_task(folder: ServerFolder, number: int, file: IO[bytes]) -> None:
    """Write a signed task as a ZIP file with manifest, signature, configs and results.

    Raises:
        Unavailable: If the task is not finished and signed.
    """
    place = folder.task(number)
    if not (place / SIGNATURE).is_file():
        raise Unavailable(f"only finished and signed tasks can be exported, but task {number} is not signed")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for path in (place / MANIFEST, place / SIGNATURE, *_signed_files(place)):
            archive.write(path, path.relative_to(place).as_posix())


def _signed_files(place: Path) -> list[Path]:
    return [*sorted(place.glob("config-*.toml")), *result_files(place / "results")]


def verify_export(path: Path, key: str = "") -> dict[str, Any]:
    """Verify the signature and all files of an exported task, and return the manifest.

    Args:
        path: ZIP file of `export_task`.
        key: public key of the server that must have signed the task. "" uses the public key in the file. This shows
            only that nothing was changed after signing, but not who signed the task.

    Returns:
        The manifest, with the public key as the additional entry "signed_by".

    Raises:
        InvalidInput: If a file was changed, added or omitted, or if the task was signed with a different key.
        Unavailable: If the file cannot be read.
        MissingLibrary: If cryptography is not installed.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(MANIFEST).file_size > _LARGEST_MANIFEST:
                raise InvalidInput(f"expected a manifest of at most {_LARGEST_MANIFEST} bytes, got a larger one")
            text, stated = archive.read(MANIFEST), json.loads(archive.read(SIGNATURE))
            check_signature(text, stated, key)
            manifest = json.loads(text)
            check_files(archive, manifest["files"], (MANIFEST, SIGNATURE))
            manifest["signed_by"] = stated["public_key"]
    except (OSError, zipfile.BadZipFile) as error:
        raise Unavailable(f"could not read {path} ({error})") from error
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"expected an exported task in {path}, got a different file ({error})") from error
    return manifest


def _manifest(session: Session, folder: ServerFolder, task: TaskRow) -> dict[str, Any]:
    place = folder.task(task.id)
    components = [
        {"number": row.id, "kind": row.kind, "name": row.name, "version": row.version, "creator": row.creator.name}
        | {"form": row.form, "entry": row.entry, "sha256": row.blob, "licence": row.licence}
        for row in task.components
    ]
    cells = session.scalars(select(CellRow).where(CellRow.task_id == task.id).order_by(CellRow.key))
    store = ResultsStore(place / "results")
    return {
        "format": 1,
        "davylamp": __version__,
        "task": task.id,
        "owner": task.owner.name,
        "title": task.title,
        "settings": task.settings,
        "components": components,
        "cells": [
            {"key": row.key, "file": f"results/cells/{row.file}", "sha256": row.digest, "state": row.state}
            | {"model": row.model, "attack": row.attack, "reused": row.reused, **_about(store, row.key)}
            for row in cells
        ],
        "files": {path.relative_to(place).as_posix(): file_digest(path) for path in _signed_files(place)},
        "started": task.started,
        "signed": time.time(),
    }


def _about(store: ResultsStore, key: str) -> dict[str, Any]:
    try:
        meta = store.read("cells", key).meta
    except (DamagedRecordError, FileNotFoundError):
        return {}
    return {"seed": meta["spec"].get("seed"), "versions": meta.get("versions", {})}

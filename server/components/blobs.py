"""Stores the uploaded files of components. Files with the same SHA-256 hash are stored once."""

import hashlib
import os
import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ...errors import InvalidInput, Unavailable
from ..database.records import BlobRow, ComponentRow

_MIB = 1 << 20
_FORGOTTEN = 24 * 3600.0  # seconds after which an unfinished upload is deleted


class Upload(NamedTuple):
    """A file that was uploaded completely.

    Args:
        path: path of the temporary file.
        digest: SHA-256 hash of the file.
        size: size of the file in bytes.
    """

    path: Path
    digest: str
    size: int


def take_upload(folder: Path, chunks: Iterable[bytes], largest: int) -> Upload:
    """Receive an upload into a temporary file. If the upload fails or is too large, the temporary file is deleted.

    Args:
        folder: folder of temporary files, on the same disk as the stored files.
        chunks: content of the file, in pieces.
        largest: largest allowed size of the file, in MiB.

    Raises:
        InvalidInput: If the file is too large or empty.
        Unavailable: If the disk is full.
    """
    path, digest, size = folder / secrets.token_hex(16), hashlib.sha256(), 0
    try:
        with path.open("xb") as file:
            for chunk in chunks:
                size += len(chunk)
                if size > largest * _MIB:
                    raise InvalidInput(f"expected a file of at most {largest} MiB, got more")
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        if not size:
            raise InvalidInput("expected a file with content, got an empty file")
    except OSError as error:
        path.unlink(missing_ok=True)
        if isinstance(error, Unavailable):
            raise
        raise Unavailable(f"could not store the file ({error.strerror})") from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return Upload(path, digest.hexdigest(), size)


def keep_upload(session: Session, blobs: Path, upload: Upload) -> BlobRow:
    """Store an uploaded file permanently, and return its database row.

    If an equal file is already stored, the upload is deleted and the row of the stored file is returned.
    """
    target = blob_path(blobs, upload.digest)
    _take_turns(session, upload.digest)
    target.parent.mkdir(exist_ok=True, mode=0o700)
    if target.is_file():
        upload.path.unlink()
    else:
        upload.path.replace(target)
        target.chmod(0o400)
    row = session.get(BlobRow, upload.digest)
    if row is None:
        row = BlobRow(digest=upload.digest, size=upload.size, created=time.time())
        session.add(row)
        session.flush()
    return row


def blob_path(blobs: Path, digest: str) -> Path:
    """Return the path of a stored file, from the SHA-256 hash of the file."""
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise InvalidInput(f"expected a SHA-256 as 64 hexadecimal digits, got {digest[:80]!r}")
    return blobs / digest[:2] / digest


def used_bytes(session: Session, user_id: int) -> int:
    """Return the total size in bytes of the files of a user's components. Equal files count once."""
    mine = select(ComponentRow.blob).where(ComponentRow.creator_id == user_id)
    return int(session.scalar(select(func.coalesce(func.sum(BlobRow.size), 0)).where(BlobRow.digest.in_(mine))) or 0)


def drop_unused(session: Session, blobs: Path, digest: str) -> None:
    """Delete the stored file with a given SHA-256 hash, unless a component still uses the file."""
    _take_turns(session, digest)
    if session.scalar(select(ComponentRow.id).where(ComponentRow.blob == digest).limit(1)) is not None:
        return
    row = session.get(BlobRow, digest)
    if row is not None:
        session.delete(row)
        session.flush()
    blob_path(blobs, digest).unlink(missing_ok=True)


def _take_turns(session: Session, digest: str) -> None:
    """Wait until no other process stores or deletes the same file.

    SQLite needs no lock here, because only one process at a time can write to the database.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(int(digest[:15], 16))))


def clean_uploads(folder: Path) -> None:
    """Delete temporary files of interrupted uploads that are older than a day."""
    for path in folder.iterdir():
        if path.stat().st_mtime < time.time() - _FORGOTTEN:
            path.unlink(missing_ok=True)

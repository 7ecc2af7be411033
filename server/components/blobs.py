"""Stores uploaded files by their SHA-256: each once, and until no component refers to it."""

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
    """A complete uploaded file: temporary path, SHA-256, size in bytes."""

    path: Path
    digest: str
    size: int


def take_upload(folder: Path, chunks: Iterable[bytes], largest: int) -> Upload:
    """Write chunks to a temporary file and hash them. If the upload is too large or incomplete, the file is deleted.

    Args:
        folder: folder of temporary files, on the same disk as the stored files.
        chunks: chunks of the file.
        largest: largest allowed size in MiB.

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
            raise InvalidInput("expected a file, got an empty one")
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
    """Store an upload, and return its database row. Equal files are stored once."""
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
    """Return the path of the file with a given SHA-256."""
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise InvalidInput(f"expected a SHA-256 as 64 hexadecimal digits, got {digest[:80]!r}")
    return blobs / digest[:2] / digest


def used_bytes(session: Session, user_id: int) -> int:
    """Return the total size of a user's files in bytes. Each file counts once."""
    mine = select(ComponentRow.blob).where(ComponentRow.creator_id == user_id)
    return int(session.scalar(select(func.coalesce(func.sum(BlobRow.size), 0)).where(BlobRow.digest.in_(mine))) or 0)


def drop_unused(session: Session, blobs: Path, digest: str) -> None:
    """Delete a stored file unless a component refers to it."""
    _take_turns(session, digest)
    if session.scalar(select(ComponentRow.id).where(ComponentRow.blob == digest).limit(1)) is not None:
        return
    row = session.get(BlobRow, digest)
    if row is not None:
        session.delete(row)
        session.flush()
    blob_path(blobs, digest).unlink(missing_ok=True)


def _take_turns(session: Session, digest: str) -> None:
    """Make processes that store or delete the same file wait for each other. SQLite does this for all writers."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(int(digest[:15], 16))))


def clean_uploads(folder: Path) -> None:
    """Delete files of interrupted uploads."""
    for path in folder.iterdir():
        if path.stat().st_mtime < time.time() - _FORGOTTEN:
            path.unlink(missing_ok=True)

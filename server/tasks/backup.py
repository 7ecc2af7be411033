"""Backs up the folder and database of a server into one file, and restores a server from such a file."""

import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import func, insert, select, text
from sqlalchemy.engine import Connection

from ...adapters.models.sandbox.bubblewrap import LAB_MARK
from ...adapters.paths import expand_path
from ...errors import InvalidInput, Unavailable
from ..components.blobs import blob_path
from ..database.connecting import Database, sqlite_address
from ..database.records import BlobRow, ServerTable, UserRow
from ..folder import ServerFolder
from .ingest import file_digest

_DATABASE = "server.db"
_KEYS = ("secret.key", "signing.key")
_LEFT_OUT = ("room", "locks")  # of a task: copies of stored files, and locks
_ROWS = 1000  # rows copied together
_ATTEMPTS = 5


def back_up(folder: ServerFolder, file: str | Path) -> Path:
    """Back up a server into one file, and return the path of the file. The server may run during the backup.

    The database in the backup is that of the start of the backup. After the backup is restored, tasks that were running
    resume from the results in the backup.

    Args:
        folder: folder of the server.
        file: path of the backup file, such as "lab.tar.gz". Other users of the machine cannot read the file, because it
            contains keys and password hashes.

    Raises:
        InvalidInput: If `file` is a folder, or is inside the server's folder.
        Unavailable: If the backup file cannot be written, or if users keep deleting files during the backup.
    """
    target = expand_path(file).absolute()
    if target.is_dir() or folder.path in target.parents:
        raise InvalidInput(f"expected the path of a file outside of the server's folder, got {target}")
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".backup-") as scratch:
            draft = Path(scratch) / "draft"
            for _ in range(_ATTEMPTS):
                if _write(folder, draft, Path(scratch) / _DATABASE):
                    draft.replace(target)
                    return target
    except OSError as error:
        raise Unavailable(f"could not write {target} ({error.strerror or error})") from error
    raise Unavailable(f"users deleted files during each of {_ATTEMPTS} attempts to make the backup; try again later")


def restore(file: str | Path, folder: str | Path, database: str = "") -> ServerFolder:
    """Restore a server from a backup, and return the new folder of the server.

    Args:
        file: backup file of `back_up`.
        folder: new folder of the server. If the folder exists, it must be empty.
        database: address of an empty PostgreSQL database, "postgresql://...". "" for an SQLite database in the folder.

    Raises:
        InvalidInput: If the folder or the database is not empty, or if the file is not a backup.
        Unavailable: If the backup is damaged, or if the folder cannot be written.
        StoreMismatch: If a newer version of davylamp wrote the backup.
    """
    source, target = expand_path(file), expand_path(folder).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidInput(f"expected an empty folder, got {target}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".restore-") as scratch:
        place = Path(scratch) / "lab"
        place.mkdir(mode=0o700)
        try:
            with tarfile.open(source, "r:gz") as archive:
                archive.extractall(place, filter="data")
        except FileNotFoundError as error:
            raise Unavailable(f"expected a backup file, but {source} does not exist") from error
        except (tarfile.TarError, EOFError, OSError) as error:
            raise InvalidInput(f"expected a file of `davylamp server backup`, got {source}: {error}") from error
        if not (place / _DATABASE).is_file():
            raise InvalidInput(f"expected a file of `davylamp server backup`, got {source} without {_DATABASE}")
        with _opened(sqlite_address(place / _DATABASE)) as copied, copied.reading() as session:
            _check_blobs(place / "blobs", session.scalars(select(BlobRow.digest)))
            if database:
                with _opened(database) as other, other.writing() as there:
                    if there.scalar(select(func.count()).select_from(UserRow)):
                        raise InvalidInput("expected an empty database, got a database that already has users")
                    _copy_rows(session.connection(), there.connection())
        if database:
            (place / _DATABASE).unlink()
        (place / LAB_MARK).write_text("1\n", encoding="utf-8")
        if target.exists():
            target.rmdir()
        shutil.move(place, target)
    return ServerFolder(target, database)


@contextmanager
def _opened(address: str) -> Iterator[Database]:
    database = Database(address)
    try:
        yield database
    finally:
        database.close()


def _write(folder: ServerFolder, draft: Path, copy: Path) -> bool:
    """Write a backup.

    Returns:
        False if a file that the copied database needs was deleted while the backup was made. The backup is then
        incomplete.
    """
    copy.unlink(missing_ok=True)
    draft.unlink(missing_ok=True)
    with folder.database.engine.connect() as connection, _opened(sqlite_address(copy)) as copied:
        if not folder.database.is_sqlite:  # SQLite's transactions are snapshots
            connection.execution_options(isolation_level="REPEATABLE READ")
        with copied.writing() as session:
            _copy_rows(connection, session.connection())
            digests = session.scalars(select(BlobRow.digest)).all()
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
            archive.add(copy, _DATABASE)
            for path in _files_of(folder.path):
                _add(archive, path, str(path.relative_to(folder.path)))
            kept = set(archive.getnames())
        stream.flush()
        os.fsync(stream.fileno())
    blobs = (blob_path(folder.blobs, digest).relative_to(folder.path) for digest in digests)
    return all(str(path) in kept for path in blobs)


def _copy_rows(source: Connection, target: Connection) -> None:
    for table in reversed(ServerTable.metadata.sorted_tables):
        target.execute(table.delete())
    for table in ServerTable.metadata.sorted_tables:
        rows = source.execute(select(table))
        while batch := [dict(row) for row in rows.mappings().fetchmany(_ROWS)]:
            target.execute(insert(table), batch)
        if target.dialect.name == "postgresql" and "id" in table.c:  # next id
            following = f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), max(id)) FROM {table.name}"
            target.execute(text(f"{following} HAVING max(id) IS NOT NULL"))


def _files_of(folder: Path) -> Iterator[Path]:
    yield from (folder / name for name in _KEYS if (folder / name).is_file())
    yield from sorted((folder / "blobs").rglob("*"))
    for task in sorted((folder / "tasks").iterdir()):
        for path in sorted(task.rglob("*")):
            if not set(path.relative_to(task).parts) & set(_LEFT_OUT):
                yield path


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    try:
        if path.is_symlink() or not path.is_file():
            return
        with path.open("rb") as stream:
            archive.addfile(archive.gettarinfo(name, name, stream), stream)
    except FileNotFoundError:
        return


def _check_blobs(folder: Path, digests: Iterable[str]) -> None:
    for digest in digests:
        try:
            got = file_digest(blob_path(folder, digest))
        except FileNotFoundError:
            raise Unavailable(f"the backup is incomplete: the uploaded file {digest[:12]} is missing") from None
        if got != digest:
            raise Unavailable(f"the backup is damaged: the uploaded file {digest[:12]} does not match its hash")

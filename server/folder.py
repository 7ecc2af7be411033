"""Folder of a server: database, files, tasks and keys.

Only the operating system user that runs the server can read it.
"""

import os
import secrets
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ..adapters.models.sandbox.bubblewrap import LAB_MARK, find_exposing
from ..adapters.paths import expand_path
from ..errors import InvalidInput, MissingLibrary, Unavailable
from .database.connecting import Database, sqlite_address

if TYPE_CHECKING:
    from argon2 import PasswordHasher

_KEY_BYTES = 32


@dataclass(frozen=True)
class Settings:
    """Limits of a server.

    Args:
        largest: largest upload in MiB.
        quota: total size of a user's files in MiB.
        images: largest number of images in a task, for each attack and model.
        cells: largest number of runs in a task: models x attacks x data x seeds.
        waiting: largest number of a user's unfinished tasks.
        trust: whether users' files are run and read without a sandbox.
        cheap: whether passwords get a weak hash, for tests only.
    """

    largest: int = 2048
    quota: int = 20480
    images: int = 10_000
    cells: int = 1000
    waiting: int = 50
    trust: bool = False
    cheap: bool = False


class ServerFolder:
    """Folder of a server.

    `server.db` is the database, unless another database is given. `blobs/` contains the stored files by SHA-256, and
    `tasks/NUMBER/` the files of a task. `secret.key` signs forms, and `signing.key` signs finished tasks.

    Args:
        folder: path of the folder.
        database: "postgresql://...". "" for SQLite in the folder.
        settings: limits of the server.
        create: whether a missing folder is created. If False, the path must be a server's folder.

    Raises:
        InvalidInput: If the path is not a server's folder, or if it does not exist and `create` is False.
        Unavailable: If the folder cannot be created, or the database cannot be reached.
    """

    def __init__(self, folder: str | Path, database: str = "", settings: Settings = Settings(), *, create: bool = True):
        require_packages()
        self.path, self.settings = expand_path(folder).absolute(), settings
        if not create and not (self.path / LAB_MARK).is_file():
            raise InvalidInput(f"expected a server's folder (made by `davylamp serve FOLDER --tasks`), got {folder}")
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not (self.path / LAB_MARK).is_file():
                if any(self.path.iterdir()):
                    raise InvalidInput(f"expected a server's folder or an empty one, got {self.path}")
                (self.path / LAB_MARK).write_text("1\n", encoding="utf-8")
            for name in ("blobs", "tasks", "uploads"):
                (self.path / name).mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise Unavailable(f"could not make {self.path} ({error.strerror})") from error
        self.database = Database(database or sqlite_address(self.path / "server.db"))

    @cached_property
    def secret(self) -> bytes:
        """Key that signs forms."""
        return self.read_key("secret.key")

    @cached_property
    def hasher(self) -> "PasswordHasher":
        """Argon2id password hasher with its authors' parameters."""
        from argon2 import PasswordHasher

        return PasswordHasher(time_cost=1, memory_cost=8, parallelism=1) if self.settings.cheap else PasswordHasher()

    @property
    def blobs(self) -> Path:
        """Folder of the stored files, named by SHA-256."""
        return self.path / "blobs"

    @property
    def uploads(self) -> Path:
        """Folder of incomplete uploads."""
        return self.path / "uploads"

    def task(self, number: int) -> Path:
        """Return the folder of a task."""
        return self.path / "tasks" / str(int(number))

    def hide(self, text: str) -> str:
        """Remove the server's paths from a text that users see."""
        return text.replace(f"{self.path}/", "").replace(str(self.path), "")

    def check_hidden(self) -> None:
        """Raise InvalidInput if users' programs could read this folder, because it is on Python's import path."""
        exposing = None if self.settings.trust else find_exposing(self.path)
        if exposing is not None:
            raise InvalidInput(
                f"expected a server's folder that users' programs cannot read, got {self.path} in "
                f"{exposing}: move it (or start with --no-sandbox, where every user may read it anyway)"
            )

    def read_key(self, name: str) -> bytes:
        """Return a key of 32 random bytes. It is created on first use, and only the server's user can read it.

        Raises:
            Unavailable: If the key cannot be read, or if others can read it.
        """
        path = self.path / name
        try:
            _make_key(path)
            is_open, key = os.name == "posix" and bool(path.stat().st_mode & 0o077), path.read_bytes()
        except OSError as error:
            raise Unavailable(f"could not read {path} ({error.strerror})") from error
        if is_open:
            raise Unavailable(f"{path} must be readable by its user only; run chmod 600 on it")
        if len(key) != _KEY_BYTES:
            raise Unavailable(f"expected a key of {_KEY_BYTES} bytes in {path}, got {len(key)}")
        return key


def require_packages() -> None:
    """Raise MissingLibrary with the name of the extra, unless the packages for a server are installed."""
    try:
        import alembic  # noqa: F401
        import argon2  # noqa: F401
        import cryptography  # noqa: F401
        import fastapi  # noqa: F401
        import sqlalchemy  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingLibrary(error.name or "fastapi", "server") from error


def _make_key(path: Path) -> None:
    """Create a key atomically. If several processes try at the same time, only one succeeds."""
    if path.is_file():
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, secrets.token_bytes(_KEY_BYTES))
        os.fsync(descriptor)
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        os.close(descriptor)
        draft.unlink()

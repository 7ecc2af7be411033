"""The folder of a server: its database, files, tasks and keys, all of it readable by its user alone."""

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
    """What a server allows.

    Args:
        largest: MiB of an upload.
        quota: MiB of all files of a user.
        images: of a task's data, at most, for each attack and model.
        cells: of a task, at most: models x attacks x data x seeds.
        waiting: tasks of a user that are not ended, at most.
        trust: run and read users' files without a sandbox.
        cheap: hash passwords weakly, for tests alone.
    """

    largest: int = 2048
    quota: int = 20480
    images: int = 10_000
    cells: int = 1000
    waiting: int = 50
    trust: bool = False
    cheap: bool = False


class ServerFolder:
    """Where a server keeps everything.

    `server.db` is the database, unless another is given; `blobs/` the files by their SHA-256, `tasks/NUMBER/` what a
    task reads and writes, `secret.key` the key of forms, `signing.key` that of finished tasks.

    Args:
        folder: made if it is not there, unless `create` says otherwise.
        database: "postgresql://..."; "": SQLite in the folder.
        settings: what is allowed.
        create: make the folder; else it has to be a server's already.

    Raises:
        InvalidInput: if the folder is something else's, or not there and not to be made.
        Unavailable: if it cannot be made, or the database not be reached.
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
        """The key that marks forms."""
        return self.read_key("secret.key")

    @cached_property
    def hasher(self) -> "PasswordHasher":
        """Argon2id with its authors' parameters."""
        from argon2 import PasswordHasher

        return PasswordHasher(time_cost=1, memory_cost=8, parallelism=1) if self.settings.cheap else PasswordHasher()

    @property
    def blobs(self) -> Path:
        """Files by their SHA-256."""
        return self.path / "blobs"

    @property
    def uploads(self) -> Path:
        """Files that are under way."""
        return self.path / "uploads"

    def task(self, number: int) -> Path:
        """What a task reads and writes."""
        return self.path / "tasks" / str(int(number))

    def hide(self, text: str) -> str:
        """A text for users: where the server keeps its files is nobody's business."""
        return text.replace(f"{self.path}/", "").replace(str(self.path), "")

    def check_hidden(self) -> None:
        """Raise InvalidInput if every program of users could read this folder, as it lies where Python does."""
        exposing = None if self.settings.trust else find_exposing(self.path)
        if exposing is not None:
            raise InvalidInput(
                f"expected a server's folder outside of what programs of users can read, got {self.path} in "
                f"{exposing}: move it (or start with --trust, where every user may read it anyway)"
            )

    def read_key(self, name: str) -> bytes:
        """A key of 32 random bytes, made when it is first asked for, for the server's user alone.

        Raises:
            Unavailable: if it cannot be read, or others can read it.
        """
        path = self.path / name
        try:
            _make_key(path)
            is_open, key = os.name == "posix" and bool(path.stat().st_mode & 0o077), path.read_bytes()
        except OSError as error:
            raise Unavailable(f"could not read {path} ({error.strerror})") from error
        if is_open:
            raise Unavailable(f"expected a key that its user alone can read, got {path}; chmod 600 it")
        if len(key) != _KEY_BYTES:
            raise Unavailable(f"expected a key of {_KEY_BYTES} bytes in {path}, got {len(key)}")
        return key


def require_packages() -> None:
    """Raise MissingLibrary, which names the extra, without the server's packages."""
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
    """Make a key; of several processes that do so at once one succeeds, and with a whole one."""
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

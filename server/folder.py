"""The folder of a server, with its database, uploaded files, tasks and keys.

Only the operating system user that runs the server can read this folder.
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
        largest: largest size of an uploaded file, in MiB.
        quota: largest total size of the files of one user, in MiB.
        images: largest number of images in a task, for each attack and model.
        cells: largest number of runs in a task: models x attacks x data x seeds.
        waiting: largest number of unfinished tasks of one user.
        trust: whether programs and files that users uploaded are run and read without a sandbox.
        cheap: whether passwords are stored with a weak hash that is fast to compute. For tests only.
    """

    largest: int = 2048
    quota: int = 20480
    images: int = 10_000
    cells: int = 1000
    waiting: int = 50
    trust: bool = False
    cheap: bool = False


class ServerFolder:
    """The folder of a server.

    The folder contains these files and folders:

    - `server.db`: the database, unless the server uses PostgreSQL;
    - `blobs/`: uploaded files of components, named by their SHA-256 hash;
    - `uploads/`: files that are being uploaded;
    - `tasks/NUMBER/`: files of each task;
    - `secret.key`: key that signs web forms;
    - `signing.key`: key that signs finished tasks.

    Args:
        folder: path of the folder.
        database: address of a PostgreSQL database, "postgresql://...". "" for an SQLite database in the folder.
        settings: limits of the server.
        create: whether to create a new server in the folder if the folder is missing or empty.

    Raises:
        InvalidInput: If the path is not the folder of a server, and cannot become one.
        Unavailable: If the folder cannot be created, or if the database cannot be reached.
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
        """Key that signs web forms, 32 bytes."""
        return self.read_key("secret.key")

    @cached_property
    def hasher(self) -> "PasswordHasher":
        """Hasher of passwords (Argon2id)."""
        from argon2 import PasswordHasher

        return PasswordHasher(time_cost=1, memory_cost=8, parallelism=1) if self.settings.cheap else PasswordHasher()

    @property
    def blobs(self) -> Path:
        """Folder of the uploaded files of components, which are named by their SHA-256 hash."""
        return self.path / "blobs"

    @property
    def uploads(self) -> Path:
        """Folder of files that are being uploaded."""
        return self.path / "uploads"

    def task(self, number: int) -> Path:
        """Return the folder of the task with a given number."""
        return self.path / "tasks" / str(int(number))

    def hide(self, text: str) -> str:
        """Return a text without the path of the server's folder, for messages that users see."""
        return text.replace(f"{self.path}/", "").replace(str(self.path), "")

    def check_hidden(self) -> None:
        """Check that programs that users uploaded cannot read this folder."""
        exposing = None if self.settings.trust else find_exposing(self.path)
        if exposing is not None:
            raise InvalidInput(
                f"users' programs could read the server's folder {self.path}, because they can read "
                f"{exposing}. Move the server's folder, or start with --no-sandbox if you trust all users"
            )

    def read_key(self, name: str) -> bytes:
        """Return a key of the server, 32 random bytes. If the file does not exist, the key is created.

        Raises:
            Unavailable: If the file cannot be read, or if other users of the machine can read it.
        """
        path = self.path / name
        try:
            _make_key(path)
            is_open, key = os.name == "posix" and bool(path.stat().st_mode & 0o077), path.read_bytes()
        except OSError as error:
            raise Unavailable(f"could not read {path} ({error.strerror})") from error
        if is_open:
            raise Unavailable(
                f"{path} is a secret key, but other users of this machine can read it; run chmod 600 on it"
            )
        if len(key) != _KEY_BYTES:
            raise Unavailable(f"expected a key of {_KEY_BYTES} bytes in {path}, got {len(key)}")
        return key


def require_packages() -> None:
    """Raise MissingLibrary if the packages that a server needs (davylamp[server]) are not installed."""
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
    """Create the file of a random key, unless the file exists. If several processes do so, one key is kept."""
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

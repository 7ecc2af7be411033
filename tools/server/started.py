"""A server in its own folder, started like a user starts it, and used over HTTP."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

from sqlalchemy import select

from davylamp.server.accounts.users import add_user, generate_password
from davylamp.server.database.permissions import ALL_SCOPES, Viewer
from davylamp.server.database.records import ComponentRow, TaskRow
from davylamp.server.folder import ServerFolder
from davylamp.server.tasks.seeds import seed_components
from davylamp.server.tasks.submission import TaskRequest, submit


class Started:
    """Server process with its workers.

    Args:
        place: folder that does not exist yet.
        workers: number of workers.
        database: "postgresql://...", or "" for SQLite.
    """

    def __init__(self, place: Path, workers: int, database: str = ""):
        self.folder, self.workers, self.database = ServerFolder(place, database), workers, database
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and wait until it responds."""
        command = [sys.executable, "-m", "davylamp.cli", "serve", str(self.folder.path), "--tasks"]
        command += ["--port", str(self.port), "--workers", str(self.workers)]
        command += ["--database", self.database] if self.database else []
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            with contextlib.suppress(OSError), urlopen(f"{self.address}/healthy", timeout=2):
                return
            time.sleep(0.2)
        raise RuntimeError("the server does not answer")

    def stop(self) -> None:
        """Stop the server as Ctrl-C does."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)

    def fill(self, tasks: int, images: int) -> list[int]:
        """Submit tasks of two users on MNIST models that differ in their seeds, and return their numbers."""
        with self.folder.database.writing() as session:
            seed_components(session)
            users = []
            for name in ("ann", "ben"):
                user = add_user(session, self.folder.hasher, name, generate_password())
                users.append(Viewer(user.id, name, scopes=ALL_SCOPES))
            numbers = {row.entry: row.id for row in session.scalars(select(ComponentRow))}
            settings = {
                "models": [numbers["demo:mnist-lenet5"], numbers["demo:mnist-lenet5-robust"]],
                "data": [numbers["demo:mnist"]],
                "limit": images,
                "attacks": [
                    {"component": numbers[name], "norm": "linf", "epsilon": 0.2}
                    for name in ("foolbox:fgsm", "foolbox:pgd", "torchattacks:pgd")
                ],
            }
            wishes = [TaskRequest({**settings, "seeds": [seed]}, visibility="public") for seed in range(tasks)]
            return [submit(session, self.folder, users[place % 2], wish).id for place, wish in enumerate(wishes)]

    def states(self) -> dict[int, TaskRow]:
        """Return the current rows of the tasks, by number."""
        with self.folder.database.reading() as session:
            return {row.id: row for row in session.scalars(select(TaskRow))}


@contextlib.contextmanager
def started(place: Path, workers: int, database: str = "") -> Iterator[Started]:
    """Run a server until the context ends.

    Args:
        place: folder that does not exist yet.
        workers: number of workers.
        database: "postgresql://..." of a database server on which a new database is created, or "" for SQLite.
    """
    with fresh_database(database) as address:
        server = Started(place, workers, address)
        try:
            yield server
        finally:
            server.stop()
            server.folder.database.close()


@contextlib.contextmanager
def fresh_database(address: str) -> Iterator[str]:
    """Yield the address of an empty PostgreSQL database, which is dropped on exit. Yield "" for "".

    Args:
        address: "postgresql://USER@HOST:PORT/NAME" of a user who may create databases.
    """
    if not address:
        yield ""
        return
    import psycopg

    name = f"davylamp_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type] - of hexadecimal digits
    try:
        yield f"{address.rpartition('/')[0]}/{name}"
    finally:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[arg-type]


def children(process: int) -> list[int]:
    """Return the child processes of a process (Linux only)."""
    place = Path(f"/proc/{process}/task")
    numbers = []
    for path in place.glob("*/children"):
        with contextlib.suppress(OSError):
            numbers += [int(word) for word in path.read_text().split()]
    return numbers


def end(process: int) -> None:
    """Kill a process immediately."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)

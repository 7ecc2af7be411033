"""Connects to the database of a server: an SQLite file in the server's folder, or a PostgreSQL database."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from sqlalchemy import create_engine, event, insert, inspect, select, update
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.orm import Session

from ...errors import InvalidInput, MissingLibrary, StoreMismatch, Unavailable
from .records import VERSION, FactRow, ServerTable

_BUSY_MILLISECONDS = 10_000
_OLDEST = 3  # oldest version that can be migrated
_STEPS = Path(__file__).parent / "migrations"


class Database:
    """The database of a server. Missing tables are created, and tables of an older version are migrated.

    Args:
        address: address of the database: "sqlite:////path/to/server.db" or "postgresql://USER:PASSWORD@HOST/NAME".

    Raises:
        InvalidInput: If the address has a different form.
        Unavailable: If the database cannot be reached.
        StoreMismatch: If the tables have a version that cannot be migrated to the current version.
    """

    def __init__(self, address: str):
        self.address = address
        try:
            url = make_url(address)
            if url.drivername == "postgresql":
                url = url.set(drivername="postgresql+psycopg")
            if url.drivername not in ("sqlite", "postgresql+psycopg"):
                raise InvalidInput(f"expected sqlite:///FILE or postgresql://..., got {url.drivername}")
            self.is_sqlite = url.drivername == "sqlite"
            self.engine = create_engine(url, pool_pre_ping=not self.is_sqlite, pool_size=20, max_overflow=40)
        except ArgumentError as error:
            raise InvalidInput(
                "expected the address of the database as sqlite:///FILE or postgresql://..., got an invalid address"
            ) from error
        except ImportError as error:
            raise MissingLibrary(error.name or "psycopg", "server") from error
        if self.is_sqlite:
            event.listen(self.engine, "connect", _prepare_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        self._closed = Event()
        event.listen(self.engine, "checkin", partial(_close_after, self._closed))
        weakref.finalize(self, _close, self.engine, self._closed)  # if not closed: Python 3.13 warns of open files
        self._writing = self.engine.execution_options(writes=True)
        try:
            self._make_tables()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open a session for reading. Objects that were read stay usable after the session is closed."""
        with Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Open a session for writing. Changes are committed at the end of the block, or undone if an error occurs."""
        with Session(self._writing, expire_on_commit=False) as session, session.begin():
            yield session

    def close(self) -> None:
        """Close all connections to the database.

        If a different thread still uses a connection, this connection is closed when the session of that thread ends.
        """
        _close(self.engine, self._closed)

    def _make_tables(self) -> None:
        try:
            with self._writing.begin() as connection:
                if not self.is_sqlite:  # serialises servers that start simultaneously
                    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7382910)")
                if not inspect(connection).has_table(FactRow.__tablename__):
                    ServerTable.metadata.create_all(connection)
                    connection.execute(
                        insert(FactRow), [{"name": "version", "value": VERSION}, {"name": "seen", "value": 0}]
                    )
                stated = connection.scalar(select(FactRow.value).where(FactRow.name == "version"))
                if stated != VERSION:
                    _migrate(connection, stated)
        except (DBAPIError, SQLAlchemyError) as error:
            reason = str(error).splitlines()[0][:300]
            raise Unavailable(f"could not open the database, or create its tables: {reason}") from error


def _migrate(connection: Connection, stated: int | None) -> None:
    from alembic import command
    from alembic.config import Config

    if stated not in range(_OLDEST, VERSION):
        raise StoreMismatch(
            f"expected a database of version {_OLDEST} to {VERSION}, got version {stated}; use the davylamp version "
            "that created the database, or a new database"
        )
    steps = Config(attributes={"connection": connection})
    steps.set_main_option("script_location", str(_STEPS))
    command.stamp(steps, str(stated))
    command.upgrade(steps, "head")
    connection.exec_driver_sql("DROP TABLE alembic_version")  # `facts` has the version
    connection.execute(update(FactRow).where(FactRow.name == "version").values(value=VERSION))


def _close(engine: Engine, closed: Event) -> None:
    closed.set()
    engine.dispose()


def _close_after(closed: Event, _: Any, record: Any) -> None:
    """Close a connection that a thread gives back after the database was closed.

    Without this, the connection would stay open until garbage collection.
    """
    if closed.is_set():
        record.close()


def sqlite_address(path: Path) -> str:
    """Return the address of a database in an SQLite file, for `Database`."""
    return f"sqlite:///{path.absolute()}"


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # `_begin_sqlite` begins
    for line in ("journal_mode=WAL", f"busy_timeout={_BUSY_MILLISECONDS}", "foreign_keys=ON", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {line}")


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads and then writes would fail if another wrote in the meantime, so it locks first.
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

"""A server over years: an older database is brought up to date, a backup is the server again, hours are limited."""

import shutil
import sqlite3
import stat
import tarfile
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import select, text

from davylamp.errors import InvalidInput, StoreMismatch, Unavailable
from davylamp.server.accounts.users import SYSTEM, find_user, set_hours
from davylamp.server.components.blobs import blob_path
from davylamp.server.database.connecting import Database, sqlite_address
from davylamp.server.database.permissions import VISITOR, cells_for, tasks_for
from davylamp.server.database.records import (
    VERSION,
    CellRow,
    ComponentRow,
    FactRow,
    ServerTable,
    TaskRow,
    UserRow,
)
from davylamp.server.folder import ServerFolder
from davylamp.server.tasks.backup import back_up, restore
from davylamp.server.tasks.leases import lease_task, list_spent, renew_lease
from davylamp.server.tasks.seeds import seed_components, seed_task
from davylamp.server.tasks.submission import TaskRequest, submit
from davylamp.server.tasks.work import TaskWorker, WorkerSettings
from davylamp.tools.server.started import fresh_database

from .conftest import ATTACK, POSTGRES


def differences(database):
    """Between the tables that there are and those of the records, as Alembic finds them."""
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return compare_metadata(context, ServerTable.metadata)


def rows_of(database):
    """Every row of every table."""
    with database.engine.connect() as connection:
        return {
            table.name: sorted(map(repr, connection.execute(select(table)).mappings()))
            for table in ServerTable.metadata.sorted_tables
        }


def wish(embedded, **settings):
    given = {
        "models": [embedded["demo:mnist-lenet5"]],
        "attacks": [{"component": embedded["foolbox:fgsm"], "norm": "linf", "epsilon": 0.2}],
        "data": [embedded["demo:mnist"]],
        "limit": 2,
    }
    return TaskRequest({**given, **settings})


def test_a_database_of_version_3_is_brought_up_to_date_with_all_that_it_has(tmp_path):
    """`version_3.sql` was dumped from a database that the davylamp of that version made."""
    connection = sqlite3.connect(tmp_path / "server.db")
    connection.executescript(Path(__file__).with_name("version_3.sql").read_text())
    connection.close()
    for _ in range(2):  # and the second time nothing is left to do
        database = Database(sqlite_address(tmp_path / "server.db"))
        assert differences(database) == []
        with database.reading() as session:
            assert session.get_one(FactRow, "version").value == VERSION
            ada = find_user(session, "ada")
            assert (ada.role, ada.hours) == ("admin", None)
            cell = session.scalars(select(CellRow)).one()
            assert (cell.fooled, cell.attacked, cell.epsilon) == (7, 19, 0.1)
            assert session.scalars(select(TaskRow.title)).all() == ["before"]
        database.close()


def test_a_step_that_fails_leaves_the_database_as_it_was(folder, monkeypatch):
    def fail(*_):
        raise RuntimeError("no")

    with folder.database.writing() as session:
        for column in ("users.hours", "tasks.score", "tasks.score_low", "tasks.score_high", "tasks.effects"):
            table, _, name = column.partition(".")
            session.execute(text(f"ALTER TABLE {table} DROP COLUMN {name}"))
        session.get_one(FactRow, "version").value = 3
    monkeypatch.setattr("alembic.op.add_column", fail)
    with pytest.raises(RuntimeError):
        Database(folder.database.address)
    monkeypatch.undo()
    opened = Database(folder.database.address)
    assert differences(opened) == []
    opened.close()


def test_a_new_database_has_the_tables_of_the_records(folder):
    assert differences(folder.database) == []


def test_a_backup_is_the_server_again(folder, users, embedded, add, in_process, tmp_path):
    number = add(users["alice"], "attack", "code", "sign_step", "a.py", ATTACK.encode(), name="mine")
    with folder.database.writing() as session:
        submit(session, folder, users["alice"], wish(embedded))
    assert TaskWorker(folder, WorkerSettings(trust=True)).run_one()
    key = folder.read_key("signing.key")
    file = back_up(folder, tmp_path / "lab.tar.gz")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.glob(".backup-*")) == []
    again = restore(file, tmp_path / "again")
    assert rows_of(again.database) == rows_of(folder.database)
    assert again.read_key("signing.key") == key
    with again.database.reading() as session:
        component = session.get_one(ComponentRow, number)
        assert blob_path(again.blobs, component.blob).read_bytes() == ATTACK.encode()
        cell = session.scalars(select(CellRow)).one()
    assert list((again.task(cell.task_id) / "results").rglob(f"*{cell.key}*.parquet"))
    with again.database.writing() as session:  # numbers of new rows go on behind the old ones
        assert submit(session, again, users["alice"], wish(embedded, seeds=[1])).id > cell.task_id
    again.database.close()


def test_a_backup_moves_a_server_to_the_other_kind_of_database(folder, users, tmp_path):
    """From SQLite to PostgreSQL where there is one, from PostgreSQL to SQLite in any case."""
    file = back_up(folder, tmp_path / "lab.tar.gz")
    address = POSTGRES if folder.database.is_sqlite else ""
    with fresh_database(address) as other:
        again = restore(file, tmp_path / "again", other)
        assert rows_of(again.database) == rows_of(folder.database)
        with again.database.writing() as session:
            session.add(UserRow(name="late", created=0.0))
        again.database.close()
        if other:
            with pytest.raises(InvalidInput, match="has users"):
                restore(file, tmp_path / "third", other)


def test_what_is_no_backup_or_damaged_is_refused(folder, users, add, tmp_path):
    add(users["alice"], "attack", "code", "sign_step", "a.py", ATTACK.encode(), name="mine")
    file = back_up(folder, tmp_path / "lab.tar.gz")
    with pytest.raises(InvalidInput, match="outside"):
        back_up(folder, folder.path / "lab.tar.gz")
    with pytest.raises(InvalidInput, match="empty folder"):
        restore(file, folder.path)
    with pytest.raises(Unavailable, match="does not exist"):
        restore(tmp_path / "none.tar.gz", tmp_path / "new")
    (tmp_path / "cut.tar.gz").write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    (tmp_path / "text.tar.gz").write_text("hello")
    for name in ("cut.tar.gz", "text.tar.gz"):
        with pytest.raises((InvalidInput, Unavailable)):
            restore(tmp_path / name, tmp_path / "new")
    with tarfile.open(file) as archive:
        archive.extractall(tmp_path / "inside", filter="data")
    (blob,) = (path for path in (tmp_path / "inside/blobs").rglob("*") if path.is_file())
    blob.chmod(0o600)
    blob.write_bytes(b"other")
    with tarfile.open(tmp_path / "changed.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "inside", ".")
    with pytest.raises(Unavailable, match="the backup is damaged"):
        restore(tmp_path / "changed.tar.gz", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert list(tmp_path.glob(".restore-*")) == []


def test_a_backup_of_a_newer_davylamp_is_refused(folder, tmp_path):
    with folder.database.writing() as session:
        session.get_one(FactRow, "version").value = VERSION + 1
    file = back_up(folder, tmp_path / "lab.tar.gz")
    with pytest.raises(StoreMismatch):
        restore(file, tmp_path / "new")


def test_a_new_server_has_a_task_and_its_board(folder, in_process):
    with folder.database.writing() as session:
        assert seed_task(session, folder)
        assert not seed_task(session, folder)
    assert TaskWorker(folder, WorkerSettings()).run_one()
    with folder.database.reading() as session:
        task = session.scalars(tasks_for(VISITOR)).one()
        assert task.state == "done", task.message
        cells = session.scalars(cells_for(VISITOR)).all()
        assert len(cells) == 2 * 3
        entries = {row.id: row.entry for row in session.scalars(select(ComponentRow))}
    fooled = {(entries[cell.model_id], entries[cell.attack_id]): cell.fooled / cell.attacked for cell in cells}
    assert all(
        fooled["demo:mnist-lenet5-robust", attack] < fooled["demo:mnist-lenet5", attack]
        for attack in ("foolbox:fgsm", "foolbox:pgd", "torchattacks:pgd")
    )


def test_nothing_is_seeded_where_something_is_missing(folder, users, embedded):
    with folder.database.writing() as session:
        session.delete(session.get_one(ComponentRow, embedded["demo:mnist"]))
        assert not seed_task(session, folder)
        assert seed_components(session) == 1
        submit(session, folder, users["alice"], wish(embedded | {"demo:mnist": _number(session, "demo:mnist")}))
        assert not seed_task(session, folder)


def _number(session, entry):
    return session.scalars(select(ComponentRow.id).where(ComponentRow.entry == entry)).one()


def test_tasks_wait_once_the_hours_of_their_owner_are_used_up(folder, users, embedded):
    with folder.database.writing() as session:
        first, second = (submit(session, folder, users["alice"], wish(embedded, seeds=[seed])).id for seed in (0, 1))
        other = submit(session, folder, users["bob"], wish(embedded, seeds=[2])).id
        set_hours(find_user(session, "alice"), 0.5)
    lease = lease_task(folder.database)
    assert lease.task == first
    assert renew_lease(folder.database, lease, seconds=1799.0).over == ""
    assert "0.5 of 0.5 hours" in renew_lease(folder.database, lease, seconds=1800.0).over
    assert lease_task(folder.database).task == other
    assert lease_task(folder.database) is None
    with folder.database.writing() as session:
        assert list_spent(session)[users["alice"].id] == 1800
        set_hours(find_user(session, "alice"), 2)
    assert lease_task(folder.database).task == second
    with folder.database.writing() as session, pytest.raises(InvalidInput, match="hours"):
        set_hours(find_user(session, "alice"), -1)


def test_a_task_that_uses_its_owners_hours_up_waits_and_goes_on_later(folder, users, embedded):
    with folder.database.writing() as session:
        number = submit(session, folder, users["alice"], wish(embedded)).id
        set_hours(find_user(session, "alice"), 1e-9)
    assert TaskWorker(folder, WorkerSettings(trust=True)).run_one()
    with folder.database.writing() as session:
        task = session.get_one(TaskRow, number)
        assert (task.state, task.lease) == ("waiting", "")
        assert task.message.startswith("waits:")
        assert task.seconds > 0
        set_hours(find_user(session, "alice"), None)
    assert TaskWorker(folder, WorkerSettings(trust=True)).run_one()
    with folder.database.reading() as session:
        assert session.get_one(TaskRow, number).state == "done"


def test_a_mistyped_folder_is_no_new_server(run, tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "typo", tmp_path / "empty"):
        lines = [
            ("server", "backup", folder, "-o", tmp_path / "x.tar.gz"),
            ("server", "users", "list", folder),
            ("server", "worker", folder),
        ]
        for line in (*lines, ("server", "users", "limit", "ada", folder)):
            code, _, error = run(*line)
            assert code == 1
            assert str(folder) in error
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    assert list((tmp_path / "empty").iterdir()) == []


def test_the_commands(run, tmp_path):
    lab = tmp_path / "lab"
    assert run("server", "users", "add", "ada", lab, "--hours", "3")[0] == 0
    assert "3" in run("server", "users", "list", lab)[1]
    assert run("server", "users", "limit", "ada", lab)[0] == 0
    assert run("server", "users", "lock", "ada", lab, "--hours", "3")[0] == 1
    assert run("server", "backup", lab, "-o", tmp_path / "kept.tar.gz")[0] == 0
    shutil.rmtree(lab)
    assert run("server", "restore", tmp_path / "kept.tar.gz", lab)[0] == 0
    with ServerFolder(lab).database.reading() as session:
        assert find_user(session, "ada").hours is None
        assert session.scalars(select(UserRow.name)).all().count(SYSTEM) == 0

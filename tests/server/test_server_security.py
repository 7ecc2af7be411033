"""What a hostile client or a bad moment may not do: shown by the server itself, at its address."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select, update
from sqlalchemy.exc import OperationalError

from davylamp.report.page import build
from davylamp.server.database import connecting
from davylamp.server.database.records import AuditRow, TaskRow
from davylamp.server.tasks.submitting import TaskWish, submit
from davylamp.server.tasks.work import TaskWorker, Working
from davylamp.server.web.application import make_application


def status_of(url, **headers):
    """The status of an answer, and its text."""
    try:
        with urlopen(Request(url, headers=headers), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture
def unfinished(folder, users, embedded, in_process):
    """The number of a public task that has cells, and is not done."""
    models = [embedded["demo:mnist-lenet5"], embedded["demo:mnist-lenet5-robust"]]
    attacks = [{"component": embedded["foolbox:fgsm"], "epsilon": each, "norm": "linf"} for each in (0.1, 0.3)]
    settings = {"models": models, "data": [embedded["demo:mnist"]], "attacks": attacks, "limit": 8}
    with folder.database.writing() as session:
        number = submit(session, folder, users["alice"], TaskWish(settings, visibility="public")).id
    assert TaskWorker(folder, Working(trust=True)).run_one()
    with folder.database.writing() as session:
        session.execute(update(TaskRow).values(state="running"))
    return number


def test_readers_of_an_unfinished_report_at_once_all_get_it(address, folder, unfinished, monkeypatch):
    real, built = build.list_sections, []

    def count(*given, **more):
        built.append(given)
        return real(*given, **more)

    monkeypatch.setattr(build, "list_sections", count)
    with ThreadPoolExecutor(6) as pool:
        answers = [*pool.map(status_of, [f"{address}/tasks/{unfinished}/report"] * 6)]
    assert [status for status, _ in answers] == [200] * 6
    assert len({text for _, text in answers}) == 1
    assert len(built) == 1
    assert str(folder.path) not in answers[0][1].replace("<wbr>", "")
    assert f"task {unfinished}" in answers[0][1]


def sign_in(address, name, password, forwarded):
    """The status of signing in by the form, as a client that claims to come from elsewhere."""
    client = urlopen(Request(f"{address}/sign-in", headers={"x-forwarded-for": forwarded}), timeout=10)
    with client as page:
        cookie, mark = (
            page.headers["set-cookie"].partition(";")[0],
            page.read().decode().split('name="mark" value="')[1],
        )
    body = urlencode({"mark": mark.partition('"')[0], "name": name, "password": password}).encode()
    headers = {"x-forwarded-for": forwarded, "cookie": cookie}
    try:
        with urlopen(Request(f"{address}/sign-in", body, headers), timeout=10) as answer:
            return answer.status
    except HTTPError as error:
        return error.code


def addresses_of(folder):
    with folder.database.reading() as session:
        return {*session.scalars(select(AuditRow.address).where(AuditRow.action == "sign-in failed"))}


def test_forged_addresses_open_no_way_around_the_limit_of_attempts(address, folder, users):
    statuses = [sign_in(address, "alice", "wrong", f"192.0.2.{n}") for n in range(7)]
    assert statuses == [401] * 5 + [429] * 2
    assert addresses_of(folder) == {"127.0.0.1"}


@pytest.mark.parametrize("behind_proxy", [True])
def test_behind_a_proxy_its_word_counts(address, folder, users):
    assert sign_in(address, "alice", "wrong", "192.0.2.7") == 401
    assert addresses_of(folder) == {"192.0.2.7"}


@pytest.fixture
def impatient(monkeypatch):
    """A database that is waited for a tenth of a second."""
    monkeypatch.setattr(connecting, "_BUSY_MILLISECONDS", 100)


@pytest.mark.usefixtures("impatient", "users")
def test_a_database_that_somebody_holds_is_unavailable_for_the_moment(folder, address):
    if not folder.database.is_sqlite:
        pytest.skip("PostgreSQL locks rows, not the database")
    name = "alice"
    with sqlite3.connect(folder.path / "server.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        assert sign_in(address, name, "wrong", "192.0.2.1") == 503
        other.execute("ROLLBACK")
    other.close()
    assert sign_in(address, name, "wrong", "192.0.2.1") == 401


def test_a_database_that_is_away_is_unavailable_in_front_of_the_application_too(folder, monkeypatch):
    def away():
        raise OperationalError("SELECT 1", {}, Exception("the server closed the connection"))

    client = TestClient(make_application(folder), base_url="http://localhost", raise_server_exceptions=False)
    monkeypatch.setattr(folder.database, "reading", away)
    headers = {"authorization": "Bearer x"}
    assert client.post("/api/v1/components", headers=headers, data={"kind": "data"}).status_code == 503
    assert client.get("/api/v1/components").status_code == 503

"""A server that listens: huge headers, slow and silent clients, half requests; it answers others all the while."""

import hashlib
import io
import json
import os
import socket
import sqlite3
import time
from urllib.request import urlopen

import numpy as np
import pytest
from sqlalchemy import text

from davylamp.adapters import http_limits
from davylamp.server.accounts.audit import Origin
from davylamp.server.accounts.sessions import make_token
from davylamp.server.accounts.users import sign_in
from davylamp.server.client.http_client import ServerClient
from davylamp.server.folder import ServerFolder
from davylamp.server.tasks.work import TaskWorker, WorkerSettings

from .conftest import ATTACK


@pytest.fixture
def short(monkeypatch):
    """Patience of a fraction of a second."""
    monkeypatch.setattr(http_limits, "_HEADER_SECONDS", 0.3)
    monkeypatch.setattr(http_limits, "_CHUNK_SECONDS", 0.3)
    monkeypatch.setattr(http_limits, "_STALLED_SECONDS", 0.3)


def connect(address):
    host, _, port = address.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=5)


def answer(connection):
    """All that comes until the server hangs up."""
    received = b""
    try:
        while piece := connection.recv(1 << 16):
            received += piece
    except (ConnectionResetError, TimeoutError):
        pass
    return received


def test_clients_that_are_huge_or_slow_are_sent_away_and_others_are_served(short, address):
    begins = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    posts = b"POST /sign-in HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/x-www-form-urlencoded\r\n"
    with connect(address) as silent, connect(address) as half, connect(address) as huge, connect(address) as slow:
        start = time.monotonic()
        half.sendall(begins + b"x-slow: ")
        slow.sendall(posts + b"content-length: 1000\r\n\r\nname=a")
        huge.sendall(begins + b"x-huge: " + b"x" * 40_000 + b"\r\n\r\n")
        assert urlopen(f"{address}/healthy", timeout=5).read() == b"ok"
        assert answer(huge)[:12] in (b"HTTP/1.1 431", b"HTTP/1.1 400")
        assert answer(silent) == b""
        assert answer(half) == b""
        assert answer(slow)[:12] == b"HTTP/1.1 408"
        assert time.monotonic() - start < 4
    with connect(address) as foreign:
        foreign.sendall(b"GET / HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n")
        assert answer(foreign)[:12] == b"HTTP/1.1 403"
    with connect(address) as upload:
        head = posts.replace(b"/sign-in", b"/components/new")
        upload.sendall(head + b"content-length: 99999999999\r\n\r\n")
        assert answer(upload)[:12] == b"HTTP/1.1 413"


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: ", b"drops"])
def test_many_silent_clients_keep_nobody_out(address, sent, monkeypatch):
    monkeypatch.setattr(http_limits, "ROOM", 20)
    form = b"content-type: application/x-www-form-urlencoded\r\ncontent-length: 1000\r\n\r\nx"
    sent = b"POST /sign-in HTTP/1.1\r\nhost: 127.0.0.1\r\n" + form if sent == b"drops" else sent
    many = []
    try:
        for _ in range(60):  # Uvicorn alone would answer 503 beyond its limit, for as long as they stay
            many.append(connect(address))
            many[-1].sendall(sent)
        assert urlopen(f"{address}/healthy", timeout=5).read() == b"ok"
        gone = 0
        for each in many:
            each.settimeout(0.01)
            try:
                gone += each.recv(1) == b""
            except ConnectionResetError:
                gone += 1
            except TimeoutError:
                pass
        assert 35 <= gone <= 45  # the oldest forty or so
    finally:
        for each in many:
            each.close()


def test_a_connection_that_was_answered_once_is_no_place_to_stay(short, address):
    with connect(address) as connection:
        for _ in range(2):
            connection.sendall(b"GET /healthy HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            received = b""
            while not received.endswith(b"ok"):
                received += connection.recv(1 << 16)
        connection.sendall(b"GET /healthy HTTP/1.1\r\nhost")
        start = time.monotonic()
        assert answer(connection) == b""
        assert time.monotonic() - start < 4  # Uvicorn itself waits for ever


def test_a_body_in_drops_ends(short, address, monkeypatch):
    monkeypatch.setattr(http_limits, "_BODY_SECONDS", 0.4)
    with connect(address) as drops:
        form = b"content-type: application/x-www-form-urlencoded\r\ncontent-length: 1000\r\n\r\n"
        drops.sendall(b"POST /sign-in HTTP/1.1\r\nhost: 127.0.0.1\r\n" + form)
        for _ in range(100):
            try:
                drops.sendall(b"x")
            except OSError:
                break
            time.sleep(0.1)
        else:
            raise AssertionError("it took every drop")


def test_who_takes_nothing_of_an_answer_is_hung_up_on_and_who_takes_it_slowly_is_not(
    short, address, folder, users, add
):
    content = os.urandom(7 << 20)  # more than the system keeps for a connection
    number = add(users["alice"], "data", "npz", "", "d.npz", as_npz(content), visibility="public")
    asked = f"GET /components/{number}/file HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n".encode()
    with connect(address) as deaf, connect(address) as slow:
        deaf.sendall(asked)
        slow.sendall(asked)
        count = 0
        while piece := slow.recv(1 << 19):
            count += len(piece)
            time.sleep(0.05)
        assert count > len(content)
        time.sleep(0.6)
        assert len(answer(deaf)) < len(content)


def as_npz(content):
    buffer = io.BytesIO()
    np.savez(buffer, inputs=np.frombuffer(content, np.uint8))
    return buffer.getvalue()


def test_only_who_is_signed_in_sends_a_large_file_and_two_at_once(address, token):
    head = b"POST /api/v1/components HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 5000000\r\n"
    head += b"content-type: multipart/form-data; boundary=x\r\n"
    mine = head + f"authorization: Bearer {token}\r\n\r\n--x".encode()
    with connect(address) as visitor, connect(address) as one, connect(address) as two, connect(address) as three:
        visitor.sendall(head + b"\r\n--x")
        assert answer(visitor)[:12] == b"HTTP/1.1 413"
        one.sendall(mine)
        two.sendall(mine)
        time.sleep(0.5)
        three.sendall(mine)
        assert answer(three)[:12] == b"HTTP/1.1 429"


@pytest.fixture
def token(folder, users):
    with folder.database.writing() as session:
        return make_token(session, users["alice"], "verbs", frozenset(["read", "submit"]))


@pytest.mark.usefixtures("in_process")
def test_the_verbs_of_the_command_line(address, folder, token, embedded, tmp_path, monkeypatch, run):
    monkeypatch.setenv("DAVYLAMP_SERVER", address)
    (tmp_path / "step.py").write_text(ATTACK)
    code, _, err = run("server", "submit", "attack", "step.py", "--entry", "sign_step")
    assert (code, "scope submit" in err) == (1, True)
    monkeypatch.setenv("DAVYLAMP_TOKEN", token)
    code, out, err = run("server", "submit", "attack", "step.py", "--entry", "sign_step", "--json")
    assert code == 0, err
    number = json.loads(out)["id"]
    code, out, err = run(
        "server", "submit", "attack", "--entry", "foolbox:pgd", "--name", "named", "--public", "--json"
    )
    assert (code, json.loads(out or "{}").get("visibility")) == (0, "public"), err  # a form without a file
    settings = {"models": [embedded["demo:mnist-lenet5"]], "data": [embedded["demo:mnist"]], "limit": 3}
    lines = [f"{name} = {value}" for name, value in settings.items()]
    lines += ["[[attacks]]", f"component = {number}", 'epsilon = "0.2"']
    (tmp_path / "task.toml").write_text("\n".join(lines))
    code, out, err = run("server", "submit", "task", "task.toml", "--name", "mine", "--public")
    assert (code, out.split()[:2]) == (0, ["task", "1:"]), err
    TaskWorker(folder, WorkerSettings(trust=True)).run_one()
    code, out, _ = run("server", "tasks", "--json")
    assert [(task["id"], task["state"], task["title"]) for task in json.loads(out)] == [(1, "done", "mine")]
    assert "done" in run("server", "tasks", "1")[1]
    code, out, _ = run("server", "fetch", "1")
    assert (code, ServerClient().ask("GET", "/me")["public_key"] in out) == (0, True)
    assert run("server", "fetch", f"component:{number}", "-o", "again.py")[0] == 0
    assert (tmp_path / "again.py").read_text() == ATTACK
    (cell,) = ServerClient().ask("GET", "/cells")
    assert run("server", "fetch", f"cell:{cell['id']}")[0] == 0
    fetched = (tmp_path / f"cell-{cell['id']}.parquet").read_bytes()
    assert hashlib.sha256(fetched).hexdigest() == ServerClient().ask("GET", f"/cells/{cell['id']}")["sha256"]
    assert run("server", "fetch", "user:1")[0] == 1
    key = ServerClient().ask("GET", "/me")["public_key"]
    assert run("server", "verify", "task-1.zip", "--key", key)[0] == 0
    code, out, _ = run("server", "verify", "task-1.zip")
    assert (code, key in out) == (2, True)  # whole, and signed by whoever made that key
    code, out, _ = run("server", "verify", "task-1.zip", "--json")
    assert (code, json.loads(out)["signed_by"]) == (2, key)
    code, _, err = run("server", "verify", "task-1.zip", "--key", "0" * 64)
    assert (code, "to be signed by" in err) == (1, True)
    monkeypatch.setenv("DAVYLAMP_SERVER", "http://lab.example")
    code, _, err = run("server", "tasks")
    assert (code, "plain HTTP" in err) == (1, True)
    monkeypatch.setenv("DAVYLAMP_SERVER", "")
    assert run("server", "tasks")[0] == 1


def test_users_are_added_from_the_command_line_with_a_password_that_is_shown_once(tmp_path, run):
    place = str(tmp_path / "lab")
    code, out, err = run("server", "users", "add", "root", place, "--admin")
    assert code == 0, err
    password = out.split()[-1]
    opened = ServerFolder(place)
    assert sign_in(opened.database, opened.hasher, Origin("root"), password).role == "admin"
    assert run("server", "users", "lock", "root", place)[0] == 0
    assert sign_in(opened.database, opened.hasher, Origin("root"), password) is None
    assert "root" in run("server", "users", "list", place)[1]
    assert run("server", "users", "add", "root", place)[0] == 1
    assert run("server", "users", "remove", "root", place)[0] == 1
    opened.database.close()


def test_a_connection_that_is_used_while_the_database_is_closed_is_closed_after_it(folder):
    """As that of a board which is being made while the server ends: its garbage was open."""
    with folder.database.reading() as session:
        before = session.connection().connection.driver_connection
    with folder.database.reading() as session:
        assert session.connection().connection.driver_connection is before  # kept for the next
        folder.database.close()
        assert session.scalar(text("SELECT 1")) == 1
    if folder.database.is_sqlite:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            before.execute("SELECT 1")
    else:
        assert before.closed

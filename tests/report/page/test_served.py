"""The served page: what it answers, to whom, and that it changes nothing."""

import http.client
import socket
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest

from davylamp.adapters import http_limits
from davylamp.adapters.http_names import AllowedHosts, listen
from davylamp.adapters.http_server import HttpAnswer, HttpServer
from davylamp.engine.attack_run import AttackRun
from davylamp.engine.store.plan_records import write_plan
from davylamp.errors import InvalidInput, Unavailable
from davylamp.report.page import served
from davylamp.report.page.served import ServedReport
from davylamp.tools.speed.synthetic_results import write_results


@pytest.fixture
def store(tmp_path):
    return write_results(
        tmp_path / "run", models=("m",), attacks=("art:pgd", "foolbox:pgd"), images=6, classes=4, side=32
    )


@pytest.fixture
def ask(store, monkeypatch):
    """Ask the application; the report itself is tested elsewhere."""
    from davylamp.report.parts.blocks import Section, Text

    made = []

    def sections(folder):
        made.append(folder)
        return [Section("verdict", "Verdict", "", (Text("the report"),))]

    monkeypatch.setattr(served, "list_sections", sections)
    application = ServedReport(store.folder)

    def run(path="/", method="GET"):
        answer = application.answer(method, path)
        run.headers.update(answer.headers)
        return answer.status, answer.body.decode()

    run.made, run.headers = made, {}
    return run


def test_it_answers_reads_only_and_this_machine_only(ask):
    assert ask()[0] == 200
    assert ask("/progress")[0] == 404
    assert ask("/nothing")[0] == 404
    assert ask("/../../etc/passwd")[0] == 404
    for method in ("POST", "PUT", "DELETE"):
        assert ask(method=method)[0] == 405
    assert ask(method="HEAD")[0] == 200


def test_it_shows_what_is_under_way_and_why_cells_failed(ask, store):
    import pyarrow as pa

    _, record = next(iter(store.read_all("cells")))
    spec = {**record.meta["spec"], "seed": 1}
    other = AttackRun.from_spec(spec)
    meta = {**record.meta, "key": other.key, "spec": other.spec}
    store.write("cells", other.key, pa.table({}), {**meta, "status": "failed", "reason": "<b>out of memory</b>"})
    third = AttackRun.from_spec({**spec, "seed": 2, "shard_size": 2})
    meta = {**record.meta, "key": third.key, "spec": third.spec}
    store.write("parts", f"{third.key}-1", record.table.slice(2, 2), meta)
    write_plan(store, [third, AttackRun.from_spec({**spec, "seed": 3}), other])
    status, text = ask()
    assert status == 200
    assert "2 done, 1 failed, 2 waiting" in text
    assert "&lt;b&gt;out of memory&lt;/b&gt;" in text


def test_a_run_that_is_alive_is_told_from_one_that_is_dead(ask, store):
    _, record = next(iter(store.read_all("cells")))
    waiting = AttackRun.from_spec({**record.meta["spec"], "seed": 5})
    write_plan(store, [waiting])
    (store.folder / "locks").mkdir(exist_ok=True)
    (store.folder / "locks" / f"{waiting.key}-0.lock").touch()  # what a killed run leaves
    dead = ask()[1]
    assert "2 done, 1 waiting" in dead
    assert "No process on this machine is working" in dead
    lock = store.claim(f"{waiting.key}-0")
    alive = ask()[1]
    store.release(f"{waiting.key}-0", lock)
    assert "2 done, 1 running" in alive
    assert "No process" not in alive


def test_the_report_is_made_again_on_reload_where_there_is_something_new(ask, store):
    assert "the report" in ask()[1]
    ask()
    assert len(ask.made) == 1
    _, record = next(iter(store.read_all("cells")))
    other = AttackRun.from_spec({**record.meta["spec"], "seed": 3})
    store.write("cells", other.key, record.table, {**record.meta, "key": other.key, "spec": other.spec})
    assert "3 done" in ask()[1]
    assert len(ask.made) == 2


def test_damaged_files_are_named(ask, store):
    key, _ = next(iter(store.read_all("cells")))
    path = store.path("cells", key)
    path.write_bytes(path.read_bytes()[:50])
    status, text = ask()
    assert status == 200
    assert "1 done" in text
    assert path.name in text


def test_it_writes_nothing(ask, store):
    before = {path: path.stat().st_mtime_ns for path in store.folder.rglob("*")}
    ask()
    assert {path: path.stat().st_mtime_ns for path in store.folder.rglob("*")} == before


def test_a_run_that_has_finished_nothing_yet(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "davylamp.json").write_text('{"format": 1}')
    body = ServedReport(tmp_path / "new").answer("GET", "/").body
    assert b"No run is finished" in body
    assert b"Nothing to show yet" in body


@contextmanager
def running(answer=lambda *_: HttpAnswer(200, {"X-Frame-Options": "DENY"}, b"ok"), **limits):
    """A server that answers "ok", or something else, at (host, port)."""
    server = HttpServer("127.0.0.1", 0, answer, **limits)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield "127.0.0.1", server.port
    finally:
        server.stop()
        thread.join()


def test_a_request_names_no_host_or_a_strange_one():
    def status(host):
        with socket.create_connection(address, timeout=20) as asking:
            line = b"" if host is None else f"Host: {host}\r\n".encode()
            asking.sendall(b"GET / HTTP/1.1\r\n" + line + b"Connection: close\r\n\r\n")
            return int(asking.recv(100).split()[1])

    with running() as address:
        assert status("evil.example:8000") == 403
        for host in (None, "", "a b", "evil:127.0.0.1", "localhost:8000:1", "[::1", "@localhost", "localhost:port"):
            assert status(host) == 400
        for host in ("LOCALHOST:1", "localhost.", "[::1]:8000", "127.0.0.1"):
            assert status(host) == 200


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"POST / HTTP/1.1\r\nContent-Length: 11", 413),
        (b"POST / HTTP/1.1\r\nContent-Length: 00000000000000000000000000000011", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999999999", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 0\r\nContent-Encoding: gzip", 415),
        (b"GET / HTTP/1.1\r\nHost: localhost", 400),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1", 431),
        (b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 20_000, 431),
        (b"DELETE / HTTP/1.1", 200),
    ],
)
def test_requests_have_limits(request_line, status):
    with running(largest=10) as address, socket.create_connection(address, timeout=20) as asking:
        asking.sendall(request_line + b"\r\nHost: localhost\r\n\r\n")
        assert int(asking.recv(100).split()[1]) == status


def test_a_body_in_chunks_has_the_same_limit():
    with running(largest=10) as address, socket.create_connection(address, timeout=20) as asking:
        asking.sendall(
            b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n"
        )
        assert int(asking.recv(100).split()[1]) == 413


def test_a_folder_that_is_gone_is_said_and_the_server_goes_on(store):
    def status():
        connection.request("GET", "/")
        reply = connection.getresponse()
        return reply.status, str(store.folder) in reply.read().decode()

    moved = store.folder.with_name("moved")
    with running(ServedReport(store.folder).answer) as address:
        connection = http.client.HTTPConnection(*address, timeout=60)
        assert status()[0] == 200
        store.folder.rename(moved)
        assert status() == (503, True)
        moved.rename(store.folder)
        assert status()[0] == 200
        connection.close()


def test_a_connection_is_kept_and_head_has_no_body():
    with running() as address:
        connection = http.client.HTTPConnection(*address, timeout=20)
        for method, body in (("GET", b"ok"), ("HEAD", b""), ("GET", b"ok")):
            connection.request(method, "/")
            socket_before = connection.sock
            reply = connection.getresponse()
            assert (reply.read(), reply.headers["X-Content-Type-Options"]) == (body, "nosniff")
            assert connection.sock is socket_before is not None
        connection.close()


def test_no_page_may_frame_it_or_guess_its_type(ask):
    ask()
    assert "frame-ancestors 'none'" in ask.headers["Content-Security-Policy"]
    assert "default-src 'none'" in ask.headers["Content-Security-Policy"]
    assert ask.headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("host", "others", "allowed", "refused"),
    [
        (
            "127.0.0.1",
            (),
            ("127.0.0.1", "localhost", "[::1]:80"),
            ("192.0.2.1", "evil.example", "127.0.0.1.evil.example"),
        ),
        ("192.0.2.1", (), ("192.0.2.1:8000", socket.gethostname()), ("192.0.2.2", "evil.example", "localhost")),
        ("0.0.0.0", (), ("192.0.2.1:8000", "[2001:db8::1]", "localhost", socket.gethostname()), ("evil.example",)),
        ("127.0.0.1", ("Lamp.Example",), ("lamp.example:80",), ("other.example",)),
    ],
)
def test_it_answers_to_its_own_names(host, others, allowed, refused):
    names = AllowedHosts(host, others)
    assert [names.status(each) for each in allowed] == [""] * len(allowed)
    assert [names.status(each)[:3] for each in refused] == ["403"] * len(refused)


@pytest.mark.parametrize(
    ("host", "words"), [("", "got an empty text"), (" ", "got an empty text"), ("0", "write 0.0.0.0")]
)
def test_it_listens_at_no_address_that_was_not_given(host, words):
    with pytest.raises(InvalidInput, match=words):
        listen(host, 0)
    for wrong in ("no such host", "256.1.1.1", "x" * 300):
        with pytest.raises(Unavailable, match="cannot listen at"):
            listen(wrong, 0)


@pytest.mark.parametrize("idle", [110, 40])
def test_connections_that_say_nothing_do_not_stop_it(idle, monkeypatch):
    """110 at the usual limits; and more than there is room for."""
    if idle == 40:
        monkeypatch.setattr(http_limits, "ROOM", 20)
    with running() as address, ExitStack() as opened:
        for place in range(idle):
            connection = opened.enter_context(socket.create_connection(address, timeout=20))
            connection.sendall(b"GET / HTTP/1.1\r\nHost: 127" if place % 2 else b"")
        with socket.create_connection(address, timeout=20) as asking:
            asking.sendall(b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
            assert asking.recv(100).startswith(b"HTTP/1.1 200 OK")


def test_a_slow_reader_gets_a_whole_answer(monkeypatch):
    """A limit is on silence, not on the time that the whole answer takes."""
    monkeypatch.setattr(http_limits, "_STALLED_SECONDS", 2)
    body = bytes(8_000_000)
    with (
        running(lambda *_: HttpAnswer(200, {}, body)) as address,
        socket.create_connection(address, timeout=20) as asking,
    ):
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        asking.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        read = 0
        while part := asking.recv(1 << 18):
            read += len(part)
            time.sleep(0.05)
    assert read > len(body)

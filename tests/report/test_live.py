"""The live page: what it answers, to whom, and that it changes nothing."""

import pytest

from davylamp.benchmarks.synthetic_results import write_results
from davylamp.engine.cell import Cell
from davylamp.engine.planned import note_plan
from davylamp.engine.store import ResultsStore
from davylamp.report import live
from davylamp.report.live import LiveReport


@pytest.fixture
def store(tmp_path):
    return write_results(tmp_path / "run", models=("m",), attacks=("art:pgd", "foolbox:pgd"), images=6, classes=4)


@pytest.fixture
def ask(store, monkeypatch):
    """Ask the application; the report itself is tested elsewhere."""
    from davylamp.report.blocks import Section, Text

    made = []

    def sections(folder):
        made.append(folder)
        return [Section("verdict", "Verdict", "", (Text("the report"),))]

    monkeypatch.setattr(live, "list_sections", sections)
    application = LiveReport(store.folder)

    def run(path="/", method="GET", host="127.0.0.1:8000"):
        found = {}

        def start(status, headers):
            found["status"] = int(status.split()[0])

        body = application({"REQUEST_METHOD": method, "PATH_INFO": path, "HTTP_HOST": host}, start)
        return found["status"], b"".join(body).decode()

    run.made = made
    return run


def test_it_answers_reads_only_and_this_machine_only(ask):
    assert ask()[0] == 200
    assert ask("/progress")[0] == 200
    assert ask("/nothing")[0] == 404
    assert ask("/../../etc/passwd")[0] == 404
    for method in ("POST", "PUT", "DELETE"):
        assert ask(method=method)[0] == 405
    assert ask(host="evil.example:8000")[0] == 403
    assert ask(host="")[0] == 403
    assert ask(method="HEAD") == (200, "")


def test_it_shows_what_is_under_way_and_why_cells_failed(ask, store):
    import pyarrow as pa

    _, record = next(iter(store.read_all("cells")))
    spec = {**record.meta["spec"], "seed": 1}
    other = Cell.from_spec(spec)
    meta = {**record.meta, "key": other.key, "spec": other.spec}
    store.write("cells", other.key, pa.table({}), {**meta, "status": "failed", "reason": "<b>out of memory</b>"})
    third = Cell.from_spec({**spec, "seed": 2, "shard_size": 2})
    meta = {**record.meta, "key": third.key, "spec": third.spec}
    store.write("parts", f"{third.key}-1", record.table.slice(2, 2), meta)
    note_plan(store, [third, Cell.from_spec({**spec, "seed": 3}), other])
    status, text = ask("/progress")
    assert status == 200
    assert "2 done, 1 failed, 1 waiting" in text
    assert "&lt;b&gt;out of memory&lt;/b&gt;" in text
    assert "1 of 3" in text


def test_news_are_told_once_and_the_report_is_made_again_then_only(ask, store):
    first = ask()[1]
    assert 'data-version="2 0' in first
    assert "the report" in first
    ask()
    assert len(ask.made) == 1
    _, record = next(iter(store.read_all("cells")))
    other = Cell.from_spec({**record.meta["spec"], "seed": 3})
    store.write("cells", other.key, record.table, {**record.meta, "key": other.key, "spec": other.spec})
    assert ask("/progress")[1].startswith("<!--3 0")
    assert 'data-version="3 0' in ask()[1]
    assert len(ask.made) == 2


def test_it_writes_nothing(ask, store):
    before = {path: path.stat().st_mtime_ns for path in store.folder.rglob("*")}
    ask()
    ask("/progress")
    assert {path: path.stat().st_mtime_ns for path in store.folder.rglob("*")} == before


def test_a_run_that_has_finished_nothing_yet(tmp_path):
    ResultsStore(tmp_path / "new")
    application = LiveReport(tmp_path / "new")
    body = application({"REQUEST_METHOD": "GET", "PATH_INFO": "/", "HTTP_HOST": "localhost"}, lambda *_: None)
    assert b"No cell is finished" in body[0]
    assert b"Nothing to show yet" in body[0]

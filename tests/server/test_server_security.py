"""What a hostile client or a bad moment may not do: shown by the server itself, at its address."""

import io
import json
import sqlite3
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image
from sqlalchemy import select, update
from sqlalchemy.exc import OperationalError

from davylamp.adapters.models.sandbox.bubblewrap import Sandbox
from davylamp.errors import InvalidInput
from davylamp.report.page import build
from davylamp.server.accounts.sessions import make_token
from davylamp.server.components.registration import ComponentCard
from davylamp.server.database import connecting
from davylamp.server.database.records import AuditRow, CellRow, TaskRow
from davylamp.server.folder import ServerFolder, Settings
from davylamp.server.tasks import sandboxed
from davylamp.server.tasks.sandboxed import TaskLimits
from davylamp.server.tasks.signing import export_task, public_key, sign_task
from davylamp.server.tasks.submission import TaskRequest, submit
from davylamp.server.tasks.work import TaskWorker, WorkerSettings
from davylamp.server.web.application import make_application

from .conftest import PASSWORD


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
    names = ("foolbox:fgsm", "foolbox:pgd", "torchattacks:pgd")  # a page ranks libraries, too
    attacks = [{"component": embedded[name], "epsilon": 0.2, "norm": "linf"} for name in names]
    settings = {"models": models, "data": [embedded["demo:mnist"]], "attacks": attacks, "limit": 8}
    with folder.database.writing() as session:
        number = submit(session, folder, users["alice"], TaskRequest(settings, visibility="public")).id
    assert TaskWorker(folder, WorkerSettings(trust=True)).run_one()
    with folder.database.writing() as session:
        session.execute(update(TaskRow).values(state="running"))
    return number


def test_readers_of_an_unfinished_report_at_once_all_get_it(address, folder, unfinished, monkeypatch):
    real, built = build.list_sections, []

    def count(*given, **more):
        built.append(given)
        return real(*given, **more)

    monkeypatch.setattr(build, "list_sections", count)
    with ThreadPoolExecutor(8) as pool:
        answers = [*pool.map(status_of, [f"{address}/tasks/{unfinished}/report"] * 8)]
    assert [status for status, _ in answers] == [200] * 8
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


@pytest.fixture
def ask(folder, users):
    """An answer of the interface to alice: (method, path, JSON body)."""
    client = TestClient(make_application(folder), base_url="http://localhost")
    with folder.database.writing() as session:
        token = make_token(session, users["alice"], "test", frozenset(["read", "submit"]))

    def send(method, path, body=None):
        return client.request(method, f"/api/v1{path}", json=body, headers={"authorization": f"Bearer {token}"})

    return send


def test_what_nobody_says_is_private(ask, folder, users, embedded):
    settings = {"models": [embedded["demo:mnist-lenet5"]], "data": [embedded["demo:mnist"]]}
    settings["attacks"] = [{"component": embedded["foolbox:fgsm"], "epsilon": 0.2}]
    assert ask("POST", "/tasks", settings).json()["visibility"] == "private"
    assert TaskRequest(settings).visibility == ComponentCard("thing").visibility == "private"
    page = TestClient(make_application(folder), base_url="http://localhost")
    cookie = page.get("/sign-in").text.split('name="mark" value="')[1].partition('"')[0]
    page.post("/sign-in", data={"mark": cookie, "name": "alice", "password": PASSWORD})
    form = page.get("/tasks/new").text
    assert "<option>private" in form.split('name="visibility">')[1][:20]
    mark = form.split('name="mark" value="')[1].partition('"')[0]
    given = {name: settings[name] for name in ("models", "data")} | {"attacks": [embedded["foolbox:fgsm"]]}
    assert page.post("/tasks/new", data={"mark": mark, "epsilon": "0.2", **given}).status_code == 200
    assert [task["visibility"] for task in ask("GET", "/tasks").json()] == ["private"] * 2
    with folder.database.reading() as session:
        assert {*session.scalars(select(TaskRow.visibility))} == {"private"}


@pytest.mark.parametrize(
    "attack",
    [
        {"parameters": {"stepz": 3}},
        {"parameters": {"steps": 3}},
        {"component": "foolbox:pgd", "parameters": {"steps": -1}},
        {"component": "foolbox:pgd", "parameters": {"steps": "many"}},
        {"component": "foolbox:ddn", "norm": "linf"},
        {"target": "nowhere"},
    ],
)
def test_what_an_attack_does_not_take_is_refused_when_it_is_submitted(ask, embedded, attack):
    named = embedded[attack.get("component", "foolbox:fgsm")]
    settings = {"models": [embedded["demo:mnist-lenet5"]], "data": [embedded["demo:mnist"]]}
    good = {"component": embedded["foolbox:pgd"], "epsilon": 0.2, "parameters": {"steps": 3}}
    answer = ask("POST", "/tasks", {**settings, "attacks": [good, {"epsilon": 0.2, **attack, "component": named}]})
    assert answer.status_code == 400
    assert ask("POST", "/tasks", {**settings, "attacks": [good]}).status_code == 201


def test_an_export_that_somebody_signed_anew_is_not_taken_for_the_server_s(folder, unfinished, tmp_path, run):
    """All of it is made up, and signed as it should be: with a key of the forger's."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    with folder.database.writing() as session:
        sign_task(session, folder, session.get_one(TaskRow, unfinished))
    with (tmp_path / "real.zip").open("wb") as file:
        export_task(folder, unfinished, file)
    forger = Ed25519PrivateKey.generate()
    with zipfile.ZipFile(tmp_path / "real.zip") as real, zipfile.ZipFile(tmp_path / "forged.zip", "w") as forged:
        manifest = {**json.loads(real.read("manifest.json")), "owner": "root"}
        text = json.dumps(manifest).encode()
        stated = {"public_key": forger.public_key().public_bytes_raw().hex(), "signature": forger.sign(text).hex()}
        files = {"manifest.json": text, "signature.json": json.dumps(stated)}
        for name in real.namelist():
            forged.writestr(name, files.get(name) or real.read(name))
    key = public_key(folder)
    assert run("server", "verify", str(tmp_path / "real.zip"), "--key", key)[0] == 0
    assert run("server", "verify", str(tmp_path / "real.zip"))[0] == 2
    assert run("server", "verify", str(tmp_path / "forged.zip"))[0] == 2
    assert run("server", "verify", str(tmp_path / "forged.zip"), "--key", key)[0] == 1


@pytest.mark.usefixtures("sandbox")
@pytest.mark.usefixtures("in_process")
def test_files_of_users_are_parsed_in_a_sandbox_alone(folder, users, embedded, add, digit_file, tmp_path, monkeypatch):
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's: the exporter that needs no further package is the older one
        given = {"dynamo": False, "input_names": ["images"], "dynamic_axes": {"images": {0: "n"}}}
        torch.onnx.export(net, (torch.zeros(1, 1, 28, 28),), tmp_path / "net.onnx", **given)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for label in range(3):
            Image.new("L", (28, 28), 40 * label).save(tmp_path / "a.png")
            archive.write(tmp_path / "a.png", f"{label}/a.png")
    model = add(users["alice"], "model", "onnx", "", "net.onnx", (tmp_path / "net.onnx").read_bytes(), name="net")
    data = [add(users["alice"], "data", "npz", "", "d.npz", digit_file, name="arrays")]
    data += [add(users["alice"], "data", "folder", "", "d.zip", buffer.getvalue(), name="pictures")]
    attacks = [{"component": embedded["foolbox:fgsm"], "epsilon": 0.2, "norm": "linf"}]
    settings = {"models": [model], "data": data, "attacks": attacks}
    with folder.database.writing() as session:
        number = submit(session, folder, users["alice"], TaskRequest(settings)).id

    def parse(*_, **__):
        raise AssertionError("a user's file was parsed in the task's process")

    for where, name in (
        (onnx, "load"),
        (onnxruntime, "InferenceSession"),
        (Image, "open"),
        (np.lib.format, "read_array"),
    ):
        monkeypatch.setattr(where, name, parse)
    assert TaskWorker(folder, WorkerSettings(limits=TaskLimits(memory=2.0))).run_one()
    with folder.database.reading() as session:
        row = session.get_one(TaskRow, number)
        cells = session.scalars(select(CellRow).where(CellRow.task_id == number)).all()
    assert row.state == "done", row.message
    assert {(cell.state, cell.images) for cell in cells} == {("done", 8), ("done", 3)}


@pytest.mark.usefixtures("in_process")
def test_files_of_users_wait_for_no_worker_without_a_sandbox(folder, users, embedded, add, digit_file, monkeypatch):
    data = add(users["alice"], "data", "npz", "", "d.npz", digit_file)
    attacks = [{"component": embedded["foolbox:fgsm"], "epsilon": 0.2}]
    wish = TaskRequest({"models": [embedded["demo:mnist-lenet5"]], "data": [data], "attacks": attacks})
    strict = ServerFolder(folder.path, folder.database.address, Settings(cheap=True))
    with folder.database.writing() as session:
        number = submit(session, folder, users["alice"], wish).id  # this server trusts its users
        monkeypatch.setattr(sandboxed, "find_sandbox", lambda: Sandbox("", "it is not installed"))
        with pytest.raises(InvalidInput):
            submit(session, strict, users["alice"], wish)
    assert TaskWorker(folder, WorkerSettings(trust=False)).run_one()
    with folder.database.reading() as session:
        assert session.get_one(TaskRow, number).state == "failed"
    strict.database.close()


def test_weights_that_come_are_listed_without_torchs_reader_of_archives(users, add, monkeypatch):
    """Which is C++: of a stranger's file it would run in the server itself."""
    buffer, read = io.BytesIO(), []
    torch.save(torch.nn.Linear(4, 2).state_dict(), buffer)
    real = torch.serialization._open_zipfile_reader
    monkeypatch.setattr(torch.serialization, "_open_zipfile_reader", lambda file: read.append(file) or real(file))
    assert add(users["alice"], "model", "weights", "torchvision:resnet18", "w.pth", buffer.getvalue())
    (given,) = read
    assert isinstance(given, io.BytesIO)
    assert len(given.getvalue()) < len(buffer.getvalue())


PRINTING = b"""
import sys

def speaking(model, inputs, labels, epsilon):
    print(__file__, file=sys.stderr)
    raise ValueError(f"not in {__file__}")

speaking.norm = "linf"
"""


def test_no_page_log_or_reason_says_where_the_server_keeps_a_task(address, folder, users, embedded, add):
    """An attack in its task's process prints where it lies, and fails with that."""
    attack = add(users["alice"], "attack", "code", "speaking", "a.py", PRINTING, name="speaking", visibility="public")
    attacks = [{"component": number, "epsilon": 0.2} for number in (attack, embedded["foolbox:fgsm"])]
    settings = {"models": [embedded["demo:mnist-lenet5"]], "data": [embedded["demo:mnist"]], "limit": 2}
    with folder.database.writing() as session:
        wish = TaskRequest({**settings, "attacks": attacks}, visibility="public")
        number = submit(session, folder, users["alice"], wish).id
    assert TaskWorker(folder, WorkerSettings(trust=True)).run_one()
    assert str(folder.path) in (folder.task(number) / "log.txt").read_text()
    pages = [f"/tasks/{number}{page}" for page in ("", "/log", "/report")]
    pages += [f"/api/v1/tasks/{number}{page}" for page in ("", "/log")]
    answers = {page: status_of(f"{address}{page}") for page in pages}
    assert {status for status, _ in answers.values()} == {200}
    texts = {page: text.replace("<wbr>", "") for page, (_, text) in answers.items()}
    assert [page for page, text in texts.items() if str(folder.path) in text] == []
    assert all("attack-speaking" in texts[f"/api/v1/tasks/{number}{page}"] for page in ("", "/log"))

"""The JSON interface: what each call needs, gives and refuses; and that it is described."""

import hashlib
import json

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from davylamp.server.accounts.audit import Origin
from davylamp.server.accounts.sessions import make_token
from davylamp.server.accounts.users import sign_in
from davylamp.server.database.records import AuditRow
from davylamp.server.tasks.work import TaskWorker, WorkerSettings
from davylamp.server.web.application import make_application

from .conftest import ATTACK

HOST = "http://localhost"


@pytest.fixture
def tokens(folder, users):
    with folder.database.writing() as session:
        made = {
            name: make_token(session, users[name], "test", frozenset(scopes))
            for name, scopes in (("alice", {"read", "submit"}), ("bob", {"read", "submit"}))
        }
        made["reader"] = make_token(session, users["alice"], "reads", frozenset(["read"]))
        made["root"] = make_token(session, users["root"], "all", frozenset(["read", "submit", "admin"]))
    return made


@pytest.fixture
def ask(folder, tokens):
    """Send a request with a user's token: (name, method, path)."""
    client = TestClient(make_application(folder), base_url=HOST)

    def send(name, method, path, **rest):
        headers = {"authorization": f"Bearer {tokens.get(name, name)}"} if name else {}
        headers |= {"content-type": "application/json"} if "content" in rest else {}
        return client.request(method, f"/api/v1{path}", headers=headers, **rest)

    return send


def test_a_task_goes_from_the_files_to_the_signed_export(ask, folder, embedded, in_process, tmp_path):
    fields = {"kind": "attack", "form": "code", "entry": "sign_step", "name": "step", "visibility": "public"}
    added = ask("alice", "POST", "/components", data=fields, files={"file": ("a.py", ATTACK.encode())})
    assert added.status_code == 201, added.text
    number = added.json()["id"]
    assert ask("bob", "GET", f"/components/{number}/file").content == ATTACK.encode()
    body = {
        "models": [embedded["demo:mnist-lenet5"]],
        "data": [embedded["demo:mnist"]],
        "limit": 3,
        "visibility": "public",
    }
    body["attacks"] = [{"component": number, "epsilon": "0.2"}]
    task = ask("alice", "POST", "/tasks", json=body).json()
    assert (task["state"], task["percent"], task["owner"]) == ("waiting", 0.0, "alice")
    TaskWorker(folder, WorkerSettings(trust=True)).run_one()
    done = ask("", "GET", f"/tasks/{task['id']}").json()
    assert (done["state"], done["percent"], done["seconds_left"]) == ("done", 100.0, None)
    (cell,) = done["cells"]
    assert cell["share"] == pytest.approx(cell["fooled"] / cell["attacked"])
    assert cell["low"] <= cell["share"] <= cell["high"]
    assert ask("", "GET", "/cells", params={"component": number}).json() == [cell]
    one = ask("", "GET", f"/cells/{cell['id']}").json()
    assert one | cell == one
    assert "a.py:sign_step --norm linf --epsilon 0.2" in one["line"]
    record = ask("", "GET", f"/cells/{cell['id']}/file").content
    assert hashlib.sha256(record).hexdigest() == one["sha256"]
    export = ask("", "GET", f"/tasks/{task['id']}/export")
    (tmp_path / "task.zip").write_bytes(export.content)
    from davylamp.server.tasks.signing import verify_export

    manifest = verify_export(tmp_path / "task.zip", ask("", "GET", "/me").json()["public_key"])
    assert manifest["cells"][0]["key"] == cell["key"]
    assert ask("alice", "DELETE", f"/components/{number}").json() == {"state": "archived"}


def test_leaderboards_rank_with_intervals(ask, folder, embedded, users, in_process):
    models = [embedded["demo:mnist-lenet5"], embedded["demo:mnist-lenet5-robust"]]
    body = {"models": models, "data": [embedded["demo:mnist"]], "limit": 20, "visibility": "public"}
    body["attacks"] = [{"component": embedded["foolbox:pgd"], "epsilon": 0.2, "norm": "linf"}]
    body["attacks"][0]["parameters"] = {"steps": 5}
    ask("alice", "POST", "/tasks", json=body)
    TaskWorker(folder).run_one()
    board = ask("", "GET", "/leaderboards/models").json()
    assert board["rows"][0]["name"] == "demo:mnist-lenet5-robust"
    for row in board["rows"]:
        assert row["rank_low"] <= row["rank"] <= row["rank_high"]
    cells = {cell["model"]: cell for cell in ask("", "GET", "/cells").json()}
    for row in board["rows"]:  # the mean response: right when clean, and not fooled
        cell = cells[row["name"]]
        assert row["score"] == pytest.approx((cell["attacked"] - cell["fooled"]) / 20)
    assert ask("", "GET", "/leaderboards/models", params={"norm": "l2"}).json()["rows"] == []
    assert ask("", "GET", "/leaderboards/models", params={"knowledge": "score"}).json()["cells"] == 0
    assert ask("", "GET", "/leaderboards/models", params={"creator": "alice"}).json()["rows"] == []
    assert ask("", "GET", "/leaderboards/models", params={"since": "2999-01-01"}).json()["rows"] == []
    assert ask("", "GET", "/leaderboards/models", params={"epsilon": "1/5", "norm": "linf"}).json()["cells"] == 2
    assert ask("", "GET", "/leaderboards/models", params={"targeted": "no"}).json()["cells"] == 2
    assert ask("", "GET", "/leaderboards/models", params={"targeted": "yes"}).json()["cells"] == 0
    assert ask("", "GET", "/leaderboards/models", params={"targeted": "may"}).status_code == 422
    assert "to rank, got one" in ask("", "GET", "/leaderboards/attacks").json()["reason"]
    assert [row["cells"] for row in board["rows"]] == [[cells[row["name"]]["id"]] for row in board["rows"]]
    (pair,) = ask("", "GET", "/compare", params={"first": models[0], "second": models[1]}).json()
    shares = [cells[name]["share"] for name in ("demo:mnist-lenet5", "demo:mnist-lenet5-robust")]
    assert pair["difference"] == pytest.approx(shares[0] - shares[1])
    assert pair["low"] <= pair["difference"] <= pair["high"]
    (then,) = ask("", "GET", f"/components/{models[1]}/history").json()
    assert (then["rank"], then["board"], then["data_id"]) == (1, "models", embedded["demo:mnist"])


def test_an_admin_adds_users_and_lets_them_out_by_the_interface(ask, folder):
    made = ask("root", "POST", "/users", json={"name": "carol"})
    assert made.status_code == 201
    password = made.json()["password"]
    assert sign_in(folder.database, folder.hasher, Origin("carol"), password).role == "user"
    assert ask("root", "PATCH", "/users/carol", json={"active": False}).json()["active"] is False
    assert sign_in(folder.database, folder.hasher, Origin("carol"), password) is None
    assert ask("root", "PATCH", "/users/root", json={"active": False}).status_code == 400
    for name in ("", "alice", "reader"):
        assert ask(name, "POST", "/users", json={"name": "mallory", "role": "admin"}).status_code == 403
        assert ask(name, "PATCH", "/users/root", json={"active": False}).status_code == 403
    assert password not in ask("root", "GET", "/audit").text


def test_each_call_needs_its_scope(ask, embedded, add, users):
    number = add(users["alice"], "attack", "named", "foolbox:pgd", visibility="public")
    task = {"models": [1], "attacks": [number], "data": [7]}
    for name, status in (("", 403), ("reader", 403), ("wrong token", 401)):
        assert ask(name, "POST", "/tasks", json=task).status_code == status
        assert ask(name, "DELETE", f"/components/{number}").status_code == status
        assert ask(name, "PATCH", f"/components/{number}", json={"licence": "x"}).status_code == status
    assert ask("bob", "PATCH", f"/components/{number}", json={"licence": "x"}).status_code == 403
    for path in ("/users", "/audit"):
        assert [ask(name, "GET", path).status_code for name in ("", "alice", "root")] == [403, 403, 200]
    assert ask("alice", "GET", "/me").json()["name"] == "alice"
    assert ask("", "GET", "/me").json()["name"] == "visitor"


def test_a_cookie_alone_changes_nothing_by_the_interface(folder, users, add):
    from davylamp.server.accounts.sessions import start_session
    from davylamp.server.accounts.users import find_user

    number = add(users["alice"], "attack", "named", "foolbox:pgd")
    with folder.database.writing() as session:
        secret = start_session(session, find_user(session, "alice"))
    client = TestClient(make_application(folder), base_url=HOST, cookies={"davylamp_session": secret})
    assert client.get(f"/api/v1/components/{number}").json()["name"] == "thing"
    assert client.delete(f"/api/v1/components/{number}").status_code == 403


def test_wrong_bodies_are_refused_in_one_line(ask):
    for body in ({}, {"models": "1", "attacks": [], "data": []}, {"models": [1], "attacks": [1], "data": [1], "x": 1}):
        answer = ask("alice", "POST", "/tasks", json=body)
        assert answer.status_code == 422
        assert "\n" not in answer.json()["error"]
    answer = ask("alice", "POST", "/tasks", json={"models": [99], "attacks": [1], "data": [1]})
    assert (answer.status_code, answer.json()["error"][:21]) == (404, "there is no component")
    assert ask("alice", "GET", "/components/999999999999999999999").status_code == 404
    assert ask("alice", "GET", "/tasks/-1").status_code == 404
    assert ask("alice", "GET", "/nothing").status_code == 404


def test_what_is_done_is_in_the_log_and_nothing_secret_is(ask, folder, tokens):
    fields = {"kind": "attack", "form": "named", "entry": "foolbox:pgd", "name": "mine"}
    ask("alice", "POST", "/components", data=fields)
    with folder.database.reading() as session:
        lines = [(row.who, row.action, row.about) for row in session.scalars(select(AuditRow))]
    assert any(who == "alice" and action == "added a component" for who, action, _ in lines)
    assert not any(secret in str(lines) for secret in tokens.values())


def test_texts_and_numbers_that_no_database_takes_are_refused(ask, folder, add, users):
    number = add(users["alice"], "attack", "named", "foolbox:pgd")
    for text in ("half \\ud800", "nothing \\u0000"):
        body = f'{{"description": "{text}"}}'.encode()
        answer = ask("alice", "PATCH", f"/components/{number}", content=body)
        kept_by_sqlite = folder.database.is_sqlite and "0000" in text
        assert answer.status_code == (200 if kept_by_sqlite else 400), answer.text
    for asked in ("\u00b2", "9223372036854775808", "\u0663", "-1"):
        assert ask("", "GET", "/leaderboards/models", params={"data": asked}).status_code == 422


def test_texts_that_steer_a_terminal_are_made_harmless(ask):
    fields = {"kind": "attack", "form": "named", "entry": "foolbox:pgd", "name": "mine"}
    fields |= {"description": "red \x1b[31m and \u202eturned\nnext line", "licence": "\x07bell"}
    row = ask("alice", "POST", "/components", data=fields).json()
    assert row["description"] == "red \ufffd[31m and \ufffdturned\nnext line"
    assert row["licence"] == "\ufffdbell"


def test_the_description_has_every_call_with_a_sentence(ask, folder):
    from fastapi.routing import APIRoute

    from davylamp.server.web.api import router

    schema = ask("", "GET", "/openapi.json").json()
    assert schema["openapi"].startswith("3.")
    calls = {(method, path) for path, calls in schema["paths"].items() for method in calls}
    routes = {
        (method.lower(), route.path)
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    }
    assert calls == routes
    assert len(calls) >= 20
    assert all(call["description"] for calls in schema["paths"].values() for call in calls.values())
    json.dumps(schema)

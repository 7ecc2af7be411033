"""Pages: forms only from our own pages, nothing private anywhere, every text escaped, limits in front of all of it."""

import re
from unittest.mock import Mock
from urllib.parse import quote

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from sqlalchemy import select

from davylamp.errors import InvalidInput
from davylamp.server.accounts.audit import Origin
from davylamp.server.accounts.sessions import make_token
from davylamp.server.accounts.users import open_registration, register_user
from davylamp.server.database.records import AuditRow, CellRow, TaskRow, UserRow
from davylamp.server.folder import ServerFolder, Settings
from davylamp.server.tasks.submission import TaskRequest, submit
from davylamp.server.tasks.work import TaskWorker
from davylamp.server.web.application import make_application, make_pages
from davylamp.server.web.request_context import SESSION

from .conftest import ATTACK, PASSWORD

HOST = "http://localhost"
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{ 7*7 }}\x1b[2J"


@pytest.fixture
def application(folder):
    return make_application(folder)


@pytest.fixture
def browse(application):
    """A browser that is signed in: (name)."""

    def start(name=""):
        client = TestClient(application, base_url=HOST, follow_redirects=True)
        if name:
            page = client.get("/sign-in")
            answer = client.post("/sign-in", data={"mark": mark_in(page), "name": name, "password": PASSWORD})
            assert answer.status_code == 200, answer.text
        return client

    return start


def mark_in(page):
    return re.search(r'name="mark" value="(\w+)"', page.text)[1]


def send(client, page, path, **fields):
    """Fill in a form of a page."""
    return client.post(path, data={"mark": mark_in(client.get(page)), **fields})


def test_signing_in_and_out(browse, users):
    client = browse("alice")
    assert 'id="viewer">alice' in client.get("/").text
    cookie = next(each for each in client.cookies.jar if each.name == SESSION)
    assert cookie.has_nonstandard_attr("HttpOnly")
    assert cookie.get_nonstandard_attr("SameSite") == "lax"
    secret = client.cookies[SESSION]
    send(client, "/", "/sign-out")
    client.cookies.set(SESSION, secret)
    assert "Sign in" in client.get("/").text  # the session itself has ended
    wrong = send(browse(), "/sign-in", "/sign-in", name="alice", password="not the password")
    nobody = send(browse(), "/sign-in", "/sign-in", name="nobody", password="not the password")
    assert wrong.status_code == nobody.status_code == 401
    clean = [re.sub(r'value="\w+"', "", answer.text) for answer in (wrong, nobody)]
    assert clean[0] == clean[1]
    for _ in range(4):
        last = send(browse(), "/sign-in", "/sign-in", name="alice", password="not the password")
    assert last.status_code == 401
    assert send(browse(), "/sign-in", "/sign-in", name="alice", password=PASSWORD).status_code == 429


def test_every_form_needs_the_mark_of_its_own_session(browse, users, application):
    alice, bob = browse("alice"), browse("bob")
    stolen = mark_in(bob.get("/account"))
    posts = [route.path for route in make_pages_routes(application) if "POST" in route.methods]
    assert len(posts) > 12
    for path in posts:
        for fields in ({}, {"mark": "0" * 64}, {"mark": stolen}):
            values = {"kind": "attack", "form": "named", "name": "x", "action": "out", "mark": ""} | fields
            answer = alice.post(re.sub(r"{\w+}", "1", path), data=values)
            assert answer.status_code == 403, (path, fields)
    mine = mark_in(alice.get("/account"))
    elsewhere = {"sec-fetch-site": "cross-site"}
    assert alice.post("/account/tokens", data={"mark": mine, "scopes": "read"}, headers=elsewhere).status_code == 403
    assert "davylamp_" in alice.post("/account/tokens", data={"mark": mine, "scopes": "read"}).text


def make_pages_routes(application):
    return [route for route in all_routes(application.application) if not route.path.startswith("/api/")]


def all_routes(pages):
    """Every route, also of the routers that are included."""
    routes, left = [], list(pages.routes)
    while left:
        route = left.pop()
        if isinstance(route, APIRoute):
            routes.append(route)
        elif hasattr(route, "original_router"):
            left += route.original_router.routes
    return routes


@pytest.fixture
def hidden(folder, users, embedded, add):
    """Numbers of what only alice may see: a component of each kind, a task with one, a task that is private."""
    add(users["alice"], "model", "named", "demo:mnist-lenet5", name="zzsecret")
    attack = add(
        users["alice"], "attack", "code", "zzsecret", "zzsecret.py", b"def zzsecret(): ...", name="zzsecret",
        description="zzsecret", licence="zzsecret",
    )  # fmt: skip
    settings = {"models": [embedded["demo:mnist-lenet5"]], "data": [embedded["demo:mnist"]]}
    with folder.database.writing() as session:
        one = submit(
            session, folder, users["alice"], TaskRequest({**settings, "attacks": [attack]}, "zzsecret", "public")
        ).id
        open_attack = {**settings, "attacks": [embedded["foolbox:pgd"]]}
        two = submit(session, folder, users["alice"], TaskRequest(open_attack, "zzsecret", "private")).id
        cells = []
        for task in (one, two):
            parts = {"model_id": embedded["demo:mnist-lenet5"], "attack_id": attack, "data_id": embedded["demo:mnist"]}
            about = {
                "key": "zzsecret",
                "file": "f",
                "digest": "d",
                "state": "done",
                "model": "zzsecret",
                "norm": "linf",
            }
            rest = {"attack": "zzsecret", "knowledge": "white-box", "images": 5, "attacked": 5, "created": 1.0}
            row = CellRow(task_id=task, **parts, **about, **rest)
            session.add(row)
            session.flush()
            cells.append(row.id)
            place = folder.task(task)
            place.mkdir()
            (place / "log.txt").write_text("zzsecret")
        session.get_one(TaskRow, one).message = "zzsecret"
    return {"components": attack, "tasks": one, "cells": cells[0], "private": two}


def test_a_crawl_of_every_route_as_another_user_finds_nothing_private(
    browse, folder, users, hidden, application, embedded
):
    with folder.database.writing() as session:
        token = make_token(session, users["bob"], "crawl", frozenset(["read", "submit"]))
    mine = [browse("alice").get(path).text for path in ("/tasks", "/components", "/cells")]
    assert all("zzsecret" in text for text in mine)
    asked = 0
    for client, headers in (
        (browse(), {}),
        (browse("bob"), {}),
        (TestClient(application, base_url=HOST), {"authorization": f"Bearer {token}"}),
    ):
        for route in all_routes(application.application):
            part = route.path.removeprefix("/api/v1").split("/")[1]
            numbers = {"components": [hidden["components"]], "cells": [hidden["cells"]]}
            for number in numbers.get(part, [hidden["tasks"], hidden["private"]]):
                path = route.path.replace("{number}", str(number)).replace("{kind}", "models").replace("{name}", "bob")
                queries = (f"?component={number}", f"?first={number}&second={number}", "?kind=attack", "?kind=attacks")
                for query in ("", *(() if "{number}" in route.path else queries)):
                    method = next(iter(route.methods))
                    if method != "GET" and "{number}" not in route.path:
                        continue
                    answer = client.request(method, path + query, headers=headers)
                    asked += 1
                    assert "zzsecret" not in answer.text, (path, query)
                    if "{number}" in route.path and method == "GET":
                        assert answer.status_code == 404, (path, answer.status_code)
    assert asked > 150
    assert "0 tasks" in browse("bob").get("/tasks").text
    shown = browse("bob").get("/components").text
    assert f"{len(embedded)} components" in shown


def test_another_user_changes_nothing_by_a_number(browse, folder, users, embedded, add, hidden):
    public = add(users["alice"], "attack", "named", "foolbox:pgd", visibility="public")
    bob = browse("bob")
    for number, status in ((public, 403), (hidden["components"], 404)):
        for action in ("change", "withdraw", "delete"):
            answer = send(bob, "/account", f"/components/{number}/{action}", visibility="public")
            assert answer.status_code == status
    for action in ("cancel", "retry", "change"):
        assert send(bob, "/account", f"/tasks/{hidden['tasks']}/{action}").status_code == 404
    assert send(bob, "/account", "/admin/users/alice", action="out").status_code == 403
    assert send(bob, "/account", "/admin/users", name="mallory", role="admin").status_code == 403
    assert [bob.get(path).status_code for path in ("/admin/users", "/admin/audit")] == [403, 403]


def test_an_admin_limits_the_hours_of_a_user(browse, folder, users):
    root = browse("root")
    for hours, kept in (("2.5", 2.5), ("", None)):
        assert send(root, "/admin/users", "/admin/users/alice", action="hours", hours=hours).status_code in (200, 303)
        with folder.database.reading() as session:
            assert session.get_one(UserRow, users["alice"].id).hours == kept
    assert send(root, "/admin/users", "/admin/users/alice", action="hours", hours="-1").status_code == 400
    assert send(root, "/admin/users", "/admin/users/alice", action="hours", hours="many").status_code == 400
    assert send(browse("bob"), "/account", "/admin/users/bob", action="hours", hours="").status_code == 403


def test_visitors_register_themselves_only_where_an_admin_lets_them(browse, folder, users):
    fields = {"name": "carol", "password": PASSWORD, "again": PASSWORD}
    visitor, root = browse(), browse("root")
    assert visitor.get("/register").status_code == 404
    assert "/register" not in visitor.get("/sign-in").text
    assert send(visitor, "/sign-in", "/register", **fields).status_code == 400
    assert send(browse("alice"), "/account", "/admin/registration", action="open").status_code == 403
    for hours in ("-1", "many", "9" * 9):
        assert send(root, "/admin/users", "/admin/registration", action="open", hours=hours).status_code == 400
    assert visitor.get("/register").status_code == 404
    assert "each with 20 hours" in send(root, "/admin/users", "/admin/registration", action="open", hours="20").text
    assert "/register" in visitor.get("/sign-in").text
    wrong = ({"name": "Carol"}, {"name": "alice"}, {"password": "short", "again": "short"}, {"again": "another"})
    for changed in (*wrong, {"name": "davylamp"}):
        assert send(visitor, "/register", "/register", **{**fields, **changed}).status_code == 400, changed
    assert send(visitor, "/register", "/register", **fields).url.path == "/sign-in"
    assert 'id="viewer">carol' in browse("carol").get("/").text
    with folder.database.reading() as session:
        carol = session.scalar(select(UserRow).where(UserRow.name == "carol"))
        assert (carol.role, carol.active, carol.hours) == ("user", True, 20)
        assert session.scalar(select(AuditRow.who).where(AuditRow.action == "registered")) == "carol"
    send(root, "/admin/users", "/admin/registration", action="open")
    answers = [send(visitor, "/register", "/register", **fields | {"name": f"many{n}"}) for n in range(5)]
    assert [answer.status_code for answer in answers] == [200] * 4 + [429]  # carol was the first of five
    with folder.database.reading() as session:
        assert session.scalar(select(UserRow.hours).where(UserRow.name == "many0")) is None
    send(root, "/admin/users", "/admin/registration", action="close")
    assert visitor.get("/register").status_code == 404


def test_the_form_sets_the_parameters_of_each_attack(browse, folder, users, embedded, add):
    alice, mine = browse("alice"), add(users["alice"], "attack", "code", "sign_step", "step.py", ATTACK.encode())
    pgd, fgsm = embedded["foolbox:pgd"], embedded["foolbox:fgsm"]
    page = alice.get("/tasks/new").text
    assert page.count('name="parameters_of"') == page.count('name="parameters"') == page.count('name="attacks"')
    fields = {"models": embedded["demo:mnist-lenet5"], "data": embedded["demo:mnist"], "norm": "linf", "epsilon": "0.1"}
    fields |= {"attacks": [pgd, mine], "parameters_of": [pgd, fgsm, mine], "limit": "3", "examples": "own"}
    texts = [" steps = 7, step_size=2/255, random_start=no", "steps=999", "push=0.5, rounds=3, mode=fast, loud=true"]
    sent = send(alice, "/tasks/new", "/tasks/new", **fields, parameters=texts)
    assert sent.status_code == 200
    with folder.database.reading() as session:
        attacks = session.get_one(TaskRow, int(sent.url.path.rpartition("/")[2])).settings["attacks"]
    assert [each["component"] for each in attacks] == [pgd, mine]
    assert attacks[0]["parameters"] == {"steps": 7, "step_size": pytest.approx(2 / 255), "random_start": False}
    assert attacks[1]["parameters"] == {"push": 0.5, "rounds": 3, "mode": "fast", "loud": True}
    for text in ("steps", "steps=", "steps=many", "steps=3, steps=4", "horizon=3"):
        wrong = send(alice, "/tasks/new", "/tasks/new", **fields, parameters=[text, "", ""])
        assert wrong.status_code == 400, text
    assert send(alice, "/tasks/new", "/tasks/new", **fields, parameters=["", "", ""]).status_code == 200


def test_texts_are_texts_on_every_page(browse, folder, users, embedded):
    alice = browse("alice")
    fields = {"kind": "attack", "form": "named", "entry": "foolbox:pgd", "name": "plain", "visibility": "public"}
    added = send(alice, "/components/new", "/components/new", **fields, description=EVIL, licence=EVIL[:100])
    assert added.status_code == 200
    number = added.url.path.rpartition("/")[2]
    models = {"models": embedded["demo:mnist-lenet5"], "data": embedded["demo:mnist"], "attacks": number}
    task = send(alice, "/tasks/new", "/tasks/new", **models, title=EVIL, limit="3")
    assert task.status_code == 200
    place = folder.task(int(task.url.path.rpartition("/")[2]))
    place.mkdir()
    (place / "log.txt").write_text(EVIL)
    send(alice, "/account", "/account/tokens", name=EVIL, scopes="read")
    pages = (
        added.url.path,
        task.url.path,
        "/tasks",
        "/components",
        "/account",
        "/",
        "/compare",
        "/cells",
        "/tasks/new",
    )
    asked = quote(EVIL)
    for page in (
        *pages,
        *(f"{start}{asked}" for start in ("/?creator=", "/?epsilon=", "/components?kind=", "/tasks/")),
    ):
        text = alice.get(page).text
        assert "<script>alert" not in text, page
        assert "<img src=x" not in text, page
        assert "\x1b" not in text, page
        assert "49" not in re.findall(r"onerror=alert\(1\)(?:>|&gt;)(.{2})", text), page
    assert "&lt;script&gt;" in alice.get(added.url.path).text
    wrong = send(browse(), "/sign-in", "/sign-in", name=EVIL, password="x")
    assert "<script>alert" not in wrong.text
    root = browse("root")
    assert "<script>alert" not in root.get("/admin/audit").text


def test_headers_keep_the_browser_in_its_place(browse):
    for path in ("/", "/server.css", "/nothing", "/api/v1/tasks"):
        headers = browse().get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
    assert "<script>" not in browse().get("/").text  # none inside a page: the policy forbids it


def test_sizes_and_names_are_limited_before_anything_is_read(folder, users, application):
    client = TestClient(application, base_url=HOST)
    form = {"content-type": "application/x-www-form-urlencoded"}
    big = b"x" * (2 << 20)
    assert client.post("/sign-in", content=big).status_code == 413
    assert client.post("/sign-in", content=iter([big]), headers=form).status_code == 413  # without a stated length
    assert client.post("/components/new", content=b"x" * (10 << 20)).status_code == 413
    assert client.post("/sign-in", content=b"x", headers={"content-length": "-1"}).status_code == 413
    assert TestClient(application, base_url="http://evil.example").get("/").status_code == 403
    for path in ("/../../etc/passwd", "/components/..%2f..%2fetc%2fpasswd", "/server.css/../../server.db"):
        assert client.get(path).status_code in (404, 422)


def test_a_fresh_server_shows_what_is_embedded_to_a_visitor(tmp_path):
    from davylamp.server.tasks.seeds import seed_components

    fresh = ServerFolder(tmp_path / "fresh", settings=Settings(cheap=True))
    with fresh.database.writing() as session:
        assert seed_components(session) > 10
        assert seed_components(session) == 0
    client = TestClient(make_application(fresh), base_url=HOST)
    for route in all_routes(make_pages(fresh)):
        if "GET" in route.methods and "{" not in route.path and not route.path.startswith("/api/v1"):
            assert client.get(route.path).status_code in (
                200,
                403,
                *[404] * (route.path in ("/behind", "/register")),
            ), route.path
    assert "demo:mnist-lenet5" in client.get("/components").text
    assert "no finished run matches" in client.get("/").text
    fresh.database.close()


def test_results_reach_the_pages_with_the_line_that_makes_them_again(
    browse, folder, users, embedded, in_process, monkeypatch
):
    models = [embedded["demo:mnist-lenet5"], embedded["demo:mnist-lenet5-robust"]]
    attack = {"component": embedded["foolbox:fgsm"], "epsilon": 0.3, "norm": "linf"}
    wish = TaskRequest(
        {"models": models, "data": [embedded["demo:mnist"]], "attacks": [attack], "limit": 6}, "", "public"
    )
    with folder.database.writing() as session:
        number = submit(session, folder, users["alice"], wish).id
    TaskWorker(folder).run_one()
    visitor = browse()
    page = visitor.get("/").text
    assert page.index("demo:mnist-lenet5-robust") < page.index(">demo:mnist-lenet5<")
    cell = int(re.search(r'href="/cells/(\d+)"', page)[1])
    line = re.search(r'<pre id="again"[^>]*>(.*?)</pre>', visitor.get(f"/cells/{cell}").text, re.S)[1]
    assert visitor.get(f"/cells/{cell}/file").headers["content-disposition"].startswith("attachment")
    component = visitor.get(f"/components/{models[0]}").text
    assert "Ranks" in component  # the history began with the leaderboard that was just made
    linked = re.findall(r'href="(/behind[^"]+)"', page)
    assert (len(linked), len(set(linked))) == (6, 2)  # rank, score and number of cells of each
    for link in linked:
        assert "Cells: 1 shown" in visitor.get(link.replace("&amp;", "&")).text
    assert visitor.get("/behind?subject=nothing").status_code == 404
    both = visitor.get(f"/compare?first={models[0]}&second={models[1]}").text
    assert "1 pairs of cells" in both
    assert [int(each) for each in re.findall(r'value="(\d+)" selected', both)] == models
    report = visitor.get(f"/tasks/{number}/report")
    assert "sandbox" in report.headers["content-security-policy"]
    assert "demo:mnist-lenet5-robust" in report.text
    again(line, folder, cell, monkeypatch)


def again(line, folder, cell, monkeypatch):
    """The line, run by the command line itself, gives a cell of the same key."""
    import html
    import shlex
    import sys

    from davylamp import cli

    with folder.database.reading() as session:
        key = session.get_one(CellRow, cell).key
    monkeypatch.chdir(folder.path.parent)
    monkeypatch.setattr(sys, "argv", shlex.split(html.unescape(line)))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    assert [path.name[:20] for path in (folder.path.parent / "again/cells").iterdir()] == [key]


@pytest.mark.parametrize("name", ["alice", "BAD NAME!", "davylamp"])
def test_a_name_that_cannot_be_registered_costs_no_hash(folder, users, name):
    """Hashing is slow on purpose; visitors could keep others from signing in."""
    with folder.database.writing() as session:
        open_registration(session, is_open=True)
    hasher = Mock()
    with pytest.raises(InvalidInput):
        register_user(folder.database, hasher, Origin(name, "127.0.0.1"), PASSWORD)
    hasher.hash.assert_not_called()

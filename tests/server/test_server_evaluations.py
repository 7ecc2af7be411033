"""Finished tasks as HikDeep-Sec's leaderboard lists them: protocol, overall score, effects of defences, parameters."""

import time

import numpy as np
import pytest
from fastapi.testclient import TestClient

from davylamp.engine import build_defence, build_table, load, load_transfer
from davylamp.errors import DavylampError
from davylamp.server.database.records import TaskRow
from davylamp.server.tasks.submission import TaskRequest, change_task, submit
from davylamp.server.tasks.task_summary import EFFECTS, note_summary
from davylamp.server.tasks.work import TaskWorker
from davylamp.server.web.application import make_application
from davylamp.server.web.rank_history import note_summaries

MODEL, ROBUST = "demo:mnist-lenet5", "demo:mnist-lenet5-robust"


@pytest.fixture
def visitor(folder):
    return TestClient(make_application(folder), base_url="http://localhost")


@pytest.fixture
def defence(users, add):
    """A public named defence: its number."""
    return add(users["alice"], "defence", "named", "bit-depth:bits=1", name="one-bit", visibility="public")


@pytest.fixture
def evaluate(folder, users, embedded, in_process):
    """Have alice's public task run on 20 images of MNIST: (title, settings); its number."""

    def run(title="", **settings):
        chosen = {"models": [embedded[MODEL]], "data": [embedded["demo:mnist"]], "limit": 20}
        chosen["attacks"] = [{"component": embedded["foolbox:fgsm"], "norm": "linf", "epsilon": 0.1}]
        wish = TaskRequest({**chosen, **settings}, title, "public")
        with folder.database.writing() as session:
            number = submit(session, folder, users["alice"], wish).id
        assert TaskWorker(folder).run_one()
        return number

    return run


@pytest.mark.parametrize("examples", ["own", "original", "both"])
def test_effects_are_those_of_the_table_of_the_task_s_folder(evaluate, folder, visitor, embedded, defence, examples):
    number = evaluate(defences=[defence], examples=examples)
    task = visitor.get(f"/api/v1/tasks/{number}").json()
    assert task["state"] == "done", task["message"]
    results = folder.task(number) / "results"
    table = build_defence(results, MODEL, f"{MODEL}+bit-depth:bits=1", metrics=EFFECTS)
    kinds = {"own": ["", "own"], "original": ["", "original"], "both": ["", "own", "original"]}
    assert [row["made_on"] for row in task["effects"]] == kinds[examples]
    for row, other in zip(task["effects"], table.rows, strict=True):
        assert (row["model"], row["defence"]) == (embedded[MODEL], defence)
        assert (row["examples"], row["images"]) == (other.labels["examples"], other.labels["images"])
        for symbol in EFFECTS:
            assert row["metrics"][symbol] == pytest.approx([*other.metrics[symbol]])
        assert row["metrics"]["CAV"][0] == pytest.approx(row["metrics"]["CRR"][0] - row["metrics"]["CSR"][0])
    # The score, from predictions that `load` and `load_transfer` read.
    name = f"{MODEL}+bit-depth:bits=1"
    right = []
    if examples != "original":
        rows = load(results)
        rows = rows[rows["model"] == name]
        right.append((rows["attacked"] & ~rows["success"]).to_numpy())
    if examples != "own":
        rows = load_transfer(results)
        right.append((rows["adv_predicted"] == rows["label"]).to_numpy())
    assert [len(each) for each in right] == [20] * len(right)
    assert task["score"] == pytest.approx(np.mean(right))
    assert task["score_low"] < task["score"] < task["score_high"]
    page = visitor.get(f"/tasks/{number}").text
    assert all(symbol in page for symbol in EFFECTS)
    board = visitor.get("/api/v1/leaderboards/defences").json()
    assert board["effects"] == task["effects"]
    assert visitor.get("/?kind=defences").text.count(f'href="/tasks/{number}"') == len(board["effects"])
    assert visitor.get("/api/v1/leaderboards/defences", params={"norm": "l2"}).json()["effects"] == []


def test_evaluations_are_listed_by_time_and_by_score(evaluate, folder, visitor, users, embedded, defence):
    weak = evaluate("the weak one")
    pgd = {"component": embedded["foolbox:pgd"], "epsilon": 0.2}
    strong = evaluate("the robust one", models=[embedded[ROBUST]], attacks=[pgd])
    defended = evaluate(defences=[defence], examples="original")
    with folder.database.writing() as session:
        change_task(session, users["alice"], evaluate("a private one"), {"visibility": "private"})
    listed = visitor.get("/api/v1/evaluations").json()
    assert [row["id"] for row in listed] == [defended, strong, weak]
    assert [row["name"] for row in listed] == [f"task {defended}", "the robust one", "the weak one"]
    assert [row["type"] for row in listed] == ["defence", "attack", "attack"]
    assert {tuple(row["access"]) for row in listed} == {("white-box",)}
    assert {row["creator"] for row in listed} == {"alice"}
    assert (listed[0]["defence"], listed[0]["examples"], listed[1]["defence"]) == (["one-bit 1"], "original", [])
    assert (listed[1]["attack"], listed[1]["data"]) == (["foolbox-pgd 1"], ["mnist 1"])
    for row in listed:  # of undefended models the accuracy under attack, as tables have it
        if not row["defence"]:
            (table,) = build_table(folder.task(row["id"]) / "results", by="attacks", metrics=["RA"]).rows
            wanted = table.metrics["RA"][:3]
            assert [row["score"], row["score_low"], row["score_high"]] == pytest.approx([*wanted])
    for sort, sign in (("lowest", 1), ("highest", -1)):
        rows = visitor.get("/api/v1/evaluations", params={"sort": sort}).json()
        assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), key=lambda each: sign * each)
    assert [row["id"] for row in visitor.get("/api/v1/evaluations?sort=oldest").json()] == [weak, strong, defended]
    assert visitor.get("/api/v1/evaluations?sort=best").status_code == 422
    page = visitor.get("/evaluations?sort=lowest").text
    assert "a private one" not in page
    assert page.index("the weak one") < page.index("the robust one")


def test_a_task_of_an_earlier_version_gets_its_score_later(evaluate, folder, visitor):
    number = evaluate()
    (before,) = visitor.get("/api/v1/evaluations").json()
    with folder.database.writing() as session:
        task = session.get_one(TaskRow, number)
        task.score = task.score_low = task.score_high = task.effects = None
        task.settings = {name: value for name, value in task.settings.items() if name != "examples"}
        task.finished -= 3600
    (lost,) = visitor.get("/api/v1/evaluations?sort=highest").json()
    assert lost["score"] is None
    assert visitor.get("/evaluations").status_code == visitor.get(f"/tasks/{number}").status_code == 200
    note_summaries(folder)
    assert visitor.get("/api/v1/evaluations").json() == [before | {"finished": before["finished"] - 3600}]


def test_results_that_cannot_be_read_leave_a_task_without_a_score_once(evaluate, folder, visitor):
    number = evaluate()
    for path in (folder.task(number) / "results").rglob("*.parquet"):
        path.write_bytes(b"nonsense")
    note_summary(folder, number)
    with folder.database.reading() as session:
        task = session.get_one(TaskRow, number)
        assert (task.state, task.score, task.effects) == ("done", None, [])


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"examples": "original"}, "and at least one defence"),
        ({"examples": "both", "undefended": False}, "and at least one defence"),
        ({"examples": "theirs"}, "examples 'theirs'"),
    ],
)
def test_a_protocol_that_cannot_be_is_refused(evaluate, defence, settings, line):
    with pytest.raises(DavylampError, match=line):
        evaluate(**settings, defences=[defence] if "undefended" in settings else [])


def test_abilities_are_fitted_in_the_background(evaluate, visitor, embedded):
    evaluate(models=[embedded[MODEL], embedded[ROBUST]])
    for _ in range(300):
        board = visitor.get("/api/v1/leaderboards/models", params={"method": "irt"}).json()
        if board["rows"]:
            break
        assert "being fitted" in board["reason"]
        time.sleep(0.1)
    mean = visitor.get("/api/v1/leaderboards/models").json()
    assert (board["score"], mean["score"]) == ("ability", "mean")
    assert [row["name"] for row in board["rows"]] == [row["name"] for row in mean["rows"]] == [ROBUST, MODEL]
    for row in board["rows"]:
        assert row["low"] < row["score"] < row["high"]
    assert board["rows"][0]["score"] != pytest.approx(mean["rows"][0]["score"])
    page = visitor.get("/?method=irt").text
    assert "Ability (logits)" in page
    assert ">ability</th>" in page
    assert visitor.get("/?method=magic").status_code == 422


@pytest.mark.parametrize("kind", ["models", "attacks", "defences"])
@pytest.mark.parametrize("method", ["mean", "irt"])
def test_an_invalid_filter_is_refused_for_each_method(visitor, kind, method):
    """A fit in the background could only fail for ever, one thread for each request."""
    asked = visitor.get(f"/api/v1/leaderboards/{kind}", params={"method": method, "knowledge": "nonsense"})
    assert asked.status_code == 422

"""What is set side by side: pairs that differ in one component alone, worst cases, and the ranks of the past."""

import io
import threading
import time
import zipfile

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from davylamp.engine import build_table, load
from davylamp.server.components.registration import change_card, find_component
from davylamp.server.database.permissions import VISITOR
from davylamp.server.database.records import CellRow, HistoryRow, TaskRow
from davylamp.server.tasks import work
from davylamp.server.tasks.submission import TaskRequest, change_task, submit
from davylamp.server.tasks.work import TaskWorker
from davylamp.server.web import boards
from davylamp.server.web.application import make_application, make_pages
from davylamp.server.web.board_pages import compare_cells
from davylamp.server.web.boards import Filters
from davylamp.server.web.comparable_subjects import choose_comparable
from davylamp.server.web.rank_history import make_boards

MODELS = ("demo:mnist-lenet5", "demo:mnist-lenet5-robust")


@pytest.fixture
def evaluate(folder, users, embedded, in_process):
    """Have alice's task run: (attacks as (entry, parameters), settings); its number."""

    def run(*attacks, **settings):
        chosen = {"models": [embedded[name] for name in MODELS], "data": [embedded["demo:mnist"]], "limit": 6}
        chosen["attacks"] = [
            {"component": embedded.get(entry, entry), "norm": "linf", "epsilon": 0.2, "parameters": parameters}
            for entry, parameters in attacks
        ]
        with folder.database.writing() as session:
            number = submit(
                session, folder, users["alice"], TaskRequest({**chosen, **settings}, visibility="public")
            ).id
        TaskWorker(folder).run_one()
        with folder.database.reading() as session:
            task = session.get_one(TaskRow, number)
        assert task.state == "done", task.message  # and not only half of it, as where a machine goes down
        return number

    return run


@pytest.fixture
def compare(folder):
    def pairs(first, second):
        with folder.database.reading() as session:
            components = [find_component(session, VISITOR, number) for number in (first, second)]
            return compare_cells(session, VISITOR, *components)

    return pairs


@pytest.fixture
def visitor(folder):
    return TestClient(make_application(folder), base_url="http://localhost")


def test_only_cells_of_the_same_settings_are_a_pair(evaluate, compare, embedded):
    evaluate(("foolbox:pgd", {"steps": 2}), ("foolbox:pgd", {"steps": 5}), seeds=[0, 1])
    pairs = compare(*(embedded[name] for name in MODELS))
    assert len(pairs) == 4
    for pair in pairs:
        for name in ("parameters", "seed", "attack", "norm", "epsilon", "images", "defence_id", "data_id"):
            assert pair["first"][name] == pair["second"][name], name
        assert [pair["first"]["model"], pair["second"]["model"]] == [*MODELS]
    settings = {(pair["first"]["parameters"]["steps"], pair["first"]["seed"]) for pair in pairs}
    assert settings == {(2, 0), (2, 1), (5, 0), (5, 1)}


def test_each_setting_of_an_attack_is_held_against_each_of_another(evaluate, compare, embedded):
    evaluate(("foolbox:pgd", {"steps": 2}), ("foolbox:pgd", {"steps": 5}), ("foolbox:fgsm", {}))
    pairs = compare(embedded["foolbox:pgd"], embedded["foolbox:fgsm"])
    assert len(pairs) == 2 * 2  # of each model one and five steps against the one of fgsm
    assert {pair["first"]["parameters"]["steps"] for pair in pairs} == {2, 5}
    assert all(pair["first"]["model"] == pair["second"]["model"] for pair in pairs)


def test_a_worst_case_is_shown_as_one_and_ranked_with_its_like_alone(evaluate, compare, folder, embedded, visitor):
    attacks = (("foolbox:fgsm", {}), ("foolbox:pgd", {"steps": 3}))
    full = evaluate(*attacks)
    worst = evaluate(*attacks, order="cheap-first", stop_when_fooled=True)
    with folder.database.reading() as session:
        together = session.scalars(select(CellRow).where(CellRow.task_id == worst)).all()
        alone = session.scalars(select(CellRow).where(CellRow.task_id == full)).all()
    assert {row.attack for row in together} == {"worst-case(foolbox:fgsm,foolbox:pgd)"}
    ids = [embedded["foolbox:fgsm"], embedded["foolbox:pgd"]]
    assert [(row.attack_id, sorted(row.attack_ids)) for row in together] == [(None, sorted(ids))] * 2
    for row in together:  # it fools what any of them does: never less than the best of them
        assert row.fooled >= max(other.fooled for other in alone if other.model == row.model)
    board, other = (
        visitor.get("/api/v1/leaderboards/models", params=params).json() for params in ({}, {"worst_case": "yes"})
    )
    assert {number for row in board["rows"] for number in row["cells"]} == {row.id for row in alone}
    assert {number for row in other["rows"] for number in row["cells"]} == {row.id for row in together}
    attack_board = visitor.get("/api/v1/leaderboards/attacks").json()
    assert {row["name"] for row in attack_board["rows"]} <= {"foolbox:fgsm", "foolbox:pgd"}
    shown = visitor.get("/api/v1/cells", params={"component": ids[0]}).json()
    assert {cell["worst_case"] for cell in shown} == {False}
    one = visitor.get(f"/api/v1/cells/{together[0].id}").json()
    assert (one["worst_case"], one["line"]) == (True, "davylamp evaluate cell.toml -o again")
    assert "stop_when_fooled = true" in one["config"]
    page = visitor.get(f"/cells/{together[0].id}").text
    assert "not of any single one" in page
    assert all(f"/components/{number}" in page for number in ids)
    assert "of several attacks" in visitor.get(f"/tasks/{worst}").text
    pairs = compare(*(embedded[name] for name in MODELS))
    assert sum(pair["first"]["worst_case"] for pair in pairs) == 1
    assert all(pair["first"]["attack"] == pair["second"]["attack"] for pair in pairs)
    for pair in compare(*ids):
        assert not pair["first"]["worst_case"]


def test_subjects_are_chosen_for_the_most_that_all_of_them_met():
    assert choose_comparable({"a": "xyz", "b": "xyz", "c": "xyz"}) == {"a", "b", "c"}
    assert choose_comparable({"a": "xyz", "b": "xyz", "c": "xyz", "odd": "q"}) == {"a", "b", "c"}
    assert choose_comparable({"a": "vwxyz", "b": "vwxyz", "c": "vwxyz", "poor": "x"}) == {"a", "b", "c"}  # 15 against 4
    assert choose_comparable({"a": "xy", "b": "xy", "c": "xy", "d": "x"}) == {"a", "b", "c"}
    assert choose_comparable({"a": "x", "b": "y"}) == {"a", "b"}
    assert choose_comparable({"a": "x"}) == {"a"}
    assert choose_comparable({}) == set()


def test_one_odd_submission_takes_no_leaderboard_down(evaluate, folder, visitor, users, add):
    attacks = (("foolbox:fgsm", {}), ("foolbox:pgd", {"steps": 2}))
    evaluate(*attacks)
    before = visitor.get("/api/v1/leaderboards/models").json()
    mine = add(users["bob"], "model", "named", "demo:mnist-lenet5", name="mine", visibility="public")
    defence = add(users["bob"], "defence", "named", "bit-depth:bits=3", name="three", visibility="public")
    evaluate(("torchattacks:pgd", {"steps": 1}), models=[mine], defences=[defence], undefended=False)
    another = TestClient(make_application(folder), base_url="http://localhost")  # which keeps no older board
    after = another.get("/api/v1/leaderboards/models").json()
    assert [(row["name"], row["rank"], row["score"]) for row in after["rows"]] == [
        (row["name"], row["rank"], row["score"]) for row in before["rows"]
    ]
    assert any("omitted" in note and "bit-depth:bits=3" in note for note in after["notes"])
    odd = add(users["bob"], "attack", "named", "torchattacks:fgsm", name="odd", visibility="public")
    evaluate(*attacks, ("torchattacks:pgd", {"steps": 1}))
    evaluate((odd, {}), seeds=[7])
    another = TestClient(make_application(folder), base_url="http://localhost")
    attack_board = another.get("/api/v1/leaderboards/attacks").json()
    assert {row["name"] for row in attack_board["rows"]} == {"foolbox:fgsm", "foolbox:pgd", "torchattacks:pgd"}


def test_ranks_are_noted_though_nobody_looks(evaluate, folder, embedded):
    pages = make_pages(folder)
    boards = pages.state.boards
    assert make_boards(folder, boards) == 0
    evaluate(("foolbox:fgsm", {}))
    newest = make_boards(folder, boards)
    with folder.database.reading() as session:
        rows = session.scalars(select(HistoryRow).where(HistoryRow.board == "models")).all()
    assert {row.component_id for row in rows} == {embedded[name] for name in MODELS}
    assert make_boards(folder, boards, newest) == newest
    with folder.database.reading() as session:
        assert len(session.scalars(select(HistoryRow).where(HistoryRow.board == "models")).all()) == len(rows)


def test_ranks_of_the_past_say_nothing_of_what_became_private(evaluate, folder, users, embedded, add, visitor):
    secret = add(users["alice"], "attack", "named", "torchattacks:pgd", name="later", visibility="public")
    evaluate(("foolbox:fgsm", {}))
    path = f"/api/v1/components/{embedded[MODELS[1]]}/history"
    visitor.get("/")
    (first,) = visitor.get(path).json()
    task = evaluate(("foolbox:fgsm", {}), (secret, {"steps": 2}))
    visitor.get("/api/v1/leaderboards/models")
    with folder.database.writing() as session:
        about = {"component_id": embedded[MODELS[1]], "data_id": embedded["demo:mnist"], "board": "models", "time": 2.0}
        ranks = {"rank": 2, "rank_low": 1, "rank_high": 3, "subjects": 17, "score": 0.5}
        session.add(HistoryRow(**about, **ranks, tasks=[1, task]))
    assert 17 in {row["subjects"] for row in visitor.get(path).json()}
    with folder.database.writing() as session:
        change_card(session, users["alice"], secret, {"visibility": "private"})
    assert visitor.get(path).json() == [first]
    with folder.database.writing() as session:
        change_card(session, users["alice"], secret, {"visibility": "public"})
        change_task(session, users["alice"], task, {"visibility": "private"})
    assert visitor.get(path).json() == [first]


def test_the_cells_behind_a_score_are_those_of_its_setting_and_its_component_is_linked(
    evaluate, folder, visitor, embedded
):
    evaluate(("foolbox:pgd", {"steps": 2}), ("foolbox:pgd", {"steps": 5}), ("foolbox:fgsm", {}))
    rows = visitor.get("/api/v1/leaderboards/attacks").json()["rows"]
    assert len(rows) == 3
    for row in rows:
        cells = [visitor.get(f"/api/v1/cells/{number}").json() for number in row["cells"]]
        assert {cell["model"] for cell in cells} == {*MODELS}
        assert {cell["attack_id"] for cell in cells} == {row["component"]}
        assert row["score"] == pytest.approx(
            sum(cell["fooled"] for cell in cells) / sum(cell["attacked"] for cell in cells)
        )
        steps = {cell["parameters"].get("steps") for cell in cells}
        assert len(steps) == 1
        assert row["name"] == "foolbox:fgsm" or f"steps={steps.pop()}" in row["name"]
    assert {row["component"] for row in rows} == {embedded["foolbox:pgd"], embedded["foolbox:fgsm"]}
    with folder.database.reading() as session:
        noted = session.scalars(select(HistoryRow).where(HistoryRow.board == "attacks")).all()
    best = min(row["rank"] for row in rows if row["component"] == embedded["foolbox:pgd"])
    assert [(row.rank, row.subjects) for row in noted if row.component_id == embedded["foolbox:pgd"]] == [(best, 3)]


def test_what_not_every_subject_met_is_not_behind_its_score(evaluate, visitor, embedded):
    evaluate(("foolbox:fgsm", {}), ("foolbox:pgd", {"steps": 2}))
    evaluate(("torchattacks:pgd", {"steps": 1}), models=[embedded[MODELS[0]]])
    board = visitor.get("/api/v1/leaderboards/models").json()
    attacks = [
        {visitor.get(f"/api/v1/cells/{number}").json()["attack"] for number in row["cells"]} for row in board["rows"]
    ]
    assert attacks == [{"foolbox:fgsm", "foolbox:pgd"}] * 2


def test_defences_that_are_left_out_are_named_as_they_are_called(evaluate, visitor, users, add):
    names = {"three": "bit-depth:bits=3", "two": "bit-depth:bits=2", "odd": "median"}
    numbers = {
        name: add(users["bob"], "defence", "named", entry, name=name, visibility="public")
        for name, entry in names.items()
    }
    evaluate(("foolbox:fgsm", {}), ("foolbox:pgd", {"steps": 2}), defences=[numbers["three"], numbers["two"]])
    evaluate(("foolbox:fgsm", {}), seeds=[5], defences=[numbers["odd"]], undefended=False)
    board = visitor.get("/api/v1/leaderboards/defences").json()
    assert {row["name"] for row in board["rows"]} == {"none", names["three"], names["two"]}
    assert "omitted, because they have too few results in common with the other rows: median" in board["notes"]


def test_a_board_of_a_task_that_went_on_has_its_new_cells(evaluate, folder, visitor):
    """Two boards of as many cells each: what was read of the task for the first is not all that the second needs."""
    number = evaluate(("foolbox:fgsm", {}), ("foolbox:pgd", {"steps": 2}))
    place, later = folder.task(number) / "results" / "cells", {}
    with folder.database.writing() as session:
        for row in session.scalars(select(CellRow).where(CellRow.attack == "foolbox:pgd")):
            later[row.file] = {column.name: getattr(row, column.name) for column in CellRow.__table__.columns}
            session.delete(row)
    content = {name: (place / name).read_bytes() for name in later}
    for name in later:
        (place / name).unlink()
    assert visitor.get("/api/v1/leaderboards/models").json()["cells"] == 2
    with folder.database.writing() as session:
        session.add_all(CellRow(**{**values, "knowledge": "score-based"}) for values in later.values())
    for name, data in content.items():
        (place / name).write_bytes(data)
    board = visitor.get("/api/v1/leaderboards/models", params={"knowledge": "score"}).json()
    assert (board["reason"], len(board["rows"])) == ("", 2)
    assert sorted(row["score"] for row in board["rows"]) == sorted(
        1 - (values["fooled"] + values["images"] - values["attacked"]) / values["images"] for values in later.values()
    )


@pytest.mark.parametrize("place", [0, 1])  # whichever the first cell is of, one of the two has the earlier task first
def test_a_cell_is_read_from_the_task_that_it_is_of(evaluate, folder, visitor, monkeypatch, place):
    """A program in an earlier task may have written any record; the cell that is cited is the later task's."""
    attacks = (("foolbox:fgsm", {}), ("foolbox:pgd", {"steps": 2}))
    first, second = evaluate(*attacks), evaluate(attacks[place])
    with folder.database.reading() as session:
        cited = {row.model: row for row in session.scalars(select(CellRow).where(CellRow.task_id == second))}
    read = boards.load_outcomes

    def forged(path, **words):
        frame = read(path, **words)
        is_first = path == folder.task(first) / "results"
        return (
            frame.assign(success=frame["success"] | (frame["implementation"] == attacks[place][0]))
            if is_first
            else frame
        )

    monkeypatch.setattr(boards, "load_outcomes", forged)
    board = visitor.get("/api/v1/leaderboards/attacks").json()
    (row,) = (row for row in board["rows"] if row["name"] == attacks[place][0])
    assert set(row["cells"]) == {each.id for each in cited.values()}
    assert row["score"] == pytest.approx(
        sum(each.fooled for each in cited.values()) / sum(each.attacked for each in cited.values())
    )


def test_a_board_that_cannot_be_made_keeps_no_other_from_being_noted(evaluate, folder, monkeypatch, capfd):
    made = make_pages(folder).state.boards
    evaluate(("foolbox:fgsm", {}), ("foolbox:pgd", {"steps": 2}))
    build = boards.build_responses
    monkeypatch.setattr(
        boards, "build_responses", lambda results, kind: build(results, kind) if kind != "models" else 1 / 0
    )
    assert make_boards(folder, made) > 0
    with folder.database.reading() as session:
        assert set(session.scalars(select(HistoryRow.board))) == {"attacks"}
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_board_that_is_made_again_while_the_database_goes_away_says_nothing(evaluate, folder, monkeypatch):
    """A server that ends: the thread was left with an error that nobody had asked for."""
    made, errors = make_pages(folder).state.boards, []
    evaluate(("foolbox:fgsm", {}))
    first = made.show(VISITOR, "models", Filters())
    evaluate(("foolbox:pgd", {"steps": 2}))
    monkeypatch.setattr(threading, "excepthook", errors.append)
    before = set(threading.enumerate())
    with monkeypatch.context() as patch:
        patch.setattr(made, "_rank", lambda *_: folder.database.close() or fail())
        assert made.show(VISITOR, "models", Filters()) == first
        join_all_but(before)
    assert errors == []
    made.show(VISITOR, "models", Filters())  # which begins to make it once more
    join_all_but(before)
    assert (first.cells, made.show(VISITOR, "models", Filters()).cells) == (2, 4)


def join_all_but(before):
    for thread in set(threading.enumerate()) - before:
        while thread.ident is None:  # it is listed before it is started
            time.sleep(0.001)
        thread.join(20)


def fail():
    raise OperationalError("SELECT", {}, Exception("the database does not exist"))


def test_cells_get_their_numbers_in_the_order_of_their_keys(evaluate, folder, monkeypatch):
    monkeypatch.setattr(work._TaskMonitor, "_beat", lambda _: "")  # all cells are taken in at once, at the end
    number = evaluate(*(("foolbox:pgd", {"steps": steps}) for steps in range(1, 6)))
    with folder.database.reading() as session:
        keys = session.scalars(select(CellRow.key).where(CellRow.task_id == number).order_by(CellRow.id)).all()
    assert len(keys) == 10
    assert keys == sorted(keys)


def test_a_task_whose_cells_were_all_there_is_read_like_any_other(evaluate, visitor, tmp_path):
    first, second = evaluate(("foolbox:fgsm", {})), evaluate(("foolbox:fgsm", {}))
    cells = {number: visitor.get(f"/api/v1/tasks/{number}").json()["cells"] for number in (first, second)}
    assert [cell["reused"] for cell in cells[second]] == [True, True]
    board = visitor.get("/api/v1/leaderboards/models").json()
    assert (board["reason"], len(board["rows"])) == ("", 2)
    assert visitor.get(f"/tasks/{second}/report").status_code == 200
    with zipfile.ZipFile(io.BytesIO(visitor.get(f"/api/v1/tasks/{second}/export").content)) as archive:
        archive.extractall(tmp_path / "fetched")
    exported = build_table(tmp_path / "fetched" / "results", by="models", metrics=["MR"], bootstrap=0)
    shares = {cell["model"]: cell["share"] for cell in cells[first]}
    assert {row.labels["model"]: row.metrics["MR"].value for row in exported.rows} == pytest.approx(shares)


def test_a_cell_that_a_later_task_takes_over_counts_once_for_its_component(evaluate, folder, embedded):
    evaluate(("foolbox:fgsm", {}), ("foolbox:pgd", {"steps": 5}))
    with folder.database.reading() as session:
        before = boards.count_fooled(session, VISITOR, embedded[MODELS[0]])
    evaluate(("foolbox:fgsm", {}))
    with folder.database.reading() as session:
        assert boards.count_fooled(session, VISITOR, embedded[MODELS[0]]) == before
        rows = session.scalars(select(CellRow).where(CellRow.model_id == embedded[MODELS[0]])).all()
    assert [row.reused for row in rows] == [False, False, True]
    alone = [row for row in rows if not row.reused]
    assert before[-1][1] == sum(row.fooled for row in alone) / sum(row.attacked for row in alone)
    assert len(before) == 2


def test_the_undefended_models_are_never_left_out():
    met = {"none": "ab", "first": "wxyz", "second": "wxyz", "third": "abc"}
    assert choose_comparable(met) == {"first", "second"}
    assert choose_comparable(met, ["none"]) == {"none", "third"}
    assert choose_comparable({"first": "x", "second": "x", "third": "x"}, ["none"]) == {"first", "second", "third"}


def test_a_task_without_undefended_models_takes_no_board_of_defences_down(evaluate, visitor, users, add):
    entries = ("bit-depth:bits=3", "bit-depth:bits=2", "bit-depth:bits=4")
    first, *others = (
        add(users["bob"], "defence", "named", each, name=each[-1], visibility="public") for each in entries
    )
    evaluate(("foolbox:fgsm", {}), defences=[first])
    before = visitor.get("/api/v1/leaderboards/defences").json()
    settings = {"defences": others, "undefended": False, "seeds": [5]}
    evaluate(("foolbox:pgd", {"steps": 1}), ("foolbox:pgd", {"steps": 2}), **settings)
    after = visitor.get("/api/v1/leaderboards/defences", params={"norm": "linf"}).json()  # of which none is kept
    assert [row["name"] for row in after["rows"]] == [row["name"] for row in before["rows"]]
    assert {row["name"] for row in after["rows"]} == {"none", entries[0]}
    assert any("omitted" in note and entries[1] in note and entries[2] in note for note in after["notes"])


def test_the_rank_of_a_defended_model_is_not_that_of_the_model(evaluate, folder, visitor, users, add, embedded):
    three = add(users["bob"], "defence", "named", "bit-depth:bits=3", name="three", visibility="public")
    evaluate(("foolbox:fgsm", {}), defences=[three], undefended=False)
    rows = visitor.get("/api/v1/leaderboards/models").json()["rows"]
    assert {row["name"] for row in rows} == {f"{name}+bit-depth:bits=3" for name in MODELS}
    ranks = [visitor.get(f"/api/v1/components/{embedded[name]}/history").json() for name in MODELS]
    assert ranks == [[], []]
    evaluate(("foolbox:fgsm", {}))
    another = TestClient(make_application(folder), base_url="http://localhost")  # which keeps no older board
    rows = another.get("/api/v1/leaderboards/models").json()["rows"]
    for name in MODELS:
        (noted,) = another.get(f"/api/v1/components/{embedded[name]}/history").json()
        (mine,) = (row for row in rows if row["name"] == name)
        assert (noted["rank"], noted["subjects"]) == (mine["rank"], 4)


def test_a_random_defence_has_the_share_of_its_draws_as_tables_have(evaluate, folder, visitor, users, add, embedded):
    noise = add(users["bob"], "defence", "named", "torchvision:noise:sigma=0.4", name="noise", visibility="public")
    number = evaluate(("foolbox:fgsm", {}), models=[embedded[MODELS[0]]], defences=[noise])
    cells = {cell["model"]: cell for cell in visitor.get(f"/api/v1/tasks/{number}").json()["cells"]}
    table = build_table(folder.task(number) / "results", by="pairs", metrics=["MR"], bootstrap=20)
    for row in table.rows:
        cell, rate = cells[row.labels["model"]], row.metrics["MR"]
        assert cell["share"] == pytest.approx(rate.value)
        assert (cell["low"], cell["high"]) == pytest.approx((rate.low, rate.high))
    random, plain = cells[f"{MODELS[0]}+torchvision:noise:sigma=0.4"], cells[MODELS[0]]
    rows = load(folder.task(number) / "results").set_index("cell").loc[random["key"]]
    assert random["fooled"] == pytest.approx(float(rows["draws_fooled"][rows["attacked"]].sum()))
    assert random["fooled"] % 1 > 1e-6  # or nothing is tested here
    assert isinstance(plain["fooled"], int)
    with folder.database.reading() as session:
        course = boards.count_fooled(session, VISITOR, noise)
    assert course[-1][1] == pytest.approx(random["share"])
    assert "by the share of draws" in visitor.get(f"/cells/{random['id']}").text
    assert "by the share of draws" not in visitor.get(f"/cells/{plain['id']}").text

"""What is set side by side: pairs that differ in one component alone, worst cases, and the ranks of the past."""

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from davylamp.server.components.registering import change_card, find_component
from davylamp.server.database.records import CellRow, HistoryRow
from davylamp.server.database.viewing import VISITOR
from davylamp.server.tasks.submitting import TaskWish, change_task, submit
from davylamp.server.tasks.work import TaskWorker
from davylamp.server.web.application import make_application, make_pages
from davylamp.server.web.board_pages import compare_cells
from davylamp.server.web.comparable import choose_comparable
from davylamp.server.web.histories import make_boards

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
            number = submit(session, folder, users["alice"], TaskWish({**chosen, **settings})).id
        TaskWorker(folder).run_one()
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
    assert any("left out" in note and "bit-depth:bits=3" in note for note in after["notes"])
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

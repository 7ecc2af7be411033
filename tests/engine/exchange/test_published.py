"""Leaderboards of others: read as what they are, labelled as theirs, and in no ranking of ours."""

import json
import math
import shutil

import pytest

from davylamp.engine import ResultsStore
from davylamp.engine.exchange.robustbench_import import import_robustbench
from davylamp.engine.store.imported import published_note, read_published
from davylamp.engine.tables.imported_table import build_published
from davylamp.engine.tables.table import build_table
from davylamp.errors import InvalidInput, Unavailable, Unsupported
from davylamp.intervals import proportion_interval

MODEL = {
    "link": "https://example.org", "name": "A robust <br>model", "authors": "A. Author", "additional_data": False,
    "number_forward_passes": 1, "dataset": "cifar10", "venue": "Somewhere 2026", "architecture": "ResNet-18",
    "eps": "0.1", "clean_acc": "93.25", "reported": "70.69", "autoattack_acc": "70.69", "unreliable": True,
    "external": "64.20", "footnote": "AutoAttack with <b>transfer</b>.",
}  # fmt: skip


@pytest.fixture
def write(tmp_path):
    def put(name="One", norm="Linf", **changes):
        path = tmp_path / "model_info" / "cifar10" / norm / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {key: value for key, value in {**MODEL, **changes}.items() if value is not ...}
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    return put


def test_what_is_published_is_read_as_it_is(write, tmp_path):
    write()
    write("Two", external=..., eps="8/255", unreliable=..., dataset="imagenet", footnote=None)
    write("Fog", norm="corruptions", autoattack_acc=..., external=..., eps=None, corruptions_acc="67.55")
    done = import_robustbench(tmp_path / "model_info", tmp_path / "results")
    assert (done.boards, done.refused) == ({("cifar10", "linf"): 2, ("cifar10", "corruptions"): 1}, [])
    rows, damaged = read_published(ResultsStore(tmp_path / "results", create=False))
    assert damaged == []
    fog, two, one = rows
    assert (one.robust, one.autoattack, one.clean) == pytest.approx((0.6420, 0.7069, 0.9325))
    assert (one.unreliable, one.images, one.judge) == (True, 10_000, "RobustBench, not davylamp")
    assert (one.title, one.note) == ("A robust model", "AutoAttack with transfer .")
    assert two.robust == pytest.approx(0.7069)
    assert two.epsilon == pytest.approx(8 / 255)
    assert (two.data, two.images, two.note) == ("cifar10", 10_000, "the data set in its file is imagenet")
    assert fog.robust == pytest.approx(0.6755)
    assert math.isnan(fog.epsilon)
    import_robustbench(tmp_path / "model_info", tmp_path / "results")
    assert len(read_published(ResultsStore(tmp_path / "results"))[0]) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clean_acc": "193"}, "clean_acc from 0 to 100"),
        ({"autoattack_acc": "much"}, "autoattack_acc from 0 to 100"),
        ({"eps": "nan"}, "eps as 8/255"),
        ({"eps": None}, "eps as 8/255"),
        ({"autoattack_acc": ..., "external": ...}, "a robust accuracy"),
        ({"dataset": ...}, "a model of RobustBench"),
        ({"norm": "L7"}, "in a folder named after the norm"),
    ],
)
def test_what_is_no_such_file_is_refused_and_the_others_are_read(write, tmp_path, changes, message):
    path = write("Bad", **changes)
    with pytest.raises(InvalidInput, match=message):
        import_robustbench(path, tmp_path / "results")
    write("Good")
    (refused,) = import_robustbench(tmp_path / "model_info", tmp_path / "results").refused
    assert "Bad.json" in refused
    with pytest.raises(Unavailable, match="expected a JSON file"):
        import_robustbench(tmp_path / "nowhere", tmp_path / "results")


def test_theirs_stand_beside_ours_with_who_says_so_and_n(small_folder, write, tmp_path, run):
    folder = tmp_path / "results"
    shutil.copytree(small_folder, folder)
    with pytest.raises(Unsupported, match="import robustbench"):
        build_published(folder)
    ours = build_table(folder, by="models", metrics=["CA", "RA"], bootstrap=50)
    write()
    write("Other", eps="0.2")
    assert run("import", "robustbench", tmp_path / "model_info", "-o", folder)[0] == 0
    table = build_published(folder, bootstrap=50)
    judged = {row.labels["model"]: row.labels["judged by"] for row in table.rows}
    assert judged == {"cnn": "davylamp", "One": "RobustBench, not davylamp"}  # 0.2 is no radius of ours
    (one,) = (row for row in table.rows if row.labels["model"] == "One")
    assert one.labels["images"] == one.metrics["RA"].n == 10_000
    assert (one.metrics["RA"].low, one.metrics["RA"].high) == pytest.approx(proportion_interval(6420, 10_000))
    mine = [repr(row.metrics["RA"]) for row in table.rows if row.labels["model"] == "cnn"]
    assert sorted(mine) == sorted(repr(row.metrics["RA"]) for row in ours.rows)
    code, out, _ = run("table", folder, "--with-leaderboard", "--json")
    assert code == 0
    assert "do not rank them with the other rows" in out
    assert run("table", folder, "--with-leaderboard")[0] == 0
    assert "--latex cannot be combined" in run("table", folder, "--with-leaderboard", "--latex")[2]


def test_a_ranking_says_that_published_rows_are_not_in_it(write, tmp_path):
    store = ResultsStore(tmp_path / "board")
    assert published_note(store) == []
    import_robustbench(write(), store.folder)
    (note,) = published_note(store)
    assert "1 rows published by RobustBench" in note

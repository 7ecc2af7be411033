"""Whatever happens to an evaluation, it ends with the records of one that nothing happened to."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from davylamp.adapters.models.zoo.load import load_model
from davylamp.engine import AttackChoice, ResultsStore, build_table, evaluate, load, make_plan
from davylamp.engine.run import worker as work
from davylamp.engine.sharing.merge import merge_folders
from davylamp.engine.store.plan_records import list_cells

if sys.platform == "win32":
    pytest.skip("the runs fork", allow_module_level=True)

MODEL = """
import torch

def build():
    layer = torch.nn.Linear(48, 4)
    layer.weight.data = torch.randn(4, 48, generator=torch.Generator().manual_seed(0))
    layer.bias.data.zero_()
    return torch.nn.Sequential(torch.nn.Flatten(), layer)
"""


def write_inputs(folder: Path) -> tuple[str, Path]:
    """A model file, and ten images that it classifies correctly: three shards of at most four."""
    model, data = folder / "model.py", folder / "data.npz"
    model.write_text(MODEL)
    images = np.random.default_rng(0).integers(60, 200, (10, 3, 4, 4), dtype=np.uint8)
    classifier = load_model(f"{model}:build")
    inputs = np.float32(images) / 255
    labels = classifier.predict_logits(classifier.anchor.new_tensor(inputs)).argmax(1).numpy()
    np.savez(data, inputs=images, labels=labels)
    return f"{model}:build", data


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory):
    """A folder with the records of an undisturbed run, and what disturbed ones did, by the way of disturbing."""
    folder = tmp_path_factory.mktemp("disturbed")
    command = [sys.executable, Path(__file__).with_name("runs.py"), *write_inputs(folder), folder]
    done = subprocess.run(
        [*command, "steps", "moments", "pair", "space", "parts"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / "whole", json.loads(done.stdout)


def assert_nothing_twice(report: dict) -> None:
    assert not set(report["had"]) & set(report["ran"])
    assert len(set(report["ran"])) == len(report["ran"])


def test_a_run_killed_before_any_change_of_a_file_resumes_to_the_same_records(disturbed, assert_same):
    whole, reports = disturbed[0], disturbed[1]["steps"]
    assert len(reports) > 20
    assert len(load(whole)) == 10
    for report in reports:
        assert report["status"] == 0
        assert_same(report["folder"], whole)


def test_nothing_that_was_saved_is_run_again(disturbed):
    reports = disturbed[1]["steps"]
    for report in reports:
        assert_nothing_twice(report)
        assert len(set(report["had"]) | set(report["ran"])) == 3
    assert {len(report["ran"]) for report in reports} == set(range(4))  # it was killed at every stage


def test_runs_killed_at_random_moments_again_and_again(disturbed, assert_same):
    whole, reports = disturbed[0], disturbed[1]["moments"]
    assert sum(bool(report["ran"]) for report in reports) > 3  # of two folders: killed at least once amid the work
    for report in reports:
        assert_nothing_twice(report)
        if report["folder"]:
            assert_same(report["folder"], whole)


def test_two_processes_on_one_folder_share_the_work(disturbed, assert_same):
    whole, (report,) = disturbed[0], disturbed[1]["pair"]
    assert report["status"] == 0
    assert_nothing_twice(report)
    assert len(report["ran"]) == 3
    assert_same(report["folder"], whole)
    assert list(Path(report["folder"], "locks").iterdir()) == []


@pytest.mark.parametrize("name", ["shared", "apart"])
def test_parts_that_are_killed_resume_to_the_records_of_one_run(disturbed, name, assert_same, tmp_path):
    whole, reports = disturbed[0], [report for report in disturbed[1]["parts"] if report["name"] == name]
    share = {1: {"0", "2"}, 2: {"1"}}  # ten images in shards of 4, 4 and 2
    for report in reports:
        assert report["status"] == 0
        assert report["killed"]  # it was killed amid a piece
        assert not set(report["had"]) & set(report["ran"])  # what was saved is not run again
        shards = {key.rpartition("-")[2] for key in (*report["killed"], *report["ran"])}
        assert shards == share[report["part"][0]]
    if name == "shared":
        assert_same(whole.with_name("shared"), whole)
        left = {number: missing for number, _, _, missing, _ in reports[0]["missing"]}
        had = {key.rpartition("-")[2] for key in reports[0]["had"]}
        assert left == {number: len(shards - had) for number, shards in share.items()}
    else:
        merge_folders([whole.with_name("apart1"), whole.with_name("apart2")], tmp_path / "merged")
        assert_same(tmp_path / "merged", whole)


def test_a_full_disk_leaves_a_folder_that_can_be_read_and_resumed(disturbed, assert_same):
    whole, reports = disturbed[0], disturbed[1]["space"]
    assert len(reports) == 4
    for report in reports:
        assert report["short"] == 3  # davylamp's own error, no crash
        assert report["drafts"] == []
        assert report["status"] == 0
        assert_nothing_twice(report)
        assert_same(report["folder"], whole)
    assert len(reports[-1]["had"]) > 0  # pieces were small enough for the last limit, the whole cell was not


def test_folders_of_disjoint_halves_merge_by_copying(small_plan, small_folder, tmp_path, assert_same):
    halves = [replace(small_plan, cells=small_plan.cells[:1]), replace(small_plan, cells=small_plan.cells[1:])]
    for number, half in enumerate(halves):
        evaluate(half, ResultsStore(tmp_path / str(number)))
        shutil.copytree(tmp_path / str(number), tmp_path / "both", dirs_exist_ok=True)
    assert_same(tmp_path / "both", small_folder)
    summary = evaluate(small_plan, ResultsStore(tmp_path / "both"))
    assert (summary.done, summary.kept) == (0, 3)


def test_what_was_asked_for_and_is_not_there_yet_is_known(small_plan, small_folder, tmp_path, assert_same):
    store, stop_at, seen = ResultsStore(tmp_path), small_plan.cells[1], []

    def stop(attack, _):
        if attack == stop_at.attack:
            seen.append({state.key: state.status for state in list_cells(tmp_path)})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(small_plan, store, progress=stop)
    first, second, third = (cell.key for cell in small_plan.cells)
    assert seen == [{first: "done", second: "running", third: "waiting"}]
    states = list_cells(tmp_path)
    assert {state.key: state.status for state in states} == {first: "done", second: "waiting", third: "waiting"}
    assert {state.key: state.cell for state in states} == {cell.key: cell for cell in small_plan.cells}
    assert "not run yet, omitted: 2 runs" in build_table(tmp_path).notes[0]

    evaluate(replace(small_plan, cells=small_plan.cells[:2]), store)
    assert [state.status for state in list_cells(tmp_path) if state.key == third] == ["waiting"]
    evaluate(small_plan, store)
    assert {state.status for state in list_cells(tmp_path)} == {"done"}
    assert not any("left out" in note for note in build_table(tmp_path).notes)
    assert store.keys("plans") == []
    assert_same(tmp_path, small_folder)


def test_a_finished_folder_may_be_evaluated_again_where_nothing_can_be_written(small_plan, small_folder, monkeypatch):
    monkeypatch.setattr(ResultsStore, "write", None)
    assert evaluate(small_plan, ResultsStore(small_folder)).kept == 3


@pytest.fixture
def crashing(monkeypatch):
    """FGSM raises as long as the returned list is not empty; it gets a line for every attempt."""
    attack_shard, broken = work.attack_shard, ["crash"]

    def attack(cell, *args, **kwargs):
        if broken and "fgsm" in cell.attack:
            broken.append("attempt")
            raise ValueError("no\nluck")
        return attack_shard(cell, *args, **kwargs)

    monkeypatch.setattr(work, "attack_shard", attack)
    return broken


def test_a_failed_cell_keeps_its_reason_and_is_run_again_only_when_asked(
    crashing, small_plan, small_folder, tmp_path, assert_same
):
    store = ResultsStore(tmp_path)
    failed = next(cell.key for cell in small_plan.cells if "fgsm" in cell.attack)
    first = evaluate(small_plan, store)
    assert first.failed == {failed: "ValueError: no luck"}
    assert first.done == 3
    assert {state.key: state.status for state in list_cells(tmp_path)}[failed] == "failed"
    assert crashing.count("attempt") == 1  # its other shards are not even tried

    assert evaluate(small_plan, store).failed == first.failed
    assert crashing.count("attempt") == 1

    again = evaluate(small_plan, store, retry_failed=True)
    assert (again.done, again.kept, list(again.failed)) == (1, 2, [failed])
    assert crashing.count("attempt") == 2

    crashing.clear()
    assert evaluate(small_plan, store, retry_failed=True).failed == {}
    assert_same(tmp_path, small_folder)


def test_a_failed_start_is_tried_again_too(monkeypatch, digits, images, tmp_path):
    from davylamp.engine.plan.config import Config

    plan = make_plan(
        Config(attacks=(AttackChoice("torchattacks:fgsm", "linf", 0.05),), data="digits"),
        models={"cnn": digits.classifier},
        data=images,
    )
    store = ResultsStore(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(work, "clean_table", lambda *_: 1 / 0)
        evaluate(plan, store)
    assert store.read("clean", store.keys("clean")[0]).failed
    evaluate(plan, store)
    assert store.read("clean", store.keys("clean")[0]).failed
    evaluate(plan, store, retry_failed=True)
    assert not store.read("clean", store.keys("clean")[0]).failed

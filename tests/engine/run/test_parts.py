"""An evaluation in parts, as a job array runs it: the records are those of one run, wherever each part was."""

import subprocess
import sys
from dataclasses import replace

import pytest

import davylamp
from davylamp.engine import AttackChoice, Config, ResultsStore, build_table, evaluate, make_plan
from davylamp.engine.plan.plan import Part, plan_for_part
from davylamp.engine.run import worker
from davylamp.engine.run.processes import WorkerPoolExecutor
from davylamp.engine.sharing.merge import merge_folders
from davylamp.engine.sharing.open_results import open_results
from davylamp.engine.store.plan_records import list_cells, list_parts
from davylamp.engine.store.results import read_outcomes
from davylamp.errors import InvalidInput

if sys.platform == "win32":
    pytest.skip("the runs fork", allow_module_level=True)

DYING = """
import os, signal
from pathlib import Path

import torch

import net

LOG = Path(__file__).with_name("net.log")

class Dies(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net.three()

    def forward(self, inputs):
        if inputs.requires_grad and len(inputs) > 1:
            with LOG.open("a") as file:
                file.write("x")
            if len(LOG.read_text()) == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.net(inputs)
"""
ODD = """
import net

def build():
    model = net.one()
    model.session = (number for number in range(3))
    return model
"""
MEETING = """
import os, time
from pathlib import Path

import foolbox, pandas, torch  # once, before the fork

from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.plan.plan import Part, plan_for_part

torch.set_num_threads(1)
attacks = [AttackChoice("foolbox:pgd", "linf", 0.05, parameters={"steps": 3, "random_start": False})]
asked = {"data": "net.py:images", "measures": ("effect", "cost"), "shard_size": 4}
config = Config(models=("net.py:one",), attacks=attacks, **asked)
plan = make_plan(config)
number = 1 if os.fork() else 2
plan = plan_for_part(plan, Part(number, 2))
left = sum(len(plan.shards(cell)) for cell in plan.cells)
write = ResultsStore.write

def meet(where, seconds):
    Path(f"{where}-{number}").touch()
    end = time.monotonic() + seconds
    while not Path(f"{where}-{3 - number}").exists():
        if time.monotonic() > end:
            return
        time.sleep(0.002)

def meeting_write(self, kind, *record):
    global left
    if kind == "cells":
        meet("joined", 10)  # both have read every piece
    write(self, kind, *record)
    left -= kind == "parts"
    if kind == "parts" and not left:
        meet("last", 120)

ResultsStore.write = meeting_write
summary = evaluate(plan, ResultsStore("shared"))
assert not summary.failed and not summary.unfinished and not summary.damaged, summary
assert number == 2 or os.wait()[1] == 0
"""
PGD = AttackChoice("foolbox:pgd", "linf", 0.05, parameters={"steps": 3, "random_start": False})
FGSM = AttackChoice("torchattacks:fgsm", "linf", 0.05)


def config(*attacks, **settings):
    common = {"models": ("net.py:one",), "data": "net.py:images", "measures": ("effect", "cost"), "shard_size": 4}
    return Config(**{**common, "attacks": attacks, **settings})


def run_parts(plan, of, folder, **settings):
    """Each part on its own, the last one first; the folder of each is that of its number."""
    return {
        number: evaluate(plan_for_part(plan, Part(number, of)), ResultsStore(folder.format(number)), **settings)
        for number in range(of, 0, -1)
    }


def check_both_ways(asked, assert_same, kinds, of=3):
    """One run, parts in one folder and parts in folders of their own that are merged: all the same records."""
    plan = make_plan(asked)
    assert evaluate(plan, ResultsStore("whole")).failed == {}
    run_parts(plan, of, "shared")
    assert_same("shared", "whole", kinds)
    assert ResultsStore("shared").keys("plans") == []

    run_parts(plan, of, "apart{}")
    folders = [f"apart{number}" for number in range(1, of + 1)]
    assert not any(set(ResultsStore(name).keys("cells")) >= {cell.key for cell in plan.cells} for name in folders)
    merged = merge_folders(folders, "merged")
    assert merged.records["cells"] == len(plan.cells)
    assert "parts" not in merged.records
    evaluate(plan, ResultsStore("merged"))  # what needs a whole cell, its transfers, is all that is left
    assert_same("merged", "whole", kinds)
    return plan


def test_two_parts_that_end_at_the_same_moment_lose_nothing(files, assert_same):
    program = [sys.executable, "-c", MEETING]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert len([*files.glob("last-*"), *files.glob("joined-*")]) == 4  # both put the same cell together
    evaluate(make_plan(config(PGD)), ResultsStore("whole"))
    assert_same("shared", "whole")
    assert ResultsStore("shared").keys("plans") == []


def test_a_part_whose_worker_dies_loses_nothing(files, assert_same):
    (files / "dying.py").write_text(DYING)
    plan = make_plan(config(PGD, models=("dying.py:Dies", "net.py:two")))
    summaries = run_parts(plan, 2, "shared", executor=WorkerPoolExecutor(1))
    assert all(summary.failed == {} for summary in summaries.values())
    assert len((files / "net.log").read_text()) > 1  # it died once
    evaluate(plan, ResultsStore("whole"))
    assert_same("shared", "whole")


def test_several_models_and_transfers(files, assert_same):
    asked = config(PGD, FGSM, models=("net.py:one", "net.py:two"), transfer="full")
    plan = check_both_ways(asked, assert_same, {"clean", "cells", "transfer"})
    assert len(plan.cells) == 4


def test_a_worst_case_is_complete_in_each_of_its_shards(files, assert_same):
    asked = config(PGD, FGSM, models=("net.py:one", "net.py:two"), order="cheap-first", stop_when_fooled=True)
    plan = check_both_ways(asked, assert_same, {"clean", "cells"})
    assert all(cell.search.kind == "worst-case" and cell.shards == 3 for cell in plan.cells)
    assert any(len(set(plan_for_part(plan, Part(1, 3)).parts[cell.key])) > 1 for cell in plan.cells)


def test_defences(files, assert_same):
    models = ("net.py:one", "net.py:one+bit-depth:bits=2", "net.py:one+median")
    check_both_ways(config(PGD, models=models, examples="both"), assert_same, {"clean", "cells", "transfer"})


def test_attacks_that_learn_once(files, assert_same):
    uap = AttackChoice("art:uap", "linf", 0.1, parameters={"steps": 1})
    asked = config(uap, PGD, models=("net.py:one", "net.py:two"), fit_data="net.py:more", fit_limit=5)
    check_both_ways(asked, assert_same, {"clean", "cells", "fits"})


def test_an_attack_at_saturation_is_one_piece(files, assert_same):
    asked = config(replace(PGD, attack="at-saturation(foolbox:pgd)", epsilon=None))
    plan = make_plan(asked)
    evaluate(plan, ResultsStore("whole"))
    run_parts(plan, 2, "shared")
    assert_same("shared", "whole")


def test_what_is_missing_is_known_by_part_and_a_table_says_so(files):
    plan = make_plan(config(PGD, FGSM))
    shares = {number: plan_of for number in (1, 2, 3) for plan_of in [plan_for_part(plan, Part(number, 3))]}
    for number in (3, 1):
        evaluate(shares[number], ResultsStore("shared"))
    pieces = {number: sum(len(share.shards(cell)) for cell in plan.cells) for number, share in shares.items()}
    assert sum(pieces.values()) == 6
    states = list_parts(ResultsStore("shared"))
    assert states == [(n, 3, pieces[n], pieces[n] if n == 2 else 0, 0) for n in (1, 2, 3)]
    line = f"shards missing from parts 2/3 ({pieces[2]} of {pieces[2]}); run a part's command again to resume it"
    assert line in read_outcomes("shared", []).notes
    last = evaluate(shares[2], ResultsStore("shared"))
    assert last.unfinished == 0
    assert list_parts(ResultsStore("shared")) == []
    assert not any("missing" in note for note in build_table("shared").notes)


def test_several_folders_are_read_as_one(files):
    plan = make_plan(config(PGD, FGSM))
    evaluate(plan, ResultsStore("whole"))
    run_parts(plan, 2, "apart{}")
    with open_results("apart1", "apart2") as both:
        assert {state.status for state in list_cells(both)} == {"done"}
        ours, theirs = (build_table(folder, metrics=["MR", "QNC"], bootstrap=10) for folder in (both, "whole"))
        assert [row.metrics for row in ours.rows] == [row.metrics for row in theirs.rows]
        assert not any("missing" in note or "left out" in note for note in ours.notes)
    assert len(ResultsStore("apart1").keys("parts")) == 3  # the folders themselves are as they were


def test_what_cannot_be_known_in_full_is_refused_unless_trusted(files):
    (files / "odd.py").write_text(ODD)
    plan = make_plan(config(PGD, models=("odd.py:build",)))
    assert plan.unknown
    with pytest.raises(InvalidInput, match=r"can be identified, but odd\.py:build"):
        run_parts(plan, 2, "shared")
    run_parts(plan, 2, "shared", trust_unknown=True)
    assert {state.status for state in list_cells("shared")} == {"done"}


@pytest.mark.parametrize("is_retried", [True, False])
def test_pieces_beside_a_failure_are_merged_with_it_and_replace_it_when_all_are_there(
    files, monkeypatch, assert_same, is_retried
):
    plan = make_plan(config(PGD))
    first, second = (plan_for_part(plan, Part(number, 2)) for number in (1, 2))
    evaluate(plan, ResultsStore("whole"))
    with monkeypatch.context() as patch:
        patch.setattr(worker, "attack_shard", lambda *_, **__: 1 / 0)
        assert list(evaluate(first, ResultsStore("apart1")).failed) == [plan.cells[0].key]
    if is_retried:
        assert evaluate(first, ResultsStore("apart1"), retry_failed=True).failed == {}
    evaluate(second, ResultsStore("apart2"))
    merge_folders(["apart1", "apart2"], "merged")
    with open_results("apart1", "apart2") as both:
        assert [state.status for state in list_cells(both)] == ["done" if is_retried else "failed"]
    if not is_retried:
        assert [state.status for state in list_cells("merged")] == ["failed"]
        assert evaluate(second, ResultsStore("merged")).failed  # a failure is no result, whatever pieces there are
        merged, ran = ResultsStore("merged"), []
        attack = worker.attack_shard
        monkeypatch.setattr(worker, "attack_shard", lambda *args, **words: ran.append(1) or attack(*args, **words))
        assert evaluate(plan, merged, retry_failed=True).failed == {}
        assert len(ran) == len(first.shards(plan.cells[0]))  # what the other part has made is not made again
    assert_same("merged", "whole")


@pytest.mark.parametrize(("part", "expected"), [("", 2.0), ("2/4", 0.5)])
def test_servers_are_asked_by_all_parts_together_at_the_rate_that_was_given(
    files, monkeypatch, run, tmp_path, part, expected
):
    rates, transport = [], Config.transport

    def watched(config, *given):
        if not given:  # where the settings are checked
            return transport(config)
        rates.append(transport(config, *given).rate)
        raise InvalidInput("that is all")

    monkeypatch.setattr(Config, "transport", watched)
    asked = {"models": "net.py:one", "data": "net.py:images", "request_rate": "6", "workers": 3}
    with pytest.raises(InvalidInput, match="that is all"):
        davylamp.evaluate(attacks="foolbox:pgd", norm="linf", epsilon=0.05, out="r", part=part, **asked)
    options = [word for name, value in asked.items() for word in (f"--{name}", str(value))]
    options += ["--part", part] if part else []
    code, _, err = run(
        "evaluate", *options, "--attacks", "foolbox:pgd", "--norm", "linf", "--epsilon", "0.05", "-o", "r"
    )
    assert (code, "that is all" in err) == (1, True), err
    assert rates == pytest.approx([expected] * 2)


def test_in_python_a_part_that_is_none_is_refused_before_anything_is_loaded(files, monkeypatch):
    monkeypatch.setattr("davylamp.api.evaluation.make_plan", lambda *_, **__: pytest.fail("it was planned"))
    with pytest.raises(InvalidInput, match="expected a part from 1 to 4, got '0/4'"):
        davylamp.evaluate("net.py:one", attacks="foolbox:pgd", data="net.py:images", out="r", part="0/4")


@pytest.mark.parametrize("made", ["x", None, {"plan": [1]}])
def test_a_piece_that_does_not_say_which_evaluation_made_it_is_damaged(files, made):
    plan = make_plan(config(PGD))
    run_parts(plan, 2, "apart{}")
    store = ResultsStore("apart1")
    key = store.keys("parts")[0]
    record = store.read("parts", key)
    store.write("parts", key, record.table, {**record.meta, "identity": made})
    with pytest.raises(InvalidInput, match=r"evaluation"):
        merge_folders(["apart1", "apart2"], "merged")


def test_a_piece_of_a_cell_of_billions_of_images_is_left_alone(files):
    plan = make_plan(config(PGD))
    cell = plan.cells[0]
    run_parts(plan, 2, "apart{}")
    vast = replace(cell, subject=replace(cell.subject, images=10**12))
    store = ResultsStore("apart1")
    record = store.read("parts", store.keys("parts")[0])
    store.write("parts", f"{vast.key}-0", record.table, {**record.meta, "key": vast.key, "spec": vast.spec})
    merge_folders(["apart1", "apart2"], "merged")
    assert ResultsStore("merged").keys("cells") == [cell.key]
    assert ResultsStore("merged").keys("parts") == [f"{vast.key}-0"]

"""Tasks and leases: fair turns, one worker each, resume after a death with no cell run twice, reuse, signatures."""

import io
import json
import subprocess
import sys
import threading
import time
import warnings
import zipfile
from collections import Counter
from types import SimpleNamespace

import pytest
from sqlalchemy import select

from davylamp.adapters.models.sandbox.bubblewrap import Sandbox
from davylamp.engine.run import worker
from davylamp.errors import InvalidInput, UnknownName
from davylamp.server.database.records import CellRow, TaskRow
from davylamp.server.tasks import leases, sandboxed, work
from davylamp.server.tasks.leases import Heartbeat, Lease, end_task, lease_task, renew_lease
from davylamp.server.tasks.sandboxed import ProcessExit, TaskLimits, run_sandboxed
from davylamp.server.tasks.signing import export_task, public_key, verify_export
from davylamp.server.tasks.submission import TaskRequest, cancel, read_settings, retry, submit
from davylamp.server.tasks.work import TaskWorker, WorkerSettings

from .conftest import ATTACK, DEFENCE, run_here


@pytest.fixture
def wait(folder, users, embedded):
    """Submit a small task of MNIST's models: (user's name, attacks by entry, settings)."""

    def submit_one(name="alice", attacks=("foolbox:fgsm",), priority=0, visibility="public", **settings):
        chosen = {"models": [embedded["demo:mnist-lenet5"]], "data": [embedded["demo:mnist"]], "limit": 3}
        chosen["attacks"] = [
            each if isinstance(each, dict) else {"component": embedded.get(each, each), "epsilon": 0.2}
            for each in attacks
        ]
        wish = TaskRequest({**chosen, **settings}, "", visibility, priority)
        with folder.database.writing() as session:
            return submit(session, folder, users[name], wish).id

    return submit_one


def see(folder, number):
    with folder.database.reading() as session:
        return session.get_one(TaskRow, number)


def cells(folder, number):
    with folder.database.reading() as session:
        return session.scalars(select(CellRow).where(CellRow.task_id == number).order_by(CellRow.key)).all()


def test_turns_are_fair_among_users_then_by_priority_then_by_age(folder, wait):
    first, second, urgent = wait(), wait(), wait(priority=5)
    other = wait("bob")
    order = [lease_task(folder.database).task for _ in range(4)]
    assert order == [urgent, other, first, second]
    assert lease_task(folder.database) is None


def test_who_computed_much_lately_waits(folder, wait):
    spent = wait()
    lease = lease_task(folder.database)
    with folder.database.writing() as session:
        end_task(session, lease, "done", "", seconds=100.0)
    wait()
    bobs = wait("bob")
    assert lease_task(folder.database).task == bobs
    assert see(folder, spent).state == "done"


def test_of_many_workers_one_takes_a_task(folder, wait):
    numbers, taken = {wait() for _ in range(3)}, []
    gate = threading.Barrier(6)

    def take():
        gate.wait()
        taken.append(lease_task(folder.database))

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {lease.task for lease in taken if lease} == numbers
    assert taken.count(None) == 3


def test_a_lease_that_is_not_kept_ends_and_the_worker_that_had_it_is_told(folder, wait, monkeypatch):
    number, clock = wait(), SimpleNamespace(now=time.time())
    monkeypatch.setattr(leases, "time", SimpleNamespace(time=lambda: clock.now))
    dead = lease_task(folder.database, seconds=5)
    clock.now += 4
    assert lease_task(folder.database) is None
    assert renew_lease(folder.database, dead, 5, images=10, images_done=4) == Heartbeat(True)
    clock.now += 4
    assert lease_task(folder.database) is None
    clock.now += 2
    living = lease_task(folder.database)
    assert living.task == number
    assert renew_lease(folder.database, dead) == Heartbeat(False)
    with folder.database.writing() as session:
        assert not end_task(session, dead, "failed", "late")
        assert end_task(session, living, "done", "in time")
    assert (see(folder, number).state, see(folder, number).message) == ("done", "in time")
    assert (see(folder, number).images_done, see(folder, number).attempts) == (4, 2)


def test_a_task_that_ends_its_workers_is_given_up(folder, wait):
    number = wait()
    with folder.database.writing() as session:
        session.get_one(TaskRow, number).attempts = 100
    assert lease_task(folder.database) is None
    assert "ended 100 times" in see(folder, number).message


@pytest.fixture
def counted(monkeypatch):
    """How often each shard of each cell was attacked."""
    counts = Counter()
    do = worker.TaskRunner.do

    def counting(bench, task, *rest):
        if task.kind == "attack":
            counts[task.name] += 1
        return do(bench, task, *rest)

    monkeypatch.setattr(worker.TaskRunner, "do", counting)
    return counts


def test_a_worker_that_dies_leaves_its_cells_to_the_next_and_none_is_run_twice(
    folder, wait, embedded, monkeypatch, counted
):
    number = wait(defences=[embedded["bit-depth:bits=4"]], seeds=[0, 1], visibility="private")

    class Killed(BaseException):
        pass

    def dies(command, scratch, limits, *, watch, **rest):
        def until_one_is_done():
            if counted.total() >= 2:
                raise Killed
            return watch()

        return run_here(command, scratch, limits, watch=until_one_is_done, **rest)

    monkeypatch.setattr(work, "run_sandboxed", dies)
    # The thread of the dead worker's task goes on here; a process would end: wait for it, as for a lock that it has.
    with pytest.raises(Killed):
        TaskWorker(folder, WorkerSettings(lease=0.2, trust=True)).run_one()
    assert see(folder, number).state == "running"
    time.sleep(0.25)
    for thread in threading.enumerate():
        if thread.name == "task":
            thread.join()
    monkeypatch.setattr(work, "run_sandboxed", run_here)
    assert TaskWorker(folder, WorkerSettings(trust=True)).run_one()
    task = see(folder, number)
    assert (task.state, task.attempts, task.images_done) == ("done", 2, task.images)
    assert len(cells(folder, number)) == 4
    assert set(counted.values()) == {1}
    assert len(counted) == 4


def test_cells_that_exist_are_not_run_again_where_the_owner_may_see_them(folder, wait, in_process, counted):
    first = wait()
    TaskWorker(folder).run_one()
    second = wait("bob", attacks=("foolbox:fgsm", "foolbox:pgd"))
    TaskWorker(folder).run_one()
    assert see(folder, second).message.startswith("1 finished, 1 reused")
    shared = {cell.key: cell for cell in cells(folder, second)}
    (cell,) = cells(folder, first)
    assert (shared[cell.key].reused, shared[cell.key].digest, cell.reused) == (True, cell.digest, False)
    assert set(counted.values()) == {1}
    secret = wait(visibility="private", attacks=("torchattacks:pgd",))
    TaskWorker(folder).run_one()
    again = wait("bob", attacks=("torchattacks:pgd",))
    TaskWorker(folder).run_one()
    assert see(folder, again).message.startswith("1 finished, 0 reused")
    assert cells(folder, secret)[0].key == cells(folder, again)[0].key


def test_cells_beside_programs_of_another_user_are_not_taken_over(folder, wait, users, add, in_process):
    foreign = add(users["alice"], "attack", "code", "sign_step", "a.py", ATTACK.encode(), visibility="public")
    wait(attacks=("foolbox:fgsm", foreign))
    TaskWorker(folder, WorkerSettings(trust=True)).run_one()
    mine, others = wait(), wait("bob")
    for _ in range(2):
        TaskWorker(folder).run_one()
    assert "0 finished, 1 reused" in see(folder, mine).message
    assert "1 finished, 0 reused" in see(folder, others).message


def test_uploaded_files_are_models_attacks_defences_and_data_of_a_task(
    folder, wait, users, add, digit_file, in_process
):
    attack = add(users["alice"], "attack", "code", "sign_step", "a.py", ATTACK.encode())
    defence = add(users["alice"], "defence", "code", "rounded", "d.py", DEFENCE.encode())
    data = add(users["alice"], "data", "npz", "", "d.npz", digit_file)
    number = wait(attacks=(attack, "foolbox:fgsm"), defences=[defence], data=[data], limit=None)
    TaskWorker(folder, WorkerSettings(trust=True)).run_one()
    task, done = see(folder, number), cells(folder, number)
    assert task.state == "done", task.message
    assert {(cell.model, cell.attack) for cell in done} == {
        (model, name)
        for model in ("demo:mnist-lenet5", "demo:mnist-lenet5+alice/defence-thing-1/d.py:rounded")
        for name in ("alice/attack-thing-1/a.py:sign_step", "foolbox:fgsm")
    }
    by_hand, theirs = ([c for c in done if c.attack_id == each and c.defence_id is None] for each in (attack, None))
    assert theirs == []
    same = [c for c in done if c.attack == "foolbox:fgsm" and c.defence_id is None]
    assert (by_hand[0].fooled, by_hand[0].attacked) == (same[0].fooled, same[0].attacked)  # both are one step
    assert {cell.images for cell in done} == {8}


def test_programs_of_users_are_refused_without_trust_and_without_a_sandbox(
    folder, wait, users, add, in_process, monkeypatch
):
    monkeypatch.setattr(sandboxed, "find_sandbox", lambda: Sandbox("", "it is not installed"))
    attack = add(users["alice"], "attack", "code", "sign_step", "a.py", ATTACK.encode())
    number = wait(attacks=(attack,))
    TaskWorker(folder, WorkerSettings(trust=False)).run_one()
    assert see(folder, number).state == "failed"
    assert "refused: this server takes no files of users (there is no sandbox here: it" in see(folder, number).message


def test_programs_of_users_run_in_a_sandbox_where_there_is_one(folder, wait, users, add, in_process, sandbox):
    nosy = ATTACK.replace("    ", "    open('/etc/shadow')\n    ", 1)
    attack = add(users["alice"], "attack", "code", "sign_step", "a.py", nosy.encode())
    number = wait(attacks=(attack, "foolbox:fgsm"))
    TaskWorker(folder, WorkerSettings(trust=False)).run_one()
    task = see(folder, number)
    assert task.state == "done"
    assert task.message.startswith("2 finished, 0 reused, 1 failed")
    assert "No such file or directory: '/etc/shadow' (line " in task.message


def test_a_task_says_why_it_failed_and_what_was_left_out(folder, wait, embedded, in_process):
    wrong = wait(models=[embedded["demo:efficientnet-lite0"]])
    half = wait(models=[embedded["demo:efficientnet-lite0"], embedded["demo:mnist-lenet5"]])
    TaskWorker(folder).run_one()
    TaskWorker(folder).run_one()
    assert see(folder, wrong).state == "failed"
    assert "expected data with the classes of demo:efficientnet-lite0" in see(folder, wrong).message
    assert see(folder, half).state == "done"
    assert "demo:efficientnet-lite0: expected data" in see(folder, half).message


@pytest.mark.parametrize("kind", ["torn", "outside"])
def test_data_that_is_not_what_it_said_fails_its_task_and_no_worker(folder, wait, users, add, in_process, kind):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        opened.writestr("labels.csv", "file,label\n../../../../9/room/bob/data-secret-1/images/a.png,0\n")
        opened.writestr("a.png", b"sixteen bytes...")
    content = buffer.getvalue()
    content = content.replace(b"sixteen bytes...", b"SIXTEEN BYTES...") if kind == "torn" else content
    data = add(users["alice"], "data", "folder", "", "d.zip", content)
    number = wait(data=[data])
    assert TaskWorker(folder).run_one()
    task = see(folder, number)
    assert (task.state, task.attempts) == ("failed", 1)
    assert ("Bad CRC-32" if kind == "torn" else "expected a file inside the folder") in task.message
    assert str(folder.path) not in task.message
    after = wait()
    assert TaskWorker(folder).run_one()
    assert see(folder, after).state == "done"


def test_a_task_that_breaks_its_worker_is_not_taken_again(folder, wait, in_process, monkeypatch, capfd):
    number = wait()
    monkeypatch.setattr(work, "ingest_results", lambda *_: 1 / 0)
    assert TaskWorker(folder).run_one()
    assert (see(folder, number).state, "ZeroDivisionError" in see(folder, number).message) == ("failed", True)
    assert "Traceback" in capfd.readouterr().err
    assert not TaskWorker(folder).run_one()


def test_a_task_can_be_cancelled_and_tried_again(folder, wait, users, monkeypatch):
    number, never = wait(), wait(priority=-1)
    with folder.database.writing() as session:
        cancel(session, users["alice"], never)

    def cancelled(command, scratch, limits, *, watch, **rest):
        with folder.database.writing() as session:
            cancel(session, users["alice"], number)
        return ProcessExit(-15, watch())

    monkeypatch.setattr(work, "run_sandboxed", cancelled)
    TaskWorker(folder).run_one()
    assert (see(folder, number).state, see(folder, never).state) == ("cancelled", "cancelled")
    with folder.database.writing() as session:
        retry(session, users["alice"], number)
    monkeypatch.setattr(work, "run_sandboxed", run_here)
    TaskWorker(folder).run_one()
    assert see(folder, number).state == "done"
    with folder.database.writing() as session, pytest.raises(InvalidInput, match="this task is done"):
        retry(session, users["alice"], number)


def test_a_finished_task_is_signed_and_what_was_changed_is_noticed(folder, wait, in_process, tmp_path):
    number = wait()
    TaskWorker(folder).run_one()
    path = tmp_path / "task.zip"
    with path.open("wb") as file:
        export_task(folder, number, file)
    manifest = verify_export(path, public_key(folder))
    (cell,) = cells(folder, number)
    assert [(each["key"], each["sha256"], each["seed"]) for each in manifest["cells"]] == [(cell.key, cell.digest, 0)]
    assert "foolbox" in manifest["cells"][0]["versions"]
    with pytest.raises(InvalidInput, match="to be signed by"):
        verify_export(path, "0" * 64)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    document = json.loads(content["manifest.json"])
    record = next(name for name in content if name.startswith("results/cells/"))
    for changed in (
        {"manifest.json": json.dumps({**document, "owner": "mallory"}).encode()},
        {record: content[record] + b"x"},
        {"results/cells/more.parquet": b""},
        {"../../evil.sh": b"of nobody"},
        {"config-0.toml": b"models = []"},
    ):
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in {**content, **changed}.items():
                archive.writestr(name, data)
        with pytest.raises(InvalidInput, match=r"expected|was changed after"):
            verify_export(path)
    assert "config-0.toml" in content
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name that is there twice
        for name, data in [(record, b"another"), *content.items()]:
            archive.writestr(name, data)
    with pytest.raises(InvalidInput, match="two files with the same name"):
        verify_export(path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"limit": 0}, "limit: expected a whole number"),
        ({"limit": 20_000}, "at most 10000 images"),
        ({"seeds": list(range(21))}, "seeds: expected at most 20"),
        ({"models": []}, "models: expected at least one"),
        ({"undefended": False}, "1 to 1000 runs, got 0"),
        ({"undefended": "yes"}, "true or false"),
        ({"models": "all"}, "models: expected a list"),
        ({"models": [True]}, "whole number"),
        ({"device": "cuda"}, "unknown setting 'device'"),
        ({"attacks": [{"component": 10, "epsilon": "nan"}]}, "epsilon|radius"),
        ({"attacks": [{"component": 10, "epsilon": -1}]}, r"epsilon: expected a number > 0"),
        ({"attacks": [{"component": 10, "norm": "l3"}]}, "norm 'l3'"),
        ({"attacks": [{"component": 10, "file": "/etc/passwd"}]}, "unknown setting of an attack"),
        ({"attacks": [{"component": 10, "parameters": {"steps": [1]}}]}, "a table of at most 30 names"),
    ],
)
def test_settings_that_are_none_are_refused_before_a_task_waits(wait, settings, message):
    with pytest.raises((InvalidInput, UnknownName), match=message):
        wait(**settings)


def test_components_stand_where_their_kind_belongs(wait, embedded):
    with pytest.raises(InvalidInput, match="models only, got foolbox-fgsm, which is an attack"):
        wait(models=[embedded["foolbox:fgsm"]])


def test_a_process_is_ended_when_it_has_to_be_and_its_log_is_bounded(tmp_path):
    (tmp_path / "room").mkdir()
    settings = {"watch": lambda: "", "environment": {"PATH": "/usr/bin:/bin"}}
    outcome = run_sandboxed(["sh", "-c", "yes | head -c 3000000; exit 3"], tmp_path, TaskLimits(), **settings)
    assert outcome == (3, "")
    assert (1 << 20) <= (tmp_path / "log.txt").stat().st_size < (1 << 20) + 100
    outcome = run_sandboxed(["sleep", "60"], tmp_path, TaskLimits(seconds=0.2), **settings)
    assert (outcome.code, outcome.reason) == (-15, "it took longer than 0 s")
    (tmp_path / "large").write_bytes(bytes(2 << 20))
    outcome = run_sandboxed(["sleep", "60"], tmp_path, TaskLimits(disk=1 / 1024), **settings)
    assert outcome.reason == "its folder holds more than 0.000976562 GiB"
    settings["watch"] = lambda: "stop"
    assert run_sandboxed(["sh", "-c", "sleep 60"], tmp_path, TaskLimits(), **settings).reason == "stop"
    assert run_sandboxed(["sh", "-c", "cat; exit 5"], tmp_path, TaskLimits(), **settings).code != 0


def test_a_task_that_needs_more_memory_than_it_may_have_says_so(tmp_path):
    """As in the process of a task: its limit is there, and what goes beyond it is a reason and not a crash."""
    program = (
        "import sys, resource, json, pathlib; from davylamp.server.tasks import task_process; "
        "task_process.machine_bytes = lambda: 8 << 30; task_process.run_task = lambda folder: bytearray(100 << 30); "
        "sys.argv = ['', sys.argv[1]]; task_process.main()"
    )
    (tmp_path / "job.json").write_text(json.dumps({"configs": [{"device": "cpu"}]}))
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE) as process:
        assert process.wait(timeout=120) == 0  # while its standard input is open: with that it ends, too
    assert "more memory than this machine" in json.loads((tmp_path / "outcome.json").read_text())["error"]


def test_a_lease_of_a_task_that_is_gone_is_nobodys(folder):
    assert renew_lease(folder.database, Lease(4, "mark")) == Heartbeat(False)


def test_settings_have_the_names_of_config_and_empty_ones_are_defaults():
    given = {"models": [1], "attacks": [2], "data": [3]}
    empty = {"order": None, "examples": "", "limit": None, "max_queries": ""}
    assert read_settings({**given, **empty, "eight_bit": True}) == read_settings({**given, "pixels": True})
    with pytest.raises(UnknownName, match="eight-bit"):
        read_settings({**given, "eight-bit": True})

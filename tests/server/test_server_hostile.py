"""Strangers' programs that attack the server: each ends in a named failure of its cell, and harms no other.

Attacks one by one are in tests/adapters/libraries/test_attacks_apart.py; here they come as files of a user.
"""

import os
import socket
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import select

from davylamp.adapters.models.sandbox.bubblewrap import find_sandbox
from davylamp.adapters.running import judge
from davylamp.server.database.records import CellRow, TaskRow
from davylamp.server.tasks.sandboxed import TaskLimits
from davylamp.server.tasks.submission import TaskRequest, submit
from davylamp.server.tasks.work import TaskWorker, WorkerSettings

pytestmark = [
    pytest.mark.skipif(not find_sandbox().program, reason=find_sandbox().reason),
    # A dozen processes that load torch, one after the other: 240 s on two cores with fifteen other processes.
    pytest.mark.timeout(1800),
]
# What a program does, and part of the line that its cell fails with; PORT is the server's.
DEEDS = {
    "reads": ("raise ValueError(open('/etc/passwd').read())", "No such file or directory: '/etc/passwd'"),
    "connects": ("socket.create_connection(('1.1.1.1', 80), timeout=5)", "Network is unreachable"),
    "asks": ("socket.create_connection(('127.0.0.1', PORT), timeout=5)", "Connection refused"),
    "forks": ("while True: os.fork() or os.setsid()", "started more than"),
    "disk": ("for n in range(999): open(f'/tmp/{n}', 'wb').write(bytes(1 << 24))", "No space left on device"),
    "memory": ("torch.ones(100 << 28)", "allocate memory"),
    "shares": ("many()", "GiB across its processes"),
    "writes": ("open(os.path.join(os.path.dirname(__file__), 'x'), 'w')", "Read-only file system"),
    "escapes": ("print('\\x1b[2J'); raise ValueError('\\x1b[31mred')", "ValueError: ?[31mred"),
    "returns": ("return torch.zeros(1).expand(10 << 28)", ""),  # a model says it differently than an attack
    "pickles": ("return Stranger()", ""),
}
# As a model each of these is asked three times (planned, clean, attacked), at some ten seconds a time: as attacks only.
DEAR = {"disk", "shares"}
# Each is a process that loads torch: one for each limit, for what is said and for what comes back. `all` is nightly.
FEW = {"attack": ("reads", "forks", "escapes", "returns"), "defence": ("reads", "memory", "pickles")}
ALL = {"attack": tuple(DEEDS), "defence": tuple(name for name in DEEDS if name not in DEAR)}
some_deeds = pytest.mark.parametrize("deeds", [FEW, ALL], ids=["few", "all"])
FILE = """
import os, socket, time

import torch


class Stranger:
    def __reduce__(self):
        return os.system, ("touch PLACE",)


def many():
    for _ in range(12):
        if os.fork() == 0:
            held = bytearray(os.urandom(1 << 20) * 200)
            time.sleep(60)
    time.sleep(60)
"""
ATTACK = """

def NAME(model, inputs, labels, epsilon):
    DEED
    return inputs

NAME.norm = "linf"
"""
DEFENCE = """

class NAMEModule(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def deed(self):
        DEED

    def forward(self, inputs):
        done = self.deed()
        return self.model(inputs) if done is None else done

def NAME(classifier):
    return NAMEModule(classifier)
"""
PATCHES = """

def patches(model, inputs, labels, epsilon):
    from davylamp.adapters.running import judge
    from davylamp.engine.store.store import ResultsStore
    judge.judge_images = lambda *_, **__: "fooled"
    ResultsStore.write = lambda *_, **__: None
    torch.Tensor.argmax = lambda self, *_: torch.ones(len(self), dtype=torch.long)
    return inputs + 1e-3

def knows_the_labels(model, inputs, labels, epsilon):
    ready = torch.zeros_like(inputs)  # for each label an image of another class, made at home
    for place, label in enumerate(labels.tolist()):
        ready[place] = inputs[(labels != label).nonzero()[0, 0]]
    return ready

patches.norm = knows_the_labels.norm = "linf"
"""


@pytest.fixture
def evaluate(folder, users, embedded, add, tmp_path):
    """Run the deeds as programs of a user, all in one task: (kind, template, more of the file); the cells by name."""

    def run(kind, template, deeds, more="", names=()):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = str(server.getsockname()[1])
        parts = [template.replace("NAME", name).replace("DEED", DEEDS[name][0]) for name in deeds[kind]]
        content = FILE.replace("PLACE", str(tmp_path / "unpickled")) + "".join(parts).replace("PORT", port) + more
        numbers = {
            name: add(users["alice"], kind, "code", name, "program.py", content.encode(), name=name.replace("_", "-"))
            for name in (*deeds[kind], *names)
        }
        settings = {"models": [embedded["demo:mnist-lenet5"]], "data": [embedded["demo:mnist"]], "limit": 3}
        good = {"component": embedded["foolbox:fgsm"], "epsilon": 0.2}
        if kind == "attack":
            settings["attacks"] = [good, *({"component": each, "epsilon": 0.1} for each in numbers.values())]
        else:
            settings |= {"attacks": [good], "defences": [*numbers.values()]}
        with folder.database.writing() as session:
            task = submit(session, folder, users["alice"], TaskRequest(settings, visibility="private")).id
        assert TaskWorker(folder, WorkerSettings(limits=TaskLimits(memory=1.5))).run_one()
        with folder.database.reading() as session:
            rows = session.scalars(select(CellRow).where(CellRow.task_id == task)).all()
            row = session.get_one(TaskRow, task)
        of = {number: name for name, number in numbers.items()}
        return row, {of.get(each.attack_id if kind == "attack" else each.defence_id, "good"): each for each in rows}

    return run


def check_failures(task, cells, names, tmp_path):
    assert task.state == "done", task.message
    assert cells["good"].state == "done"
    assert (cells["good"].attacked, cells["good"].fooled) == (3, 3)
    for name in names:
        line = DEEDS[name][1]
        assert cells[name].state == "failed", (name, cells[name].fooled)
        # By the hard limit; or a child of its answers first, while its identity is found out.
        seen = ("Resource temporarily unavailable", "sent an invalid message")
        is_refused = name == "forks" and any(text in cells[name].reason for text in seen)
        assert line in cells[name].reason or is_refused, (name, cells[name].reason)
        assert not {"\n", "\x1b"} & set(cells[name].reason)
    assert not (tmp_path / "unpickled").exists()
    assert sum(thread.name == "task" for thread in threading.enumerate()) == 0


@some_deeds
@pytest.mark.usefixtures("in_process")
def test_attacks(evaluate, deeds, tmp_path, capfd):
    real = judge.judge_images
    task, cells = evaluate("attack", ATTACK, deeds, PATCHES, ("patches", "knows_the_labels"))
    check_failures(task, cells, deeds["attack"], tmp_path)
    assert judge.judge_images is real
    assert "expected tensors of at most" in cells["returns"].reason
    assert (cells["patches"].state, cells["patches"].fooled) == ("done", 0)
    known = cells["knows_the_labels"]
    assert (known.state, known.attacked, known.fooled) == ("done", 3, 0)
    assert known.reason.startswith("3 of 3 images ")
    assert known.reason.endswith(" do not count: out-of-ball 3")
    assert "\x1b" not in capfd.readouterr().err


@some_deeds
@pytest.mark.usefixtures("in_process")
def test_defences(evaluate, deeds, tmp_path, capfd):
    task, cells = evaluate("defence", DEFENCE, deeds)
    check_failures(task, cells, deeds["defence"], tmp_path)
    assert "\x1b" not in capfd.readouterr().err


def test_nobody_is_left():
    inside = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            try:
                words = (place / "cmdline").read_bytes().decode(errors="replace")
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            inside += [words] if parent == 1 and "forking_server" in words and sys.executable in words else []
    assert inside == []

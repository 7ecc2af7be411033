"""A program: evaluations in forked children that are killed, crowded or short of space; prints what each did, as JSON.

    python runs.py MODEL DATA FOLDER MODE...

What the attack and the store need is loaded before the forks; nothing is run there, because where there is a GPU torch
can compute no gradients in the child of a process that has. An undisturbed run is FOLDER/whole. A child logs each piece
of work as it starts on it, so that what is run twice shows. MODE is `steps` (left as before each single change of a
file), `moments` (killed after random times), `pair` (two at once), `space` (no file may pass a size), `parts` (a job
array) or `orphans` (workers whose driver is killed).
"""

import json
import os
import random
import resource
import shutil
import signal
import sys
import time
from importlib import import_module
from itertools import count
from pathlib import Path

import torch
from PIL import Image

from davylamp.adapters import LIBRARIES
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.plan.plan import Part, plan_for_part
from davylamp.engine.run import processes
from davylamp.engine.run import worker as work
from davylamp.engine.run.processes import WorkerPoolExecutor
from davylamp.engine.store.plan_records import list_parts
from davylamp.errors import Unavailable

OUT_OF_SPACE = 3
KINDS = ("parts", "cells")
model, data, root, modes = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:]
attack = AttackChoice("torchattacks:pgd", "linf", 0.05, parameters={"steps": 2, "random_start": True})
config = Config((model,), (attack,), f"npz:{data}", shard_size=4, measures=("effect", "cost"))


def log_of(folder: Path, part: Part | None = None) -> Path:
    return folder.parent / (f"{folder.name}.log" if part is None else f"{folder.name}.{part.number}.log")


def log_work(log: Path) -> None:
    attack_shard = work.attack_shard

    def logged(cell, *args, first=0, **kwargs):
        with log.open("a") as file:
            file.write(f"{cell.key}-{first // 4}\n")
        return attack_shard(cell, *args, first=first, **kwargs)

    work.attack_shard = logged


def copy_before_changes(folder: Path) -> None:
    """Copy a folder to root/step1, ... right before each change: what a process that is killed there leaves."""
    numbers, kept = count(), set()

    def look(event: str, arguments: tuple) -> None:
        changes = event in ("os.rename", "os.remove", "os.mkdir")
        changes = changes or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR))
        if changes and Path(os.fsdecode(arguments[0])).is_relative_to(folder):
            state = {(path, path.read_bytes() if path.is_file() else b"") for path in sorted(folder.rglob("*"))}
            if folder.exists() and frozenset(state) not in kept:  # equal folders are resumed once
                kept.add(frozenset(state))
                shutil.copytree(folder, root / f"step{next(numbers)}")

    sys.addaudithook(look)


def limit_files(size: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def start(folder: Path, prepare=lambda: None, executor=None, part: Part | None = None) -> int:
    """Evaluate in a child; its process id."""
    child = os.fork()
    if child:
        return child
    try:
        log_work(log_of(folder, part))
        prepare()
        plan = make_plan(config)
        evaluate(plan_for_part(plan, part) if part else plan, ResultsStore(folder), executor=executor and executor())
    except Unavailable as error:
        print(error, file=sys.stderr)
        os._exit(OUT_OF_SPACE)
    os._exit(0)


def run(folder: Path, prepare=lambda: None) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(start(folder, prepare), 0)[1])


def has_ended(child: int) -> bool:
    """Whether a child is over; it can still be waited for."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def saved(folder: Path) -> list[str]:
    """Pieces of work whose records are there."""
    parts, cells = ([path.name.partition(".")[0] for path in folder.glob(f"{kind}/[!.]*.parquet")] for kind in KINDS)
    return parts + [f"{cell}-{shard}" for cell in cells for shard in range(3)]


def taken_up(folder: Path, part: Part | None = None) -> list[str]:
    log = log_of(folder, part)
    return log.read_text().split() if log.exists() else []


def resumed(folder: Path) -> dict:
    """What a last, undisturbed run still does, beside what was there."""
    had, before = saved(folder), len(taken_up(folder))
    status = run(folder)
    return {"folder": str(folder), "had": had, "ran": taken_up(folder)[before:], "status": status}


def steps():
    yield resumed(root / "nothing")
    folder = root / "copied"
    assert run(folder, lambda: copy_before_changes(folder)) == 0
    yield from [resumed(path) for path in sorted(root.glob("step*[0-9]"))]


def moments():
    begin, draw = time.monotonic(), random.Random(0)
    run(root / "again")
    duration = time.monotonic() - begin
    for number in range(2):
        folder = root / f"moments{number}"
        for turn in range(4):
            had, before = saved(folder), len(taken_up(folder))
            child, begin = start(folder), time.monotonic()
            amid = turn % 2 == 0
            while amid and len(taken_up(folder)) == before and time.monotonic() - begin < 5 * duration:
                time.sleep(0.002)  # every other time in the midst of work, however busy the machine is
            time.sleep(draw.uniform(0, 0.01 if amid else duration))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            yield {"folder": "", "had": had, "ran": taken_up(folder)[before:]}
        yield resumed(folder)


def pair():
    folder = root / "pair"
    children = [start(folder), start(folder)]
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    yield {"folder": str(folder), "had": [], "ran": taken_up(folder), "status": max(statuses)}


def parts():
    """Two parts of one evaluation, in one folder and in folders of their own: killed twice amid their work, resumed."""
    for name in ("shared", "apart"):
        homes = {Part(number, 2): root / (name if name == "shared" else f"{name}{number}") for number in (1, 2)}
        killed: dict[Part, list[str]] = {part: [] for part in homes}
        for _ in range(2):
            before = {part: len(taken_up(folder, part)) for part, folder in homes.items()}
            children = {part: start(folder, part=part) for part, folder in homes.items()}
            for part, folder in homes.items():
                while len(taken_up(folder, part)) == before[part] and not has_ended(children[part]):
                    time.sleep(0.002)
                os.kill(children[part], signal.SIGKILL)
            for part, folder in homes.items():
                os.waitpid(children[part], 0)
                killed[part] += taken_up(folder, part)[before[part] :]
        left = [state for folder in {*homes.values()} for state in list_parts(ResultsStore(folder))]
        before = {part: (saved(folder), len(taken_up(folder, part))) for part, folder in homes.items()}
        children = {part: start(folder, part=part) for part, folder in homes.items()}
        for part, folder in homes.items():
            status = os.waitstatus_to_exitcode(os.waitpid(children[part], 0)[1])
            had, lines = before[part]
            ran = taken_up(folder, part)[lines:]
            about = {"name": name, "part": part, "killed": killed[part], "missing": left, "status": status}
            yield {"folder": str(folder), "had": had, "ran": ran, **about}


def space():
    sizes = sorted(path.stat().st_size for path in (root / "whole").rglob("*.parquet"))
    for size in (0, 500, sizes[0] + 100, sizes[-1] - 150):
        folder = root / f"size{size}"
        status = run(folder, lambda size=size: limit_files(size))
        left = [str(path) for path in folder.rglob(".*")]
        yield {"short": status, "drafts": left, "size": size, **resumed(folder)}


def orphans():
    processes.PRELOADED = ["davylamp.engine.run.processes"]  # the libraries that are not needed here take seconds
    folder, log = root / "orphans", Path(model.replace(".py:build", ".log"))
    child = start(folder, executor=lambda: WorkerPoolExecutor(2))
    while not log.exists() or len(set(log.read_text().split())) < 2:
        time.sleep(0.05)
    workers = [Path("/proc", pid) for pid in set(log.read_text().split())]
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    for _ in range(1200):  # on a busy machine each process of several takes its time to end
        if any(worker.exists() for worker in workers):
            time.sleep(0.05)
    yield {"alive": [worker.name for worker in workers if worker.exists()]}


if __name__ == "__main__":
    torch.set_num_threads(1)
    if modes != ["orphans"]:
        # which Arrow imports at its first table
        for name in (*LIBRARIES["torchattacks"].preload, "pandas", "pyarrow.pandas_compat", "threadpoolctl"):
            import_module(name)
        Image.preinit()
        make_plan(config)
        assert run(root / "whole") == 0
    print(json.dumps({mode: list(globals()[mode]()) for mode in modes}))

"""Workers that die: what they were at is done again, or given up, and the rest goes on."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from davylamp.adapters.models.zoo.load import load_model
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, load, make_plan
from davylamp.engine.run import choose, processes
from davylamp.engine.run.choose import choose_executor, spread_over_devices
from davylamp.engine.run.local_executor import InProcessExecutor
from davylamp.engine.run.processes import WorkerPoolExecutor
from davylamp.engine.run.task import Task
from davylamp.errors import InvalidInput, Unavailable, UnknownName

# FGSM asks for one gradient of its shard, the clean predictions take all images at once: `LOG` gets a line an attack.
MODEL = """
import os, signal, time
from pathlib import Path

import torch

LOG, KILLS, SECONDS = Path({log!r}), {kills}, {seconds}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(48, 4)
        self.layer.weight.data = torch.randn(4, 48, generator=torch.Generator().manual_seed(0))
        self.layer.bias.data.zero_()

    def forward(self, inputs):
        if inputs.requires_grad and 1 < len(inputs) < 6:  # one image is asked whether there are gradients
            with LOG.open("a") as file:
                file.write(str(os.getpid()) + "\\n")
            if len(LOG.read_text().split()) <= KILLS:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(SECONDS)
        return self.layer(inputs.flatten(1))

def build():
    return Model()
"""


def write_model(folder: Path, name: str, kills: int = 0, seconds: float = 0) -> str:
    """A model file whose process is killed in the first `kills` attacks on it."""
    file, log = folder / f"{name}.py", folder / f"{name}.log"
    file.write_text(MODEL.format(log=str(log), kills=kills, seconds=seconds))
    return f"{file}:build"


def write_data(folder: Path, model: str) -> Path:
    images = np.random.default_rng(0).integers(60, 200, (6, 3, 4, 4), dtype=np.uint8)
    classifier = load_model(model)
    labels = classifier.predict_logits(classifier.anchor.new_tensor(np.float32(images) / 255)).argmax(1).numpy()
    np.savez(folder / "data.npz", inputs=images, labels=labels)
    return folder / "data.npz"


def plan_for(folder: Path, *models: str):
    """FGSM on each model, six images, a shard of four and one of two."""
    attack = AttackChoice("torchattacks:fgsm", "linf", 0.05)
    data = f"npz:{write_data(folder, models[0])}"
    return make_plan(Config(models, (attack,), data, shard_size=4, measures=("effect", "cost")))


def log_of(model: str) -> list[str]:
    return Path(model.replace(".py:build", ".log")).read_text().split()


def test_a_task_whose_worker_is_killed_is_done_again_or_given_up_and_the_rest_goes_on(tmp_path):
    well = write_model(tmp_path, "well")
    once, always = write_model(tmp_path, "once", kills=1), write_model(tmp_path, "always", kills=1000)
    plan = plan_for(tmp_path, always, once, well)
    summary = evaluate(plan, ResultsStore(tmp_path / "workers"), executor=WorkerPoolExecutor(2))
    # Pools that nobody needs any more have closed: one that still does when Python ends may leave a traceback.
    assert not [thread for thread in threading.enumerate() if type(thread).__name__ == "_ExecutorManagerThread"]
    (reason,) = summary.failed.values()
    assert reason == "its worker died 3 times (killed, or out of memory)"
    assert next(cell.key for cell in plan.cells if cell.subject.model == always) in summary.failed
    assert len(log_of(once)) == 3
    # Both of its shards were under way before the first of them was given up.
    assert 3 <= len(log_of(always)) <= 6

    whole = plan_for(tmp_path, once, well)
    evaluate(whole, ResultsStore(tmp_path / "serially"), executor=InProcessExecutor())
    ours, theirs = (load(tmp_path / name, heavy=True) for name in ("workers", "serially"))
    for name in set(theirs.columns) - {"seconds"}:
        assert [repr(value) for value in ours[name]] == [repr(value) for value in theirs[name]]


# Of a model's file: how many workers there are, all of one parent, at the end of each attack that came so far.
WORKERS = """
            workers = [each.read_text().rpartition(")")[2].split() for each in Path("/proc").glob("[0-9]*/stat")]
            count = sum(int(parent) == os.getppid() for _, parent, *_ in workers)
            with LOG.with_suffix(".workers").open("a") as file:
                file.write(f"{count}\\n")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_task_whose_worker_was_killed_has_the_machine_to_itself(tmp_path):
    """The other workers hold what they have loaded, and memory that was freed: up to half of the machine's."""
    once, *others = (
        write_model(tmp_path, "once", kills=1, seconds=3),
        write_model(tmp_path, "a"),
        write_model(tmp_path, "b"),
    )
    file, last = tmp_path / "once.py", "time.sleep(SECONDS)\n"
    before, after = file.read_text().split(last)
    file.write_text(f"{before}{last}{WORKERS}{after}")
    summary = evaluate(plan_for(tmp_path, once, *others), ResultsStore(tmp_path / "r"), executor=WorkerPoolExecutor(3))
    assert not summary.failed
    assert (tmp_path / "once.workers").read_text().split()[-1] == "1"
    assert [len(log_of(other)) for other in others] == [2, 2]


def test_a_worker_that_is_killed_between_two_tasks_is_replaced(tmp_path):
    plan = plan_for(tmp_path, write_model(tmp_path, "well"))
    (subject, source), (cell,) = plan.subjects[0], plan.cells
    tasks = [Task("attack", subject, source, plan.data, cell=cell, shard=shard) for shard in (0, 1)]
    reports, outcomes = [], WorkerPoolExecutor(1)(iter(tasks), lambda *progress: reports.append(progress))
    first = next(outcomes)
    for child in multiprocessing.active_children():
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    (second,) = outcomes
    assert [outcome.reason for outcome in (first, second)] == ["", ""]
    assert [len(outcome.table) for outcome in (first, second)] == [4, 2]
    assert reports == [("torchattacks:fgsm", 4), ("torchattacks:fgsm", 2)]


def test_workers_that_cannot_start_are_no_cell_s_fault(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from davylamp.engine import *\n"
        "from davylamp.engine.run import processes\n"
        "processes.PRELOADED = ['davylamp.engine.run.processes']\n"  # the libraries take seconds
        "config = Config((sys.argv[1],), (AttackChoice('torchattacks:fgsm', 'linf', 0.05),), 'npz:' + sys.argv[2])\n"
        "evaluate(make_plan(config), ResultsStore(sys.argv[3]), executor=processes.WorkerPoolExecutor(1))\n"
    )
    model = write_model(tmp_path, "well")
    command = [sys.executable, script, model, write_data(tmp_path, model), tmp_path / "results"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert 'a script that starts workers needs `if __name__ == "__main__":`' in done.stderr.splitlines()[-1]
    assert list(tmp_path.glob("results/c*/*")) == []  # nothing is stored as failed


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_worker_outlives_a_driver_that_is_killed(tmp_path):
    model = write_model(tmp_path, "slow", seconds=60)
    data = write_data(tmp_path, model)
    (tmp_path / "slow.log").unlink(missing_ok=True)
    command = [sys.executable, Path(__file__).with_name("runs.py"), model, data, tmp_path, "orphans"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"orphans": [{"alive": []}]}


def test_ctrl_c_ends_the_workers_at_once_and_says_what_is_kept_in_one_line(tmp_path):
    model = write_model(tmp_path, "slow", seconds=300)
    data = write_data(tmp_path, model)
    (tmp_path / "slow.log").unlink(missing_ok=True)
    # A shell that starts a command in the background has it ignore the signal.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from davylamp.engine.run import processes; processes.PRELOADED = ['davylamp.engine.run.processes']; "
    code += "from davylamp.cli import main; main()"
    options = f"--models {model} --data npz:{data} --attacks torchattacks:fgsm --norm linf --epsilon 0.05 "
    options += "--limit 5 --workers 2 --isolate no -o kept"  # the model writes a log
    command = [sys.executable, "-c", code, "evaluate", *options.split()]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True, text=True, **pipes) as process:
        while not (tmp_path / "slow.log").exists() and process.poll() is None:
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            with suppress(ProcessLookupError):  # all are gone, unless the test fails
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert errors.splitlines()[-1].startswith("davylamp: interrupted; finished results are stored in kept")


def test_memory_is_given_back_after_each_task_if_it_is_short(tmp_path, monkeypatch):
    from davylamp.engine.run import worker as work

    calls = []
    monkeypatch.setattr(work, "release_unused_memory_if_low", lambda: calls.append("back"))
    evaluate(plan_for(tmp_path, write_model(tmp_path, "well")), ResultsStore(tmp_path / "results"))
    assert len(calls) == 3  # the clean images, two shards of an attack


def test_executors_by_name():
    assert isinstance(choose_executor("local"), InProcessExecutor)
    assert isinstance(choose_executor("local", workers=2), WorkerPoolExecutor)
    for error, named, name, given in (
        (InvalidInput, "one worker, got 0", "local", {"workers": 0}),
        (InvalidInput, "executor=ray.*auto", "local", {"address": "auto"}),
        (UnknownName, "executor 'slurm'", "slurm", {}),
        (Unavailable, "got 'tpu9'", "local", {"devices": ("tpu9",)}),
    ):
        with pytest.raises(error, match=named):
            choose_executor(name, **given)


def test_every_gpu_has_a_worker_and_records_have_no_number_of_one(monkeypatch):
    """With a stand-in for the number of GPUs."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(choose, "check_device", lambda _: None)
    config, four, devices = spread_over_devices(Config(device="cuda:all"), 4, "local")
    assert (config.device, four, devices) == ("cuda", 4, ("cuda:0", "cuda:1", "cuda:2"))
    assert spread_over_devices(Config(device="cuda:all"), 1, "local")[1] == 3
    assert spread_over_devices(Config(device="cuda:all"), 2, "ray")[1:] == (2, ("cuda",))
    assert spread_over_devices(Config(device="cuda:1"), 2, "local")[1:] == (2, ("cuda:1",))
    executor = choose_executor("local", workers=four, devices=devices)
    assert isinstance(executor, WorkerPoolExecutor)
    assert [worker.device for worker in executor._all] == ["cuda:0", "cuda:1", "cuda:2", "cuda:0"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    config, one, devices = spread_over_devices(Config(device="cuda:all"), 1, "local")
    assert isinstance(choose_executor("local", workers=one, devices=devices), InProcessExecutor)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(Unavailable, match="cuda:all, got none"):
        spread_over_devices(Config(device="cuda:all"), 1, "local")


def test_results_do_not_depend_on_the_device_of_a_worker(tmp_path, monkeypatch):
    """Two names of the CPU stand in for two GPUs."""
    plan, used = plan_for(tmp_path, write_model(tmp_path, "one"), write_model(tmp_path, "two")), []
    pack = processes._pack
    monkeypatch.setattr(processes, "_pack", lambda task: used.append((task.name, task.device)) or pack(task))
    evaluate(plan, ResultsStore(tmp_path / "spread"), executor=WorkerPoolExecutor(2, ("cpu", "cpu:0")))
    evaluate(plan, ResultsStore(tmp_path / "alone"))
    assert {device for _, device in used} == {"cpu", "cpu:0"}
    assert len({name for name, _ in used}) == len(used) == 6
    stores = [ResultsStore(tmp_path / name) for name in ("spread", "alone")]
    for kind in ("cells", "clean"):
        assert {*stores[0].keys(kind)} == {*stores[1].keys(kind)} != set()
        for key in stores[0].keys(kind):
            spread, alone = (store.read(kind, key) for store in stores)
            assert spread.meta["device"] == alone.meta["device"] == "cpu"
            names = [name for name in alone.table.column_names if name != "seconds"]
            assert repr(spread.table.select(names).to_pydict()) == repr(
                alone.table.select(names).to_pydict()
            )  # with NaN


def test_a_library_that_cannot_be_imported_does_not_end_the_workers(monkeypatch):
    from davylamp.engine.run import preload as preloaded

    loaded = []

    def import_module(name):
        if name == "foolbox":
            raise RuntimeError("built for another NumPy")
        loaded.append(name)

    monkeypatch.setattr(preloaded, "import_module", import_module)
    preloaded.preload()
    assert loaded == [name for name in preloaded.MODULES if name != "foolbox"]

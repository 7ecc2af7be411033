"""Two Ray nodes on this machine: the records of the local executor, also when one of them is killed mid-run."""

import socket
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier
from davylamp.adapters.zoo import Data
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, load, make_plan
from davylamp.engine.cluster import RayCluster
from davylamp.engine.executors import choose_executor
from davylamp.errors import InvalidInput, MissingLibrary, Unavailable

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of requests, which Ray imports, about its own dependencies
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Ray has one node on Windows"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

MODEL = """
import os, time
from pathlib import Path

import torch

class Model(torch.nn.Sequential):
    def forward(self, inputs):
        if inputs.requires_grad and len(inputs) < {below}:
            with Path(r"{log}").open("a") as file:
                file.write(str(os.getpid()) + "\\n")
            {act}
        return super().forward(inputs)

def build():
    layer = torch.nn.Linear(48, 4)
    layer.weight.data = torch.randn(4, 48, generator=torch.Generator().manual_seed(0))
    layer.bias.data.zero_()
    return Model(torch.nn.Flatten(), layer)
"""


@pytest.fixture(scope="module")
def cluster():
    """A head without processors and two nodes with one each."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def linear_model() -> nn.Module:
    """The model of the files below."""
    layer = nn.Linear(48, 4)
    layer.weight.data = torch.randn(4, 48, generator=torch.Generator().manual_seed(0))
    layer.bias.data.zero_()
    return nn.Sequential(nn.Flatten(), layer)


def twelve_images() -> Data:
    """Images that it classifies correctly."""
    images = torch.from_numpy(np.random.default_rng(0).random((12, 3, 4, 4), np.float32) * 0.6 + 0.2)
    labels = Classifier(linear_model()).predict_logits(images).argmax(1)
    return Data(images, labels, [str(i) for i in range(12)])


def plan_for(name: str, classifier: Classifier | None, data: Data, shard_size: int = 2):
    """PGD with random starts on twelve images."""
    attack = AttackChoice("torchattacks:pgd", "linf", 0.05, parameters={"steps": 2, "random_start": True})
    config = Config((name,), (attack,), "twelve", shard_size=shard_size, measures=("effect", "cost", "distance"))
    return make_plan(config, models=None if classifier is None else {name: classifier}, data=data)


def write_model(folder: Path, act: str, below: int) -> tuple[str, Path]:
    """A model file that does something, after a line in a log, whenever fewer images want a gradient."""
    file, log = folder / "model.py", folder / "model.log"
    file.write_text(MODEL.format(log=log, act=act, below=below))
    return f"{file}:build", log


def assert_same(folder: Path, other: Path) -> None:
    ours, theirs = (load(path, heavy=True).drop(columns="seconds") for path in (folder, other))
    assert list(ours.columns) == list(theirs.columns)
    for name in ours.columns:
        assert [repr(value) for value in ours[name]] == [repr(value) for value in theirs[name]], name


def find_busy_node(cluster, log: Path):
    """The node of a worker that is between the two gradients of a shard."""
    while True:
        for pid, lines in Counter(log.read_text().split()).items():
            if lines % 2:
                told = subprocess.run(["ps", "-o", "ppid=", "-p", pid], check=False, capture_output=True, text=True)
                for node in cluster.worker_nodes:
                    if str(node.all_processes["raylet"][0].process.pid) == told.stdout.strip():
                        return node


def test_a_killed_node_changes_no_record(cluster, tmp_path):
    name, log = write_model(tmp_path, "time.sleep(0.6)", below=3)
    plan = plan_for(name, None, twelve_images())
    executor = RayCluster(cluster.address)
    assert executor.slots == 2
    told = []

    def progress(label: str, images: int) -> None:
        told.append((label, images))
        if len(told) == 3:  # the clean predictions and two of six shards
            cluster.remove_node(find_busy_node(cluster, log), allow_graceful=False)

    summary = evaluate(plan, ResultsStore(tmp_path / "ray"), executor=executor, progress=progress)
    assert summary.failed == {}
    assert sum(images for _, images in told) == 24
    assert len(log.read_text().split()) > 12  # two gradients a shard, and one that was lost
    evaluate(plan, ResultsStore(tmp_path / "local"))
    assert_same(tmp_path / "ray", tmp_path / "local")


def test_objects_are_sent_once_and_a_task_that_kills_every_worker_is_given_up(cluster, monkeypatch, tmp_path):
    data, executor = twelve_images(), RayCluster(cluster.address)
    plan = plan_for("object", Classifier(linear_model()), data)
    evaluate(plan, ResultsStore(tmp_path / "ray"), executor=executor)
    evaluate(plan, ResultsStore(tmp_path / "local"))
    assert_same(tmp_path / "ray", tmp_path / "local")
    assert len(executor._stored) == 2  # one model, one data set, for seven tasks

    monkeypatch.setattr("davylamp.engine.cluster.ATTEMPTS", 1)  # starting a worker takes seconds
    name, log = write_model(tmp_path, "os._exit(1)", below=2)
    dying = plan_for(name, None, data, shard_size=11)
    summary = evaluate(dying, ResultsStore(tmp_path / "dying"), executor=RayCluster(cluster.address))
    assert list(summary.failed.values()) == ["its worker died 3 times (killed, or out of memory)"]
    assert len(log.read_text().split()) == 1


def test_a_cluster_that_is_not_there_is_one_clear_line(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with monkeypatch.context() as patch:
        patch.setattr(ray, "is_initialized", lambda: False)
        with pytest.raises(Unavailable, match=f"expected a Ray cluster at {address}, found none .*ray start --head"):
            RayCluster(address)
        with pytest.raises(
            InvalidInput, match="expected the address of a Ray cluster as HOST:PORT or auto, got 'node'"
        ):
            RayCluster("node")
    with pytest.raises(InvalidInput, match="expected gpus_per_task > 0, got 0"):
        RayCluster(gpus_per_task=0)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingLibrary, match=r'pip install "davylamp\[ray\]"'):
        choose_executor("ray")


def test_gpus_are_reserved_for_tasks_that_compute_there(monkeypatch):
    """On a machine without GPUs, Ray's answers are put in its mouth."""
    asked = []
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "remote", lambda **options: lambda function: asked.append(options))
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 16.0, "GPU": 2.0})
    assert RayCluster(device="cuda:1", gpus_per_task=0.5).slots == 4
    assert RayCluster(device="cpu").slots == 16
    assert [(options["num_gpus"], options["max_retries"]) for options in asked] == [(0.5, 2), (0, 2)]
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 16.0})
    with pytest.raises(Unavailable, match="expected 1 GPUs for a task in the Ray cluster, got 0"):
        RayCluster(device="cuda")

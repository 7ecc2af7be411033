"""Two Ray nodes on this machine: the records of the local executor, also when one of them is killed mid-run."""

import json
import os
import signal
import socket
import subprocess
import sys
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier
from davylamp.adapters.data.datasets import Data
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.run import ray_cluster as cluster_module
from davylamp.engine.run.choose import choose_executor
from davylamp.engine.run.ray_cluster import RayCluster
from davylamp.engine.run.task import Task
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
        if inputs.requires_grad and 1 < len(inputs) < {below}:  # one image is asked whether there are gradients
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
    look = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 4}
    for part in ("raylet", "core_worker"):  # a minute by default, for which a lost one is asked again
        look |= {f"{part}_rpc_server_reconnect_timeout_{which}_s": 2 for which in ("base", "max")}
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": look}  # so that a lost node is soon known
    cluster = Cluster(initialize_head=True, head_node_args=head)
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


def hold_busy_node(cluster, log: Path):
    """A node and its worker, which is stopped between the two gradients of a shard."""
    while True:
        for pid in Counter(log.read_text().split()):
            answer = subprocess.run(["ps", "-o", "ppid=", "-p", pid], check=False, capture_output=True, text=True)
            nodes = [
                node
                for node in cluster.worker_nodes
                if str(node.all_processes["raylet"][0].process.pid) == answer.stdout.strip()
            ]
            if nodes:
                os.kill(int(pid), signal.SIGSTOP)  # or it is done before the node is killed
                if log.read_text().split().count(pid) % 2:
                    return nodes[0], int(pid)
                os.kill(int(pid), signal.SIGCONT)


def test_a_killed_node_changes_no_record(cluster, tmp_path, assert_same):
    name, log = write_model(tmp_path, "time.sleep(0.6)", below=3)
    plan = plan_for(name, None, twelve_images())
    executor = RayCluster(cluster.address)
    assert executor.slots == 2
    reports = []

    def progress(label: str, images: int) -> None:
        reports.append((label, images))
        if len(reports) == 3:  # the clean predictions and two of six shards
            node, pid = hold_busy_node(cluster, log)
            cluster.remove_node(node, allow_graceful=False)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    summary = evaluate(plan, ResultsStore(tmp_path / "ray"), executor=executor, progress=progress)
    assert summary.failed == {}
    assert sum(images for _, images in reports) == 24
    assert len(log.read_text().split()) > 12  # two gradients a shard, and one that was lost
    evaluate(plan, ResultsStore(tmp_path / "local"))
    assert_same(tmp_path / "ray", tmp_path / "local")


def test_objects_are_sent_once_and_a_task_that_kills_every_worker_is_given_up(cluster, tmp_path, assert_same):
    data, executor = twelve_images(), RayCluster(cluster.address)
    plan = plan_for("object", Classifier(linear_model()), data)
    evaluate(plan, ResultsStore(tmp_path / "ray"), executor=executor)
    evaluate(plan, ResultsStore(tmp_path / "local"))
    assert_same(tmp_path / "ray", tmp_path / "local")
    assert len(executor._stored) == 2  # one model, one data set, for seven tasks

    name, log = write_model(tmp_path, "os.kill(os.getpid(), 9)", below=4)
    dying = plan_for(name, None, data, shard_size=9)
    summary = evaluate(dying, ResultsStore(tmp_path / "dying"), executor=RayCluster(cluster.address, attempts=2))
    assert list(summary.failed.values()) == ["its worker died 2 times (killed, or out of memory)"]
    assert len(log.read_text().split()) == 2  # it was tried as often as that


def test_a_cluster_that_is_not_there_is_one_clear_line(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with monkeypatch.context() as patch:
        patch.setattr(ray, "is_initialized", lambda: False)
        with pytest.raises(Unavailable, match=f"cannot connect to a Ray cluster at {address} .*ray start --head"):
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


def test_gpus_are_reserved_for_tasks_that_compute_there(cluster, monkeypatch):
    """Ray counts the GPUs that a node says it has: two here, which nothing computes on."""

    def work(*_):
        return None, None, 0.0, 0.0, json.dumps([int(each) for each in ray.get_gpu_ids()])

    monkeypatch.setattr(cluster_module, "_work", work)
    tasks = [Task("clean", subject, source, plan.data) for plan in [any_plan()] for subject, source in plan.subjects]
    cluster.wait_for_nodes()  # one may just have been killed
    before = RayCluster(cluster.address).slots
    node = cluster.add_node(num_cpus=2, num_gpus=2)
    cluster.wait_for_nodes()
    on_gpu = RayCluster(device="cuda:1", gpus_per_task=1)
    assert (on_gpu.slots, RayCluster().slots) == (2, before + 2)
    given = [json.loads(outcome.reason) for outcome in on_gpu(iter(tasks * 2), lambda *_: None)]
    assert len(given) == 2
    assert all(len(devices) == 1 and set(devices) <= {0, 1} for devices in given)
    whole = RayCluster(device="cuda", gpus_per_task=2)
    assert [json.loads(outcome.reason) for outcome in whole(iter(tasks), lambda *_: None)] == [[0, 1]]
    assert [json.loads(outcome.reason) for outcome in RayCluster()(iter(tasks), lambda *_: None)] == [[]]
    with pytest.raises(Unavailable, match="expected at least 3 GPUs in the Ray cluster, as each task needs, got 2"):
        RayCluster(device="cuda", gpus_per_task=3)
    cluster.remove_node(node)


def any_plan():
    """A plan with one model."""
    return plan_for("object", Classifier(linear_model()), twelve_images())

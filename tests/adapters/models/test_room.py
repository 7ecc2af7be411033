"""A model in a process of its own answers as it does in ours, and whatever it does to its process is one line here."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
import torchvision

from davylamp.adapters import IMPLEMENTATIONS, QueryCounter, ThreatModel, run_attack
from davylamp.adapters.models.identity.digest import identify_model
from davylamp.adapters.models.sandbox import bubblewrap, worker_client
from davylamp.adapters.models.sandbox import isolated as isolating_module
from davylamp.adapters.models.sandbox.bubblewrap import environment, find_sandbox
from davylamp.adapters.models.sandbox.isolated import (
    call_where_layers_are,
    describe_isolated,
    is_isolated,
    load_isolated,
    reset_processes,
)
from davylamp.adapters.models.sandbox.isolation import Isolation, read_files
from davylamp.adapters.models.sandbox.messages import SharedBytes
from davylamp.adapters.models.sandbox.worker_client import ForkServer, Surroundings, Worker, WorkerSpec
from davylamp.adapters.models.zoo.load import load_model
from davylamp.adapters.running.precision import check_precision
from davylamp.adapters.running.sampling import judge_outputs
from davylamp.errors import InvalidInput, ModelDied, ModelFailed, Unsupported
from davylamp.metrics import grad_cam

AUTO = Isolation("auto")
NEEDS_SANDBOX = pytest.mark.skipif(not find_sandbox().program, reason=find_sandbox().reason)
MODELS = '''
import ctypes, os, sys, time
from pathlib import Path

import torch
import torchvision
from torch import nn

def net():
    layers = [nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, 10))
    model.load_state_dict(torch.load(Path(__file__).parent / "net.pth", weights_only=True))
    return model

def double():
    return net().double()

class Drawing(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, inputs):
        import random

        return self.net(inputs) + torch.randn(len(inputs), 10) + random.random()

def drawing():
    return Drawing()

class Quirky(nn.Module):
    """Behaves, but for batches of three images."""

    def __init__(self, quirk):
        super().__init__()
        self.net, self.quirk = net(), quirk

    def forward(self, inputs):
        logits = self.net(inputs)
        return self.quirk(logits) if len(inputs) == 3 else logits

class Sixteen(nn.Module):
    """Its logits are larger by 1 where products are rounded to bfloat16; its gradient is twice as large there."""

    def forward(self, inputs):
        rounded = torch.eye(2) @ torch.eye(2)
        return net()(inputs) * (1 + float(rounded.dtype == torch.bfloat16))

class Box(nn.Module):
    """Nothing in it is computed by weights in torch."""

    def forward(self, inputs):
        return inputs.flatten(1)[:, :10]

class Rounded(nn.Module):
    """Its logits are larger by 1 where convolutions may be rounded to TF32."""

    def forward(self, inputs):
        return net()(inputs) + float(torch.backends.cudnn.allow_tf32)

def ask_python_to_exit(logits):
    os._exit(3)

def ask_the_system_to_exit(logits):
    ctypes.CDLL(None)._exit(3)

def leave(logits):
    sys.exit("enough")

def crash(logits):
    ctypes.string_at(0)

def hang(logits):
    time.sleep(1000)

def take_memory(logits):
    return logits + torch.zeros(1 << 32).sum()

def close_everything(logits):
    os.closerange(0, 1000)
    return logits

def talk_rubbish(logits):
    for file in range(3, 100):
        try:
            os.write(file, b"rubbish!" * 100)
        except OSError:
            pass
    return logits

def flood(logits):
    for _ in range(100_000):
        print("\\x1b[31mred")
    return logits

def lie(logits):
    from davylamp.adapters.models.sandbox.messages import SharedBytes

    huge = {"dtype": "float32", "shape": [1 << 10, 1 << 10], "strides": [1, 1 << 20], "offset": 0}
    SharedBytes.put = lambda self, tensors: [huge]
    return logits

def answer_too_much(logits):
    return torch.zeros(len(logits), 11)

def answer_nothing(logits):
    return logits * float("nan")

def write(logits):
    Path("/written").write_text("here")
    return logits

def connect(logits):
    import socket

    socket.create_connection(("192.0.2.1", 80), timeout=5)
    return logits

def look(logits):
    return logits + len(Path("/etc/passwd").read_text())

def spill(logits):
    return logits + len(os.environ["DAVYLAMP_TEST_TOKEN"])

def __getattr__(name):
    quirks = [ask_python_to_exit, ask_the_system_to_exit, leave, crash, hang, take_memory, close_everything, look, lie]
    quirks += [talk_rubbish, flood, answer_too_much, answer_nothing, write, connect, spill]
    chosen = {f"quirk_{each.__name__}": each for each in quirks}.get(name)
    if chosen is None:
        raise AttributeError(name)
    return lambda: Quirky(chosen)
'''


@pytest.fixture(scope="module")
def file(digits, tmp_path_factory) -> Path:
    """A file of models around the digits network."""
    folder = tmp_path_factory.mktemp("room")
    torch.save(digits.module.state_dict(), folder / "net.pth")
    (folder / "models.py").write_text(MODELS)
    return folder / "models.py"


@pytest.fixture(scope="module")
def here(file):
    return load_model(f"{file}:net")


@pytest.fixture(scope="module")
def isolated(file):
    return load_isolated(f"{file}:net", "cpu", AUTO)


STRANGER = """
import torch
import torchvision
from davylamp.adapters.models.sandbox.isolated import load_isolated
from davylamp.adapters.models.sandbox.isolation import Isolation

images = torch.zeros(3, 3, 16, 16)
try:
    load_isolated("FILE:quirk_look", "cpu", Isolation("ISOLATE"))(images)
except Exception as error:
    print(error, flush=True)
model = load_isolated("FILE:quirk_hang", "cpu", Isolation("ISOLATE"))
print("hangs now", flush=True)
model(images)
"""


@pytest.fixture(scope="module", autouse=True)
def stranger(file):
    """A process with a model that hangs, in the strictest room that there is; begun early, as it takes its time."""
    isolate = "strict" if find_sandbox().program else "auto"
    program = STRANGER.replace("FILE", str(file)).replace("ISOLATE", isolate)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_it_is_the_same_model(file, here, isolated, digits):
    assert identify_model(isolated, f"{file}:net") == identify_model(here, f"{file}:net")
    assert isolated.channels == here.channels == 3
    assert torch.equal(isolated(digits.inputs), here(digits.inputs))
    turned = digits.inputs.contiguous(memory_format=torch.channels_last)
    assert torch.equal(_gradient(isolated, turned), _gradient(here, turned))
    given = (digits.inputs, digits.labels, "model.2")
    assert torch.equal(call_where_layers_are(isolated, grad_cam, *given), grad_cam(here, *given))


@pytest.mark.parametrize(
    ("attack", "parameters"),
    [("foolbox:pgd", {"steps": 5}), ("foolbox:hopskipjump", {"max_queries": 60}), ("art:square", {"steps": 20})],
)
def test_attacks_have_the_same_result(here, isolated, digits, attack, parameters):
    rules = ThreatModel("linf", 0.1)
    given = (digits.inputs[:4], digits.labels[:4], rules)
    first, second = (run_attack(attack, each, *given, **parameters) for each in (here, isolated))
    assert torch.equal(first.adv_inputs, second.adv_inputs)
    assert torch.equal(first.adv_logits, second.adv_logits)
    assert first.forwards.tolist() == second.forwards.tolist()
    assert first.backwards.tolist() == second.backwards.tolist()


def test_attacks_that_read_layers_are_refused(isolated, digits):
    """They would find none, and attack what they fall back on: other examples under the same name."""
    refused = []
    for row in IMPLEMENTATIONS.values():
        if row.reads_layers and not row.broken:
            norm: Any = next(iter(row.classes))
            rules = ThreatModel(norm, None if norm == "unrestricted" else 0.1)
            with pytest.raises(Unsupported, match=r"needs the model's layers, .*; use --isolate no to run it"):
                run_attack(row.name, isolated, digits.inputs, digits.labels, rules)
            refused.append(row.name)
    assert {"torchattack:fda", "torchattack:dr", "davylamp:ssah", "davylamp:gd-uap"} <= set(refused)


def test_gradients_are_those_of_finite_differences(file, digits):
    model = load_isolated(f"{file}:double", "cpu", AUTO).model
    image = digits.inputs[:1].double()
    direction = torch.randn(image.shape, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    leaf = image.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf).double().logsumexp(1).sum(), leaf)
    ends = [float(model(image + step * direction).double().logsumexp(1).sum()) for step in (1e-3, -1e-3)]
    assert float((gradient * direction).sum()) == pytest.approx((ends[0] - ends[1]) / 2e-3, rel=1e-2)


def test_many_answers_may_wait_for_their_gradients(here, isolated, digits):
    def mixed(model):
        leaf = digits.inputs[:2].clone().requires_grad_()
        first, second = model(leaf), model(leaf * 0.5)
        model(leaf.detach())
        loss = (first * second).sum()
        once = torch.autograd.grad(loss, leaf, retain_graph=True)[0]
        return once, torch.autograd.grad(first[:, 3].sum(), leaf, retain_graph=True)[0], leaf, loss

    ours, theirs = mixed(here), mixed(isolated)
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[1], theirs[1])
    theirs[3].backward()
    assert torch.equal(theirs[2].grad, ours[0])
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        theirs[3].backward()


def test_answers_are_dropped_with_their_graph(isolated, digits):
    leaf = digits.inputs[:2].clone().requires_grad_()
    numbers = []
    for _ in range(3):
        logits = isolated(leaf)
        logits.sum().backward()  # lets go of what it was computed from
        numbers.append(list(isolated.process._forgotten))
    assert [len(each) for each in numbers] == [1, 1, 1]


def test_second_derivatives_are_refused(isolated, digits):
    leaf = digits.inputs[:2].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(isolated(leaf).logsumexp(1).sum(), leaf, create_graph=True)
    with pytest.raises(Unsupported, match=r"second derivatives of .* separate process"):
        gradient.square().sum().backward()


def test_it_is_judged_in_full_float32(file, here, digits):
    rounded, inputs = load_isolated(f"{file}:Rounded", "cpu", AUTO), digits.inputs[:4]
    logits = here.predict_logits(inputs)
    with torch.no_grad():
        assert torch.equal(rounded(inputs), logits + 1)  # as an attack asks
    assert torch.equal(rounded.predict_logits(inputs), logits)
    assert torch.equal(judge_outputs(rounded, inputs, digits.labels[:4], None, 0).logits, logits)


def test_a_room_says_whether_torch_computes_there(file):
    row = IMPLEMENTATIONS["foolbox:pgd"]
    check_precision("bfloat16", load_isolated(f"{file}:net", "cpu", AUTO), row)
    with pytest.raises(Unsupported, match="Box is not computed by torch here; omit precision"):
        check_precision("bfloat16", load_isolated(f"{file}:Box", "cpu", AUTO), row)


def test_an_attack_has_its_precision_in_the_room(file, digits):
    """`Sixteen` doubles logits and gradients where products are in bfloat16."""
    here, there = load_model(f"{file}:net"), load_isolated(f"{file}:Sixteen", "cpu", AUTO)
    inputs, labels = digits.inputs[:4], digits.labels[:4]
    gradients = []
    for classifier, precision in ((here, None), (there, None), (there, "bfloat16")):
        counter = QueryCounter(classifier, inputs, labels, ThreatModel("linf", 0.1), precision=precision)
        asked = inputs.clone().requires_grad_()
        gradients.append(torch.autograd.grad(counter(asked).sum(), asked)[0])
    assert torch.equal(gradients[0], gradients[1])
    ratio = gradients[2][gradients[0] != 0] / gradients[0][gradients[0] != 0]
    assert abs(float(ratio.median()) - 2) < 0.05  # and they are rounded
    judged_there = judge_outputs(there, inputs, labels, None, 0).logits
    assert torch.equal(judged_there, here.predict_logits(inputs))


def test_a_model_that_draws_draws_what_it_would_here(file, digits):
    answers = []
    for model in (load_model(f"{file}:drawing"), load_isolated(f"{file}:drawing", "cpu", AUTO)):
        with torch.random.fork_rng():
            torch.manual_seed(1)
            import random

            random.seed(1)
            answers.append([model(digits.inputs[:2]), torch.rand(1), model(digits.inputs[:2]), torch.rand(1)])
    for ours, theirs in zip(*answers, strict=True):
        assert torch.equal(ours, theirs)


ENDS = {
    "ask_python_to_exit": (ModelFailed, r"called os\._exit\(3\) \(line \d+ of models\.py\)"),
    "ask_the_system_to_exit": (ModelDied, r"ended its process \(exit code 3\)"),
    "leave": (ModelFailed, r"called sys\.exit\('enough'\)"),
    "crash": (ModelDied, r"was killed \(signal 11, SIGSEGV\)"),
    "hang": (ModelDied, "did not respond within 2 s .* and was stopped"),
    "take_memory": (ModelFailed, "raised RuntimeError: .*can't allocate memory"),
    "close_everything": (ModelDied, "ended its process|was killed"),
    "talk_rubbish": (ModelDied, "sent an invalid message .* and was stopped"),
    "lie": (ModelDied, "sent an invalid message .*a tensor .* and was stopped"),
    "answer_too_much": (ModelFailed, r"expected model outputs of shape \(3, 10\), got \(3, 11\)"),
    "answer_nothing": (InvalidInput, "expected finite logits, got NaN"),
}


@pytest.mark.parametrize("quirk", ENDS)
def test_a_model_that_misbehaves_costs_one_line(file, here, digits, quirk):
    name = f"{file}:quirk_{quirk}"
    model = load_isolated(name, "cpu", Isolation("auto", seconds=2, gibibytes=4))
    model.num_classes = 10
    kind, words = ENDS[quirk]
    with pytest.raises(kind, match=words) as caught:
        run_attack("foolbox:fgsm", model, digits.inputs[:3], digits.labels[:3], ThreatModel("linf", 0.1))
    line = str(caught.value)
    assert "\n" not in line
    assert name in line or quirk == "answer_nothing"
    if kind is ModelDied:
        with pytest.raises(ModelDied, match=words):  # and is not asked again in the same attack
            model(digits.inputs[:2])
    reset_processes(model)
    assert torch.equal(model(digits.inputs[:2]), here(digits.inputs[:2]))


def test_what_it_prints_is_cut_and_cleaned(file, digits, capsys):
    load_isolated(f"{file}:quirk_flood", "cpu", AUTO)(digits.inputs[:3])
    deadline = time.monotonic() + 5
    shown = ""
    while "is not shown" not in shown and time.monotonic() < deadline:
        time.sleep(0.05)
        shown += capsys.readouterr().err
    assert "?[31mred" in shown
    assert "\x1b" not in shown
    assert len(shown) < 200_000


@NEEDS_SANDBOX
@pytest.mark.parametrize(
    ("quirk", "words"), [("write", "Read-only file system"), ("connect", "Network is unreachable")]
)
def test_a_sandbox_has_no_network_and_nothing_is_written(file, digits, quirk, words):
    with pytest.raises(ModelFailed, match=words):
        load_isolated(f"{file}:quirk_{quirk}", "cpu", AUTO)(digits.inputs[:3])
    assert not Path("/written").exists()


def test_secrets_of_the_environment_stay_here(monkeypatch):
    monkeypatch.setenv("DAVYLAMP_TEST_TOKEN", "secret")
    monkeypatch.setenv("DAVYLAMP_TEST", "plain")
    assert "DAVYLAMP_TEST_TOKEN" not in environment(strict=False)
    assert environment(strict=False)["DAVYLAMP_TEST"] == "plain"
    assert "DAVYLAMP_TEST" not in environment(strict=True)


@pytest.mark.parametrize(
    "described",
    [
        None,
        [1],
        [{"dtype": "object", "shape": [1], "strides": [1], "offset": 0}],
        [{"dtype": "float32", "shape": [-1], "strides": [1], "offset": 0}],
        [{"dtype": "float32", "shape": [1 << 20], "strides": [1], "offset": 0}],
        [{"dtype": "float32", "shape": [4, 4], "strides": [100, 1], "offset": 0}],
        [{"dtype": "float32", "shape": [1], "strides": [1], "offset": 1 << 16}],
        [{"dtype": "float32", "shape": [1], "strides": [1], "offset": True}],
        [{"dtype": "float32", "shape": [1.0], "strides": [1], "offset": 0}],
    ],
)
def test_no_tensor_is_read_that_is_not_in_the_memory(described):
    memory = SharedBytes.create(1 << 16)
    with pytest.raises(ValueError, match="tensor"):
        memory.take(described)
    memory.close()


def test_a_limited_address_space_is_not_used_up(monkeypatch):
    """As under `ulimit -v`: otherwise no process could be started there."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (1 << 23, 1 << 23))
    memory = SharedBytes.create(1 << 50)
    described = memory.put([torch.zeros(1 << 18)])
    assert memory.size == 1 << 20
    assert memory.take([{**described[0], "shape": [0], "strides": [1]}])[0].shape == (0,)
    with pytest.raises(ValueError, match=r"expected tensors of at most .* GiB, got"):
        memory.take([{**described[0], "shape": [(1 << 18) + 1], "strides": [1]}])
    memory.close()


def test_tensors_keep_their_bits_and_strides():
    memory = SharedBytes.create(1 << 16)
    nan = torch.tensor([float("nan"), -0.0, float("inf")])
    given = [torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last), nan, torch.arange(6).view(2, 3).T]
    given += [torch.rand(0, 3), torch.tensor([True, False]), torch.rand(3).half(), torch.tensor(7)]
    described = [{**each, "shape": [*each["shape"]], "strides": [*each["strides"]]} for each in memory.put(given)]
    for before, after in zip(given, memory.take(described), strict=True):
        assert after.dtype == before.dtype
        assert after.stride() == before.stride()
        assert torch.equal(
            after.nan_to_num(5) if after.is_floating_point() else after,
            before.nan_to_num(5) if before.is_floating_point() else before,
        )
    memory.close()


@NEEDS_SANDBOX
def test_a_strict_sandbox_shows_nothing_else(stranger):
    assert "No such file or directory: '/etc/passwd'" in stranger.stdout.readline()


def test_every_file_that_a_name_says_is_seen_in_the_room(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("m.onnx", "w.pth", "d.py", "detector.npz"):
        Path(name).write_bytes(b"")
    read = read_files("onnx:m.onnx+d.py:rounded+detector:detector.npz")
    assert {path.name for path in read} == {"m.onnx", "d.py", "detector.npz"}
    assert {path.name for path in read_files("w.pth+torchvision:resnet18+d.py:rounded")} == {"w.pth", "d.py"}


def test_nothing_outlives_a_parent_that_is_killed(stranger):
    while stranger.stdout.readline() != "hangs now\n":
        pass
    time.sleep(0.3)
    family = _descendants(stranger.pid)
    assert len(family) >= 2  # the server and the room
    os.kill(stranger.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while (left := [process for process in family if _lives(process)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def _gradient(model, inputs):
    leaf = inputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf).logsumexp(1).sum(), leaf)
    return gradient


def _descendants(process: int) -> list[int]:
    children = [
        int(word) for path in Path(f"/proc/{process}/task").glob("*/children") for word in path.read_text().split()
    ]
    return [each for child in children for each in (child, *_descendants(child))]


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


HERE = Surroundings(strict=False)


def open_worker(around: Surroundings = HERE) -> Worker:
    """A worker with nothing in it."""
    spec = WorkerSpec("davylamp.adapters.models.sandbox.model_worker:run_model_worker")
    return Worker("nothing", around, spec, seconds=20, too_long="was stopped")


@NEEDS_SANDBOX
def test_fork_servers_without_a_worker_do_not_pile_up(tmp_path):
    """Strictly, every folder has one of its own: of those that nobody uses the last ones stay."""
    servers = []
    for place in range(5):
        worker = open_worker(Surroundings(True, (tmp_path / str(place),)))
        servers.append(worker._server)
        worker.close()
    assert all(server._control for server in servers[-2:])
    assert sum(server._control is not None for server in servers) <= 3
    again = open_worker(servers[-1].around)
    assert again._server is servers[-1]
    again.close()
    open_worker(servers[0].around).close()  # starts anew


def workers_of(server: ForkServer) -> list[int]:
    """The processes under a fork server, which is itself one of them in a sandbox."""
    assert server._process is not None
    return _descendants(server._process.pid)


def test_a_worker_ends_with_its_socket_and_with_its_server():
    first = open_worker()
    server = first._server
    with_worker = workers_of(server)
    first.close()
    assert len(workers_of(server)) == len(with_worker) - 1
    second = open_worker()
    assert second._server is server
    assert len(workers_of(server)) == len(with_worker)
    server.stop()  # as if it had been killed
    second._channel.wire.settimeout(5)
    assert second._channel.wire.recv(1) == b""
    second.close()
    third = open_worker()
    assert len(workers_of(third._server)) == len(with_worker)
    third.close()


def test_a_worker_that_is_let_go_of_by_the_garbage_collector_ends_and_its_server_is_used_again(file):
    classifier = load_isolated(f"{file}:net", "cpu", AUTO)
    server = classifier.process._worker._server
    before = workers_of(server)
    collector = threading.Thread(target=classifier.process.__del__)
    collector.start()
    collector.join(20)
    again = open_worker(server.around)
    assert again._server is server
    assert len(workers_of(server)) == len(before)
    assert workers_of(server) != before
    again.close()


def test_two_workers_share_no_process_and_no_memory():
    """One could otherwise read and change the other's images."""
    workers = [open_worker() for _ in range(3)]
    processes = [set(workers_of(each._server)) for each in workers]
    assert len(set.union(*processes)) == sum(map(len, processes))
    held = []
    for of_one in processes:
        files = [file for process in of_one for file in Path(f"/proc/{process}/fd").iterdir()]
        held.append({file.stat().st_ino for file in files if "memfd:davylamp" in str(file.readlink())})
    assert [len(each) for each in held] == [2, 2, 2]
    assert len(set.union(*held)) == 6
    for worker in workers:
        worker.close()


@NEEDS_SANDBOX
def test_a_virtual_environment_in_the_folder_for_temporary_files_has_a_sandbox(tmp_path):
    assert tmp_path.is_relative_to("/tmp")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "other.pth").write_text("\n".join(path for path in sys.path if "site-packages" in path))
    (packages / "davylamp").symlink_to(Path(bubblewrap.__file__).parents[3])
    program = "from davylamp.adapters.models.sandbox.bubblewrap import find_sandbox as find"
    program += "; print(bool(find().program), bool(find().program))"
    done = subprocess.run([tmp_path / "venv/bin/python", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_what_lies_in_the_folder_for_temporary_files_is_seen_by_its_link_too(tmp_path):
    """A virtual environment may be a link there to somewhere else, or the other way round."""
    (tmp_path / "link").symlink_to("/usr")
    part = Path(*tmp_path.parts[:3])
    assert bubblewrap._temporary_parts([tmp_path / "link", Path("/usr")]) == (part,)


def test_that_there_is_no_sandbox_is_said_in_one_short_line(monkeypatch, tmp_path):
    said = "echo 'one line' >&2; echo 'bwrap: setting up uid map: denied' >&2; exit 1"
    (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{said}\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    nothing = bubblewrap.find_sandbox.__wrapped__()
    assert nothing[:2] == ("", "bubblewrap fails: setting up uid map: denied")
    monkeypatch.setattr(isolating_module, "find_sandbox", lambda: nothing)
    (line,) = describe_isolated(AUTO, [f"model{n}.py:net" for n in range(9)])
    assert len(line) < 120


@pytest.mark.parametrize(
    "nothing",
    [
        bubblewrap.Sandbox("", 'bubblewrap is not installed: pip install "davylamp[isolate]"'),
        bubblewrap.Sandbox("", "bubblewrap fails: setting up uid map: denied", "apt install bubblewrap, or ..."),
    ],
)
def test_a_strict_room_without_a_sandbox_is_refused_and_says_how_to_get_one(monkeypatch, nothing):
    monkeypatch.setattr(worker_client, "find_sandbox", lambda: nothing)
    with pytest.raises(Unsupported, match=r"`isolate='strict'` needs a sandbox: .*install") as refused:
        open_worker(Surroundings(strict=True))
    assert "\n" not in str(refused.value)
    worker = open_worker()  # runs as a plain process
    worker.close()
    worker._server.stop()


def no_parsing(*_, **__):
    raise AssertionError("a stranger's file was parsed in this process")


@NEEDS_SANDBOX
def test_a_strict_sandbox_is_around_whatever_reads_files_of_strangers(tmp_path, monkeypatch, digits):
    net = torchvision.models.squeezenet1_1()
    torch.save(net.state_dict(), tmp_path / "net.pth")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's: the exporter that needs no further package is the older one
        axes = {"images": {0: "n"}}
        given = {"dynamo": False, "input_names": ["images"], "dynamic_axes": axes}
        torch.onnx.export(digits.module, (digits.inputs[:1],), tmp_path / "net.onnx", **given)
    names = [f"{tmp_path}/net.pth+torchvision:squeezenet1_1", f"onnx:{tmp_path}/net.onnx"]
    images = dict(zip(names, (torch.rand(2, 3, 64, 64), digits.inputs[:2]), strict=True))
    here = [load_model(name)(images[name]) for name in names]
    keys = [identify_model(load_model(name), name) for name in names]
    monkeypatch.setattr(torch, "load", no_parsing)
    monkeypatch.setattr(onnx, "load", no_parsing)
    for name, logits, key in zip(names, here, keys, strict=True):
        assert not AUTO.covers(name)
        apart = load_model(name, isolation=Isolation("strict", gibibytes=4.0))
        assert is_isolated(apart)
        assert torch.allclose(apart(images[name]), logits, atol=1e-5)
        assert identify_model(apart, name) == key

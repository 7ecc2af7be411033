"""A room in a container is the same model, with nothing around it; containers end, however we do."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from davylamp.adapters.models.room import container, sandbox
from davylamp.adapters.models.room.container import Engine, find_engine
from davylamp.adapters.models.room.isolated import describe_isolated, load_isolated
from davylamp.adapters.models.room.isolating import Isolation
from davylamp.adapters.models.room.room import server_of
from davylamp.adapters.models.room.sandbox import Sandbox, contained, find_sandbox
from davylamp.adapters.models.room.server_process import ServerProcess, server_for
from davylamp.adapters.models.zoo.load import load_model
from davylamp.errors import ModelFailed, Unsupported

STRICT = Isolation("strict", gibibytes=4.0)
MODELS = """
from pathlib import Path
import torch
from torch import nn


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(768, 64), nn.Tanh(), nn.Linear(64, 10))


def writing():
    Path(__file__).with_name("written").write_text("here")
    return net()
"""
# Says what it sees through the socket that is its standard input.
LOOKS = """
import json, os, socket
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
seen = {"user": os.getuid(), "capabilities": int(status["CapEff"], 16) | int(status["CapBnd"], 16)}
seen |= {"no new privileges": int(status["NoNewPrivs"]), "variables": dict(os.environ)}
seen["networks"] = [name for _, name in socket.if_nameindex()]
seen["processes"] = [name for name in os.listdir("/proc") if name.isdigit()]
for name, look in {
    "environ": lambda: open("/proc/1/environ").read(),
    "memory": lambda: open("/proc/1/mem", "rb"),
    "home": lambda: os.listdir(HOME),
    "mask": lambda: open("/etc/passwd").read() + open("/etc/hosts").read() + open("/etc/resolv.conf").read(),
    "door": lambda: os.unlink("/davylamp-door/wire"),
    "name": lambda: open("/proc/1/comm").read(),
}.items():
    try:
        seen[name] = look()
    except OSError as error:
        seen[name] = type(error).__name__ + str(error.errno)
seen["children"] = 0
try:
    while seen["children"] < 500:
        if os.fork() == 0:
            __import__("signal").pause()
        seen["children"] += 1
except OSError:
    pass
socket.socket(fileno=0).sendall(json.dumps(seen).encode() + b"\\n")
"""
HELD = """
import socket, subprocess, sys, time
from davylamp.adapters.models.room import sandbox
sandbox._find_bubblewrap = lambda: sandbox.Sandbox("", "hidden")
ours, theirs = socket.socketpair()
program = "import socket, time; socket.socket(fileno=0).sendall(b'1'); time.sleep(60)"
engine = sandbox.find_sandbox(strict=True).engine
made = sandbox.contained(engine, [sys.executable, "-c", program], visible=(), guest=True, tasks=40)
subprocess.Popen(made.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
made.hand_over(theirs)
theirs.close()
ours.recv(1)
print(made.name, flush=True)
time.sleep(100)
"""


@pytest.fixture(scope="module")
def engine(container_sandbox) -> Engine:
    """What runs containers; bubblewrap is hidden as long as it is used."""
    return container_sandbox.engine


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A file of models, which a container's user can read."""
    folder = tmp_path_factory.mktemp("room")
    folder.chmod(0o755)
    (folder / "models.py").write_text(MODELS)
    return folder / "models.py"


def names(engine):
    listing = [engine.program, "ps", "--all", "--format", "{{.Names}}"]
    return subprocess.check_output(listing, text=True).split()


def is_gone(engine, name, seconds=10.0):
    until = time.monotonic() + seconds
    while name in names(engine):
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def start(engine, program, tasks=40):
    """A container with a program: our end of its socket, the container, and the engine's process."""
    ours, theirs = socket.socketpair()
    made = contained(engine, [sys.executable, "-I", "-S", "-c", program], visible=(), guest=True, tasks=tasks)
    process = subprocess.Popen(made.command, stdin=subprocess.DEVNULL)
    with theirs:
        made.hand_over(theirs)
    ours.settimeout(30)
    return ours, made, process


def test_a_model_answers_as_it_does_here_until_its_container_ends(engine, file, digits):
    here, there = load_model(f"{file}:net"), load_isolated(f"{file}:net", "cpu", STRICT)
    assert torch.equal(there(digits.inputs), here(digits.inputs))
    gradients = []
    for model in (here, there):
        leaf = digits.inputs[:4].clone().requires_grad_()
        gradients += torch.autograd.grad(model(leaf).logsumexp(1).sum(), leaf)
    assert torch.equal(*gradients)
    with pytest.raises(ModelFailed, match="Read-only file system"):
        load_isolated(f"{file}:writing", "cpu", STRICT)
    assert not file.with_name("written").exists()
    server = server_of(f"{file}:net", STRICT)
    assert server._container is not None
    made = server._container
    assert made.name in names(engine)
    assert not made._folder.exists()  # nothing to be left behind
    server._stop()
    assert is_gone(engine, made.name, 1.0)
    (line,) = describe_isolated(STRICT, [f"{file}:net"])
    assert "in a container: no network, Python and the model's folder are all that is seen" in line


def test_what_a_container_shows_and_allows(engine, monkeypatch):
    monkeypatch.setenv("DAVYLAMP_TEST_TOKEN", "secret")
    monkeypatch.setenv("HTTPS_PROXY", "https://name:secret@proxy")
    ours, made, process = start(engine, LOOKS.replace("HOME", repr(str(Path.home()))))
    with ours, ours.makefile() as answer:
        seen = json.loads(answer.readline())
    made.end(process)
    assert seen["user"] != 0 or os.getuid() != 0
    assert (seen["capabilities"], seen["no new privileges"]) == (0, 1)
    assert not any("secret" in value for value in seen["variables"].values())
    assert seen["variables"]["TMPDIR"] == "/tmp"
    assert seen["networks"] == ["lo"]
    assert len(seen["processes"]) == 2
    assert {seen["environ"], seen["memory"]} == {"PermissionError13"}
    assert set(seen["home"] if isinstance(seen["home"], list) else []) <= {".pyenv", ".local"}  # where Python may lie
    assert seen["mask"] == ""
    assert seen["door"] in ("OSError30", "FileNotFoundError2")
    assert seen["name"].strip() == container.FIRST_PROCESS
    assert 20 < seen["children"] < 40  # the hard limit of the system
    assert is_gone(engine, made.name)


def test_a_container_that_does_not_notice_is_killed_by_its_name(engine, monkeypatch):
    monkeypatch.setattr(container, "_LEAVE_SECONDS", 0.1)
    ours, made, process = start(engine, "import socket, time; socket.socket(fileno=0).sendall(b'1'); time.sleep(60)")
    with ours:  # stays open: nothing in there knows that it is to end
        assert ours.recv(1) == b"1"
        made.end(process)
        process.wait(10)
        assert is_gone(engine, made.name)


def test_a_container_ends_with_a_process_that_is_killed(engine):
    with subprocess.Popen([sys.executable, "-c", HELD], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert name in names(engine)
        process.send_signal(signal.SIGKILL)
    assert is_gone(engine, name)


def test_containers_of_killed_processes_are_ended_by_the_next_start(engine, monkeypatch):
    gone = int(subprocess.check_output([sys.executable, "-S", "-c", "import os; print(os.getpid())"], text=True))
    space, *_ = container._this_process().split("-")
    program = "import socket, time; socket.socket(fileno=0).sendall(b'1'); time.sleep(60)"
    kept, left = start(engine, program), None
    with monkeypatch.context() as patch:
        patch.setattr(container, "_this_process", lambda: f"{space}-{gone}-1")
        left = start(engine, program)
    assert left[0].recv(1) == kept[0].recv(1) == b"1"
    container._sweep(engine.program)
    assert is_gone(engine, left[1].name, 1.0)
    assert kept[1].name in names(engine)
    for ours, made, process in (kept, left):
        ours.close()
        made.end(process)
    assert is_gone(engine, kept[1].name)


def test_files_that_its_user_could_not_read_are_named(engine, tmp_path):
    if engine.user:
        pytest.skip("it runs as this user")
    tmp_path.chmod(0o700)
    with pytest.raises(Unsupported, match=rf"files that everybody can read.*, got {tmp_path}: chmod -R o\+rX it"):
        server_for(os.getpid(), True, (tmp_path,)).open_room()


def test_the_reason_names_each_attempt(tmp_path, monkeypatch):
    fake = tmp_path / "docker"
    fake.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(fake) if name == "docker" else None)
    monkeypatch.setattr(sandbox, "_find_bubblewrap", lambda: Sandbox("", "bubblewrap may not do its work here"))
    monkeypatch.setattr(sandbox, "_find_engine", sandbox._find_engine.__wrapped__)
    missing = "docker runs no container here (Cannot connect to the Docker daemon); podman is not installed"
    assert find_sandbox(strict=True) == Sandbox("", f"bubblewrap may not do its work here; {missing}")
    assert find_sandbox() == Sandbox("", "bubblewrap may not do its work here")  # no container for rooms that see all
    with pytest.raises(Unsupported, match=r"expected a sandbox for --isolate strict, got none: .*podman is not"):
        ServerProcess(True, ()).open_room()


def test_bubblewrap_is_the_first_choice(monkeypatch):
    monkeypatch.setattr(sandbox, "_find_bubblewrap", lambda: Sandbox("/usr/bin/bwrap"))
    monkeypatch.setattr(sandbox, "_find_engine", lambda: pytest.fail("it was not needed"))
    assert find_sandbox(strict=True) == Sandbox("/usr/bin/bwrap")


def test_an_engine_that_would_run_it_as_another_user_is_not_taken(engine, monkeypatch):
    """As if a user's engine were root's: who asks for the socket has another number than we."""
    monkeypatch.setattr(container, "_is_allowed", lambda _: False)
    engine_here, reason = find_engine(sandbox._content((), guest=True, tasks=40))
    assert engine_here is None
    assert "podman runs no container here" in reason or "docker runs no container here" in reason


@pytest.mark.parametrize(("name", "users"), [("docker", ("1000:100", "0:0")), ("podman", ("0:0", "1000:100"))])
def test_as_whom_a_container_may_run(monkeypatch, name, users):
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "getgid", lambda: 100)
    assert container._users(name) == users
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert container._users(name) == ("",)  # never as root of this machine

"""A results folder with a model here and one behind a server: evaluated, resumed, ranked, checked, reported."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters.models.remote.answer_cache import FILE, AnswerCache
from davylamp.engine import ResultsStore
from davylamp.engine.store.checksummed import differing_columns
from davylamp.errors import WrongType

ATTACKS = "torchattacks:square,foolbox:boundary"
SETTINGS = ["--attacks", ATTACKS, "--norm", "l2", "--param", "steps=6", "--limit", "3", "--price-per-image", "0.5"]
LIGHT = ("effect", "cost")  # measures

NET = """
import torch

def make():
    return torch.load("net.pth", weights_only=False)

def weak():
    net = make()
    net[5].bias.data[8] += 30
    return net
"""


@pytest.fixture
def images(tmp_path, digits):
    """The digits as a file, and their model as another."""
    np.savez(tmp_path / "digits.npz", inputs=digits.inputs.numpy(), labels=digits.labels.numpy())
    torch.save(digits.module, tmp_path / "net.pth")
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "light.toml").write_text(f"measures = {list(LIGHT)}", encoding="utf-8")
    return "npz:digits.npz"


def cells_of(folder):
    store = ResultsStore(folder)
    return {key: store.read("cells", key) for key in store.keys("cells")}


def test_a_folder_holds_a_remote_model_beside_one_of_here(run, serve, images, digits, tmp_path):
    server = serve()
    command = ["evaluate", "light.toml", "-o", "mixed", "--data", images, *SETTINGS]
    for name in ("net.py:make", "net.py:weak", server.url):
        command += ["--models", name]
    code, out, err = run(*command)
    assert code == 0, err
    assert "mixed: 6 runs done" in out
    paid = server.images()
    assert f" {paid} sent to the server and billed (" in out
    assert f"price {paid / 2:g}" in out
    cells = cells_of(tmp_path / "mixed")
    by_model = {}
    for record in cells.values():
        by_model.setdefault(record.meta["subject"]["model"], {})[record.meta["spec"]["attack"]] = record
    here, there = by_model["net.py:make"], by_model[server.url]
    for attack, record in there.items():
        for column in ("success", "forwards", "distance"):
            assert record.table[column].to_pylist() == here[attack].table[column].to_pylist()
        assert record.meta["traffic"]["paid"] > 0
        assert "traffic" not in here[attack].meta

    code, out, err = run(*command)
    assert code == 0
    assert "0 runs done, 6 reused" in out
    assert server.images() == paid + 6  # the fingerprint
    assert f"{server.url}: {paid + 6} images billed in total for" in out  # in all
    for command in (["rank", "mixed", "--method", "mean"], ["status", "mixed"], ["check", "mixed"]):
        code, out, err = run(*command)
        assert code == 0, err
        assert server.url in out
    assert run("report", "mixed", "-o", "report.html", "--bootstrap", "20")[0] == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Queries to servers" in page

    server.net = nn.Sequential(digits.module, nn.Linear(10, 10))
    code, out, err = run("evaluate", "light.toml", "--models", server.url, "--data", images, "-o", "mixed", *SETTINGS)
    assert "metadata have changed since this folder was written" in err
    assert len(cells_of(tmp_path / "mixed")) == 8  # new cells
    assert len([name for name in os.listdir(tmp_path / "mixed") if name.startswith("answers.sqlite")]) >= 1  # noqa: PTH208


class Flipped(nn.Module):
    """Another answer to some images alone, which no fingerprint sees."""

    def __init__(self, module, images):
        super().__init__()
        self.module, self.images = module, images

    def forward(self, inputs):
        logits = self.module(inputs)
        known = torch.stack([(self.images - each).abs().flatten(1).amax(1).amin() < 1e-6 for each in inputs])
        return torch.where(known[:, None], -logits, logits)


def test_answers_of_another_version_are_not_taken_for_this_one_s(serve, digits, tmp_path):
    server, images = serve(), digits.inputs[:4]
    given = {"attacks": "torchattacks:square", "parameters": {"steps": 2}, "epsilon": 0.02, "norm": "linf"}

    def clean(**more):
        done = davylamp.evaluate([server.url], images, digits.labels[:4], out=tmp_path / "r", **given, **more)
        return done.table("models", metrics=["CA"]).rows[-1].metrics["CA"].value

    assert clean() == 1
    server.net = Flipped(digits.module, images)
    assert clean(version="2") == 0
    with pytest.raises(WrongType):
        clean(version=2)


def test_a_server_that_changes_during_an_attack_costs_that_cell(serve, digits, tmp_path):
    server = serve()
    remote = davylamp.load_model(server.url)
    seen = []

    def change(images):
        seen.append(len(images))
        if sum(seen) > 120:
            server.net = nn.Sequential(digits.module, nn.Flatten(), _Turned())
        return images

    server.change = change
    done = davylamp.evaluate(
        {"m": remote}, digits.inputs[:4], digits.labels[:4], attacks="torchattacks:square", out=tmp_path / "r",
        parameters={"steps": 40}, epsilon=0.02, norm="linf",
    )  # fmt: skip
    (reason,) = done.summary.failed.values()
    assert "the server's outputs have changed since the first query" in reason


class _Turned(nn.Module):
    def forward(self, logits):
        return logits.roll(1, 1)


SCRIPT = """
import sys
import davylamp
davylamp.evaluate([sys.argv[1]], attacks="foolbox:hopskipjump", out="killed", data="npz:digits.npz", norm="l2",
                  limit=2, parameters={"steps": 3, "initial_evaluations": 10, "max_evaluations": 20}, measures=())
"""


def test_a_killed_run_asks_nothing_twice(serve, images, tmp_path, monkeypatch):
    server = serve()
    server.change = lambda pixels: (time.sleep(0.01), pixels)[1]
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    process = subprocess.Popen([sys.executable, "script.py", server.url], cwd=tmp_path)
    deadline = time.monotonic() + 120
    while server.images() < 110 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.2)  # an answer under way
    before, at_kill = dict(server.seen), server.images()
    assert ResultsStore(tmp_path / "killed", create=False).keys("cells") == []

    server.change = lambda pixels: pixels
    parameters = {"steps": 3, "initial_evaluations": 10, "max_evaluations": 20}
    settings = {"attacks": "foolbox:hopskipjump", "data": "npz:digits.npz", "norm": "l2", "limit": 2}
    settings["measures"] = ()
    monkeypatch.chdir(tmp_path)  # the name of the data is part of a cell
    done = davylamp.evaluate([server.url], out="killed", parameters=parameters, **settings)
    again = {image: server.seen[image] - before[image] for image in before}
    traffic = done.summary.traffic
    assert server.images() - at_kill == traffic.paid
    # What the killed run was answered is in the books, too, but for what was under way.
    in_all = AnswerCache(tmp_path / "killed" / FILE).usage()[server.url][0]
    assert server.images() - 8 <= in_all <= server.images()
    # Seen before and again now: probes, which pass the kept answers by, and at most the one answer under way.
    assert sum(again.values()) <= traffic.probes + 8
    assert traffic.asked - traffic.paid > 20  # what was known
    whole = davylamp.evaluate([server.url], out="whole", parameters=parameters, **settings)
    assert not whole.summary.failed
    one, other = (cells_of(tmp_path / name) for name in ("killed", "whole"))
    assert list(one) == list(other)
    for key, record in one.items():
        assert differing_columns(record.table, other[key].table) == []


def test_json_of_an_evaluation_says_what_was_paid(run, serve, images):
    server = serve()
    code, out, _ = run(
        "evaluate",
        "light.toml",
        "--models",
        server.url,
        "--data",
        images,
        "-o",
        "r",
        "--json",
        "--no-cache",
        *SETTINGS,
    )
    document = json.loads(out)
    assert code == 0
    assert document["traffic"]["paid"] == server.images()
    assert document["traffic"]["asked"] == document["traffic"]["paid"]  # nothing was kept


def test_commands_without_a_folder_say_what_was_paid(run, serve, images):
    server = serve()
    square = ("saturation", "torchattacks:square", "--model", server.url, "--data", images, "--limit", "2")
    code, _, err = run(*square, "--param", "steps=3", "--budget", "0.1,0.2", "--price-per-image", "0.5")
    assert code == 0, err
    paid = server.images()
    assert f"{paid} sent to the server" in err
    assert f"price {paid * 0.5:g}\n" in err
    smoothed = ("certify", f"{server.url}+smoothing:sigma=0.1", "--data", images, "--limit", "1")
    code, _, err = run(*smoothed, "--n0", "5", "--n", "20")
    assert code == 0, err
    assert f"{server.images() - paid} sent to the server" in err


def test_what_a_detector_asks_of_a_server_is_said(run, serve, images, tmp_path):
    server = serve()
    data = np.load(tmp_path / "digits.npz")
    np.savez(tmp_path / "noise.npz", inputs=np.clip(data["inputs"] * 0.9, 0, 1), labels=data["labels"])
    train = ("fit", "feature-squeezing", "--model", server.url, "--data", "npz:noise.npz", "-o", "d.pt")
    assert run(*train)[0] == 0
    asked = ("evaluate", "--models", server.url, "--data", images, "--limit", "3", "--attacks", "foolbox:boundary")
    code, _, err = run(*asked, "--norm", "l2", "--param", "steps=6", "--keep-images", "-o", "r")
    assert code == 0, err
    before = server.images()
    code, out, err = run("detect", "r", "--detector", "d.pt", "--json")
    assert code == 0, err
    assert server.images() > before
    (note,) = [note for note in json.loads(out)["notes"] if "sent to the server" in note]
    assert f" {server.images() - before} sent to the server" in note

"""The digest of a model changes whenever its answers could, and with nothing else; what it can't see is said."""

import base64
import functools
import hashlib
import importlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier
from davylamp.adapters.models.fold_batch_norm import fold_batch_norms
from davylamp.adapters.models.identity.digest import digest_model, identify_model
from davylamp.adapters.models.identity.source_files import SourceFiles, code_state
from davylamp.adapters.models.zoo.load import load_model


class Holder(nn.Module):
    """A layer with whatever it is given as its attribute `held`."""

    def __init__(self, held):
        super().__init__()
        self.layer, self.held = nn.Linear(3, 2), held
        nn.init.ones_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, inputs):
        return self.layer(inputs.mean((2, 3)))


class Point:
    """Two attributes, one of them in a slot."""

    __slots__ = ("__dict__", "x")

    def __init__(self, x, y):
        self.x, self.y = x, y


def closing_over(value):
    def inner(inputs):
        return inputs * value

    return inner


def digest(held):
    return identify_model(Classifier(Holder(held)))


VALUES = [
    (1, 2),
    (1, True),
    (1, 1.0),
    (0.0, -0.0),
    ("1", 1),
    ("a", b"a"),
    ([1, [2]], [[1], 2]),
    ((1, 2), [1, 2]),
    ({"a": 1}, {"a": 2}),
    ({1, 2}, {1, 3}),
    (torch.zeros(2, 3), torch.zeros(3, 2)),
    (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
    (torch.zeros(2), torch.tensor([0.0, 1e-45])),
    (np.zeros(2), np.zeros(2, np.float32)),
    (np.array([1, "a"], object), np.array([1, "b"], object)),
    (Point(1, [2]), Point(1, [3])),
    (Point(1, 2), Point(2, 2)),
    (closing_over(1), closing_over(2)),
    (closing_over(torch.ones(1)), closing_over(torch.zeros(1))),
    (functools.partial(max, 1), functools.partial(max, 2)),
    (functools.partial(max, 1), functools.partial(min, 1)),
    (Point(1, 2).__init__, Point(1, 3).__init__),
    (np.random.default_rng(0), np.random.default_rng(1)),
    ([nn.Linear(1, 1).eval()], [nn.Linear(1, 1).train()]),
    (torch.relu, torch.sigmoid),
    (lambda x: x, lambda x, y=1: x),
    (Path("a"), Path("b")),
]


@pytest.mark.parametrize(("one", "other"), VALUES)
def test_whatever_an_attribute_holds_counts(one, other):
    assert digest(one).digest != digest(other).digest
    assert digest(one) == digest(one)
    assert digest(one).reasons == digest(other).reasons == ()


def test_a_setting_that_is_a_plain_attribute_counts():
    """A defence with Bits(net, 1) edited to Bits(net, 3) kept its old results."""
    model = Holder(1)
    before = digest_model(Classifier(model))
    model.held = 3
    assert digest_model(Classifier(model)) != before


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.register_buffer("late", torch.ones(1), persistent=False),
        lambda model: model.layer.register_forward_hook(lambda *_: None),
        lambda model: model.layer.register_forward_pre_hook(lambda *_: None),
        lambda model: setattr(model, "forward", lambda inputs: inputs),
        lambda model: setattr(model.layer, "forward", lambda inputs: inputs),
        lambda model: object.__setattr__(model.layer, "training", True),
        lambda model: model.layer.weight.data.add_(1e-7),
        lambda model: setattr(model.layer, "note", 1),
        lambda model: model.half(),
    ],
)
def test_whatever_changes_a_layer_counts(change):
    classifier = Classifier(Holder(1)).freeze()
    before = digest_model(classifier)
    change(classifier.model)
    assert digest_model(classifier) != before


def test_a_class_attribute_and_a_global_count(monkeypatch):
    before = digest(1).digest
    monkeypatch.setattr(Holder, "levels", 4, raising=False)
    with_attribute = digest(1).digest
    assert with_attribute != before
    monkeypatch.setattr(Holder, "forward", closing_over(2))
    assert digest(1).digest not in (before, with_attribute)


def test_equal_models_have_one_digest_whatever_their_name_device_or_place():
    def made(name):
        shared = [1, 2]
        return Classifier(Holder({"a": shared, "b": shared, "c": torch.device("cpu"), "d": (3, 3)}), name=name)

    one, other = made("one"), made("other")
    other.model.held["c"] = torch.device("cuda:1")
    other.check(torch.rand(2, 3, 4, 4))  # which notes the number of classes
    assert digest_model(one) == digest_model(other)


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (
            lambda: Path(__file__).open(),  # noqa: SIM115 - closed below
            "model.held is a TextIOWrapper, whose content cannot be read",
        ),
        (lambda: (i for i in range(3)), "model.held is a generator"),
        (threading.local, "model.held is a _local"),
        (lambda: {"a": [iter("a"), (i for i in "b")]}, "model.held['a'] is a generator"),
        (lambda: closing_over(i for i in "a"), "value, which closing_over.<locals>.inner closes over, is a generator"),
    ],
)
def test_what_cannot_be_read_makes_the_identity_unknown(held, words):
    value = held()
    (reason,) = digest(value).reasons
    assert reason.startswith(words)
    if hasattr(value, "close"):
        value.close()


def test_locks_loggers_and_circles_do_no_harm():
    circle: list = [threading.Lock(), threading.RLock()]
    circle.append(circle)
    assert digest(circle).reasons == ()
    deep: list = []
    for _ in range(20_000):
        deep = [deep]
    assert digest(deep).reasons == ("its parts are nested too deeply to be read",)


NET = """
import os

import torch
from torch import nn

from bits import squeeze

LEVELS = int(os.environ.get("LEVELS", 4))

class Quantise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        return squeeze(inputs, LEVELS)

    @staticmethod
    def backward(ctx, gradient):
        return gradient

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.names = {"a", "b", "c", "d"}
        nn.init.ones_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, inputs):
        return self.layer(Quantise.apply(inputs).mean((2, 3)))

def build():
    return Net()

def plain():
    return nn.Sequential(nn.Flatten(), nn.Identity())
"""
BITS = """
def squeeze(inputs, levels):
    return (inputs * levels).round() / levels
"""
ASK = """
import json, os, sys
from davylamp.adapters.models.identity.digest import identify_model
from davylamp.adapters.models.zoo.load import load_model

load_model("demo:mnist-lenet5+bit-depth:bits=4")  # what defences import is imported once
for folder, factories, environment in json.load(sys.stdin):
    child = os.fork()  # before anything of a folder is loaded
    if not child:
        os.environ.update(environment)
        sys.path.insert(0, folder)
        for factory in factories:
            name = f"{folder}/net.py:{factory}"
            print(json.dumps([folder, str(identify_model(load_model(name), name))]), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def write_net(folder, net=NET, bits=BITS):
    folder.mkdir()
    (folder / "net.py").write_text(net)
    (folder / "bits.py").write_text(bits)
    return folder


def ask(hash_seed, *questions):
    """Identities of (folder, factories, environment), as printed by a new process, with a path of its own, forking."""
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    text = json.dumps([(str(folder), factories, environment) for folder, factories, environment in questions])
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        check=False,
        input=text,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join([*paths, f"/none/{hash_seed}"])},
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [folder for folder, _ in lines] == [str(folder) for folder, names, _ in questions for _ in names]
    return [identity for _, identity in lines]


def test_the_code_of_a_model_counts_and_nothing_about_its_place(tmp_path):
    """A process each: other places, paths, hash seeds, comments; then the file, its neighbour, a global, a remote."""
    first_folder = write_net(tmp_path / "a")
    neighbour = write_net(tmp_path / "c", bits=BITS.replace("round", "floor"))
    edited = write_net(
        tmp_path / "d", NET.replace("return nn.Seq", "torch.nn.functional.relu = abs\n    return nn.Seq")
    )
    remote = NET.replace("return self.layer(", "import requests\n        return requests.post(")
    remote_folder = write_net(tmp_path / "e", remote.replace("(2, 3)))", "1))"))
    both = ["build", "plain"]
    defended = "build+bit-depth:bits=4"  # the model of the file is a part of what is identified
    first, plain, behind, near, near_plain, near_behind, levels, edited_plain, elsewhere = ask(
        "1",
        (first_folder, [*both, defended], {}),
        (neighbour, [*both, defended], {}),
        (first_folder, ["build"], {"LEVELS": "8"}),
        (edited, ["plain"], {}),
        (remote_folder, ["build"], {}),
    )
    moved = write_net(tmp_path / "b", NET.replace("class Net", "# a comment\n\n\nclass Net"))
    assert ask("2", (moved, [*both, defended], {})) == [first, plain, behind]
    assert behind not in (first, near_behind)
    assert "reasons=()" in first
    assert not {near, near_plain} & {first, plain}
    assert levels != first
    assert edited_plain != plain
    assert "Net.forward uses requests, and remote results may change" in elsewhere


def note_files(libs, name, files):
    """As an installer notes what it has written: paths, hashes, sizes."""
    about = libs / f"{name}-1.2.3.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2.3\n")
    lines = [f"{name}-1.2.3.dist-info/METADATA,,", "../../bin/tool,,"]
    for file in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256((libs / file).read_bytes()).digest()).decode().rstrip("=")
        lines.append(f"{file},sha256={digest},{(libs / file).stat().st_size}")
    (about / "RECORD").write_text("\n".join(lines))


@pytest.mark.parametrize("noted", [True, False])
def test_a_package_anywhere_on_the_path_is_known_by_its_version(tmp_path, monkeypatch, noted):
    """As `pip install --target` leaves it; what no installer has noted is the user's, and what was changed since."""
    libs, name = tmp_path / "libs", f"netlib_{noted}".lower()
    files = [f"{name}/{part}.py" for part in ("__init__", "parts", "helper")]
    texts = f"from {name} import helper\n", "class Part:\n    pass\n", "ONE = 1\n"
    (libs / name).mkdir(parents=True)
    for file, text in zip(files, texts, strict=True):
        (libs / file).write_text(text)
    note_files(libs, name, files if noted else [])
    (libs / "loose.py").write_text("TWO = 2\n")
    (libs / name / "mine.py").write_text("THREE = 3\n")  # beside what was noted
    net = tmp_path / "net.py"
    net.write_text(f"import {name}.parts, {name}.mine\nimport loose\n")
    monkeypatch.syspath_prepend(libs)
    before = code_state(net)
    assert len(before) == (3 if noted else 6)  # the file, loose.py, mine.py; and those of the package
    importlib.import_module(f"{name}.parts")
    sources = SourceFiles()
    assert sources.add_module(f"{name}.parts") == ("installed" if noted else "local")
    assert (f"{name} 1.2" in sources.digests()) == noted
    for file in ("loose.py", f"{name}/mine.py", f"{name}/parts.py"):
        known = code_state(net)
        (libs / file).write_text("TWO = 'changed'\n")
        assert code_state(net) != known, file


def test_known_models_have_one_digest_folded_or_not():
    folded, whole = (load_model("demo:efficientnet-lite0", fold=fold) for fold in (True, False))
    identity = identify_model(folded, "demo:efficientnet-lite0")
    assert identity == identify_model(whole)
    assert identity.reasons == ()
    folded.model.held = 1
    assert digest_model(folded) != identity.digest


def test_folding_keeps_the_digest_of_a_model_that_counts_its_passes():
    class Counts(nn.Sequential):
        calls = 0

        def forward(self, inputs):
            self.calls += 1
            return super().forward(inputs)

    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    classifier = Classifier(Counts(*layers))
    before = digest_model(classifier)
    assert fold_batch_norms(classifier, 8) == 1
    assert digest_model(classifier) == before


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
def test_scripted_traced_and_compiled_models_are_read():
    model, inputs = Holder(1).eval(), torch.rand(1, 3, 4, 4)
    for make in (torch.jit.trace, lambda net, _: torch.jit.script(net.layer)):
        one = digest_model(Classifier(make(model, inputs)))
        assert digest_model(Classifier(make(model, inputs))) == one
        other = Holder(1).eval()
        other.layer.weight.data.add_(1)
        assert digest_model(Classifier(make(other, inputs))) != one
    graph = torch.fx.symbolic_trace(model)
    assert identify_model(Classifier(graph)).reasons == ()


CHAIN = """
import torch, {0}.near

class Net(torch.nn.Module):
    def forward(self, inputs):
        return inputs.flatten(1)[:, :2] * {0}.near.far.SCALE

class Indirect(torch.nn.Module):
    def forward(self, inputs):
        return inputs.flatten(1)[:, :2] * globals()["SCALE"]
"""


def test_a_setting_in_a_module_that_is_reached_through_another_counts(tmp_path, monkeypatch):
    package = f"chain_{tmp_path.name}"
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / package / "far.py").write_text("SCALE = 1.0\n")
    (tmp_path / package / "near.py").write_text("from . import far\n")
    (tmp_path / package / "net.py").write_text(CHAIN.format(package))
    monkeypatch.syspath_prepend(tmp_path)
    net = importlib.import_module(f"{package}.net")
    far = importlib.import_module(f"{package}.far")
    known = identify_model(Classifier(net.Net()))
    monkeypatch.setattr(far, "SCALE", 0.1)
    changed = identify_model(Classifier(net.Net()))
    monkeypatch.setattr(far, "SCALE", 1.0)
    assert identify_model(Classifier(net.Net())) == known != changed
    assert not known.reasons
    assert any("globals" in reason for reason in identify_model(Classifier(net.Indirect())).reasons)

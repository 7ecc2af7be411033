"""Results are kept for the same model, rules, versions and device only; what is unknown is run again."""

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters import Classifier, ThreatModel
from davylamp.adapters.data.datasets import Data
from davylamp.adapters.models.identity.digest import digest_model
from davylamp.adapters.models.sandbox.isolation import Isolation
from davylamp.adapters.models.zoo.load import load_model
from davylamp.adapters.running.judge import RULES
from davylamp.commands.input_options import InputOptions
from davylamp.engine import AttackChoice, Config, ResultsStore, build_curves, build_table, evaluate, load, make_plan
from davylamp.engine.attack_run import AttackRun, ModelOnData
from davylamp.engine.checks.check_folder import check_folder
from davylamp.engine.store.plan_records import list_cells, survey_folder
from davylamp.errors import InvalidInput, Unavailable
from davylamp.report.page.build import build_report

BITS = """
import torch
from torch import nn

class Bits(nn.Module):
    def __init__(self, net, bits):
        super().__init__()
        self.net, self.bits = net, bits

    def forward(self, inputs):
        levels = 2 ** self.bits - 1
        return self.net(inputs + ((inputs * levels).round() / levels - inputs).detach())

def build():
    layer = nn.Linear(48, 4)
    layer.weight.data = torch.randn(4, 48, generator=torch.Generator().manual_seed(0))
    layer.bias.data.zero_()
    return Bits(nn.Sequential(nn.Flatten(), layer), 1)
"""
CONFIG = Config(("net",), (AttackChoice("foolbox:fgsm", "linf", 0.05),), "twelve", shard_size=3, measures=("effect",))


@pytest.fixture
def twelve() -> Data:
    images = torch.from_numpy(np.random.default_rng(0).random((12, 3, 4, 4), np.float32) * 0.6 + 0.2)
    return Data(images, torch.arange(12) % 4, [str(i) for i in range(12)])


def test_a_defence_whose_setting_is_edited_is_run_again(tmp_path, twelve):
    """Bits(net, 1) edited to Bits(net, 3) gave "0 runs done, 1 kept", with the numbers of the other one."""
    file = tmp_path / "net.py"
    config, store = replace(CONFIG, models=(f"{file}:build",)), ResultsStore(tmp_path / "out")

    def run():
        return evaluate(make_plan(config, data=twelve), store)

    file.write_text(BITS)
    assert run().done == 1
    assert run()[:2] == (0, 1)
    file.write_text(BITS.replace("# nothing", "").replace("layer), 1)", "layer), 3)"))
    assert run().done == 1
    fresh = ResultsStore(tmp_path / "fresh")
    assert evaluate(make_plan(config, data=twelve), fresh).done == 1
    (key,) = fresh.keys("cells")
    assert store.read("cells", key).table["success"].equals(fresh.read("cells", key).table["success"])
    file.write_text(BITS.replace("import torch\n", "import torch  # a comment\n", 1))
    assert run()[:2] == (0, 1)


class Opaque(nn.Module):
    """A model that holds what cannot be read."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(48, 4)
        self.session = (number for number in range(3))

    def forward(self, inputs):
        return self.layer(inputs.flatten(1))


@pytest.fixture
def remote():
    torch.manual_seed(0)
    return {"net": Classifier(Opaque())}


def test_a_model_of_unknown_identity_is_run_again_unless_it_is_trusted(remote, twelve, tmp_path):
    store = ResultsStore(tmp_path)
    plan = make_plan(CONFIG, models=remote, data=twelve)
    first = evaluate(plan, store)
    assert first.unknown == {"net": "model.session is a generator, whose content cannot be read"}
    assert first.done == 1
    assert evaluate(plan, store)[:2] == (0, 1)  # the same plan knows its own
    meta = store.read("cells", store.keys("cells")[0]).meta
    assert meta["identity"]["unknown"] == ["model.session is a generator, whose content cannot be read"]
    remote["net"].model.layer.bias.data += 0  # nothing that could be seen has changed
    again = make_plan(CONFIG, models=remote, data=twelve)
    assert [cell.key for cell in again.cells] == [cell.key for cell in plan.cells]
    assert evaluate(again, store, trust_unknown=True)[:2] == (0, 1)
    assert evaluate(again, store)[:2] == (1, 0)
    assert survey_folder(tmp_path, headers=False).damaged == []


def test_an_interrupted_evaluation_of_an_unknown_model_goes_on_and_takes_nothing_of_others(remote, twelve, tmp_path):
    store, reports = ResultsStore(tmp_path), []

    def stop(attack, images):
        reports.extend([images] if images else [])
        if len(reports) == 4:
            raise KeyboardInterrupt

    plan = make_plan(CONFIG, models=remote, data=twelve)
    with pytest.raises(KeyboardInterrupt):
        evaluate(plan, store, progress=stop)
    parts = store.keys("parts")
    assert len(parts) > 0
    other = make_plan(CONFIG, models=remote, data=twelve)
    ran = []
    evaluate(other, store, progress=lambda attack, images: ran.append(images) if attack else None)
    assert sum(ran) == 24  # the clean images, and all shards
    reports.clear()
    with pytest.raises(KeyboardInterrupt):
        evaluate(plan, store, progress=stop)
    ran.clear()
    evaluate(plan, store, progress=lambda attack, images: ran.append(images) if attack else None)
    assert sum(ran) < 12


def test_rules_torch_and_device_are_part_of_a_cell(digits, images):
    (cell,) = make_plan(Config(attacks=CONFIG.attacks), models={"cnn": digits.classifier}, data=images).cells
    assert cell.rules == RULES
    assert torch.__version__.startswith(cell.torch + ".")
    assert cell.device == "cpu"
    for change in ({"rules": RULES + 1}, {"torch": "9.9"}, {"device": "cuda"}):
        assert replace(cell, **change).key != cell.key
    assert AttackRun.from_spec(cell.spec) == cell


def test_a_spec_of_0_1_0_has_its_key():
    """Worked out by davylamp 0.1.0."""
    subject = ModelOnData("nan-off", "f3dd1294b80c7aa0b4a0", "digits", "15f357d93290a3d0f4a9", 6)
    parameters = {"steps": 1, "initial_const": 1.0, "learning_rate": 0.01, "confidence": 0.0}
    measures = ("effect", "cost", "distance")
    cell = AttackRun(subject, "torchattacks:cw", ThreatModel("l2"), parameters, measures=measures, version="3.5.1")
    assert cell.key == "00f3188b0bcd1a31ee76"


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """Results that davylamp 0.1.0 (885c8cd) wrote: a linear model and one that gives NaN off the clean images."""
    folder = tmp_path_factory.mktemp("old")
    with zipfile.ZipFile(Path(__file__).with_name("results_0_1_0.zip")) as archive:
        archive.extractall(folder)
    return folder


def test_a_folder_of_0_1_0_still_loads(old):
    assert len(load(old)) == 4 * 6
    assert survey_folder(old, headers=False).damaged == []
    assert {state.status for state in list_cells(old)} == {"done"}
    assert len(build_table(old, by="pairs").rows) == 4
    assert build_curves(old).notes is not None
    page = build_report(old, bootstrap=10)
    assert "Evaluated with older rules" in page


def test_check_names_what_cannot_be_trusted_in_a_folder_of_0_1_0(old, small_folder):
    assert {check.state for check in check_folder(small_folder) if check.name == "older-rules"} == {"pass"}
    checks = {check.subject: check for check in check_folder(old) if check.name == "older-rules"}
    by_name = {subject.split(" (")[0] + " on " + subject.rpartition(" ")[2]: check for subject, check in checks.items()}
    assert {name: check.state for name, check in by_name.items()} == {
        "foolbox:pgd on net": "warn",
        "torchattacks:ead-en on net": "fail",
        "torchattacks:cw on net": "fail",
        "foolbox:pgd on nan-off": "fail",
    }
    assert by_name["torchattacks:cw on net"].images == tuple(f"digit-{i}" for i in range(6))


def test_results_of_0_1_0_are_never_reused(old, tmp_path):
    """The same model and images again: every cell has another key."""
    keys = set(ResultsStore(old).keys("cells"))
    for key in keys:
        cell = AttackRun.from_spec(ResultsStore(old).read("cells", key).meta["spec"])
        assert cell.key == key
        assert replace(cell, rules=RULES).key not in keys


ODD = """
import torch

SESSION = (number for number in range(3))


def attack(model, inputs, labels, epsilon):
    next(SESSION, 0)
    return (inputs + epsilon * torch.randn_like(inputs).sign()).clamp(0, 1)


class Attack:
    def __init__(self):
        self.draws = (number for number in range(3))

    def __call__(self, model, inputs, labels, epsilon):
        return (inputs + epsilon).clamp(0, 1)


instance = Attack()
attack.norm = instance.norm = "linf"


def metric(inputs, adv_inputs):
    next(SESSION, 0)
    return (adv_inputs - inputs).abs().flatten(1).sum(1)


def build():
    layer = torch.nn.Linear(48, 4)
    layer.weight.data = torch.randn(4, 48, generator=torch.Generator().manual_seed(0))
    layer.bias.data.zero_()
    return torch.nn.Sequential(torch.nn.Flatten(), layer)
"""


def _odd_config(folder, attack="foolbox:fgsm", metric=""):
    (folder / "odd.py").write_text(ODD)
    attacks = (AttackChoice(attack.replace("odd.py", f"{folder / 'odd.py'}"), "linf", 0.05),)
    measures = ("effect", f"{folder / 'odd.py'}:metric") if metric else ("effect",)
    return replace(CONFIG, models=(f"{folder / 'odd.py'}:build",), attacks=attacks, measures=measures)


@pytest.mark.parametrize(
    "odd", [{"attack": "odd.py:attack"}, {"attack": "odd.py:instance"}, {"metric": "odd.py:metric"}]
)
def test_an_attack_or_a_metric_that_is_partly_unknown_is_run_again_in_place_unless_it_is_trusted(odd, twelve, tmp_path):
    store, config = ResultsStore(tmp_path / "out"), _odd_config(tmp_path, **odd)

    def run(**options):
        return evaluate(make_plan(config, data=twelve), store, **options)

    first = run()
    (name,) = odd.values()
    (unknown,) = first.unknown
    assert unknown.endswith(name)
    assert "whose content cannot be read" in first.unknown[unknown]
    assert first[:2] == (1, 0)
    files = sorted((tmp_path / "out").rglob("*.parquet"))
    assert run()[:2] == (1, 0)
    assert sorted((tmp_path / "out").rglob("*.parquet")) == files
    assert store.read("cells", store.keys("cells")[0]).meta["identity"]["unknown"] == [first.unknown[unknown]]
    assert run(trust_unknown=True)[:2] == (0, 1)
    assert run()[:2] == (1, 0)  # trusting once says nothing of the next time
    (tmp_path / "odd.py").write_text(ODD.replace("import torch\n", "import torch\nNEW = 1\n", 1))
    assert evaluate(make_plan(config, data=twelve), store, trust_unknown=True)[:2] == (1, 0)  # what is known, changed
    assert survey_folder(tmp_path / "out", headers=False).damaged == []


def test_what_is_known_of_the_same_plan_is_kept(twelve, tmp_path):
    """Beside an unknown attack the others resume, and the plan knows its own."""
    store, config = ResultsStore(tmp_path / "out"), _odd_config(tmp_path, "odd.py:attack")
    config = replace(config, attacks=(*config.attacks, *CONFIG.attacks))
    plan = make_plan(config, data=twelve)
    assert evaluate(plan, store)[:2] == (2, 0)
    assert evaluate(plan, store)[:2] == (0, 2)
    assert evaluate(make_plan(config, data=twelve), store)[:2] == (1, 1)


@pytest.mark.parametrize("what", ["model", "attack"])
def test_two_processes_do_not_share_what_is_unknown(twelve, remote, tmp_path, what):
    store, config = ResultsStore(tmp_path / "out"), _odd_config(tmp_path, "odd.py:attack")
    given = {"data": twelve} | ({"models": remote} if what == "model" else {})
    config = CONFIG if what == "model" else config
    plan, claims = make_plan(config, **given), []
    claim = store.claim
    store.claim = lambda name: (claims.append(name), claim(name))[1]
    evaluate(plan, store)
    (held,) = [name for name in claims if name.startswith("unknown-")]
    lock = claim(held)
    named = "net" if what == "model" else r"odd\.py:attack"
    with pytest.raises(Unavailable, match=f"{named}.* cannot be identified .* another process"):
        evaluate(make_plan(config, **given), store)
    lock.release()
    if what == "attack":
        assert evaluate(make_plan(replace(config, attacks=CONFIG.attacks), **given), store).done == 1
    assert store.claimed() == set()


READING = """
import os

from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(48, 4)
        nn.init.ones_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)
        self.passes = 0

    def forward(self, inputs):
        READ
        return scale * self.layer(inputs.flatten(1))

def build():
    return Net()
"""


@pytest.mark.parametrize(
    "read",
    [
        "scale = float(os.getenv('SCALE', '1'))",
        "scale = float(os.environb[b'SCALE'])",
        "scale = float(os.environ['SCALE']) if len(inputs) > 1 else 1.0",
    ],
)
def test_a_variable_that_a_pass_reads_is_a_part_of_the_model(read, twelve, tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(READING.replace("READ", read))
    config, store = replace(CONFIG, models=(f"{tmp_path / 'net.py'}:build",)), ResultsStore(tmp_path / "out")
    for scale, ran in (("1", 1), ("1", 0), ("2", 1)):
        monkeypatch.setenv("SCALE", scale)
        assert evaluate(make_plan(config, data=twelve), store).done == ran


def test_a_version_stands_for_what_cannot_be_seen(twelve, tmp_path, monkeypatch):
    """A variable that is read later than in the first pass; by name, as a module, on the command line alike."""
    file = tmp_path / "net.py"
    late = "self.passes += 1\n        scale = 1.0 if self.passes == 1 else float(os.getenv('SCALE', '1'))"
    file.write_text(READING.replace("READ", late))
    module, attack = Opaque(), {"attacks": "foolbox:fgsm", "norm": "linf", "epsilon": 0.05}
    del module.session
    for models in (f"{file}:build", {"net": module}):
        out = tmp_path / ("named" if isinstance(models, str) else "given")
        for version, ran in (("", 1), ("", 0), ("2", 1), ("2", 0), ("3", 1), ("", 0)):
            done = davylamp.evaluate(models, twelve.inputs, twelve.labels, out=out, version=version, **attack)
            assert done.summary is not None
            assert done.summary.done == ran
        assert len(build_table(out, by="models").rows) == 3  # one for each, told apart
    assert "model_version" not in vars(module)
    for wrong in ("a b", "a+b", "-", "x" * 65):
        with pytest.raises(InvalidInput, match="expected a version of the model"):
            davylamp.evaluate(f"{file}:build", twelve.inputs, twelve.labels, out=tmp_path / "x", version=wrong)
    assert (
        InputOptions(model_version="2").of(f"{file}:build+jpeg:quality=50") == f"{file}:build+version:2+jpeg:quality=50"
    )
    plain, versioned, both = (
        load_model(f"{file}:build{more}") for more in ("", "+version:2", "+version:2+bit-depth:bits=4")
    )
    assert len({digest_model(each) for each in (plain, versioned, both)}) == 3
    assert digest_model(load_model(f"{file}:build+bit-depth:bits=4")) != digest_model(both)
    apart = load_model(f"{file}:build+version:2", isolation=Isolation("yes"))
    assert digest_model(apart) == digest_model(versioned)


def test_two_files_of_weights_under_one_name_are_two_models_everywhere(twelve, tmp_path, monkeypatch):
    """Trained again into the same file: nothing is reused, and no view takes the two for one."""
    monkeypatch.chdir(tmp_path)
    attack = {"attacks": ("foolbox:fgsm", "foolbox:pgd"), "norm": "linf", "epsilon": 0.05}
    Path("net.py").write_text(BITS.replace("layer.bias.data.zero_()", "layer.load_state_dict(torch.load('net.pth'))"))
    for seed in (0, 1):
        torch.manual_seed(seed)
        torch.save(nn.Linear(48, 4).state_dict(), "net.pth")
        done = davylamp.evaluate("net.py:build", twelve.inputs, twelve.labels, out="out", **attack)
        assert done.summary is not None
        assert done.summary.done == 2
    rows = build_table("out", by="models", metrics=["CA", "RA"]).rows
    names = {row.labels["model"] for row in rows}
    assert len(names) == len(rows) == 2
    assert all(name.startswith("net.py:build [") for name in names)
    ranking = davylamp.rank("out", "models", scoring="borda")
    assert set(ranking.subjects) == names
    page = build_report("out", bootstrap=10)
    assert all(name in page for name in names)

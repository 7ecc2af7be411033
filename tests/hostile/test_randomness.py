"""No model that answers one image now so, now otherwise gets a better standing by it, and every verb says it first."""

import html
from pathlib import Path

import numpy as np
import pytest
import torch

import davylamp
from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.data.datasets import Data
from davylamp.adapters.result import UNSTEADY
from davylamp.adapters.running.determinism import spread, stays_steady
from davylamp.adapters.running.surrogate import run_transfer
from davylamp.engine.checks.check_folder import check_folder
from davylamp.engine.checks.standings import rank_models
from davylamp.engine.store.results import read_outcomes
from davylamp.engine.store.sequence import read_sequence
from davylamp.engine.store.store import ResultsStore
from davylamp.errors import InvalidInput
from davylamp.report.page.build import build_report
from tests.hostile import randomness as kit

PGD, LINF = "torchattacks:pgd", ThreatModel("linf", 0.15)


@pytest.fixture(scope="module")
def case(digits):
    """Images of all classes, those of class 7 not among the first."""
    order = (digits.labels[:60] == 7).sort(stable=True).indices[:40]
    order = torch.cat([order, (digits.labels[:60] == 7).nonzero()[:4, 0]])
    return Data(digits.inputs[order], digits.labels[order], [str(place) for place in order.tolist()])


@pytest.fixture(scope="module")
def honest(digits, case):
    return run_attack(PGD, Classifier(digits.module), case.inputs, case.labels, LINF, steps=10)


@pytest.mark.parametrize("name", kit.PROGRAMS)
def test_no_program_passes_for_steady_nor_for_more_robust(name, digits, case, honest):
    model = Classifier(kit.PROGRAMS[name](digits.module))
    result = run_attack(PGD, model, case.inputs, case.labels, LINF, steps=10)
    assert result.notes == (UNSTEADY,)
    assert repr(result).startswith(f"AttackResult: {UNSTEADY}; ")
    assert result.invalid.any()
    assert int(result.robust.sum()) <= int(honest.robust.sum())
    kinds = {kind for each in result.violations for kind in each}
    assert kinds <= {"unstable", "no-gradient"}  # the model's fault, not the library's


@pytest.mark.parametrize("name", kit.PROGRAMS)
def test_nor_where_examples_of_another_model_are_judged_on_it(name, digits, case):
    model = Classifier(kit.PROGRAMS[name](digits.module))
    surrogate = Classifier(digits.module)
    made = run_transfer(PGD, surrogate, model, case.inputs, case.labels, LINF, steps=10)
    assert not made.notes  # whatever they are made on, they are judged on a steady model
    for _ in range(20):  # in the course of an evaluation
        model.predict_logits(case.inputs[:2])
    judged = run_transfer(PGD, model, surrogate, case.inputs, case.labels, LINF, steps=10)
    if name not in ("RepeatsItself", "TurnsRound"):  # which have changed before and are another model by now
        assert judged.notes == (UNSTEADY,)


def test_a_steady_model_pays_one_pass_in_two_hundred_and_is_asked_in_the_same_order(digits, case):
    asked = []

    class Asked(torch.nn.Module):
        def forward(self, inputs):
            asked.append(len(inputs))
            return digits.module(inputs)

    model = Classifier(Asked())
    run_attack(PGD, model, case.inputs[:20], case.labels[:20], LINF, steps=10)
    whole = sum(asked)
    model.steady, model.answers.passes_unchecked = True, -(10**9)  # nothing is asked
    asked.clear()
    result = run_attack(PGD, model, case.inputs[:20], case.labels[:20], LINF, steps=10)
    used = int((result.forwards + result.backwards).sum())
    assert whole - sum(asked) == 1 + 6 + 2 * ((800 + used) // 400)  # gradients, at the beginning, at the end
    model.answers.passes_unchecked = 0
    asked.clear()
    run_attack(PGD, model, case.inputs[:20], case.labels[:20], LINF, steps=10)
    model.answers.passes_unchecked = -(10**9)
    bare = sum(asked)
    asked.clear()
    run_attack(PGD, model, case.inputs[:20], case.labels[:20], LINF, steps=10)
    assert bare - sum(asked) <= used / 200


def test_what_comes_back_as_it_was_costs_nothing(digits, case):
    """Images that nothing was done to have been asked about twice."""
    model = Classifier(digits.module)
    logits = model.predict_logits(case.inputs)
    model.steady = True
    answered = type("Answered", (), {})  # whatever has images and logits
    clean, examples = answered(), answered()
    clean.images = examples.images = case.inputs
    clean.logits, examples.logits = logits, logits.clone()
    attacked = torch.zeros(len(logits), dtype=torch.bool)
    assert stays_steady(model, clean, examples, attacked, 0, 0)
    examples.logits[5] = -examples.logits[5]
    assert not stays_steady(model, clean, examples, attacked, 0, 0)
    assert model.steady is False


@pytest.mark.parametrize("seed", range(5))
def test_images_are_spread_over_the_classes(seed):
    classes = torch.tensor([3] * 50 + [1] * 5 + [0] * 2 + [2])
    order = spread(classes, seed)
    assert sorted(order.tolist()) == list(range(58))
    assert sorted(classes[order[:4]].tolist()) == [0, 1, 2, 3]
    assert sorted(classes[order[4:7]].tolist()) == [0, 1, 3]
    assert not torch.equal(order, spread(classes, seed + 5))
    assert not len(spread(classes[:0], seed))


def test_every_verb_says_it_before_any_number(digits, case, tmp_path):
    model = kit.NoiseOnOneClass(digits.module)
    inputs, labels = case.inputs, case.labels
    assert davylamp.run_attack(PGD, model, inputs, labels, norm="linf", epsilon=0.15, steps=10).notes[0] == UNSTEADY
    words = {"norm": "linf", "epsilon": 0.15, "steps": 10, "libraries": ["torchattacks", "foolbox"]}
    assert davylamp.compare("pgd", model, inputs, labels, **words).notes[0] == UNSTEADY
    choices = {"attacks": [PGD], "norm": "linf", "epsilon": 0.15, "parameters": {"steps": 10}}
    done = davylamp.evaluate({"m": model}, inputs, labels, out=tmp_path / "r", **choices)
    assert done.notes[0] == f"m: {UNSTEADY}"
    outcomes = read_outcomes(tmp_path / "r")
    assert outcomes.notes[0] == f"m: {UNSTEADY}"
    (check,) = (each for each in check_folder(tmp_path / "r") if each.name == "deterministic")
    (clean,) = outcomes.clean.values()
    named = np.isin(clean.columns["image"], list(check.images))
    assert check.state == "fail"
    assert set(clean.columns["predicted"][named]) | set(clean.columns["label"][named]) >= {7}
    page = html.unescape(build_report(tmp_path / "r"))
    assert 0 < page.index(UNSTEADY) < page.index("No run is missing")


def test_the_command_line_says_it_first(digits, case, tmp_path, monkeypatch, run):
    torch.save(digits.module, tmp_path / "net.pt")
    (tmp_path / "randomness.py").write_text(Path(kit.__file__).read_text())
    (tmp_path / "net.py").write_text(
        "import torch\nimport randomness\n\n\ndef make():\n"
        "    return randomness.NoiseOnOneClass(torch.load('net.pt', weights_only=False))\n"
    )
    np.savez(tmp_path / "d.npz", inputs=case.inputs.numpy(), labels=case.labels.numpy())
    monkeypatch.chdir(tmp_path)
    shared = ("--data", "npz:d.npz", "--norm", "linf", "--epsilon", "0.15")
    code, _, err = run("evaluate", "--models", "net.py:make", "--attacks", PGD, *shared, "-o", "r")
    assert code == 0, err
    assert f"net.py:make: {UNSTEADY}" in err.splitlines()
    code, out, _ = run("check", "r")
    assert out.splitlines()[0] == f"- net.py:make: {UNSTEADY}"
    code, _, err = run("compare", "pgd", "--model", "net.py:make", "--library", "torchattacks,foolbox", *shared)
    assert f"- {UNSTEADY}" in err.splitlines()


def test_a_steady_model_is_not_told_anything(digits, case, tmp_path):
    done = davylamp.evaluate({"m": digits.module}, case.inputs, case.labels, attacks=[PGD], out=tmp_path / "r")
    assert not [note for note in done.notes if UNSTEADY in note]
    assert not read_outcomes(tmp_path / "r").unsteady


def test_a_model_that_is_declared_later_is_judged_in_the_same_folder(digits, tmp_path):
    class Noisy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = digits.module

        def forward(self, x):
            return self.net(x + 0.4 * torch.randn_like(x))

    given = {"attacks": "foolbox:fgsm", "epsilon": 0.1}
    case = digits.inputs, digits.labels
    alone = davylamp.evaluate(
        {"mine": davylamp.Classifier(Noisy(), random=True)}, *case, **given, out=tmp_path / "alone"
    )
    before = davylamp.evaluate({"mine": Noisy()}, *case, **given, out=tmp_path / "both")
    assert before.unsteady
    after = davylamp.evaluate(
        {"mine": davylamp.Classifier(Noisy(), random=True)}, *case, **given, out=tmp_path / "both"
    )
    assert not after.unsteady
    rates = [each.table("models", metrics=["CA", "RA"]).to_frame() for each in (alone, after)]
    assert rates[0].equals(rates[1])
    assert {each.verdict for each in davylamp.gate(tmp_path / "both", "RA >= 0").made} == {"pass"}


NOISY = """import torch
import davylamp


class Noisy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.load("net.pt", weights_only=False)

    def forward(self, x):
        return self.net(x + 0.4 * torch.randn_like(x))


def make():
    return Noisy()


def declared():
    return davylamp.Classifier(Noisy(), random=True)
"""


def test_a_declaration_in_the_name_is_the_one_of_python(digits, tmp_path, monkeypatch, run):
    """The option, the name and the factory give equal rates; the undeclared results in the folder do not count."""
    torch.save(digits.module, tmp_path / "net.pt")
    (tmp_path / "net.py").write_text(NOISY)
    np.savez(tmp_path / "d.npz", inputs=digits.inputs.numpy(), labels=digits.labels.numpy())
    monkeypatch.chdir(tmp_path)
    shared = ("--data", "npz:d.npz", "--attacks", "foolbox:fgsm", "--epsilon", "0.1")
    calls = {"option": ("net.py:make", "--random"), "name": ("net.py:make+random:yes",), "python": ("net.py:declared",)}
    rates = {}
    for out, (name, *more) in calls.items():
        if out == "option":
            _, _, err = run("evaluate", "--models", name, *shared, "-o", out)
            assert "--random" in UNSTEADY
            assert f"{name}: {UNSTEADY}" in err.splitlines()
        code, _, err = run("evaluate", "--models", name, *more, *shared, "-o", out)
        assert code == 0, err
        assert UNSTEADY not in err
        outcomes = read_outcomes(out)
        assert not outcomes.unsteady
        (each,) = outcomes.done
        rates[out] = each.columns["draws_fooled"].tolist()
        assert each.cell.draws == 20
        assert run("gate", out, "--require", "RA >= 0", "--require", "CA >= 0")[0] == 0
    assert rates["option"] == rates["name"] == rates["python"]
    assert any("net.py:make:" in line for line in read_outcomes("option").left_out)
    assert {each.name for each in read_outcomes("option").subjects.values()} == {"net.py:make+random:yes"}


def test_the_declaration_goes_before_defences_and_is_checked():
    from davylamp.adapters.models.zoo.load import add_parts, load_model

    assert add_parts("a.py:f+jpeg", random=True, outputs="labels") == "a.py:f+outputs:labels+random:yes+jpeg"
    assert add_parts("a.py:f+random:yes", random=True) == "a.py:f+random:yes"
    assert load_model("demo:digits-cnn+random:yes+bit-depth:bits=4").random
    assert not load_model("demo:digits-cnn+bit-depth:bits=4").random
    with pytest.raises(InvalidInput, match="random:yes, got 'random:maybe'"):
        load_model("demo:digits-cnn+random:maybe")
    for wrong in (load_model, lambda name: add_parts(name.partition("+")[0], random=True)):
        with pytest.raises(InvalidInput, match=r"\?random=yes"):
            wrong("http://localhost:1/v2/models/m+random:yes")


def test_a_question_about_an_undeclared_random_model_is_not_decided(digits, tmp_path):
    model, more = kit.NoiseOnOneClass(digits.module), {"norm": "linf", "epsilon": 0.15, "parameters": {"steps": 10}}
    given = {"attacks": [PGD], "out": tmp_path / "r", "until": "RA >= 0.01", "shard_size": 40, "seeds": (0,), **more}
    done = davylamp.evaluate({"m": model}, digits.inputs, digits.labels, **given)
    assert UNSTEADY in done.stopped
    record = read_sequence(ResultsStore(tmp_path / "r"))
    assert not record.is_decided
    assert UNSTEADY in repr(done).splitlines()[-1]
    assert "RA" not in repr(done).splitlines()[-1].replace(UNSTEADY, "")


def test_an_undeclared_random_model_is_not_ranked(digits, case, tmp_path):
    """Of three models, the two steady ones have the places that they have without it."""
    noisy = kit.NoiseOnOneClass(digits.module)
    dropped = torch.nn.Sequential(torch.nn.AvgPool2d(3, 1, 1), digits.module).eval()
    given = {
        "attacks": [PGD, "foolbox:fgsm"],
        "norm": "linf",
        "epsilon": 0.05,
        "libraries": ["torchattacks", "foolbox"],
    }
    for name, models in {"two": {}, "three": {"random": noisy}}.items():
        models |= {"steady": digits.module, "blurred": dropped}
        davylamp.evaluate(models, case.inputs, case.labels, out=tmp_path / name, **given)
    folders = [read_outcomes(tmp_path / name) for name in ("two", "three")]
    standings = [rank_models(outcomes, ()) for outcomes in folders]
    (two,), (three,) = [[[(row.name, row.value) for row in each.places] for each in made] for made in standings]
    assert two == three
    assert {name for name, _ in two} == {"steady", "blurred"}
    for options in ({"method": "fast"}, {"scoring": "canary"}):
        made = davylamp.rank(tmp_path / "three", **options)
        assert set(made.subjects) == {"steady", "blurred"}
        assert any(UNSTEADY in note for note in made.notes)
    davylamp.evaluate({"random": noisy}, case.inputs, case.labels, out=tmp_path / "one", **given)
    with pytest.raises(InvalidInput, match="not judged"):
        davylamp.rank(tmp_path / "one")

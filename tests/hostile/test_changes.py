"""What an attack does to the model, to torch or to the process is seen, undone, and never to anybody's credit."""

import signal
import subprocess
import sys
import threading

import pytest
import torch

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.data.datasets import Data
from davylamp.adapters.models.zoo.load import load_model
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.store.results import as_results
from davylamp.errors import AttackFailed, ModelSpoiled, Unsupported
from tests.hostile import changes

LINF = ThreatModel("linf", 0.05)


@pytest.fixture
def classifier(digits):
    return Classifier(changes.Net(digits.module))


def attacked(attack, classifier, digits):
    return run_attack(attack, classifier, digits.inputs[:8], digits.labels[:8], LINF)


def clean(classifier, digits):
    return classifier.predict_logits(digits.inputs[:8])


@pytest.mark.parametrize("name", changes.CHANGES)
def test_a_change_of_the_model_proves_nothing_and_is_put_back(name, classifier, digits):
    honest = attacked(changes.step, classifier, digits)
    before = clean(classifier, digits)
    result = attacked(changes.CHANGES[name], classifier, digits)
    assert result.attacked.any()
    assert not (result.success | result.robust)[result.attacked].any()
    assert all("model-changed" in kinds for kinds, hit in zip(result.violations, result.attacked, strict=True) if hit)
    assert torch.equal(clean(classifier, digits), before)
    again = attacked(changes.step, classifier, digits)
    assert again.success.equal(honest.success)
    assert not again.invalid.any()


@pytest.mark.parametrize("name", changes.BREAKS)
def test_an_attack_after_which_the_model_fails_has_failed_itself(name, classifier, digits):
    before = clean(classifier, digits)
    with pytest.raises(AttackFailed):
        attacked(changes.BREAKS[name], classifier, digits)
    assert torch.equal(clean(classifier, digits), before)


@pytest.mark.parametrize("name", changes.NOT_PUT_BACK)
def test_a_change_that_cannot_be_put_back_is_said_and_spoils_no_other_attack(name, classifier, digits):
    result = attacked(changes.NOT_PUT_BACK[name], classifier, digits)
    assert all("model-changed" in kinds for kinds, hit in zip(result.violations, result.attacked, strict=True) if hit)
    with pytest.raises(ModelSpoiled):
        attacked(changes.step, classifier, digits)
    classifier.model.options.shift.zero_()  # its owner mends it
    assert not attacked(changes.step, classifier, digits).invalid.any()


@pytest.mark.parametrize("name", changes.LEAVES)
def test_what_an_attack_leaves_open_is_closed(name, classifier, digits):
    honest = attacked(changes.step, classifier, digits)
    handlers, alarm = signal.getsignal(signal.SIGTERM), signal.getitimer(signal.ITIMER_REAL)[0]
    result = attacked(changes.LEAVES[name], classifier, digits)
    assert result.success.equal(honest.success)
    assert not torch.is_inference_mode_enabled()
    assert not torch.is_autocast_enabled("cpu")
    assert signal.getitimer(signal.ITIMER_REAL)[0] == pytest.approx(alarm, abs=60)  # pytest has one of 300 seconds
    assert signal.getsignal(signal.SIGTERM) is handlers
    again = attacked(changes.step, classifier, digits)
    assert again.success.equal(honest.success)
    assert again.adv_inputs.equal(honest.adv_inputs)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # how a thread is ended
@pytest.mark.parametrize("name", changes.THREADS)
def test_a_thread_that_an_attack_leaves_is_ended(name, classifier, digits):
    honest, before = attacked(changes.step, classifier, digits), set(threading.enumerate())
    attacked(changes.THREADS[name], classifier, digits)
    assert set(threading.enumerate()) <= before
    again = attacked(changes.step, classifier, digits)
    assert again.success.equal(honest.success)
    assert not again.invalid.any()


@pytest.mark.parametrize("name", changes.HONEST)
def test_what_a_model_changes_by_itself_is_its_own_business(name, digits):
    model = changes.HONEST[name](digits.module)
    classifier = Classifier(model)
    model(digits.inputs[:3])
    result = run_attack("foolbox:pgd", classifier, digits.inputs, digits.labels, LINF, steps=3, batch_size=8)
    plain = run_attack(
        "foolbox:pgd", Classifier(digits.module), digits.inputs, digits.labels, LINF, steps=3, batch_size=8
    )
    assert not result.invalid.any()
    assert result.adv_inputs.equal(plain.adv_inputs)
    assert model.calls > 5
    assert len(model.log) == model.calls


def test_the_command_line_ends_in_spite_of_a_thread_that_waits(tmp_path):
    (tmp_path / "waits.py").write_text(
        "import threading\n\n\ndef attack(model, inputs, labels, epsilon):\n"
        "    threading.Thread(target=threading.Event().wait).start()\n"
        "    threading.Thread(target=wait).start()\n"
        "    return (inputs + epsilon).clamp(0, 1)\n\n\ndef wait():\n    threading.Event().wait()\n"
    )
    model = ["--models", "demo:mnist-lenet5", "--data", "demo:mnist", "--limit", "2"]
    attack = ["--isolate", "no", "--attacks", "waits.py:attack", "--epsilon", "0.1", "--norm", "linf"]
    program = [sys.executable, "-m", "davylamp", "evaluate", *model, *attack]
    assert subprocess.run(program, cwd=tmp_path, timeout=120, check=False).returncode == 0


_MODEL = """
import types
import torch
from torch import nn


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.options = nn.Sequential(nn.Flatten(), nn.Linear(768, 10)), types.SimpleNamespace(sign=1)
        self.body[1].weight.data = torch.linspace(-9, 9, 7680).view(10, 768).sin()
        self.body[1].bias.data.zero_()

    def forward(self, x):
        return self.body(x) * self.options.sign{more}


def make():
    return Small()
"""
_ATTACK = """
import gc
import sys


def attack(model, inputs, labels, epsilon):
    {change}
    return (inputs - epsilon * (inputs > 0.5)).clamp(0, 1)
"""
_OBJECT = "next(each for each in gc.get_objects() if type(each).__name__ == 'Small').options.sign = -1"
_PROCESS = "import colorsys; colorsys.ONE_THIRD = -1.0"


@pytest.mark.parametrize(("more", "change", "spoils"), [("", _OBJECT, False), (" * _sign()", _PROCESS, True)])
def test_after_a_change_for_good_the_next_cell_is_right_or_not_run(more, change, spoils, digits, tmp_path, monkeypatch):
    import colorsys

    monkeypatch.setattr(colorsys, "ONE_THIRD", 1.0 / 3)
    helper = "\n\ndef _sign():\n    import colorsys\n    return colorsys.ONE_THIRD\n"
    (tmp_path / "model.py").write_text(_MODEL.format(more=more) + helper)
    (tmp_path / "changing.py").write_text(_ATTACK.format(change=change))
    (tmp_path / "honest.py").write_text(_ATTACK.format(change="pass"))
    attacks = tuple(AttackChoice(f"{tmp_path}/{name}.py:attack", "linf", 0.2) for name in ("changing", "honest"))
    labels = load_model(f"{tmp_path}/model.py:make").predict_logits(digits.inputs).argmax(1)
    data = Data(digits.inputs, labels, [str(place) for place in range(len(labels))])
    plan = make_plan(Config(attacks=attacks, models=(f"{tmp_path}/model.py:make",), data="digits"), data=data)
    store = ResultsStore(tmp_path / "results")
    if spoils:
        with pytest.raises(ModelSpoiled):
            evaluate(plan, store)
        monkeypatch.setattr(colorsys, "ONE_THIRD", 1.0 / 3)  # as in a new process
    assert evaluate(plan, store).failed == {}
    first, second = sorted(as_results(store.folder).done, key=lambda each: each.cell.attack)
    assert "changing" in first.cell.attack
    assert first.columns["violated"].all()
    assert not second.columns["violated"].any()
    assert second.columns["attacked"].all()


@pytest.mark.parametrize("where", ["before the call", "by the model"])
def test_a_function_of_tensors_that_somebody_replaced_is_named(where, digits, monkeypatch):
    def refuse(*_: object, **__: object):
        raise RuntimeError("replaced")

    class Replaces(torch.nn.Module):
        def forward(self, inputs):
            monkeypatch.setattr(torch.Tensor, "clamp", refuse)
            return digits.module(inputs)

    model = Replaces() if where == "by the model" else digits.module
    if where == "before the call":
        monkeypatch.setattr(torch.Tensor, "clamp", refuse)
    with pytest.raises(Unsupported, match=r"torch\.Tensor\.clamp by .*refuse"):
        run_attack("foolbox:pgd", Classifier(model), digits.inputs[:4], digits.labels[:4], LINF)

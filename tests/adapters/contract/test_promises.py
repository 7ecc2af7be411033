"""The contract itself: sound rows keep it, planted ones break the promise that they are planted to break."""

import copy
import itertools
import json
import os
import random
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from davylamp.adapters import as_implementation, find_implementation
from davylamp.adapters.contract.contract_checks import PROMISES, norms_of, run_contract_check, run_contract_checks
from davylamp.adapters.contract.linear_model import make_coarse_case
from davylamp.adapters.running.queries import QueryCounter
from davylamp.errors import UnknownName
from davylamp.testing import _cases

with warnings.catch_warnings():  # Foolbox imports what SciPy has renamed
    warnings.simplefilter("ignore")
    import art.attacks
    import foolbox
    from torchattacks.attack import Attack as TorchattacksAttack

pytest_plugins = ["pytester"]


SOUND = (
    *("foolbox:pgd", "torchattacks:fgsm", "art:bim", "foolbox:ddn", "torchattacks:square"),
    "foolbox:fmn@fixed",  # ends on the boundary, which rounding puts on either side
)


def states(attack, **options):
    return {promise.promise: promise.state for promise in run_contract_checks(attack, **options)}


@pytest.mark.parametrize("name", SOUND)
def test_sound_rows_break_nothing(name):
    promises = list(run_contract_checks(name, norms=norms_of(name)[:1]))
    assert [promise.promise for promise in promises] == list(PROMISES)
    assert [promise for promise in promises if promise.state == "failed"] == []


def test_gradient_attacks_find_the_optimum_of_a_linear_model():
    assert states("torchattacks:fgsm")["finds the known optimum"] == "passed"
    assert states("torchattacks:fgsm")["attacks each image alone"] == "passed"
    assert states("foolbox:gaussian-noise", norms=["l2"])["finds the known optimum"] == "weak"


def _step(model, inputs, labels, epsilon, size=1.0):
    inputs.requires_grad_(True)
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    return (inputs + size * epsilon * inputs.grad.sign()).clamp(0, 1).detach()


def far(model, inputs, labels, epsilon):
    return _step(model, inputs, labels, epsilon, 1.5)


def coupled(model, inputs, labels, epsilon):
    return _step(model, inputs, labels, epsilon, 1 / len(inputs))


_CALLS = itertools.count()


def forgetful(model, inputs, labels, epsilon):
    return _step(model, inputs, labels, epsilon, 0.5 + 0.1 * (next(_CALLS) % 3))


def crashing(model, inputs, labels, epsilon):
    raise ValueError("no")


def sloppy(model, inputs, labels, epsilon):
    for _ in range(9):
        try:
            model(inputs)
        except BaseException:
            raise RuntimeError("the budget surprised me") from None
    return (inputs + epsilon).clamp(0, 1)


PLANTED = {
    far: "keeps the rules",
    coupled: "attacks each image alone",
    forgetful: "repeats with its seed",
    crashing: "runs",
    sloppy: "keeps a budget",
}


@pytest.mark.parametrize("attack", PLANTED, ids=lambda attack: attack.__name__)
def test_planted_attacks_break_their_promise(attack):
    state_of = states(as_implementation(attack, norm="linf", random=()))
    assert state_of[PLANTED[attack]] == "failed"
    if attack is crashing:
        assert list(state_of) == ["runs"]


def _sign_step(model, asked, inputs, labels, epsilon):
    """One honest step on the model as it is handed over, after a pass of `asked`."""
    with torch.no_grad():
        asked(inputs)
    return _step(model, inputs, labels, epsilon)


def through_the_module(model, inputs, labels, epsilon):
    return _sign_step(model, model.classifier.model, inputs, labels, epsilon)


def through_the_classifier(model, inputs, labels, epsilon):
    return _step(model.classifier, inputs, labels, epsilon)


def through_a_layer(model, inputs, labels, epsilon):
    layer = next(part for part in model.modules() if isinstance(part, torch.nn.Linear))
    return _sign_step(model, lambda images: layer(images.flatten(1)), inputs, labels, epsilon)


def through_a_copy(model, inputs, labels, epsilon):
    return _sign_step(model, copy.deepcopy(model), inputs, labels, epsilon)


def honest(model, inputs, labels, epsilon):
    return _sign_step(model, model, inputs, labels, epsilon)


def _counts(attack, **said):
    row = as_implementation(attack, norm="linf", random=(), **said)
    return run_contract_check(row, "linf", "honest query count")


@pytest.mark.parametrize(
    ("attack", "numbers"),
    [
        (through_the_module, (4, 8)),
        (through_the_classifier, (0, 4)),
        (through_a_layer, (4, 8)),
        (through_a_copy, (4, 8)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_attack_that_reaches_past_the_counter_is_noticed(attack, numbers):
    assert _counts(honest)[3:] == ("passed", "all 8 forward and 4 backward passes were counted")
    *_, state, detail = _counts(attack)
    assert (state, tuple(map(int, re.findall("[0-9]+", detail)))) == ("failed", numbers)


def _layers(module):
    return next(part for part in module.modules() if isinstance(part, torch.nn.Sequential))


class PastTorchattacks(TorchattacksAttack):
    def __init__(self, model, eps=0.1, honest=False):
        super().__init__("PastTorchattacks", model)
        self.eps, self.honest = eps, honest

    def forward(self, images, labels):
        return _step(self.model if self.honest else _layers(self.model), images, labels, self.eps)


class PastFoolbox(foolbox.attacks.base.FixedEpsilonAttack):
    distance = foolbox.distances.linf  # type: ignore[assignment]

    def __init__(self, honest=False):
        self.honest = honest

    def run(self, model, inputs, criterion, *, epsilon, **_):
        held = [cell.cell_contents for cell in model._model.__closure__]  # Foolbox wraps the module in a function
        asked = model if self.honest else _layers(next(each for each in held if isinstance(each, torch.nn.Module)))
        return type(inputs)(_step(asked, inputs.raw.clone(), criterion.labels.raw, epsilon))


class PastART(art.attacks.EvasionAttack):
    attack_params: ClassVar[list[str]] = [*art.attacks.EvasionAttack.attack_params, "eps", "honest"]
    _estimator_requirements = ()

    def __init__(self, estimator, eps=0.1, honest=False):
        super().__init__(estimator=estimator)
        self.eps, self.honest = eps, honest

    def generate(self, x, y=None, **_):
        module = next(part for part in self.estimator.model.modules() if isinstance(part, QueryCounter))
        asked = module if self.honest else _layers(module)
        return _step(asked, torch.tensor(x), torch.tensor(y).argmax(1), self.eps).numpy()


@pytest.mark.parametrize("kind", [PastTorchattacks, PastFoolbox, PastART])
def test_attacks_of_every_form_are_watched(kind):
    row = as_implementation(kind, norm="linf", random=())
    words = {"honest": True}
    promise = run_contract_check(row, "linf", "honest query count", parameters=words)
    assert promise.state == "passed", promise
    promise = run_contract_check(row, "linf", "honest query count")
    counted, seen = map(int, re.findall("[0-9]+", promise.detail))
    assert (promise.state, seen - counted) == ("failed", 4), promise


SETTERS = {
    "torch's default dtype": lambda: torch.set_default_dtype(torch.float64),
    "torch's gradient mode": lambda: torch.set_grad_enabled(False),
    "torch's number of threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "torch's deterministic mode": lambda: torch.use_deterministic_algorithms(True),
    "cuDNN's flags": lambda: setattr(torch.backends.cudnn, "benchmark", not torch.backends.cudnn.benchmark),
    "NumPy's errors": lambda: np.seterr(all="raise"),
    "warning filters": lambda: warnings.simplefilter("error"),
    "the working folder": lambda: os.chdir("/"),
    "the seed of Python's random generator": lambda: random.seed(3),
    "the seed of NumPy's random generator": lambda: (np.random.seed(3), np.random.rand(10_000)),
    "the seed of torch's random generator": lambda: (torch.manual_seed(0), torch.rand(10)),
}


@pytest.mark.parametrize("name", SETTERS)
def test_an_attack_that_changes_the_process_is_named_and_the_process_is_put_back(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def setting(model, inputs, labels, epsilon):
        images = _step(model, inputs, labels, epsilon)
        SETTERS[name]()
        return images

    before = torch.get_default_dtype(), torch.get_num_threads(), np.geterr(), Path.cwd(), list(warnings.filters)
    promise = run_contract_check(as_implementation(setting, norm="linf", random=()), "linf", "restores global state")
    assert promise[3:] == ("failed", f"it changed {name} (davylamp restores this after each call)")
    after = torch.get_default_dtype(), torch.get_num_threads(), np.geterr(), Path.cwd(), list(warnings.filters)
    assert after == before


def test_drawing_is_no_change_of_the_process_and_neither_is_what_an_attack_puts_back():
    def drawing(model, inputs, labels, epsilon):
        random.gauss(0, 1)
        [random.random() for _ in range(5000)]
        np.random.standard_normal(100_000)
        torch.randn(1000)
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(3)
        python, numpy = random.getstate(), np.random.get_state()
        random.seed(3)
        np.random.seed(3)
        np.random.standard_normal(10)
        random.setstate(python)
        np.random.set_state(numpy)
        return _step(model, inputs, labels, epsilon)

    promise = run_contract_check(as_implementation(drawing, norm="linf"), "linf", "restores global state")
    assert promise.state == "passed"


def test_an_attack_on_whole_grey_levels_is_judged_on_a_model_that_needs_several():
    case = make_coarse_case()
    assert float(case.least["linf"].min()) > 5 / 255
    moved = case.inputs + 0.999 * case.least["linf"].view(-1, 1, 1, 1) * _away(case)
    assert torch.equal(case.module(moved).argmax(1), case.labels)
    moved = case.inputs + 1.001 * case.least["linf"].view(-1, 1, 1, 1) * _away(case)
    assert (case.module(moved).argmax(1) != case.labels).all()
    words = {"steps": 2}
    for name in ("runs", "keeps the rules", "never passes the known optimum"):
        assert run_contract_check("art:threshold", "linf", name, parameters=words, case=case.first(2)).state == "passed"


def _away(case):
    """The direction in which the nearest other class is, by trying them all."""
    weight, logits = case.module[1].weight, case.module(case.inputs)
    sizes = (weight[case.labels][:, None] - weight).abs().sum(2)
    gaps = logits.gather(1, case.labels[:, None]) - logits
    other = (gaps / sizes.clamp(min=1e-9)).masked_fill(gaps == 0, torch.inf).argmin(1)
    return (weight[other] - weight[case.labels]).sign().view_as(case.inputs)


def test_an_attack_that_does_nothing_keeps_nothing():
    def nothing(model, inputs, labels, epsilon):
        return inputs

    state_of = states(as_implementation(nothing, norm="linf", random=()))
    assert "passed" not in state_of.values()
    assert state_of["keeps a budget"] == state_of["never passes the known optimum"] == "inconclusive"


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("torchattacks:mi-fgsm", {"decay": "no_such_word"}),
        ("torchattacks:mi-fgsm", {"samples": "no_such_word"}),
        ("foolbox:pgd", {"random_start": "no_such_word"}),
        ("art:deepfool", {"overshoot": "no_such_word"}),
    ],
)
def test_a_mistyped_word_of_a_row_breaks_its_promise(name, params):
    row = find_implementation(name)
    norm = norms_of(row)[0]
    assert run_contract_check(row, norm, "takes its parameters").state == "passed"
    wrong = replace(row, params={**row.params, **params})
    promise = run_contract_check(wrong, norm, "takes its parameters")
    assert promise.state == "failed"
    assert "no_such_word" in promise.detail


def test_an_attack_without_a_checkable_norm_is_said_to_be_unchecked():
    (promise,) = run_contract_checks(as_implementation(far, norm="l0"))
    assert promise.state == "not applicable"
    assert "not checked" in promise.detail
    with pytest.raises(UnknownName):
        list(run_contract_checks("foolbox:bimm"))


def test_the_command(run, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n\ndef good(model, inputs, labels, epsilon):\n    inputs.requires_grad_(True)\n"
        "    torch.nn.functional.cross_entropy(model(inputs), labels).backward()\n"
        "    return (inputs + epsilon * inputs.grad.sign()).clamp(0, 1).detach()\n\n"
        "def bad(model, inputs, labels, epsilon):\n    return inputs + 3 * epsilon\n\n"
        "good.norm = bad.norm = 'linf'\ngood.random = bad.random = ()\n"
    )
    code, out, err = run("test-attack", "mine.py:good", "--json")
    assert code == 0, err
    document = json.loads(out)
    assert {promise["state"] for promise in document} <= {"passed", "not applicable"}
    assert any(promise["promise"].startswith("tells the truth") for promise in document)
    code, out, _ = run("test-attack", "mine.py:bad", "--quick")
    assert code == 1
    assert "out-of-ball" in out
    assert "1 attack: 1 failed" in out


def test_the_command_takes_norms(run):
    code, out, err = run("test-attack", "foolbox:fgsm", "foolbox:fgm", "--norm", "l2", "--quick", "--json")
    assert code == 0, err
    assert {(promise["implementation"], promise["norm"]) for promise in json.loads(out)} == {("foolbox:fgm", "l2")}
    code, _, err = run("test-attack", "foolbox:fgsm", "--norm", "l2")
    assert (code, "foolbox:fgsm: the norm l2 is not supported; supported: linf" in err) == (1, True)
    code, _, err = run("test-attack", "foolbox:fgsm", "--norm", "l3")
    assert (code, "unknown norm 'l3'" in err) == (1, True)


CONFTEST = 'pytest_plugins = ["davylamp.testing"]'
TEST_FILE = """
import pytest


@pytest.mark.davylamp_contract({attack!r})
def test_contract(davylamp_promise):
    davylamp_promise()
"""


@pytest.mark.parametrize("sound", [True, False])
def test_the_plug_in_makes_a_test_of_each_promise_and_fails_what_is_broken(pytester, sound):
    pytester.makeconftest(CONFTEST)
    mine = GOOD if sound else GOOD.replace("epsilon *", "3 * epsilon *")
    pytester.makepyfile(mine=mine, test_mine=TEST_FILE.format(attack="mine.py:good"))
    result = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", "--strict-markers")
    outcomes = result.parseoutcomes()
    assert (outcomes.get("failed", 0) == 0) == sound
    assert ("out-of-ball" in result.stdout.str()) == (not sound)
    assert outcomes["passed"] >= 15 or not sound
    assert outcomes["skipped"] == 1 or not sound  # it has no targeted mode


def test_the_plug_in_skips_a_row_that_cannot_run():
    row = replace(find_implementation("foolbox:deepfool"), broken="its library is gone")
    ((name, check),) = _cases(row)
    assert name == "foolbox:deepfool"
    with pytest.raises(pytest.skip.Exception, match="its library is gone"):
        check()


GOOD = """
import torch


def good(model, inputs, labels, epsilon):
    inputs.requires_grad_(True)
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    return (inputs + epsilon * inputs.grad.sign()).clamp(0, 1).detach()


good.norm, good.random = "linf", ()
"""

"""The contract itself: sound rows keep it, planted ones break the promise that they are planted to break."""

import itertools
import json
from dataclasses import replace

import pytest
import torch

from davylamp.adapters import as_implementation, find_implementation
from davylamp.adapters.contract.promises import PROMISES, check_contract, check_promise
from davylamp.errors import UnknownName
from davylamp.testing import _cases

pytest_plugins = ["pytester"]


SOUND = (
    *("foolbox:pgd", "torchattacks:fgsm", "art:bim", "foolbox:ddn", "torchattacks:square"),
    "foolbox:fmn@repaired",  # ends on the boundary, which rounding puts on either side
)


def states(attack, **options):
    return {promise.promise: promise.state for promise in check_contract(attack, **options)}


@pytest.mark.parametrize("name", SOUND)
def test_sound_rows_break_nothing(name):
    found = list(check_contract(name, norms=[next(iter(find_implementation(name).classes))]))
    assert [promise.promise for promise in found] == list(PROMISES)
    assert [promise for promise in found if promise.state == "broken"] == []


def test_gradient_attacks_find_the_optimum_of_a_linear_model():
    assert states("torchattacks:fgsm")["finds the known optimum"] == "kept"
    assert states("torchattacks:fgsm")["attacks each image alone"] == "kept"
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
    found = states(as_implementation(attack, norm="linf", random=()))
    assert found[PLANTED[attack]] == "broken"
    if attack is crashing:
        assert list(found) == ["runs"]


def test_an_attack_that_does_nothing_keeps_nothing():
    def nothing(model, inputs, labels, epsilon):
        return inputs

    found = states(as_implementation(nothing, norm="linf", random=()))
    assert "kept" not in found.values()
    assert found["keeps a budget"] == found["never passes the known optimum"] == "not shown"


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
    norm = next(iter(row.classes))
    assert check_promise(row, norm, "takes its parameters").state == "kept"
    wrong = replace(row, params={**row.params, **params})
    promise = check_promise(wrong, norm, "takes its parameters")
    assert promise.state == "broken"
    assert "no_such_word" in promise.detail


def test_an_attack_without_a_checkable_norm_is_said_to_be_unchecked():
    (promise,) = check_contract(as_implementation(far, norm="l0"))
    assert promise.state == "not promised"
    assert "not checked" in promise.detail
    with pytest.raises(UnknownName):
        list(check_contract("foolbox:bimm"))


def test_the_command(run, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n\ndef good(model, inputs, labels, epsilon):\n    inputs.requires_grad_(True)\n"
        "    torch.nn.functional.cross_entropy(model(inputs), labels).backward()\n"
        "    return (inputs + epsilon * inputs.grad.sign()).clamp(0, 1).detach()\n\n"
        "def bad(model, inputs, labels, epsilon):\n    return inputs + 3 * epsilon\n\n"
        "good.norm = bad.norm = 'linf'\ngood.random = bad.random = ()\n"
    )
    code, out, err = run("contract", "mine.py:good", "--json")
    assert code == 0, err
    document = json.loads(out)
    assert {promise["state"] for promise in document} <= {"kept", "not promised"}
    assert any(promise["promise"].startswith("tells the truth") for promise in document)
    code, out, _ = run("contract", "mine.py:bad", "--quick")
    assert code == 1
    assert "out-of-ball" in out
    assert "1 attacks:" in out


CONFTEST = 'pytest_plugins = ["davylamp.testing"]'
TEST_FILE = """
import pytest


@pytest.mark.davylamp_contract({attack!r})
def test_contract(davylamp_promise):
    davylamp_promise()
"""


def test_the_plug_in_makes_a_test_of_each_promise(pytester):
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(mine=GOOD, test_good=TEST_FILE.format(attack="mine.py:good"))
    result = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", "--strict-markers")
    outcomes = result.parseoutcomes()
    assert outcomes.get("failed", 0) == 0
    assert outcomes["passed"] >= 15
    assert outcomes["skipped"] == 1  # it has no targeted mode


def test_the_plug_in_skips_a_row_that_cannot_run():
    row = replace(find_implementation("foolbox:deepfool"), broken="its library is gone")
    ((name, check),) = _cases(row)
    assert name == "foolbox:deepfool"
    with pytest.raises(pytest.skip.Exception, match="its library is gone"):
        check()


def test_the_plug_in_fails_what_is_broken(pytester):
    pytester.makeconftest(CONFTEST)
    far = GOOD.replace("epsilon *", "3 * epsilon *")
    pytester.makepyfile(mine=far, test_bad=TEST_FILE.format(attack="mine.py:good"))
    result = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider")
    assert result.parseoutcomes()["failed"] >= 1
    assert "out-of-ball" in result.stdout.str()


GOOD = """
import torch


def good(model, inputs, labels, epsilon):
    inputs.requires_grad_(True)
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    return (inputs + epsilon * inputs.grad.sign()).clamp(0, 1).detach()


good.norm, good.random = "linf", ()
"""

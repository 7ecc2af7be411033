"""What every row of the catalogue promises, checked on a CNN and on a linear model whose optimum is a formula."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import pytest
import torch

from davylamp.adapters import ATTACKS, IMPLEMENTATIONS, ThreatModel, library_defaults, run_attack
from davylamp.adapters.catalogue.known_issues import FINDINGS
from davylamp.adapters.catalogue.lookup import accepted_parameters, load_class
from davylamp.adapters.contract.contract_checks import run_contract_check
from davylamp.adapters.contract.linear_model import make_coarse_case
from davylamp.adapters.parameters import PARAMETERS, SUPPLIED
from davylamp.adapters.running.judge import perturbation_norm
from davylamp.errors import Unsupported

from ...conftest import NIGHTLY
from .test_conformance import ROWS as CONFORMING

DUAL = {"linf", "l2", "l1"}  # where the least perturbation of a linear model is a formula
ROWS = [(name, norm) for name, row in IMPLEMENTATIONS.items() if not row.broken for norm in row.classes]
WITHOUT_OPTIMUM = ("repeats with its seed", "restores global state", "keeps a budget", "honest query count")
SETTINGS = {
    (name, norm): setting
    for file in sorted(Path(__file__).parent.glob("cheap_*.json"))
    for name, norms in json.loads(file.read_text(encoding="utf-8")).items()
    for norm, setting in norms.items()
}
LINEAR = {row: setting["linear"] for row, setting in SETTINGS.items()}
ELSEWHERE = {row for row, setting in SETTINGS.items() if "model" in setting}  # the attack knows one kind of network
PROMISING = [(*row, LINEAR[row]) for row in ROWS if isinstance(LINEAR.get(row), dict)]
# Those whose setting says in words why they need not reach the optimum; no attack may pass it.
OTHERS = [row for row in ROWS if isinstance(LINEAR.get(row), str) and row[1] in DUAL and row not in ELSEWHERE]

every_row = pytest.mark.parametrize(("name", "norm"), ROWS)


@pytest.fixture
def setting(cheap, name, norm):
    """Epsilon, parameters and the linear case of one row."""
    assert name in cheap, f"no settings for {name} in tests/adapters/cheap_*.json"
    assert norm in cheap[name], f"no settings for {name} under {norm} in tests/adapters/cheap_*.json"
    return cheap[name][norm]


@pytest.fixture(autouse=True)
def _interpret_what_compiles_for_minutes(request):
    if "brendel-bethge" in request.node.name:
        request.getfixturevalue("interpreted")


# A second for each run on an image, or optimisers that are interpreted here.
DEAR = (
    *("brendel-bethge", "foolbox:pointwise", "art:zoo", "art:threshold", "art:virtual-adversarial", "art:uap"),
    *("art:cw", "art:wasserstein"),
)


def few(case, name):
    """Two images, for a batch and one alone; one for the rows that are dear."""
    return case.first(1 if any(dear in name for dear in DEAR) else 2)


def random_states():
    return (
        random.getstate(),
        np.random.get_state(legacy=False)["state"]["key"].tobytes(),
        torch.get_rng_state().numpy().tobytes(),
    )


def test_the_catalogue_is_large_and_its_words_are_known():
    assert len(IMPLEMENTATIONS) >= 60
    for row in IMPLEMENTATIONS.values():
        assert row.attack in ATTACKS
        assert set(row.params) <= {*PARAMETERS, *SUPPLIED}, row.name
        assert set(row.findings) <= set(FINDINGS), row.name
    assert set(ATTACKS) == {row.attack for row in IMPLEMENTATIONS.values()}
    used = {name for row in IMPLEMENTATIONS.values() for name in accepted_parameters(row)}
    assert set(PARAMETERS) == used, "a canonical parameter that no row takes"
    assert set(FINDINGS) == {key for row in IMPLEMENTATIONS.values() for key in row.findings}
    for attack in ATTACKS.values():
        assert set(attack.matched) <= set(PARAMETERS), attack.name


@every_row
def test_the_class_exists_and_tells_its_defaults(name, norm):
    row = IMPLEMENTATIONS[name]
    assert callable(load_class(row, norm))
    for parameter in library_defaults(row, norm):
        assert parameter in row.params


@every_row
def test_keeps_on_a_cnn_what_no_optimum_is_needed_for(request, setting, name, norm):
    """Through the contract; what came back is judged a second time, by other means than the judge's own."""
    case = few(request.getfixturevalue(setting.get("model", "digits")), name)
    trial = {"case": case, "epsilon": setting["epsilon"], "parameters": setting["params"], "done": {}}
    torch.manual_seed(1)
    before = random_states()
    promises = [run_contract_check(name, norm, promise, **trial) for promise in WITHOUT_OPTIMUM]
    assert random_states() == before
    assert [promise for promise in promises if promise.state not in ("passed", "inconclusive")] == []
    result = next(iter(trial["done"].values())).result
    assert len(result.labels) == len(case.labels)
    assert result.adv_inputs.min() >= 0
    assert result.adv_inputs.max() <= 1
    if setting["epsilon"] is not None:
        size = perturbation_norm((result.adv_inputs - case.inputs).double(), norm)
        assert (size[result.success] <= setting["epsilon"] * (1 + 1e-4) + 1e-6).all()
    predicted = case.module(result.adv_inputs).argmax(1)
    assert (predicted[result.success] != case.labels[result.success]).all()
    blind = name == "cleverhans:inversion"  # Foolbox's inversion looks at the label first
    asked = result.forwards.sum() if IMPLEMENTATIONS[name].data_free else result.forwards.min()
    assert blind or asked >= 1 or ATTACKS[IMPLEMENTATIONS[name].attack].source == "Foolbox"
    assert not any("crashed" in kinds for kinds in result.violations)


def test_every_row_promises_an_optimum_or_says_why_not():
    assert set(LINEAR) == {(name, norm) for name, row in IMPLEMENTATIONS.items() for norm in row.classes}
    silent = [row for row, promise in LINEAR.items() if isinstance(promise, str) and len(promise) <= 10]
    assert silent == []
    assert len(PROMISING) > len(LINEAR) / 2


@pytest.mark.parametrize(("name", "norm", "promise"), PROMISING, ids=[f"{name}-{norm}" for name, norm, _ in PROMISING])
def test_finds_the_known_optimum_of_a_linear_model(linear, name, norm, promise):
    """A second opinion, independent of the contract's check: the settings and the tolerance are each row's.

    Two of the four images, each of which is near another class; `davylamp test-attack` takes all of them.
    """
    row, classifier = IMPLEMENTATIONS[name], linear.classifier
    fixed_budget = ATTACKS[row.attack].kind == "fixed-budget"
    assert fixed_budget or promise.get("within", 1.25) <= 1.25 or promise.get("why"), "a loose promise says why"
    for i, least in enumerate(linear.first(2).least[norm].tolist()):
        inputs, labels = linear.inputs[i : i + 1], linear.labels[i : i + 1]

        def attack(epsilon, inputs=inputs, labels=labels):
            parameters = dict(promise.get("params", {}))
            if "relative_step" in promise:
                parameters["step_size"] = promise["relative_step"] * epsilon
            return run_attack(row, classifier, inputs, labels, ThreatModel(norm, epsilon), **parameters)

        if fixed_budget:
            assert attack(1.1 * least).success.all(), f"failed at 1.1 x the least perturbation of image {i}"
            assert not attack(0.9 * least).success.any(), f"succeeded at 0.9 x the least perturbation of image {i}"
        else:
            result = attack(None)
            assert result.success.all()
            ratio = result.distance.item() / least
            assert 1 - 1e-4 <= ratio <= promise.get("within", 1.25)


@pytest.mark.parametrize(("name", "norm"), OTHERS)
def test_nothing_passes_the_known_optimum_of_a_linear_model(linear, setting, name, norm):
    """What a row that promises no optimum promises all the same, through the contract."""
    case = make_coarse_case() if name == "art:threshold" else linear
    promise = run_contract_check(
        name, norm, "never passes the known optimum", case=case.first(2), parameters=setting["params"]
    )
    assert promise.state in ("passed", "inconclusive"), promise


def test_every_row_has_a_case_that_is_not_nightly():
    nightly = {function.rpartition("::")[2]: cases for function, cases in NIGHTLY.items()}
    kept = {(name, f"{name}-{norm}", "test_keeps_on_a_cnn_what_no_optimum_is_needed_for") for name, norm in ROWS}
    kept |= {(name, f"{name}-{norm}", "test_finds_the_known_optimum_of_a_linear_model") for name, norm, _ in PROMISING}
    kept |= {
        (name, f"{name}-{norm}", "test_nothing_passes_the_known_optimum_of_a_linear_model") for name, norm in OTHERS
    }
    kept |= {(name, name, "test_no_row_reports_a_false_result") for name in CONFORMING}
    left = {name for name, case, test in kept if case not in nightly[test]}
    assert {name for name, _ in ROWS} - left == {"foolbox:pointwise"}  # tests/adapters/libraries/test_direct_foolbox.py


def test_a_broken_row_says_why_before_it_computes(digits):
    row = replace(IMPLEMENTATIONS["foolbox:deepfool"], broken="its library is gone")
    assert row.status == "broken"
    with pytest.raises(Unsupported, match="foolbox:deepfool cannot run: its library is gone"):
        run_attack(row, digits.classifier, digits.inputs, digits.labels, ThreatModel("l2"))


def test_compiled_optimisers_give_what_interpreted_ones_do(linear, request, monkeypatch):
    """Compiled without LLVM's optimisation, which takes longest and is none of ours."""
    monkeypatch.setattr(numba.config, "OPT", type(numba.config.OPT)(0))

    def attack():
        arguments = linear.classifier, linear.inputs[:1], linear.labels[:1], ThreatModel("l2")
        return run_attack("foolbox:brendel-bethge", *arguments, steps=5, learning_rate=0.1).adv_inputs

    compiled = attack()
    request.getfixturevalue("interpreted")
    torch.testing.assert_close(attack(), compiled, rtol=0, atol=1e-5)

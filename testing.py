"""Helpers for pytest: `assert_robust` for a model's results, and contract checks for authors of attacks.

    from davylamp.testing import assert_robust

    def test_robustness():
        assert_robust("results", "RA >= 0.5 @ linf 8/255", against="results-of-the-release")

The contract checks of an attack are a plug-in:

    # conftest.py
    pytest_plugins = ["davylamp.testing"]

    # test_my_attack.py
    @pytest.mark.davylamp_contract("my_attack.py:MyAttack")
    def test_contract(davylamp_promise):
        davylamp_promise()

The contract is the set of rules that every attack has to keep, such as staying within the radius. The plug-in makes
    one test for each rule and norm, and one test for each misbehaving model, such as a model that returns NaN. A test
    is skipped if the attack does not declare the tested property, or if the implementation is known not to work. A test
    passes with a warning if the attack misses an adversarial example that is known to exist, or returns images nearly
    unchanged.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

MARK = "davylamp_contract"
FIXTURE = "davylamp_promise"


def assert_robust(folder: Any, *require: str, **options: Any) -> None:
    """Raise AssertionError unless all models in a results folder meet every requirement, see `davylamp.gate`.

    Args:
        folder: results folder, or the return value of `davylamp.evaluate`.
        *require: requirements, such as "RA >= 0.5 @ linf 8/255".
        **options: keywords of `davylamp.gate`: against, margin, model, strict.

    Raises:
        AssertionError: if a requirement is not met or cannot be decided. If too few images are the reason, the message
            has the number of images that are needed.
        DavylampError: see `davylamp.gate`.
    """
    from .api.gating import gate

    __tracebackhide__ = True
    result = gate(folder, require, **options)
    if result.document["verdict"] != "pass":
        raise AssertionError(str(result))


def pytest_configure(config: pytest.Config) -> None:
    """Register the pytest mark of the contract checks."""
    config.addinivalue_line(
        "markers", f"{MARK}(*attacks): one test of each contract check of these attacks, see {__name__}"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each contract check."""
    mark = metafunc.definition.get_closest_marker(MARK)
    if mark is None or FIXTURE not in metafunc.fixturenames:
        return
    cases = [case for attack in mark.args for case in _cases(attack)]
    metafunc.parametrize(FIXTURE, [check for _, check in cases], ids=[name for name, _ in cases])


class WeakAttackWarning(UserWarning):
    """Warning of a contract check about an attack that keeps every rule, but is weak.

    The attack misses an adversarial example that is known to exist, or returns images nearly unchanged.
    """


def _cases(attack: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the name and the function of each contract check of an attack, or of every attack of a library."""
    from .adapters import LIBRARIES
    from .adapters.catalogue.lookup import resolve_implementation
    from .adapters.contract.contract_checks import PROMISES, norms_of
    from .adapters.contract.misbehaving_models import PLANTS

    whole = isinstance(attack, str) and attack in LIBRARIES
    for row in LIBRARIES[attack].attacks if whole else [resolve_implementation(attack)]:
        if row.broken:
            yield row.name, lambda row=row: pytest.skip(f"{row.name} cannot run: {row.broken}")
            continue
        for norm in norms_of(row):
            done: dict[Any, Any] = {}
            for name in PROMISES:
                yield f"{row.name}-{norm}-{name}", partial(_check, row, norm, name, done)
            for plant in PLANTS:
                yield f"{row.name}-{norm}-{plant}", lambda row=row, norm=norm, plant=plant: _plant(row, norm, plant)


def _check(row: Any, norm: Any, name: str, done: dict[Any, Any]) -> None:
    from .adapters.contract.contract_checks import run_contract_check

    promise = run_contract_check(row, norm, name, done=done)
    if promise.state == "not applicable":
        pytest.skip(promise.detail)
    if promise.state in ("weak", "inconclusive"):
        warnings.warn(f"{promise.implementation} {norm}, {name}: {promise.detail}", WeakAttackWarning, stacklevel=2)
    if promise.state == "failed":
        pytest.fail(f"{promise.implementation} {norm}, {name}: {promise.detail}", pytrace=False)


def _plant(row: Any, norm: Any, plant: str) -> None:
    from .adapters.contract.misbehaving_models import run_misbehaving_model_checks

    for lapse in run_misbehaving_model_checks([row], plants=[plant], norms=[norm]):
        if lapse.complaint:
            pytest.fail(f"{lapse.implementation} {norm}, on {plant}: {lapse.complaint}", pytrace=False)

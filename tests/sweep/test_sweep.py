"""The main commands over every attack that libraries share, in all forms: nothing crashes that is not a library's."""

from itertools import combinations

import pytest

from davylamp.tools.sweep.cases import FACTORS, cases_of, cover, shared_attacks
from davylamp.tools.sweep.running import faults_of

COMPILED = ("brendel-bethge",)  # a minute of numba for each norm and process; the benchmark has them
ATTACKS = [name for name in shared_attacks() if name not in COMPILED]


def some_cases_of(attack):
    """Few cases, in which an attack meets each value of each factor, and other ones for each attack.

    `python -m davylamp.tools.sweep.every_row` runs all of them.
    """
    cases = cases_of(attack)
    start = ATTACKS.index(attack) % len(cases)
    cases = cases[start:] + cases[:start]
    left = set().union(*map(values_of, cases))
    chosen = []
    while left:
        chosen.append(max(cases, key=lambda case: len(left & values_of(case))))
        left -= values_of(chosen[-1])
    return chosen


def values_of(case):
    return set(case._asdict().items()) - {("attack", case.attack)}


def pairs_of(cases):
    return {frozenset(pair) for case in cases for pair in combinations(values_of(case), 2)}


@pytest.mark.parametrize("attack", ATTACKS)
def test_every_form_runs_or_is_refused_with_a_reason(attack):
    faults = {case: said for case in some_cases_of(attack) if (said := faults_of(case))}
    assert faults == {}


def test_each_two_values_meet_in_an_attack():
    assert pairs_of(case for name in ATTACKS for case in some_cases_of(name)) == pairs_of(
        case for name in ATTACKS for case in cases_of(name)
    )


def test_each_two_values_meet():
    made = cover({"norm": ("linf", "l2"), **FACTORS})
    assert len(made) < 30
    for first, second in (("form", "verb"), ("norm", "steps"), ("classes", "channels")):
        values = {(case[first], case[second]) for case in made}
        assert len(values) == len({a for a, _ in values}) * len({b for _, b in values})

"""The main commands over every attack that libraries share, in all forms: nothing crashes that is not a library's."""

import pytest

from davylamp.tools.sweep.cases import FACTORS, cases_of, cover, shared_attacks
from davylamp.tools.sweep.running import faults_of

COMPILED = ("brendel-bethge",)  # a minute of numba for each norm and process; the benchmark has them


@pytest.mark.parametrize("attack", [name for name in shared_attacks() if name not in COMPILED])
def test_every_form_runs_or_is_refused_with_a_reason(attack):
    faults = {case: said for case in cases_of(attack) if (said := faults_of(case))}
    assert faults == {}


def test_each_two_values_meet():
    made = cover({"norm": ("linf", "l2"), **FACTORS})
    assert len(made) < 30
    for first, second in (("form", "verb"), ("norm", "steps"), ("classes", "channels")):
        values = {(case[first], case[second]) for case in made}
        assert len(values) == len({a for a, _ in values}) * len({b for _, b in values})

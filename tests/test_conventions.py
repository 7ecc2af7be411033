"""Rules that several parts share."""

from typing import get_args

import pytest

from davylamp.adapters import ATTACKS
from davylamp.conventions import KNOWLEDGE, largest_distance, original_of
from davylamp.engine.tables.groups import Knowledge


@pytest.mark.parametrize(
    ("model", "expected"),
    [("net", None), ("net+jpeg", "net"), ("net+jpeg+blur", "net"), ("my+net", None), ("other+jpeg", None)],
)
def test_the_original_is_the_shortest_beginning_that_is_a_model(model, expected):
    assert original_of(model, ["net", "net+jpeg", "my+net"]) == expected


def test_a_ball_ends_a_rounding_beyond_its_radius():
    assert largest_distance(0.1, "linf") == 0.1 + 1e-6
    assert largest_distance(1.0, "l2") == pytest.approx(1 + 1e-4 + 1e-6)
    assert largest_distance(5, "l0") == 5


def test_every_choice_of_knowledge_has_its_kinds_of_attacks():
    assert set(KNOWLEDGE) == set(get_args(Knowledge))
    kinds = {attack.knowledge for attack in ATTACKS.values()}
    assert {kind for some in KNOWLEDGE.values() for kind in some} == {*kinds, "transfer", "black-box"}
    assert all(KNOWLEDGE.values())
    assert not {*KNOWLEDGE["white-box"]} & {*KNOWLEDGE["black-box"]}

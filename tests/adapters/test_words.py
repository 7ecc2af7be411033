"""A threat model has one wording, whoever says it."""

import math

import pytest

from davylamp.adapters import ThreatModel
from davylamp.adapters.display_text import format_radius, format_threat_labels, format_threat_model


@pytest.mark.parametrize(
    ("threat_model", "words"),
    [
        (ThreatModel("linf", 4 / 255), "linf 4/255"),
        (ThreatModel("linf", 0.1), "linf 0.1"),
        (ThreatModel("linf", 1 / 3), "linf 85/255"),
        (ThreatModel("linf", 0.1234), "linf 0.1234"),
        (ThreatModel("l2", 0.5), "l2 0.5"),
        (ThreatModel("l2"), "l2, smallest change"),
        (ThreatModel("l0", 20, targeted=True), "l0 20, targeted"),
        (ThreatModel("unrestricted"), "unrestricted"),
    ],
)
def test_wording(threat_model, words):
    assert format_threat_model(threat_model) == words
    epsilon = math.nan if threat_model.epsilon is None else threat_model.epsilon
    assert (
        format_threat_labels({"norm": threat_model.norm, "epsilon": epsilon, "targeted": threat_model.targeted})
        == words
    )


def test_the_rule_of_the_targets():
    assert (
        format_threat_model(ThreatModel("l2", None, targeted=True), "random")
        == "l2, smallest change, targeted (random)"
    )
    assert format_threat_model(ThreatModel("l2"), "random") == "l2, smallest change"


def test_distances_that_are_not_round():
    assert format_radius("linf", 0.0157) == "0.0157"
    assert format_radius("linf", 0.5 / 255) == "0.5/255"
    assert format_radius("linf", 0.3) == "0.3"
    assert format_radius("linf", 0.1234567) == "0.1235"
    assert format_radius("l2", 1 / 3) == "0.3333"

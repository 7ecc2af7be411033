"""What is printed of a challenge whose attacks at some radius prove nothing."""

import json

import numpy as np
import pytest

from davylamp.engine.challenge.attempts import Accuracy, accuracy_under_attack
from davylamp.engine.challenge.challenge_result import NO_RESULT, ChallengeResult, document_of
from davylamp.engine.challenge.challenge_verdict import ChallengeVerdict
from davylamp.report.sections.defences import write_challenges
from davylamp.report.text.challenge import verdict_lines

LEFT = accuracy_under_attack(np.ones(8, bool), np.arange(8) < 1)
NOTHING = Accuracy(np.nan, np.nan, np.nan, 8)


def document(worst, *larger):
    radii = ((0.2, worst), *larger)
    about = ("m+jpeg", "m", "linf", 0.2, LEFT, worst, None, None)
    return document_of(ChallengeResult(*about, radii, (), ChallengeVerdict("unknown", "not judged", ()), ()))


def test_a_radius_without_a_result_has_no_accuracy():
    said = document(LEFT, (0.4, NOTHING))
    assert [each["value"] for each in json.loads(json.dumps(said, allow_nan=False))["radii"]] == [0.875, None]
    assert verdict_lines(said)[1].endswith(f"8 images: 0.2: 87.5%, 0.4: -; {NO_RESULT}")
    (table,) = [block for block in write_challenges([said]).blocks if "radii" in getattr(block, "name", "")]
    assert "0.875" in str(table.rows[0][1])
    assert table.rows[1][1].text == "-"


def test_where_every_attack_failed_there_is_no_worst_case():
    said = document(NOTHING)
    assert said["worst"] == {"value": None, "low": None, "high": None, "n": 8}
    assert "8 images: 0.2: -; " in verdict_lines(said)[1]
    assert write_challenges([said])


@pytest.mark.parametrize(("verdict", "lines"), [("unknown", 4), ("falls", 3)])
def test_indicators_are_named_and_a_defence_that_falls_needs_no_further_attack(verdict, lines):
    fired = [{"indicator": name, "state": state, "detail": ""} for name, state in (("A", "fail"), ("B", "warn"))]
    said = document(LEFT) | {"verdict": verdict, "fired": [*fired, fired[0]]}
    printed = verdict_lines(said | {"indicators": {"fail": 2, "warn": 1, "pass": 7, "unknown": 9}})
    assert len(printed) == lines
    assert printed[2] == "failure indicators: 2 fail (A), 1 warn (B), 7 pass"

"""The time that is left, by arithmetic that can be done by hand."""

from davylamp.adapters import ThreatModel
from davylamp.engine.cell import Cell, ModelOnData
from davylamp.report.page.pace import Spent, duration_text, estimate_left, judge_pulse, say_left


def cell(model, attack, images=10):
    return Cell(ModelOnData(model, model, "demo", "pixels", images), attack, ThreatModel("linf", 4 / 255))


def test_passes_of_an_attack_times_seconds_of_a_model():
    known = [(cell("fast", "art:pgd"), Spent(10, 100, 50)), (cell("slow", "art:fgsm"), Spent(10, 20, 40))]
    # PGD takes 10 passes an image, and the slow model 2 s a pass: 5 images are 100 s.
    assert estimate_left(known, [(cell("slow", "art:pgd"), 5)], 1) == (100, 1, 0)
    assert estimate_left(known, [(cell("slow", "art:pgd"), 5)], 2).seconds == 50
    # A model without a result has the mean pace of all: 90 s for 120 passes.
    assert estimate_left(known, [(cell("new", "art:pgd"), 8)], 1).seconds == 60
    left = estimate_left(known, [(cell("fast", "art:pgd"), 2), (cell("fast", "art:cw"), 9)], 1)
    assert left == (10, 1, 1)
    assert say_left(left).endswith("without 1 cells of attacks that have no result yet")


def test_nothing_is_promised_before_anything_is_known():
    left = estimate_left([], [(cell("new", "art:pgd"), 8)], 1)
    assert left == (0, 0, 1)
    assert say_left(left) == "Time left: unknown until an attack has its first result"
    assert say_left(estimate_left([], [], 1)) == ""


def test_a_pulse():
    assert judge_pulse(2, 5, 1000, now=2000).lead == "Running: 2 work units in progress;"
    assert judge_pulse(0, 5, 1990, now=2000).lead == "Between two work units:"
    assert judge_pulse(0, 5, 1000, now=2000).lead == "Stopped:"
    assert judge_pulse(0, 0, 1000, now=2000).lead == "Finished:"
    assert "no result so far" in judge_pulse(0, 5, None, now=2000).text


def test_durations():
    assert [duration_text(each) for each in (12, 89, 91, 5400, 12_000)] == [
        "12 s",
        "89 s",
        "2 min",
        "1 h 30 min",
        "3 h 20 min",
    ]

"""The page of what was measured: goals, ratios, tables, what did not run, and the predictions of scale."""

import json
import math
from itertools import permutations

import pytest

from davylamp.tools.speed import page as results
from davylamp.tools.speed import scale
from davylamp.tools.speed.figures import SpeedFigure, finish, ratio_of, read_figures
from davylamp.tools.speed.passes import Passes


@pytest.mark.parametrize(
    ("figure", "goal", "verdict"),
    [
        (SpeedFigure("a", 10, at_least=10), ">= 10", "met"),
        (SpeedFigure("a", 9.99, at_least=10), ">= 10", "missed"),
        (SpeedFigure("a", 1.1, at_most=1.1), "<= 1.1", "met"),
        (SpeedFigure("a", 1.11, at_most=1.1), "<= 1.1", "missed"),
        (SpeedFigure("a", 3), "", ""),
        (SpeedFigure("a", math.nan, at_least=10), ">= 10", ""),
    ],
)
def test_a_goal_is_met_or_missed_or_not_measured(figure, goal, verdict):
    assert (figure.goal, figure.verdict) == (goal, verdict)


def test_a_ratio_is_of_paired_rounds():
    ratio = ratio_of("speed", [2, 40, 6, 8], [1, 10, 1, 1])
    assert ratio.value == 5  # the median of 2, 4, 6, 8; that of the times would be 7
    assert (ratio.low, ratio.high) == (3.5, 6.5)
    assert math.isnan(ratio_of("speed", [2], [1]).low)


def test_figures_come_back_as_they_were_written(tmp_path, capsys):
    path = tmp_path / "figures.json"
    written = [
        SpeedFigure("size", 3.25, "MB", at_most=5),
        ratio_of("speed", [2, 4], [1, 1], peer="Foolbox", at_least=3),
    ]
    finish(written, path)
    assert repr(read_figures(json.loads(path.read_text()))) == repr(written)
    assert capsys.readouterr().out.splitlines() == [
        "size: 3.25 MB; goal <= 5: met",
        "speed against Foolbox: 3 x (2.5 - 3.5); goal >= 3: met",
    ]


def test_the_page_says_what_was_missed_and_what_did_not_run():
    ours, theirs = (
        SpeedFigure("size", 6, "MB", at_most=5),
        SpeedFigure("speed", math.nan, peer="a|b", note="not installed"),
    )
    sections = [
        results.write_section(results.SECTIONS["report"], [ours, theirs], "", 60.0, "now"),
        results.write_section(results.SECTIONS["search"], [], "no memory", 60.0, "now"),
    ]
    page = results.write_page(sections, 120.0, "now", quick=False)
    assert "| size |  | 6 MB |  | <= 5 | missed |  |" in page
    assert "| speed | a\\|b | not measured |  |  |  | not installed |" in page
    assert "**did not run: no memory**" in page
    section = results.BenchmarkSection("Sizes", "report", reason="Reason: pictures.")
    assert results.write_section(section, [ours], "", 1.0, "now").endswith("|\n\nReason: pictures.")
    assert "Reason" not in results.write_section(section, [theirs], "", 1.0, "now")
    assert "2 minutes" in page
    assert "Quick" not in page


def test_a_section_that_is_measured_again_replaces_the_old_one_only():
    sections = {name: results.write_section(each, [], "old", 1.0, "then") for name, each in results.SECTIONS.items()}
    page = results.write_page(sections.values(), 1.0, "then", quick=False)
    assert results.update_page(page, sections.values()) == page
    again = results.write_section(results.SECTIONS["canary"], [SpeedFigure("size", 6, "MB")], "", 9.0, "now")
    assert results.update_page(page, [again]) == page.replace(sections["canary"], again)
    with pytest.raises(ValueError, match="Starting"):
        results.update_page(page.replace("## Starting", "## Ending"), [sections["start"]])


def test_a_script_that_fails_is_told_by_its_last_lines(monkeypatch, tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "broken.py").write_text("import sys\nsys.exit('out of\\nluck')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(results, "__package__", "scripts")
    figures, error, _ = results.run_script("broken", (), quick=True)
    assert (figures, error) == ([], "out of / luck")


def test_the_longest_task_first_to_whoever_is_free():
    assert scale.finish_time([3, 1, 2, 2], 1) == 8
    assert scale.finish_time([3, 1, 2, 2], 2) == 4
    assert scale.finish_time([5, 1], 4) == 5
    tasks = [4, 3, 3, 2, 2]
    best = min(max(sum(order[:cut]), sum(order[cut:])) for order in permutations(tasks) for cut in range(5))
    assert best <= scale.finish_time(tasks, 2) <= best * 7 / 6  # Graham's bound for two workers


def test_shards_add_up_to_the_cell():
    fit = scale.CostFit(0, 0, 2.0, 0.1, 0, 1)
    assert sum(scale.shards(1000, 0.5, fit.cell)) == pytest.approx(2 + 500)
    passes = {"a": Passes(0.01, 0.02), "b": Passes(0.03, 0.04)}
    tasks, counts = scale.canary_tasks(passes, fit, 0.1), scale.canary_counts()
    assert len(counts) == 20
    by_hand = sum(
        2 + 1000 * (0.1 + forward * first.forward + backward * first.backward + other.forward)
        for first, other in permutations(passes.values(), 2)
        for forward, backward in counts
    )
    assert sum(tasks) == pytest.approx(by_hand)

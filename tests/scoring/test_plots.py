"""What is drawn of a ranking is what its table says."""

import sys
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from davylamp.scoring import rank_responses
from davylamp.scoring.plots import members, plot_item_map, plot_ranking

from .simulation import simulate

NAMES = ["a", "b", "$c$", "d"]


@pytest.fixture(scope="module")
def ranking():
    return rank_responses(simulate(4, 60, model="1pl", seed=5).responses, NAMES, method="fast")


def drawn(plot, *arguments) -> Any:
    figure = Figure(figsize=(6, 4))
    axes = figure.add_axes((0.2, 0.2, 0.5, 0.7))
    return axes, plot(axes, *arguments)


def test_rows_are_in_order_and_intervals_where_they_should_be(ranking):
    axes, tips = drawn(plot_ranking, ranking)
    frame = ranking.to_frame()
    assert [label.get_text() for label in axes.get_yticklabels()] == list(frame["subject"])
    marks = {line.get_gid(): line for line in axes.lines if line.get_gid()}
    assert set(marks) == set(tips)
    for row, line in frame.iterrows():
        assert marks[f"ranking-{row}"].get_xdata() == pytest.approx([line["score"]])
        assert tips[f"ranking-{row}"].startswith(f"{line['subject']}: {line['score']:.3g}, 95 % interval")
    widths = [line.get_xdata() for line in axes.lines if line.get_linewidth() == 5]
    assert np.array(widths) == pytest.approx(frame[["low", "high"]].to_numpy())


def test_brackets_join_what_shares_a_letter(ranking):
    order = list(ranking.to_frame()["subject"])
    for letter, rows in members(ranking).items():
        assert len(rows) > 1
        inside = {order[row] for row in rows}
        assert inside == {name for name, group in zip(NAMES, ranking.groups, strict=True) if letter in group}
    axes, _ = drawn(plot_ranking, ranking)
    assert {text.get_text() for text in axes.texts} >= set(members(ranking))


def test_the_map_has_every_item_once(ranking):
    difficulty = ranking.fit.difficulty
    parts = {"pgd": difficulty[:40], "fgsm": difficulty[40:]}
    axes, tips = drawn(plot_item_map, ranking, parts)
    assert [label.get_text() for label in axes.get_yticklabels()][-2:] == ["pgd", "fgsm"]
    counts = [int(tip.partition(" items")[0]) for name, tip in tips.items() if "subject" not in name]
    assert sum(counts) == 60
    places = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o" and line.get_ydata()[0] > 4]
    assert min(places) == pytest.approx(difficulty.min(), abs=0.13)
    assert max(places) == pytest.approx(difficulty.max(), abs=0.13)


def test_a_notebook_gets_the_figure_and_a_place_without_matplotlib_the_table(ranking, monkeypatch):
    page = ranking._repr_html_()
    assert '<img alt="' in page
    assert "<table" in page
    assert len(ranking.plot().axes) == 1
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "<img" not in ranking._repr_html_()
    with pytest.raises(ImportError, match=r"need Matplotlib.*davylamp\[plot\]"):
        ranking.plot()

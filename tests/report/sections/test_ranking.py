"""The ranking on a page says what is missing and what counts more than once."""

from itertools import pairwise
from typing import Any

import matplotlib.figure
import numpy as np
import pytest

from davylamp.engine.run.measure import EXAMPLES
from davylamp.engine.store.data_frames import load_outcomes
from davylamp.report.figures.drawn_ranking import draw_ranking
from davylamp.report.parts.blocks import Bars, Figure, PageTable, Text
from davylamp.report.parts.report_data import read_folder
from davylamp.report.sections.ranking import _blocks, write_ranking
from davylamp.scoring import build_responses, rank_responses
from davylamp.scoring.ranking import make_ranking

from ...page_blocks import flatten


def test_a_radius_is_a_number_whether_there_is_one_or_not(folder):
    """Pandas 2 warns where a column of None meets one of numbers."""
    frame = load_outcomes(folder)
    assert frame["epsilon"].cat.categories.dtype == np.float64
    assert frame["epsilon"].isna().any()
    assert frame["epsilon"].notna().any()


def test_the_section_says_that_an_attack_counts_once(folder):
    notes = [block.text for block in flatten(write_ranking(read_folder(folder)).blocks) if hasattr(block, "text")]
    sentence = (
        "an attack counts once, the strongest of its libraries on each image: "
        "deepfool (foolbox, torchattacks); pgd (art, foolbox, torchattacks)"
    )
    assert sentence in notes


@pytest.fixture(scope="module")
def section(folder):
    return write_ranking(read_folder(folder))


def test_what_is_drawn_is_in_a_table_beside_it(section):
    (bars,) = (block for block in flatten(section.blocks) if isinstance(block, Bars))
    figures = {block.name: block.svg for block in flatten(section.blocks) if isinstance(block, Figure)}
    assert list(figures) == ["ranking-items"]
    tables = {block.name: block for block in flatten(section.blocks) if isinstance(block, PageTable)}
    assert set(tables) == {"ranking-table", "ranking-beats", "ranking-attacks", "ranking-images"}
    ends = [float(text) for _, text in bars.ticks]
    for row, bar in zip(tables["ranking-table"].rows, bars.bars, strict=True):
        score = row[3]
        assert bar.label == row[0].text
        assert bar.text == f"{score.value:.2f} ({score.low:.2f} to {score.high:.2f}) {row[6].text}"
        shown = [ends[0] + share * (ends[-1] - ends[0]) for share in (bar.low, bar.value, bar.high)]
        np.testing.assert_allclose(shown, [score.low, score.value, score.high], atol=0.011)
    for row in tables["ranking-attacks"].rows:
        assert row[0].text in figures["ranking-items"]


def test_images_that_tell_models_apart_are_counted_and_pictured(folder, section):
    table = find_table(section, "ranking-images")
    read = read_folder(folder)
    responses = build_responses(load_outcomes(read.outcomes), "models")
    columns = [column.label for column in table.columns]
    assert columns[2:] == [row[0].text for row in ranking_rows(section)]
    for image, _, *counts in table.rows:
        of_image = responses.values[:, np.array(responses.images) == image.text]
        for model, count in zip(columns[2:], counts, strict=True):
            values = of_image[responses.subjects.index(model)]
            assert count.text == f"{int(np.nansum(values))} of {np.isfinite(values).sum()}"
        place = int(image.text[-8:-4])
        assert bool(image.picture) == (place < EXAMPLES)


def find_table(section, name):
    (table,) = (block for block in flatten(section.blocks) if isinstance(block, PageTable) and block.name == name)
    return table


def ranking_rows(section):
    return find_table(section, "ranking-table").rows


def test_the_page_compares_libraries_in_words(section):
    sentences = " ".join(block.text for block in flatten(section.blocks) if isinstance(block, Text))
    assert "t equal ability" in sentences


def test_neighbours_that_cannot_be_told_apart_get_a_number(folder):
    """Eight images: nobody is told apart."""
    read = read_folder(folder)
    frame = load_outcomes(read.outcomes)
    few: Any = frame[frame["image"].isin(sorted(frame["image"].unique())[:8])]
    responses = build_responses(few, "models")
    ranking = rank_responses(responses.values, responses.subjects, responses.images)
    blocks = _blocks(ranking, [], 8)
    shared = sum(bool(set(a) & set(b)) for a, b in pairwise([row[6].text for row in blocks_rows(blocks)]))
    assert shared
    assert any("if the observed difference" in block.text for block in blocks if isinstance(block, Text))


def blocks_rows(blocks):
    return next(block.rows for block in flatten(blocks) if isinstance(block, PageTable))


@pytest.fixture
def uncertain():
    """a is above b beyond chance; c is below both and hardly known: it has b's letter, and may be above a."""
    generator = np.random.default_rng(0)
    draws = generator.normal([1.0, 0.0, -0.1], [0.1, 0.1, 1.0], (4000, 3))
    ranking = make_ranking("irt", list("abc"), draws.mean(0), draws, np.eye(3), draws)
    assert ranking.groups == ("a", "b", "b")
    assert 0.8 < ranking.beats[0, 2] < 0.9
    return ranking


def test_a_bar_is_faint_if_its_model_differs_significantly_from_the_first(uncertain):
    (bars,) = (block for block in _blocks(uncertain, [], 50) if isinstance(block, Bars))
    assert [(bar.label, bar.faint) for bar in bars.bars] == [("a", False), ("b", True), ("c", False)]
    assert ("faint", "significantly different from the first") in bars.legend


def test_a_figure_greys_the_same_models(uncertain):
    figure = draw_ranking(matplotlib.figure.Figure, 3.3, uncertain)
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    points = [line for line in axes.lines if len(line.get_ydata()) == 1]
    greys = {names[int(line.get_ydata()[0])]: line.get_color() == "#555555" for line in points}
    assert greys == {"a": False, "b": True, "c": False}

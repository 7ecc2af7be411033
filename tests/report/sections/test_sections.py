"""Parts of the page by themselves, on cases small enough to work out by hand."""

import xml.etree.ElementTree as ET
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from davylamp.engine.finding import plain
from davylamp.report.parts.blocks import entry
from davylamp.report.parts.figures import LabelledPoint, Line, draw_curves, draw_dots
from davylamp.report.sections.cost import CostPoint, mark_pareto_front
from davylamp.report.sections.gallery import _invisible_change, amplify


def test_the_front_is_what_nothing_beats():
    prices = [
        CostPoint(None, success, passes, 1.0)
        for success, passes in ((0.5, 10), (0.5, 20), (0.9, 20), (0.9, 20), (0.4, 5), (0.0, 1), (0.8, 30))
    ]
    assert [price.front for price in mark_pareto_front(prices)] == [True, False, True, True, True, False, False]


def test_the_change_is_amplified_to_its_largest_value():
    clean = np.array([[100, 100, 100, 3]], np.uint8)
    shown, factor = amplify(clean, np.array([[102, 96, 100, 4]], np.uint8))
    assert factor == 127 / 4
    assert shown.tolist() == [[128 + 64, 1, 128, 160]]  # 63.5 and 31.75 rounded to even and up
    assert amplify(clean, clean)[0].tolist() == [[128] * 4]
    assert amplify(clean, clean)[1] is None


@pytest.mark.parametrize(
    ("linf", "text"), [(0.3 / 255, "change of at most 0.3 grey levels, not visible here"), (0.0, "no change")]
)
def test_a_change_that_cannot_be_seen_says_so(linf, text):
    """DeepFool's examples may differ by less than one grey level: a flat picture would say that nothing changed."""
    outcome: Any = SimpleNamespace(columns={"linf": np.array([linf])})
    assert _invisible_change(outcome, 0) == text


def test_what_is_undefined_is_null():
    assert plain({"a": [float("nan"), np.float64(1.5), np.int64(2), float("inf")]}) == {"a": [None, 1.5, 2, None]}
    assert entry(float("nan"))[:2] == ("-", None)
    assert entry(True)[:2] == ("yes", True)


@pytest.mark.parametrize("name", ["<script>x</script>", "a $b$ & $c$", 'quote " end', "\\frac{1}{2} $\\alpha$"])
def test_names_in_drawings_stay_text(name):
    figure = draw_dots("one", [LabelledPoint(name, 10, 0.5)], [name], x_axis="passes", y_axis="share", caption=name)
    assert "<script" not in figure.svg
    assert "mathdefault" not in figure.svg
    assert figure.svg.count("<title>") == 1
    tree = ET.fromstring(str(figure.svg).replace("xlink:href", "href"))
    texts = [node.text for node in tree.iter() if node.tag.endswith("text")]
    assert name in texts
    assert tree.attrib["aria-label"] == name
    title = next(node.text for node in tree.iter() if node.tag.endswith("title"))
    assert title == f"{name}: 10, 0.5"


def test_drawings_say_their_points_and_wear_the_colours_of_the_page():
    line = Line("pgd", [0, 1, 2], [1, 0.5, 0.25], [0.9, 0.4, 0.1], [1, 0.6, 0.4])
    curves = draw_curves("two", [line], x_axis="epsilon", caption="c")
    dots = draw_dots(
        "three", [LabelledPoint("cw", 10, 0.5, best=True)], ["art"], x_axis="passes", y_axis="share", caption="c"
    )
    for figure in (curves, dots):
        assert "var(--series-0)" in figure.svg
        assert "#0a0a" not in figure.svg
        assert "#01010" not in figure.svg
    assert "<title>cw: 10, 0.5, on the front</title>" in dots.svg


def test_two_drawings_on_a_page_share_no_ids():
    import re

    line = Line("pgd", [0, 1, 2], [1, 0.5, 0.25], [0.9, 0.4, 0.1], [1, 0.6, 0.4])
    ids = [re.findall(r' id="([^"]+)"', draw_curves(name, [line], x_axis="x", caption="c").svg) for name in ("a", "b")]
    assert ids[0]
    assert not set(ids[0]) & set(ids[1])

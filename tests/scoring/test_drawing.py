"""The drawing in docs/ranking.md shows the program that is fitted.

`python tests/scoring/test_drawing.py` draws it again: it needs the Python package graphviz and its program dot.
"""

import re
from html import unescape
from pathlib import Path

import pyro
import torch
from pyro.infer.inspect import get_model_relations

from davylamp.scoring import ResponseModel
from davylamp.scoring.irt_model import item_response

DRAWING = Path(__file__).parents[2] / "docs" / "ranking-model.svg"
RESPONSES = torch.full((3, 5), 0.5, dtype=torch.double), torch.ones(3, 5, dtype=torch.bool)
ARGUMENTS = (ResponseModel("3pl"), *RESPONSES)


def test_the_drawing_shows_the_program():
    relations = get_model_relations(item_response, ARGUMENTS)
    text = DRAWING.read_text(encoding="utf-8")
    titles = {unescape(title) for title in re.findall(r"<title>(.*?)</title>", text)}
    sites = relations["sample_dist"]
    arrows = {f"{parent}->{child}" for child, parents in relations["sample_sample"].items() for parent in parents}
    plates = {f"cluster_{plate}" for plate in relations["plate_sample"]}
    assert {title for title in titles if not title.startswith(("%", "distribution_"))} == {*sites, *arrows, *plates}
    lines = {unescape(line) for line in re.findall(r"<text[^>]*>(.*?)</text>", text)}
    assert {f"{site} ~ {distribution}" for site, distribution in sites.items()} <= lines
    assert relations["observed"] == ["response"]


def draw() -> None:
    """Write the drawing."""
    graph = pyro.render_model(item_response, ARGUMENTS, render_distributions=True)
    text = graph.pipe(format="svg").decode()
    text = text[text.index("<svg") :]
    DRAWING.write_text(re.sub(r"<!--.*?-->\n", "", text, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    draw()

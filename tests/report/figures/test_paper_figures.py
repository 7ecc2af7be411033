"""Figures for a paper: what is drawn is what the tables say; fonts are embedded, widths kept, bytes repeat."""

import math
import re

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from scipy.spatial.distance import pdist, squareform

import davylamp
from davylamp.adapters.data.datasets import Data
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.statistics.bootstrap import Estimate
from davylamp.engine.tables.budget_curves import build_curves
from davylamp.engine.tables.distance_curves import DistanceCurve, DistanceCurves
from davylamp.engine.tables.table import build_table
from davylamp.engine.tables.transfer_table import TransferTable
from davylamp.errors import InvalidInput, Unavailable, UnknownName, Unsupported
from davylamp.report.figures.canvas import COLOURS, drawing, read_width, write_figure
from davylamp.report.figures.drawn_curves import draw_passes
from davylamp.report.figures.drawn_extremes import mark_extremes
from davylamp.report.figures.drawn_transfer import draw_transfer
from davylamp.tools.speed.synthetic_results import write_results


def texts(axes):
    return [text.get_text() for text in axes.texts]


@pytest.mark.parametrize(
    ("text", "inches"),
    [("column", 3.25), ("text", 6.75), ("3.5in", 3.5), ("8.5cm", 8.5 / 2.54), ("246pt", 246 / 72.27)],
)
def test_a_width_is_a_name_or_a_length(text, inches):
    assert read_width(text) == pytest.approx(inches)


@pytest.mark.parametrize("text", ["wide", "0.1in", "nan", "-3in", ""])
def test_another_width_is_refused(text):
    with pytest.raises(InvalidInput, match="expected a width"):
        read_width(text)


def test_rates_are_those_of_the_table_with_their_intervals(folder):
    drawn = davylamp.figure(folder, "rates")
    (axes,) = drawn.axes
    table = build_table(folder, metrics=["MR"])
    rates = {row.labels["implementation"]: row.metrics["MR"] for row in table.rows}
    names = [label.get_text().partition(",")[0] for label in axes.get_yticklabels()]
    assert sorted(names) == sorted(rates)
    for name, container in zip(names, axes.containers, strict=True):
        point, _, (bars,) = container
        (segment,) = bars.get_segments()
        assert point.get_xdata()[0] == pytest.approx(rates[name].value)
        assert segment[:, 0].tolist() == pytest.approx([rates[name].low, rates[name].high])


def test_nothing_is_drawn_between_radii_that_were_run(folder):
    drawn = davylamp.figure(folder, "accuracy", norm="linf")
    curves = build_curves(folder, norm="linf").curves
    assert {curve.kind for curve in curves} == {"points"}
    for axes in drawn.axes:
        mine = [curve for curve in curves if curve.labels["model"] == axes.get_title(loc="left")]
        assert len(axes.containers) == len(mine) > 0
        for curve, container in zip(mine, axes.containers, strict=True):
            point = container[0]
            assert point.get_linestyle() == "None"
            assert point.get_ydata().tolist() == pytest.approx(curve.accuracy[1:].tolist())


def test_a_search_is_a_step(folder):
    drawn = davylamp.figure(folder, "accuracy", norm="l2", width="text")
    steps = [line for axes in drawn.axes for line in axes.lines if len(line.get_xdata()) > 2]
    assert steps
    assert {line.get_drawstyle() for line in steps} == {"steps-post"}


def test_a_ranking_has_the_best_above_and_its_letters(folder):
    drawn = davylamp.figure(folder, "ranking", subjects="models")
    ranking = davylamp.rank(folder)
    (axes,) = drawn.axes
    frame = ranking.to_frame()
    assert [label.get_text() for label in axes.get_yticklabels()] == list(frame["subject"])
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert texts(axes)[::2] == [*frame["group"], "group"]


def test_a_matrix_has_its_numbers_and_no_diagonal():
    nothing = Estimate(math.nan, math.nan, math.nan, 0)
    rate = Estimate(0.25, 0.1, 0.5, 8)
    rates = (((nothing, rate), (rate._replace(value=1.0), nothing)),)
    labels = {"implementation": "foolbox:pgd", "norm": "linf", "epsilon": 8 / 255, "targeted": False, "setting": ""}
    names = TransferTable.__dataclass_fields__
    table = TransferTable(**dict.fromkeys(names, ()) | {"models": ("a", "b"), "attacks": (labels,), "rates": rates})
    with drawing() as make:
        (axes,) = draw_transfer(make, 3.25, table).axes
    assert texts(axes) == ["\u2013", ".25", "1", "\u2013"]
    assert axes.get_title(loc="left") == "foolbox:pgd 8/255"


def test_distance_is_a_step_from_where_half_the_images_are_fooled():
    labels = {"model": "m", "implementation": "foolbox:ddn", "norm": "l2", "epsilon": math.nan, "targeted": False}
    passes, median = np.array([1, 2, 4]), np.array([math.inf, 0.5, 0.25])
    curve = DistanceCurve(labels | {"setting": ""}, passes, median, median * math.nan, median, median, 9, 1)
    with drawing() as make:
        (axes,) = draw_passes(make, 3.25, DistanceCurves((curve,), (1,), ())).axes
    (line,) = axes.lines
    assert line.get_xdata().tolist() == [2, 4]
    assert line.get_drawstyle() == "steps-post"


def test_colours_differ_in_grey():
    greys = sorted(0.299 * r + 0.587 * g + 0.114 * b for r, g, b in map(to_rgb, COLOURS[:3]))
    assert min(np.diff(greys)) > 0.02


def test_files_embed_their_fonts_repeat_and_have_the_width(folder, tmp_path):
    for name in ("a.pdf", "b.pdf", "a.svg", "b.svg"):
        write_figure(davylamp.figure(folder, "rates", style="serif"), tmp_path / name)
    pdf, svg = (tmp_path / "a.pdf").read_bytes(), (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert pdf == (tmp_path / "b.pdf").read_bytes()
    assert svg == (tmp_path / "b.svg").read_text(encoding="utf-8")
    assert b"/Type3" not in pdf
    assert b"/FontFile2" in pdf  # TrueType, embedded: Type 42
    assert b"CreationDate" not in pdf
    box = [float(each) for each in re.search(rb"/MediaBox \[([\d. ]+)\]", pdf)[1].split()]
    assert box[2] == pytest.approx(3.25 * 72, abs=0.5)
    assert f'width="{3.25 * 72:g}pt"' in svg
    with pytest.raises(InvalidInput, match="ends in"):
        write_figure(davylamp.figure(folder, "rates"), tmp_path / "a.bmp")


def test_what_cannot_be_drawn_is_a_line(folder):
    with pytest.raises(UnknownName, match="did you mean rates"):
        davylamp.figure(folder, "rate")
    with pytest.raises(UnknownName, match="serif"):
        davylamp.figure(folder, "rates", style="comic")
    with pytest.raises(Unsupported):
        davylamp.figure(folder, "passes")


def test_the_command_writes_what_there_is(run, folder, tmp_path):
    code, out, err = run("figure", folder, "-o", "fig.pdf")
    assert code == 0
    assert {path.name for path in tmp_path.glob("fig*")} == {"fig-accuracy.pdf", "fig-rates.pdf", "fig-ranking.pdf"}
    assert "no passes figure" in err
    code, out, _ = run("figure", folder, "rates", "-o", "one.svg", "--width", "8.5cm", "--style", "serif")
    assert code == 0
    assert "one.svg" in out
    code, _, err = run("figure", folder, "transfer", "-o", "two.pdf")
    assert code == 1
    assert len(err.strip().splitlines()) == 1


def test_another_metric_is_drawn_of_one_model(folder):
    table = build_table(folder, by="pairs", metrics=["QNC_F"])
    model = str(table.rows[-1].labels["model"])
    known = sorted(row.metrics["QNC_F"].value for row in table.rows if row.labels["model"] == model)
    (axes,) = davylamp.figure(folder, "rates", metric="QNC_F", models=[model]).axes
    assert sorted(float(container[0].get_xdata()[0]) for container in axes.containers) == pytest.approx(known)
    assert known[0] < known[-1]
    assert axes.get_xlabel().startswith("QNC_F")
    with pytest.raises(UnknownName, match="unknown model 'none'"):
        davylamp.figure(folder, "rates", models=["none"])


def test_the_fooling_rate_at_k_falls_along_a_line_of_the_table(folder):
    drawn = davylamp.figure(folder, "fr-at-k", norm="linf")
    symbols = [f"FR@{k}" for k in (1, 2, 5)]
    table = build_table(folder, by="pairs", metrics=symbols)
    for axes in drawn.axes:
        rows = [row for row in table.rows if row.labels["model"] == axes.get_title(loc="left")]
        rows = [row for row in rows if row.labels["norm"] == "linf"]
        lines = [container[0] for container in axes.containers]
        assert len(lines) == len(rows) > 0
        expected = sorted([row.metrics[symbol].value for symbol in symbols] for row in rows)
        assert sorted(line.get_ydata().tolist()[:3] for line in lines) == [pytest.approx(each) for each in expected]
        assert all(line.get_xdata().tolist()[:3] == [1, 2, 5] for line in lines)
        assert axes.get_xscale() == "log"


def test_thresholds_need_a_hierarchy(folder):
    with pytest.raises(Unsupported):
        davylamp.figure(folder, "thresholds")


def test_semantic_confusion_rises_with_its_threshold(tmp_path):
    """Of ImageNet's classes, by WordNet."""
    write_results(tmp_path, models=("net",), attacks=("foolbox:pgd", "foolbox:cw"), images=12, side=8, pooled=True)
    (axes,) = davylamp.figure(tmp_path, "thresholds").axes
    thresholds = [tenth / 10 for tenth in range(1, 10)]
    table = build_table(tmp_path, by="pairs", metrics=[f"QI_Wup@{each:g}" for each in thresholds])
    expected = sorted([each.value for each in row.metrics.values()] for row in table.rows)
    lines = [container[0] for container in axes.containers]
    assert sorted(line.get_ydata().tolist() for line in lines) == [pytest.approx(each) for each in expected]
    assert len(lines) == 2
    for line in lines:
        assert line.get_xdata().tolist() == pytest.approx(thresholds)
        heights = line.get_ydata().tolist()
        assert heights == sorted(heights)
        assert heights[0] < heights[-1]


def test_learning_rates_are_lines_of_their_own(digits, tmp_path):
    rates = (0.02, 0.1)
    attacks = tuple(
        AttackChoice("foolbox:cw", "l2", parameters={"steps": 9, "initial_const": 9.0, "learning_rate": rate})
        for rate in rates
    )
    data = Data(digits.inputs, digits.labels, [str(place) for place in range(len(digits.labels))])
    plan = make_plan(Config(attacks=attacks), models={"cnn": digits.classifier}, data=data)
    evaluate(plan, ResultsStore(tmp_path))
    drawn = davylamp.figure(tmp_path, "fr-at-k")
    (axes,) = drawn.axes
    (legend,) = drawn.legends
    names = sorted(text.get_text() for text in legend.get_texts())
    assert [name.rpartition("learning_rate")[2].strip(" =") for name in names] == ["0.02", "0.1"]
    table = build_table(tmp_path, by="pairs", metrics=["FR@1", "FR@2", "FR@5"])
    expected = sorted([each.value for each in row.metrics.values()] for row in table.rows)
    drawn_values = sorted(container[0].get_ydata().tolist()[:3] for container in axes.containers)
    assert drawn_values == [pytest.approx(each) for each in expected]
    assert expected[0] != expected[1]


def test_extremes_are_the_highest_and_lowest_rates(folder):
    assert mark_extremes({"a": 0.9, "b": 0.1, "c": 0.5, "d": 0.4}, 3) == {
        "a": "\u26051", "c": "\u26052", "b": "\u26061", "d": "\u26062"
    }  # fmt: skip
    seven = {name: place / 10 for place, name in enumerate("abcdefg")}
    assert mark_extremes(seven, 3) == {
        "g": "\u26051", "f": "\u26052", "e": "\u26053", "a": "\u26061", "b": "\u26062", "c": "\u26063"
    }  # fmt: skip
    assert mark_extremes({"a": 0.5, "b": 0.5, "c": 0.5}, 3) == {}
    assert mark_extremes({"a": 0.5}, 3) == {}
    (axes,) = davylamp.figure(folder, "extremes").axes
    table = build_table(folder, by="pairs", metrics=["MR"])
    models = list(dict.fromkeys(row.labels["model"] for row in table.rows))
    assert [label.get_text() for label in axes.get_yticklabels()] == models
    for down, model in enumerate(models):
        rates = [row.metrics["MR"].value for row in table.rows if row.labels["model"] == model]
        best = [text for text in texts_at(axes, down) if text == "\u26051"]
        assert len(best) == (rates.count(max(rates)) if len({*rates}) > 1 else 0)


def texts_at(axes, down):
    return [text.get_text() for text in axes.texts if text.get_position()[1] == down]


def test_similarities_are_the_cosines_of_the_last_layer_and_those_of_wordnet(tmp_path):
    file, data = tmp_path / "net.py", Data(torch.rand(2, 3, 4, 4), torch.tensor([0, 1]), ["a", "b"])
    code = "import torch\ndef net():\n    torch.manual_seed({})\n    return torch.nn.Sequential(torch.nn.Flatten(), "
    code += "torch.nn.Linear(48, 1000))\n"
    file.write_text(code.format(0))
    name = f"{file}:net"
    plan = make_plan(Config(models=(name,), attacks=(AttackChoice("foolbox:fgsm", "linf", 0.1),)), data=data)
    evaluate(plan, ResultsStore(tmp_path / "results"))
    drawn = davylamp.figure(tmp_path / "results", "similarities")
    visual, semantic = (axes for axes in drawn.axes if axes.images)
    torch.manual_seed(0)
    weight = torch.nn.Linear(48, 1000).weight.detach().double().numpy()
    cosines = 1 - squareform(pdist(weight, "cosine"))
    np.testing.assert_allclose(visual.images[0].get_array(), cosines, atol=1e-5)
    assert semantic.images[0].get_array()[0, 0] == 1
    shown = [axes.lines[0].get_xydata() for axes in drawn.axes if axes.lines]
    between = cosines[np.triu_indices(1000, 1)]
    for percentage, similarity in shown[0][::80]:
        assert np.mean(between < similarity) == pytest.approx(percentage / 100, abs=1e-4)
    assert np.interp(95, *shown[1].T) == pytest.approx(0.7, abs=0.02)  # section 6.3 of the paper
    with pytest.raises(UnknownName):
        davylamp.figure(tmp_path / "results", "similarities", models=["other"])
    file.write_text(code.format(1))
    with pytest.raises(Unavailable):
        davylamp.figure(tmp_path / "results", "similarities")

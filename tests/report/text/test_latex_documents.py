"""What the commands print, in LaTeX: numbers, what is bold, captions; citations that `davylamp cite` has, too."""

import math
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from davylamp.adapters import ThreatModel, find_implementation
from davylamp.engine import compare
from davylamp.engine.certify import CertifiedAccuracy
from davylamp.engine.challenge.attempts import PARTS
from davylamp.engine.statistics.bootstrap import Estimate
from davylamp.engine.tables.table import Table, TableRow
from davylamp.errors import InvalidInput, UnknownName
from davylamp.report.citations.cite import cite
from davylamp.report.text.latex import LatexStyle, LatexTable, write_latex
from davylamp.report.text.latex_comparison import comparison_latex
from davylamp.report.text.latex_documents import (
    certified_latex,
    challenge_latex,
    detections_latex,
    ranking_latex,
    reproduction_latex,
    saturation_latex,
)
from davylamp.report.text.latex_metrics import table_latex
from davylamp.scoring import rank_responses
from davylamp.scoring.ranking import make_ranking

PLAIN = LatexStyle()
SHARE = {"value": 0.25, "low": 0.03, "high": 0.65, "n": 8}


def label(text):
    return re.search(r"\\label\{(.*)\}", text)[1]


def test_a_style_is_a_list_of_words():
    assert LatexStyle.of(None) == LatexStyle.of("brackets") == PLAIN
    assert LatexStyle.of("cite, subscript") == LatexStyle("subscript", cite=True)
    with pytest.raises(UnknownName, match="did you mean brackets"):
        LatexStyle.of("bracket")
    with pytest.raises(InvalidInput, match="plain and subscript"):
        LatexStyle.of("plain,subscript")


@pytest.mark.parametrize(
    ("intervals", "shown", "said"),
    [
        ("brackets", r"{\scriptsize [0.250, 0.750]}", "In brackets the 95"),
        ("subscript", r"\textsubscript{[0.250, 0.750]}", "In the subscript the 95"),
        ("plus-minus", r"$^{+0.150}_{-0.350}$", "as differences from the value"),
        ("plain", None, "$n = 8$ images"),
    ],
)
def test_intervals_are_set_as_asked(intervals, shown, said, parse_latex):
    table = LatexTable("x", ("name", "MR"), [["a", Estimate(0.6, 0.25, 0.75, 8)]], interval=r"95\,\% interval")
    caption, _, rows = parse_latex(write_latex(table, LatexStyle(intervals)))
    assert rows == [["a", "0.600", *([] if shown is None else [shown])]]
    assert said in caption
    same = LatexTable("x", ("MR",), [[Estimate(0.5, 0.25, 0.75, 8)]], interval="i")
    if intervals == "plus-minus":
        assert parse_latex(write_latex(same, LatexStyle(intervals)))[2] == [["0.500", r"{\scriptsize $\pm$0.250}"]]


def test_two_tables_have_two_labels_and_the_same_one_the_same():
    tables = [write_latex(LatexTable("x", ("a",), [[value]])) for value in (1, 2, 1)]
    assert label(tables[0]) != label(tables[1])
    assert label(tables[0]) == label(tables[2])


def test_citations_are_keys_of_the_bibliography(parse_latex):
    labels = {"implementation": "best(foolbox:pgd)", "norm": "linf"}
    table = Table("attacks", tuple(labels), ("MR",), (TableRow(labels, {"MR": Estimate(0.5, 0.2, 0.8, 9)}),))
    caption, _, rows = parse_latex(table_latex(table, {"foolbox": "3.3.4"}, LatexStyle(cite=True)))
    assert rows[0][0] == r"best(foolbox:pgd)~\cite{madry2018towards}"
    assert r"Misclassification ratio~\cite{sun2023canary}" in caption
    assert r"foolbox 3.3.4~\cite{rauber2017foolbox,rauber2020foolbox}" in caption
    used = {key for keys in re.findall(r"\\cite\{(.*?)\}", caption + rows[0][0]) for key in keys.split(",")}
    assert used == {entry.key for entry, _ in cite("attack:pgd", "foolbox", "MR").entries}
    assert r"\cite" not in table_latex(table, {"foolbox": "3.3.4"})


def test_a_ranking_has_those_in_bold_that_do_not_differ_from_the_first(parse_latex):
    """c is hardly known: it has no letter of a, from which it does not differ."""
    draws = np.random.default_rng(0).normal([1.0, 0.0, -0.1], [0.1, 0.1, 1.0], (4000, 3))
    ranking = make_ranking("irt", list("abc"), draws.mean(0), draws, np.eye(3), draws)
    assert ranking.groups == ("a", "b", "b")
    _, _, rows = parse_latex(ranking_latex(ranking, "models of x", {}, PLAIN))
    assert [r"\textbf" in row[1] for row in rows] == [True, False, True]


def test_a_ranking_by_means_has_one_column_of_them(parse_latex):
    generator = np.random.default_rng(0)
    responses = (generator.random((3, 300)) < np.array([[0.9], [0.88], [0.2]])).astype(float)
    ranking = rank_responses(responses, ["a_1", "b", "c"], scoring="mean")
    groups = dict(zip(ranking.subjects, ranking.groups, strict=True))
    caption, head, rows = parse_latex(ranking_latex(ranking, "models of x", {}, PLAIN))
    assert head[1] == "subject"
    assert "mean response" in head[2]
    assert "mean" not in head
    top = groups[ranking.to_frame()["subject"][0]]
    for row in rows:
        name = row[1].removeprefix(r"\textbf{").removesuffix("}").replace("\\", "")
        assert (r"\textbf" in row[1]) == bool(set(top) & set(groups[name]))
    assert not any("textbf{c}" in row[1] for row in rows)
    assert "do not differ significantly from the first" in caption


def test_a_comparison_is_two_tables(digits, parse_latex):
    rules, both = ThreatModel("linf", 0.1), [find_implementation(f"{name}:fgsm") for name in ("art", "foolbox")]
    done = compare("fgsm", digits.classifier, digits.inputs[:6], digits.labels[:6], rules, rows=both)
    first, second = re.split(r"\n(?=% needs)", comparison_latex(replace(done, model="my_net", data="digits"), PLAIN))
    caption, _, rows = parse_latex(first)
    assert r"my\_net" in caption
    assert r"$\ell_\infty$ 0.1" in caption
    for row, ran in zip(rows, done.rows, strict=True):
        assert row[0] == ran.implementation.name
        assert f"{ran.metrics['MR']:.3f}" in row[1].replace("}{", "")
    caption, _, rows = parse_latex(second)
    assert [row[2] for row in rows] == [pair.judgement.text for pair in done.pairs]
    assert "McNemar" in caption


def test_the_worst_case_of_a_challenge_is_bold(parse_latex):
    attempt = {
        "part": "adapted",
        "attack": "foolbox:pgd",
        "made_on": "../m.py:f+jpeg",
        "epsilon": 4 / 255,
        "passes": 12.0,
    }
    attempt["part"] = next(iter(PARTS))
    failed = {**attempt, "accuracy": None, "passes": 0.0}
    document = {"model": "../m.py:f+jpeg", "original": "../m.py:f", "norm": "linf", "epsilon": 4 / 255, "worst": SHARE}
    document |= {"sentence": "falls.", "attempts": [{**attempt, "accuracy": {**SHARE, "value": 0.5}}, failed]}
    caption, _, rows = parse_latex(challenge_latex(document, PLAIN))
    assert "../m.py:f+jpeg challenged, $\\ell_\\infty$ $4/255$: falls." in caption
    assert [row[2] for row in rows] == ["defended", "defended", ""]
    assert [row[4] for row in rows] == ["0.500", "--", r"\davylampbold{0}{.250}"]


def test_a_challenge_without_a_result_has_no_worst_case(parse_latex):
    document = {"model": "m+jpeg", "original": "m", "norm": "linf", "epsilon": 4 / 255, "sentence": "not judged."}
    document |= {"worst": {"value": None, "low": None, "high": None, "n": 8}, "attempts": []}
    _, _, ((*_, accuracy, _),) = parse_latex(challenge_latex(document, PLAIN))
    assert accuracy == "-{}-"  # not bold, no number


def test_a_reproduction_says_why_there_is_no_difference(parse_latex):
    line = {"row": "PGD", "symbol": "MR", "ours": 0.5, "low": 0.2, "high": 0.8, "n": 9, "published": 0.75}
    lines = [
        {**line, "difference": -0.25, "beside": "PGD", "no_difference": ""},
        {**line, "difference": None, "beside": "PGD", "no_difference": "digits, not CIFAR-10"},
    ]
    result = {"table": "t1", "source": "A & B", "labels": ["other data"], "images": 9, "data": "demo:mnist"}
    result |= {"budget": "the paper's", "lines": lines}
    caption, _, rows = parse_latex(reproduction_latex(result, PLAIN))
    assert [row[4] for row in rows] == ["0.75", "0.75"]
    assert [row[5] for row in rows] == ["$-0.250$", "digits, not CIFAR-10"]
    assert r"A \& B: ours next to published (other data)" in caption


def test_saturation_is_bold_where_success_stops_growing(parse_latex):
    line = {"implementation": "foolbox:pgd", "attacked": 10, "budgets": [1 / 255, 2 / 255, 4 / 255]}
    lines = [{**line, "ratios": [0.2, 0.9, 0.9], "epsilon": 2 / 255}, {**line, "ratios": [0, 0, 0], "epsilon": None}]
    caption, head, rows = parse_latex(saturation_latex("pgd", "m", "d", "linf", lines, PLAIN))
    assert head[2:] == [rf"\multicolumn{{1}}{{c}}{{${level}/255$}}" for level in (1, 2, 4)]
    assert rows[0][2:] == ["0.200", r"\davylampbold{0}{.900}", "0.900"]
    assert rows[1][2:] == ["0.000"] * 3
    assert "With 10 images" in caption


def test_certificates_and_detectors_have_their_intervals(parse_latex):
    settings = {"model": "m", "data": "d", "sigma": 0.25, "first": 10, "draws": 100, "alpha": 0.001}
    lines = [
        each._asdict()
        for each in (CertifiedAccuracy(0.0, 0.75, 0.35, 0.97, 8), CertifiedAccuracy(0.5, 0.5, 0.16, 0.84, 8))
    ]
    caption, _, rows = parse_latex(certified_latex(settings, lines, PLAIN))
    assert rows == [
        ["0", "0.750", r"{\scriptsize [0.350, 0.970]}"],
        ["0.5", "0.500", r"{\scriptsize [0.160, 0.840]}"],
    ]
    assert "$n = 8$ images" in caption
    share = SimpleNamespace(value=0.5, low=0.1, high=0.9, n=4)
    at = SimpleNamespace(rate=0.05, detected=share, false_alarms=share, missed=share)
    cell = SimpleNamespace(
        title="foolbox:pgd", subject=SimpleNamespace(name="m"), row=SimpleNamespace(library="foolbox")
    )
    area = SimpleNamespace(value=0.8, low=math.nan, high=math.nan)
    row = SimpleNamespace(name="lid", cell=cell, area=area, fooled=4, rates=[at])
    caption, _, rows = parse_latex(detections_latex([row], PLAIN))
    assert rows[0][:5] == ["lid", "m", "foolbox:pgd", "0.800", "0.05"]
    assert rows[0][5:7] == ["0.500", r"{\scriptsize [0.100, 0.900]}"]


def test_the_commands_take_it(run, folder):
    code, out, _ = run("rank", folder, "--latex", "--latex-style", "cite")
    assert code == 0
    assert out.startswith("% needs \\usepackage{booktabs} and \\usepackage{graphicx}\n")
    code, _, err = run("table", folder, "--latex", "--latex-style", "italic")
    assert code == 1
    assert "unknown style of LaTeX 'italic'" in err
    code, out, _ = run("table", folder, "--metric", "MR", "--latex", "--latex-style", "plus-minus")
    assert code == 0
    assert "foolbox" in out

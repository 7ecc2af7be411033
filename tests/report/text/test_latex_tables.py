"""LaTeX tables, read back by a strict parser: environments, cells, aligned decimals, what is bold, no stray special."""

import math
from dataclasses import replace

import pytest

from davylamp.adapters.display_text import format_radius
from davylamp.engine.statistics.bootstrap import Estimate
from davylamp.engine.tables.table import Table, TableRow
from davylamp.report.text.latex import escape, radius_tex
from davylamp.report.text.latex_metrics import table_latex, usual_part

NAN = math.nan


def table_of(by, *rows, symbols=("MR", "AMD")):
    names = tuple(rows[0][0])
    return Table(by, names, symbols, tuple(TableRow(labels, dict(zip(symbols, e, strict=True))) for labels, e in rows))


@pytest.fixture
def attacks():
    linf = {"implementation": "foolbox:pgd", "norm": "linf", "epsilon": 8 / 255, "models": 1, "violations": 0}
    return table_of(
        "attacks",
        (linf, (Estimate(0.5, 0.25, 0.75, 8), Estimate(0.031, 0.03, 0.0314, 4))),
        (linf | {"implementation": "art:pgd"}, (Estimate(0.75, 0.5, 1, 8), Estimate(0.0075, 0.007, 0.008, 6))),
        (linf | {"norm": "l2", "epsilon": 0.5}, (Estimate(1.0, 0.6, 1, 8), Estimate(NAN, NAN, NAN, 0))),
    )


@pytest.mark.parametrize(("epsilon", "text"), [(8 / 255, "$8/255$"), (0.2, "0.2"), (0.5 / 255, "$0.5/255$")])
def test_a_radius_is_written_as_on_a_terminal(epsilon, text):
    """0.2 is 51/255, and was written so beside 0.1."""
    assert radius_tex("linf", epsilon) == text
    assert text.strip("$") == format_radius("linf", epsilon)


def test_a_page_has_room_for_few_metrics(attacks):
    every = table_of(
        "attacks",
        *((row.labels, [Estimate(0.5, 0.4, 0.6, 8)] * 4) for row in attacks.rows),
        symbols=("RA", "MR", "FDL", "AMD"),
    )
    assert usual_part(every).symbols == ("MR", "AMD")
    assert usual_part(table_of("defence", *((row.labels, [Estimate(0, 0, 0, 1)] * 2) for row in attacks.rows))).symbols


def test_a_table_of_attacks(attacks, parse_latex):
    text = table_latex(attacks, {"torch": "2.15.0", "foolbox": "3.3.4", "timm": "1.0"})
    caption, head, rows = parse_latex(text)
    assert text.startswith("% needs \\usepackage{booktabs} and \\usepackage{graphicx}\n")
    assert head == [
        "implementation",
        "norm",
        "epsilon",
        r"\multicolumn{2}{c}{MR}",
        r"\multicolumn{2}{c}{AMD}",
    ]
    assert [row[1:3] for row in rows] == [[r"$\ell_\infty$", "$8/255$"]] * 2 + [[r"$\ell_2$", "0.5"]]
    # The strongest attack and the smallest change of the two in one threat model; the third has no rival.
    assert [row[3] for row in rows] == ["0.500", r"\davylampbold{0}{.750}", "1.000"]
    assert [row[5] for row in rows] == ["0.0310", r"\davylampbold{0}{.0075}", "--"]
    assert [row[6] for row in rows] == [
        r"{\scriptsize [0.0300, 0.0314]}$_{4}$",
        r"{\scriptsize [0.0070, 0.0080]}$_{6}$",
        "",
    ]
    for said in (
        "MR: Misclassification ratio",
        "the subscript is the number of images",
        "best point estimate for the attack",
        "foolbox 3.3.4",
        "In every row: invalid 0.",
    ):
        assert said in caption
    assert "timm" not in caption


def test_what_every_row_has_is_in_the_caption(attacks, parse_latex):
    """All columns beside each other were wider than a page; a row alone keeps what it is."""
    two = replace(attacks, rows=attacks.rows[:2])
    caption, head, _ = parse_latex(table_latex(two))
    assert head[:2] == ["implementation", r"\multicolumn{2}{c}{MR}"]
    assert r"In every row: norm $\ell_\infty$, epsilon $8/255$, invalid 0." in caption
    caption, head, _ = parse_latex(table_latex(replace(attacks, rows=attacks.rows[:1])))
    assert head[:3] == ["implementation", "norm", "epsilon"]
    assert "In every row" not in caption


def test_a_measurement_is_explained_as_metrics_are(parse_latex):
    rows = [({"model": name}, (Estimate(0.5, 0.2, 0.8, 9),)) for name in "ab"]
    caption, _, _ = parse_latex(table_latex(table_of("models", *rows, symbols=("RA_mean",))))
    assert r"RA\_mean: Mean robust accuracy" in caption


def test_zero_has_no_sign(parse_latex):
    rows = [({"model": name}, (Estimate(value, NAN, NAN, 9),)) for name, value in (("a", -0.00001), ("b", 0.5))]
    assert [row[1] for row in parse_latex(table_latex(table_of("models", *rows, symbols=("CAV",))))[2]] == [
        "0.000",
        r"\davylampbold{0}{.500}",
    ]


def test_a_table_of_models_has_the_other_side_in_bold(parse_latex):
    one = Estimate(0.25, NAN, NAN, 9)
    rows = (({"model": "a"}, (one, one)), ({"model": "b"}, (one._replace(value=-12.5), one)))
    caption, head, rows = parse_latex(table_latex(table_of("models", *rows, symbols=("ALMSV", "MR"))))
    assert head[1:] == [r"\multicolumn{1}{c}{ALMSV}", r"\multicolumn{1}{c}{MR}"]
    assert rows == [["a", r"\davylampbold{0}{.2}", "0.250"], ["b", "$-$12.5", "0.250"]]  # equal: nothing is best
    assert "$n = 9$ images" in caption
    assert "best point estimate for the model" in caption
    assert "95" not in caption


@pytest.mark.parametrize("name", ['[a]|b_1 & 50% \\x, "q"\n#$', "*x--y~{z}^<>", "", "\x1b[31m"])
def test_any_name_stays_text(name, parse_latex):
    one = Estimate(math.inf, 0.25, math.inf, 8)
    _, _, rows = parse_latex(table_latex(table_of("pairs", ({"model": name, "x": "y"}, (one,)), symbols=("FR@5",))))
    assert rows[0][-2:] == [r"$\infty$", r"{\scriptsize [0.250, $\infty$]}"] or "[0.25" in rows[0][-1]


def test_what_tex_would_read_is_escaped():
    assert escape("50%_a&b#$ {c}\\d--e") == r"50\%\_a\&b\#\$ \{c\}\textbackslash{}d-{}-e"

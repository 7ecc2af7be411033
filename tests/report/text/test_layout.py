"""How a table stands at a width: nothing is broken, what matters stays, what does not fit is said or stacked."""

import io
import random
import re

import pytest
from rich.console import Console

from davylamp.errors import UnknownName
from davylamp.report.text import console as module
from davylamp.report.text.console import PlainConsole, interval_text, open_page, print_table
from davylamp.report.text.fit_to_terminal import TableText, at_words, fit, measure, short_name, widths_of

COLUMNS = ("attack", "n", "MR", "seconds", "what it is")
ROWS = [
    ("torchattacks:deepfool", 39, "0.639 [0.47, 0.79]", 12.5, "the nearest boundary of a linear model of the net"),
    ("foolbox:pgd", 100, "1.00 [0.96, 1.00]", 0.125, "gradient steps"),
]


def printed(capsys, width, rows=ROWS, columns=COLUMNS, page=None, **options):
    console = PlainConsole(force_terminal=True, width=width, color_system=None, page=page)
    print_table("", columns, rows, console, **options)
    return capsys.readouterr().out.splitlines()


def test_a_wide_terminal_has_every_column_on_a_line(capsys):
    lines = printed(capsys, 120)
    assert lines[0].split("  ")[0] == "attack"
    assert len(lines) == 2 + len(ROWS)
    assert lines[2].endswith("of a linear model of the net")


@pytest.mark.parametrize("width", [36, 40, 60, 80])
@pytest.mark.parametrize("rest", ["drop", "stack", "blocks"])
def test_no_word_is_broken_and_no_line_is_longer(capsys, width, rest):
    lines = printed(capsys, width, rest=rest)
    words = {word for row in ROWS for cell in row for word in str(cell).split()} | set(" ".join(COLUMNS).split())
    shown = [line for line in lines if "─" not in line]
    if rest == "drop":
        end = next((i for i, line in enumerate(shown) if line.startswith("not shown: columns")), len(shown))
        shown = shown[:end]
    assert {word for line in shown for word in line.split()} <= words
    assert max(map(len, lines)) <= width


def test_numbers_keep_their_interval_beside_them(capsys):
    assert any("0.639 [0.47, 0.79]" in line for line in printed(capsys, 45, rest="stack"))


def test_what_matters_more_stays(capsys):
    lines = printed(capsys, 34, order=("seconds", "n"))
    assert lines[0].split() == ["attack", "seconds"]
    assert "not shown: columns n, MR, what it is (--wide" in " ".join(lines)


def test_stacked_tables_have_every_cell(capsys):
    text = " ".join(" ".join(printed(capsys, 45, rest="stack")).split())
    assert all(str(cell).split()[0] in text for row in ROWS for cell in row)
    assert text.count("foolbox:pgd") >= 2


def test_asked_columns_come_even_where_they_do_not_fit(monkeypatch, capsys):
    def narrow(**options):
        return PlainConsole(force_terminal=True, width=30, color_system=None, page=options.get("page"))

    monkeypatch.setattr(module, "make_console", narrow)
    with open_page(["MR", "seconds"]) as console:
        print_table("one", COLUMNS, ROWS, console)
        print_table("other", ("attack", "n"), [("a", 1)], console)
    out = capsys.readouterr().out
    assert "0.639 [0.47, 0.79]" in out
    assert "12.5" in out
    assert "other" not in out
    with (
        pytest.raises(UnknownName, match=r"unknown column 'second'; did you mean seconds\?"),
        open_page(["second"]) as c,
    ):
        print_table("", COLUMNS, ROWS, c)


PAIRS = [
    (model, attack, "linf", "1/255", "0.50 [0.19, 0.81] (10)", "0.00252 [0.0015, 0.0035] (5)")
    for model in ("demo:cifar10-resnet18", "demo:another-network")
    for attack in ("torchattacks:deepfool", "foolbox:pgd")
]
NAMES = ("model", "implementation", "norm", "epsilon", "MR", "AMD")


def test_what_is_the_same_in_all_rows_is_written_once_where_that_makes_room(capsys):
    lines = printed(capsys, 80, PAIRS, NAMES, keys=2, common=("norm", "epsilon"))
    assert lines[0] == "norm linf; epsilon 1/255"
    assert lines[1].split() == ["model", "implementation", "MR"]
    lines = printed(capsys, 80, PAIRS[:2], NAMES, keys=2, common=("norm", "epsilon"))
    assert lines[0] == "model demo:cifar10-resnet18; norm linf; epsilon 1/255"
    assert lines[1].split() == ["implementation", "MR", "AMD"]
    assert printed(capsys, 120, PAIRS[:2], NAMES, keys=2, common=("norm", "epsilon"))[0].split()[:2] == [
        "model",
        "implementation",
    ]


def test_a_table_is_never_of_names_alone(capsys):
    lines = printed(capsys, 50, PAIRS, NAMES, keys=2, common=("norm", "epsilon"))
    assert lines.count("model demo:cifar10-resnet18") == lines.count("model demo:another-network") == 1
    assert sum("0.50 [0.19, 0.81] (10)" in line for line in lines) == len(PAIRS)
    assert max(map(len, lines)) <= 50


def test_every_cell_is_shown_or_its_column_is_said_to_be_missing():
    """Also where a column fits beside some rows of a table that is written in several."""
    draw = random.Random(0)
    for _ in range(600):
        keys, more = draw.randint(1, 3), draw.randint(1, 4)
        names = tuple(f"n{place}{'x' * draw.randint(0, 6)}" for place in range(keys + more))
        models = [f"g{place}{'q' * draw.randint(0, 20)}" for place in range(2)]
        lines = tuple(
            (models[row // 2], *(f"c{row}{place}{'-' * draw.randint(0, 14)}" for place in range(1, keys + more)))
            for row in range(4)
        )
        fitted = fit(TableText(names, lines, keys), draw.randint(24, 70))
        text = io.StringIO()
        console = Console(file=text, width=70)
        for part in fitted.parts:
            for each in part.draw(len(part.heights)):
                console.print(each)
        shown = set(text.getvalue().split())
        for place, name in enumerate(names):
            if name not in fitted.left_out:
                assert {line[place] for line in lines} <= shown, (names, lines)
        assert set(names) == {*fitted.shown, *fitted.left_out}


def test_rows_that_columns_would_break_into_many_lines_are_blocks(capsys):
    rows = [("foolbox:pgd", "word " * 30, "other " * 30)]
    lines = printed(capsys, 80, rows, ("attack", "detail", "what to do"), rest="blocks")
    assert lines[0] == "foolbox:pgd"
    assert lines[1].startswith("  detail")
    assert printed(capsys, 300, rows, ("attack", "detail", "what to do"), rest="blocks")[0].startswith("attack")


def test_stacked_tables_leave_out_rows_without_a_value_and_keep_infinity_beside_its_interval(capsys):
    rows = [("foolbox:deepfool", "0.95", "2.53 [0.797, inf]"), ("foolbox:pgd", "0.2", "-"), ("art:cw", "1", "inf")]
    lines = printed(capsys, 38, rows, ("implementation", "accuracy", "D_half"), rest="stack")
    assert sum("foolbox:pgd" in line for line in lines) == 1
    assert any(line.endswith("2.53 [0.797, inf]") for line in lines)


def test_a_long_worst_case_is_its_first_attack_and_a_number():
    members = ["art:fgsm", "best(foolbox:pgd)", "torchattacks:fgsm@fixed", "foolbox:deepfool"]
    assert short_name(f"on worst-case({','.join(members)}) here") == "on worst-case(art:fgsm+3) here"
    assert short_name("worst-case(foolbox:fgsm,foolbox:pgd)") == "worst-case(foolbox:fgsm,foolbox:pgd)"
    assert short_name("best(foolbox:pgd)") == "best(foolbox:pgd)"


def test_a_pipe_has_no_width(capsys):
    print_table("", COLUMNS, [(*ROWS[0][:4], "long " * 200)])
    (_, line) = capsys.readouterr().out.splitlines()
    assert len(line) > 1000
    assert "\x1b" not in line


def test_what_is_left_of_the_width_goes_where_it_is_wanted():
    cells = ("a b c d e f g h i j k l m n o p q r s t u v w x y z" * 2, "1")
    measured = [measure("text", cells[:1]), measure("n", cells[1:])]
    widths = widths_of(measured, 60)
    assert sum(widths) + 2 == 60
    assert widths == [57, 1]


def test_a_line_goes_on_under_its_first_word():
    assert at_words("- one two three", 9, "  ") == ["- one two", "  three"]
    assert at_words("a-very-long-name:of/a/model.py x", 10) == ["a-very-long-name:of/a/model.py", "x"]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((0.6389, 0.4702, 0.7871), "0.639 [0.47, 0.79]"),
        ((0.99988, 0.99981, 0.99994), "0.99988 [0.99981, 0.99994]"),
        ((0.0, 0.0, 0.168), "0.00 [0.00, 0.17]"),
        ((61.5, 52.3, 159.2), "61.5 [52, 159]"),
        ((1.0, 1.0, 1.0), "1 [1, 1]"),
        ((0.5, float("nan"), float("nan")), "0.5"),
    ],
)
def test_ends_have_the_digits_of_their_width(numbers, text):
    assert interval_text(*numbers) == text


def test_a_narrow_table_is_not_wider_in_a_pipe_than_80_columns_unless_more_is_requested(capsys):
    columns = [f"column {n}" for n in range(12)]
    rows = [[f"value {n}" for n in range(12)]] * 2
    with open_page() as console:
        shown = print_table("", columns, rows, console, narrow=True)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[:3])) <= 80
    assert shown == columns[: len(shown)]
    assert 4 <= len(shown) < 12
    assert set(columns) - set(shown) == set(re.findall(r"column \d+", lines[-1]))
    for options in ({"wide": True}, {"verbose": True}):
        with open_page(**options) as console:
            assert print_table("", columns, rows, console, narrow=True) == columns
        capsys.readouterr()


def test_an_old_word_is_printed_as_the_new_one_and_chooses_it(capsys):
    with open_page(["violations"]) as console:
        print_table("", ["model", "cells", "violations"], [["a", 1, 2]], console)
    assert capsys.readouterr().out.split() == ["model", "invalid", "a", "2"]

"""What leaves through a terminal, a CSV, a Markdown or a LaTeX table is only text."""

import csv
import io

import pytest

from davylamp.report.text.console import (
    PlainConsole,
    escape_control_characters,
    make_console,
    print_error,
    print_table,
    to_csv,
)
from davylamp.report.text.tables import markdown_text

EVIL = "net\x1b]0;owned\x07\x1b[2J\r\n[red]x[/red] :warning: \u202egnp.exe\x9b"
SHOWN = "net\\x1b]0;owned\\x07\\x1b[2J\\r\\n[red]x[/red] :warning: \\u202egnp.exe\\x9b"


def test_what_a_terminal_would_obey_is_shown():
    assert escape_control_characters(EVIL) == SHOWN
    assert escape_control_characters("modèle 大 [a] 8/255") == "modèle 大 [a] 8/255"


@pytest.mark.parametrize("terminal", [False, True])
def test_tables_titles_lines_and_errors_hold_no_control_character(terminal, capsys):
    console = PlainConsole(force_terminal=terminal, width=300, color_system=None)
    print_table(EVIL, (EVIL, "b"), [(EVIL, 1.0)], console)
    console.print(f"- {EVIL}", highlight=False, markup=False)
    console.print(f"\n{EVIL}")
    make_console().print(EVIL)
    print_error(EVIL)
    captured = capsys.readouterr()
    # Rich styles on a terminal: its own sequences are `\x1b[...m` only.
    for code in ("\x1b[1m", "\x1b[0m"):
        captured = captured._replace(out=captured.out.replace(code, ""))
    assert captured.out.count(SHOWN) == 6
    assert not set(captured.out + captured.err) & set("\x1b\x07\r\x9b\u202e")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("text", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "  =1", "=HYPERLINK(1)\n2"])
def test_a_spreadsheet_takes_no_text_for_a_formula(text):
    ((head,), (cell,)) = csv.reader(io.StringIO(to_csv([text], [[text]])))
    assert head[0] == cell[0] == "'"
    assert "\r" not in cell


def test_numbers_stay_numbers_in_a_csv():
    row = [-0.5, "-0.5", "+3", "-inf", 1e-9, None, float("nan"), True, "a=b", "two\nlines"]
    (cells,) = csv.reader(io.StringIO(to_csv([], [row]).lstrip("\n")))
    assert cells == ["-0.5", "-0.5", "+3", "-inf", "1e-09", "", "", "True", "a=b", "two\nlines"]


def testmarkdown_text_holds_no_link_and_no_tag():
    assert markdown_text("<script>[a](b) `x` *y* \x1b") == "\\<script>[a]\\(b) \\`x\\` \\*y\\* \\x1b"

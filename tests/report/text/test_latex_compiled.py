"""LaTeX tables as TeX itself reads them: every engine compiles them, and nothing stands outside the page."""

import re
import shutil
import subprocess

import pytest

from davylamp.engine.statistics.bootstrap import Estimate
from davylamp.report.text.latex import _PLAIN, LatexTable, escape, write_latex

needs_tex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
NAMES = (
    "a&b_100%#1",
    "x$y_{2}^3",
    "m@v2~\\q",
    "modèle",
    "re\u0301seau",
    "模型-γ",
    "модель",
    "«q\"uo'te»<|>--- [z]",
    "[]",
)
SHARE = Estimate(0.5, 0.25, 0.75, 8)


def compile_tex(text, folder, preamble=None, engine="pdflatex"):
    """The log of a document that has the table, in the packages that it says it needs; fails where TeX does."""
    needs = [line for line in text.splitlines() if line.startswith("% needs ")]
    packages = re.findall(r"\\usepackage\{\w+\}", "".join(needs))
    lines = [r"\documentclass{article}", *packages, preamble or "", r"\begin{document}", text, r"\end{document}"]
    (folder / "t.tex").write_text("\n".join(lines), encoding="utf-8")
    command = [engine, "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=120)
    log = (folder / "t.log").read_text(encoding="utf-8", errors="replace")
    assert done.returncode == 0, re.findall(r"^!.*\n.*", log, re.MULTILINE)
    return log


def table_of(names, columns=1):
    heads = ("name", *(f"metric {place}" for place in range(columns)))
    return LatexTable("t", heads, [(name, *[SHARE] * columns) for name in names], [escape(name) for name in names])


@needs_tex
@pytest.mark.parametrize("name", NAMES)
def test_any_name_compiles(name, tmp_path):
    assert "Overfull" not in compile_tex(write_latex(table_of([name])), tmp_path)


@needs_tex
def test_what_is_written_as_it_is_pdflatex_sets(tmp_path):
    assert len(_PLAIN) > 200
    text = " ".join(sorted(_PLAIN))
    assert escape(text) == text
    assert "Missing character" not in compile_tex(f"\\raggedright {text}", tmp_path)


@needs_tex
@pytest.mark.parametrize("columns", [1, 9])
@pytest.mark.parametrize("rows", [3, 90])
def test_a_table_is_on_its_page(rows, columns, tmp_path):
    text = write_latex(table_of([f"model {place}" for place in range(rows)], columns))
    log = compile_tex(text, tmp_path)
    assert "Overfull" not in log
    assert "Float too large" not in log
    # It is the macro that does it.
    unfit = compile_tex(text, tmp_path, r"\newcommand{\davylampfit}[1]{#1}")
    assert ("Overfull" in unfit) == (columns == 9)


def test_a_long_table_is_several_with_every_row_once(parse_latex):
    names = [f"model {place}" for place in range(90)]
    text = write_latex(table_of(names))
    tables = re.findall(r"\\begin\{table\}.*?\\end\{table\}\n", text, re.DOTALL)
    assert len(tables) > 1
    read = [parse_latex(each) for each in tables]
    assert [row[0] for _, _, rows in read for row in rows] == names
    assert len({tuple(head) for _, head, _ in read}) == 1
    labels = re.findall(r"\\label\{([^}]*)\}", text)
    assert len(set(labels)) == len(tables)
    assert [re.findall(r"\\ref\{([^}]*)\}", caption) for caption, _, _ in read[1:]] == [[labels[0]]] * (len(read) - 1)


def test_what_pdflatex_lacks_has_its_number_and_a_line_says_so():
    assert escape("模") == r"\davylampchar{模}{6A21}"
    assert escape("re\u0301seau") == "réseau"  # as macOS writes names of files
    lines = write_latex(table_of(["模"])).splitlines()
    assert any(line.startswith("% pdfLaTeX shows characters as U+...") for line in lines)
    assert any(line.startswith(r"\providecommand{\davylampchar}") for line in lines)
    assert "davylampchar" not in write_latex(table_of(["réseau"]))


@pytest.mark.parametrize(
    ("text", "tex"),
    [
        ("a---b", "a-{}-{}-b"),
        ("''", "'{}'"),
        ("``", "`{}`"),
        ("?`", "?{}`"),
        ("a, b-c", "a, b-c"),
        ('"a', r"\char34{}a"),
    ],
)
def test_two_characters_stay_two(text, tex):
    assert escape(text) == tex

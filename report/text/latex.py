r"""A table in LaTeX for a paper: booktabs, aligned decimals, intervals, what is best in bold, a caption and a label."""

import hashlib
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...adapters import ThreatModel
from ...adapters.display_text import format_radius, format_threat_model
from ...engine.statistics.bootstrap import Estimate
from ...errors import InvalidInput, UnknownName
from .console import escape_control_characters, format_cell

NORMS: Mapping[str, str] = {"linf": r"$\ell_\infty$", "l0": r"$\ell_0$", "l1": r"$\ell_1$", "l2": r"$\ell_2$"}
INTERVALS = ("brackets", "subscript", "plus-minus", "plain")
# Bold digits may be wider than others: the box is that of the plain number, so that the decimals stay below each other.
_BOLD = (
    r"\providecommand{\davylampbold}[2]"
    r"{\phantom{#1}\llap{\textbf{#1}}\rlap{\textbf{#2}}\phantom{#2}}"
)
# A table is as wide as the text at most, whatever the class of the document: what is wider is made smaller.
_FIT = (
    r"\providecommand{\davylampfit}[1]{\begingroup\setbox0=\hbox{#1}"
    r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\box0}\else\box0\fi\endgroup}"
)
_NEEDS = r"% needs \usepackage{booktabs} and \usepackage{graphicx}"
_SIGNIFICANT, _DECIMALS = 3, 6
_LONGEST = 35  # rows that a page has room for, below a caption
_WIDE, _WIDEST = 75, 95  # characters of a row from which a smaller font is needed


_ESCAPED = {character: f"\\{character}" for character in "&%$#_{}"}
_ESCAPED |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}"}
_ESCAPED |= {"<": r"\textless{}", ">": r"\textgreater{}"}
_ESCAPED |= {'"': r"\char34{}"}  # bare it is a command in some languages of babel
# What pdfLaTeX sets without a package, in the fonts that it begins with; tried, each of them.
_LATIN = {chr(code) for code in range(0xA1, 0x17F)} - set("\xad«»ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲų")
_PLAIN = _LATIN | {chr(code) for code in (0x2013, 0x2014, 0x2018, 0x2019, 0x201C, 0x201D, 0x2026)}
# Two characters that fonts make one of: a dash, a quotation mark, a question mark upside down.
_LIGATURES = re.compile(r"([-'`,])(?=\1)|[?!](?=`)")
# All others: pdfLaTeX stops at them, so it gets their number. A paper that can set them may define the command first.
_CHARACTER = r"\providecommand{\davylampchar}[2]{\ifdefined\Umathcode #1\else{\scriptsize U+#2}\fi}"
_NEEDS_FONT = (
    r"pdfLaTeX shows characters as U+...: LuaLaTeX or XeLaTeX with a font that has them shows them, or define "
    r"\davylampchar, which takes a character and its number"
)

Cell = str | int | float | Estimate | None


class Tex(str):
    """A text that is LaTeX already."""

    __slots__ = ()


@dataclass(frozen=True)
class LatexStyle:
    r"""How a table is set.

    Args:
        intervals: "brackets" beside the value, "subscript", "plus-minus", or "plain": the values alone.
        cite: `\cite` behind the names of attacks, models, metrics and libraries, with the keys of `davylamp cite`.
    """

    intervals: str = "brackets"
    cite: bool = False

    @classmethod
    def of(cls, text: str | None) -> "LatexStyle":
        """The style that a list such as "subscript,cite" asks for; None: the usual one.

        Raises:
            UnknownName: if a word means nothing.
            InvalidInput: if there are two kinds of intervals.
        """
        words = [word.strip() for word in (text or "").split(",") if word.strip()]
        for word in words:
            if word not in (*INTERVALS, "cite"):
                raise UnknownName("style of LaTeX", word, (*INTERVALS, "cite"))
        kinds = [word for word in words if word in INTERVALS]
        if len(kinds) > 1:
            raise InvalidInput(f"expected one of {', '.join(INTERVALS)}, got {' and '.join(kinds)}")
        return cls(kinds[0] if kinds else "brackets", "cite" in words)


@dataclass(frozen=True)
class LatexTable:
    """What a table holds, before it is set.

    Args:
        name: what the label begins with: "ranking".
        columns: headings; `Tex` is taken as it is.
        rows: a cell for each column: a text, a number, an estimate with its interval, or None: there is none.
        caption: sentences in LaTeX.
        interval: what the intervals are, in LaTeX: "95 % interval over images (Clopper--Pearson)".
        unit: what n counts.
        best: places (row, column) in bold.
        rule: what bold means, a sentence; empty: nothing is said.
        made: what made the numbers, a sentence.
        comments: lines above the table.
        decimals: of a column, by its place; all others have as many as give the largest number three digits.
    """

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: Sequence[str] = ()
    interval: str = ""
    unit: str = "images"
    best: frozenset[tuple[int, int]] = frozenset()
    rule: str = ""
    made: str = ""
    comments: Sequence[str] = ()
    decimals: Mapping[int, int] = field(default_factory=dict)

    def column(self, place: int) -> list[Cell]:
        """The cells of a column."""
        return [row[place] for row in self.rows]

    @property
    def counts(self) -> list[int]:
        """The different numbers that defined estimates rest on."""
        cells = [cell for row in self.rows for cell in row if isinstance(cell, Estimate)]
        return sorted({cell.n for cell in cells if cell.n and not math.isnan(cell.value)})

    @property
    def has_intervals(self) -> bool:
        """Whether any estimate has an interval."""
        return any(isinstance(cell, Estimate) and not math.isnan(cell.low) for row in self.rows for cell in row)


def write_latex(table: LatexTable, style: LatexStyle | None = None) -> str:
    r"""The lines of a table environment; what the preamble needs stands in a comment on top.

    The label is made of what the table holds, so that two tables of one paper have different ones. What is longer than
    a page becomes several tables, each with the headings, that refer to the first.

    Args:
        table: what it holds.
        style: how it is set.
    """
    style = style or LatexStyle()
    split = len(table.counts) > 1
    kinds = [_kind(table.column(place), style, split=split) for place in range(len(table.columns))]
    head = _line([_heading(column, kind) for column, kind in zip(table.columns, kinds, strict=True)])
    body = []
    for number, row in enumerate(table.rows):
        cells: list[str] = []
        for place, (cell, kind) in enumerate(zip(row, kinds, strict=True)):
            decimals = table.decimals.get(place, decimals_of(table.column(place)))
            cells += _set(cell, kind, decimals, style, bold=(number, place) in table.best, split=split)
        body.append(_line(cells))
    columns = "".join({"text": "l", "number": "r", "pair": r"r@{\ }l"}[kind] for kind in kinds)
    caption = " ".join(_caption(table, style))
    whole = "\n".join([caption, head, r"\midrule", *body])
    label = f"tab:davylamp-{table.name}-{hashlib.sha256(whole.encode()).hexdigest()[:6]}"
    characters = r"\davylampchar{" in whole
    lines = [_NEEDS, *(f"% {line}" for line in (*table.comments, *([_NEEDS_FONT] if characters else [])))]
    lines += [_FIT, *([_BOLD] if table.best else []), *([_CHARACTER] if characters else [])]
    size = _size(table)
    for page, rows in enumerate(_pages(body)):
        said = caption if not page else rf"Table~\ref{{{label}}}, continued ({page + 1})."
        name = label if not page else f"{label}-{page + 1}"
        lines += [r"\begin{table}", rf"\centering{size}", rf"\caption{{{said}}}", rf"\label{{{name}}}"]
        lines += [rf"\davylampfit{{\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *rows]
        lines += [r"\bottomrule", r"\end{tabular}}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _pages(body: Sequence[str]) -> list[Sequence[str]]:
    """Rows by the page that they are on, about as many on each."""
    pages = max(1, math.ceil(len(body) / _LONGEST))
    each = math.ceil(len(body) / pages)
    return [body[each * page : each * (page + 1)] for page in range(pages)]


def _size(table: LatexTable) -> str:
    """A smaller font where the rows are long."""
    widest = [max(len(line) for line in (head, *lines)) for head, *lines in zip(*_plain(table), strict=True)]
    return r"\footnotesize" if sum(widest) > _WIDEST else r"\small" if sum(widest) > _WIDE else ""


def escape(text: str) -> str:
    """The text so that TeX prints it, in one line."""
    if isinstance(text, Tex):
        return str(text)
    plain = unicodedata.normalize("NFC", escape_control_characters(" ".join(text.split())))
    return "".join(_set_character(character) for character in _LIGATURES.sub("\\g<0>\0", plain))


def _set_character(character: str) -> str:
    if character == "\0":
        return "{}"
    if character.isascii() or character in _PLAIN:
        return _ESCAPED.get(character, character)
    return rf"\davylampchar{{{character}}}{{{ord(character):04X}}}"


def radius_tex(norm: object, epsilon: float | None) -> Tex:
    """A radius as everywhere, a fraction of 255 in mathematics; a dash for none."""
    if epsilon is None or math.isnan(epsilon):
        return Tex("--")
    text = format_radius(str(norm), epsilon)
    return Tex(f"${text}$" if "/" in text else text)


def threat_tex(threat_model: ThreatModel) -> Tex:
    """A threat model in its usual words, with the norm and the radius in mathematics."""
    norm, epsilon = threat_model.norm, threat_model.epsilon
    tex = NORMS.get(norm, escape(norm))
    said = escape(format_threat_model(threat_model))
    if epsilon is None:
        return Tex(said.replace(escape(norm), tex, 1))
    return Tex(said.replace(escape(f"{norm} {format_radius(norm, epsilon)}"), f"{tex} {radius_tex(norm, epsilon)}", 1))


def highest(values: Iterable[float], decimals: int | None = None, *, sign: int = 1) -> set[int]:
    """The places of the highest of some values as printed (the lowest with sign -1); none where all are equal."""
    known = {place: value for place, value in enumerate(values) if not math.isnan(value)}
    decimals = decimals_of(list(known.values())) if decimals is None else decimals
    printed = {place: sign * round(value, decimals) for place, value in known.items()}
    if len(set(printed.values())) < 2:
        return set()
    return {place for place, value in printed.items() if value == max(printed.values())}


def _plain(table: LatexTable) -> list[list[str]]:
    """Headings and rows as texts about as long as they are when they are set."""
    rows = [[str(each) for each in table.columns]]
    for row in table.rows:
        rows.append(["0.000 [0.000]" if isinstance(each, Estimate) else str(each).split("~")[0] for each in row])
    return [[text[:60] for text in row] for row in rows]


def _caption(table: LatexTable, style: LatexStyle) -> list[str]:
    sentences = [sentence for sentence in table.caption if sentence]
    counts, split = table.counts, len(table.counts) > 1
    index = f", its index the number of {table.unit} $n$" if split else ""
    if table.has_intervals and style.intervals != "plain" and table.interval:
        where = {"brackets": "In brackets the", "subscript": "In the index the", "plus-minus": "Behind the value the"}
        index = index.replace("its index", "behind it") if style.intervals != "brackets" else index
        ends = ", as what is to be added" if style.intervals == "plus-minus" else ""
        sentences.append(f"{where[style.intervals]} {table.interval}{ends}{index}.")
    elif split:
        sentences.append(f"The index is the number of {table.unit} $n$.")
    sentences += [f"$n = {counts[0]}$ {table.unit}."] if len(counts) == 1 else []
    sentences += [table.rule] if table.best and table.rule else []
    return [*sentences, *([table.made] if table.made else [])]


def _kind(cells: Sequence[Cell], style: LatexStyle, *, split: bool) -> str:
    """What a column is: "pair" of a value and its interval or n, "number", or "text"."""
    estimates = [cell for cell in cells if isinstance(cell, Estimate)]
    if estimates:
        shown = style.intervals != "plain" and any(not math.isnan(cell.low) for cell in estimates)
        return "pair" if shown or split else "number"
    return "number" if any(_is_number(c) for c in cells) and all(c is None or _is_number(c) for c in cells) else "text"


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, (int, float)) and not isinstance(cell, bool)


def decimals_of(cells: Sequence[Cell]) -> int:
    """Decimals of a column: as many as give its largest value three digits; a share has three, whole numbers none."""
    numbers = [cell.value if isinstance(cell, Estimate) else cell for cell in cells]
    if all(isinstance(number, (int, str)) or number is None for number in numbers):
        return 0
    values = [abs(float(n)) for n in numbers if isinstance(n, (int, float)) and math.isfinite(n) and n]
    largest = max(values, default=1.0)
    if largest > 1 and all(value.is_integer() for value in values):
        return 0
    if 0.1 <= largest <= 1:
        return _SIGNIFICANT
    return max(0, min(_DECIMALS, _SIGNIFICANT - 1 - math.floor(math.log10(largest))))


def _set(cell: Cell, kind: str, decimals: int, style: LatexStyle, *, bold: bool, split: bool) -> list[str]:
    """The cells of the tabular that a cell becomes."""
    if kind == "text":
        text = cell if isinstance(cell, str) else "--" if cell is None else format_cell(cell)
        return [rf"\textbf{{{escape(text)}}}" if bold else escape(text)]
    value: Any = math.nan if cell is None else cell.value if isinstance(cell, Estimate) else cell
    number = _number(float(value), decimals)
    shown = [_bold(number) if bold else number]
    if kind == "number":
        return shown
    return [*shown, _interval(cell, decimals, style, split=split) if isinstance(cell, Estimate) else ""]


def _bold(number: str) -> str:
    whole, point, rest = number.partition(".")
    return rf"\davylampbold{{{whole}}}{{{point}{rest}}}"


def _number(value: float, decimals: int) -> str:
    if math.isnan(value):
        return "--"
    if math.isinf(value):
        return r"$\infty$" if value > 0 else r"$-\infty$"
    text = f"{round(value, decimals) + 0.0:.{decimals}f}"  # no -0.000
    return f"$-${text[1:]}" if text.startswith("-") else text


def _interval(estimate: Estimate, decimals: int, style: LatexStyle, *, split: bool) -> str:
    if math.isnan(estimate.value):
        return ""
    index = f"$_{{{estimate.n}}}$" if split else ""
    if math.isnan(estimate.low) or style.intervals == "plain":
        return index
    ends = ", ".join(_number(end, decimals) for end in (estimate.low, estimate.high))
    if style.intervals == "brackets":
        return rf"{{\scriptsize [{ends}]}}{index}"
    beside = f" {{\\scriptsize ({estimate.n})}}" if split else ""
    if style.intervals == "subscript":
        return rf"\textsubscript{{[{ends}]}}{beside}"
    value = round(estimate.value, decimals)
    above, below = (f"{abs(round(end, decimals) - value):.{decimals}f}" for end in (estimate.high, estimate.low))
    if above == below:
        return rf"{{\scriptsize $\pm${above}}}{beside}"
    return rf"$^{{+{above}}}_{{-{below}}}${beside}"


def _heading(text: str, kind: str) -> str:
    if kind == "text":
        return escape(text)
    return rf"\multicolumn{{{2 if kind == 'pair' else 1}}}{{c}}{{{escape(text)}}}"


def _line(cells: Sequence[str]) -> str:
    line = " & ".join(cells) + r" \\"
    return f"{{}}{line}" if line.startswith(("[", "*")) else line  # or it would be an argument of the line before

"""LaTeX tables for papers: booktabs, aligned decimals, intervals, best values in bold, caption and label."""

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
# Bold digits may be wider. The box has the width of the plain number, so that decimals stay aligned.
_BOLD = (
    r"\providecommand{\davylampbold}[2]"
    r"{\phantom{#1}\llap{\textbf{#1}}\rlap{\textbf{#2}}\phantom{#2}}"
)
# Wider tables are scaled down to the text width of any document class.
_FIT = (
    r"\providecommand{\davylampfit}[1]{\begingroup\setbox0=\hbox{#1}"
    r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\box0}\else\box0\fi\endgroup}"
)
_NEEDS = r"% needs \usepackage{booktabs} and \usepackage{graphicx}"
_SIGNIFICANT, _DECIMALS = 3, 6
_LONGEST = 35  # most rows on a page, below a caption
_WIDE, _WIDEST = 75, 95  # characters of a row from which a smaller font is needed


_ESCAPED = {character: f"\\{character}" for character in "&%$#_{}"}
_ESCAPED |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}"}
_ESCAPED |= {"<": r"\textless{}", ">": r"\textgreater{}"}
_ESCAPED |= {'"': r"\char34{}"}  # active in some babel languages
# Characters that pdfLaTeX sets without packages in its default fonts; each was tested.
_LATIN = {chr(code) for code in range(0xA1, 0x17F)} - set("\xad«»ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲų")
_PLAIN = _LATIN | {chr(code) for code in (0x2013, 0x2014, 0x2018, 0x2019, 0x201C, 0x201D, 0x2026)}
# Pairs that fonts join to ligatures: dashes, quotation marks, inverted question marks.
_LIGATURES = re.compile(r"([-'`,])(?=\1)|[?!](?=`)")
# pdfLaTeX fails at all others and gets their code. A paper whose font has them may define the command first.
_CHARACTER = r"\providecommand{\davylampchar}[2]{\ifdefined\Umathcode #1\else{\scriptsize U+#2}\fi}"
_NEEDS_FONT = (
    r"pdfLaTeX shows characters as U+...: use LuaLaTeX or XeLaTeX with a font that has them, or define "
    r"\davylampchar, whose arguments are a character and its code"
)

Cell = str | int | float | Estimate | None


class Tex(str):
    """Text that is already LaTeX and is not escaped."""

    __slots__ = ()


@dataclass(frozen=True)
class LatexStyle:
    r"""Style of a table.

    Args:
        intervals: form of the intervals: "brackets" next to the value, "subscript", "plus-minus", or "plain" for none.
        cite: whether to add `\cite` after names of attacks, models, metrics and libraries, with the keys of `davylamp
            cite`.
    """

    intervals: str = "brackets"
    cite: bool = False

    @classmethod
    def of(cls, text: str | None) -> "LatexStyle":
        """Parse a style such as "subscript,cite". None gives the default style.

        Raises:
            UnknownName: If a word is unknown.
            InvalidInput: If the text contains two forms of intervals.
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
    """Content of a table.

    Args:
        name: start of the label, such as "ranking".
        columns: headings. `Tex` is not escaped.
        rows: cells of each row: a text, a number, an estimate with its interval, or None for an empty cell.
        caption: sentences in LaTeX.
        interval: description of the intervals in LaTeX: "95 % interval over images (Clopper--Pearson)".
        unit: unit of n, such as images.
        best: cells (row, column) that are printed in bold.
        rule: sentence that explains bold type. Empty for none.
        made: sentence on the versions of the programs that computed the numbers.
        comments: comment lines above the table.
        decimals: number of decimals, by column index. By default, the largest number of a column gets three digits.
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
        """Return the cells of a column."""
        return [row[place] for row in self.rows]

    @property
    def counts(self) -> list[int]:
        """Distinct values of n among the defined estimates."""
        cells = [cell for row in self.rows for cell in row if isinstance(cell, Estimate)]
        return sorted({cell.n for cell in cells if cell.n and not math.isnan(cell.value)})

    @property
    def has_intervals(self) -> bool:
        """Whether any estimate has an interval."""
        return any(isinstance(cell, Estimate) and not math.isnan(cell.low) for row in self.rows for cell in row)


def write_latex(table: LatexTable, style: LatexStyle | None = None) -> str:
    """Return a LaTeX table environment, after a comment on the required preamble.

    The label depends on the content, so two tables in a paper have different labels. A table that is longer than a page
    becomes several tables with the same headings. The captions of the later tables refer to the first.

    Args:
        table: content of the table.
        style: style of the table.
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
    pages = max(1, math.ceil(len(body) / _LONGEST))
    each = math.ceil(len(body) / pages)
    return [body[each * page : each * (page + 1)] for page in range(pages)]


def _size(table: LatexTable) -> str:
    widest = [max(len(line) for line in (head, *lines)) for head, *lines in zip(*_plain(table), strict=True)]
    return r"\footnotesize" if sum(widest) > _WIDEST else r"\small" if sum(widest) > _WIDE else ""


def escape(text: str) -> str:
    """Escape a text for TeX, in one line."""
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
    """Format a radius, with fractions of 255 in mathematics, or a dash if there is no radius."""
    if epsilon is None or math.isnan(epsilon):
        return Tex("--")
    text = format_radius(str(norm), epsilon)
    return Tex(f"${text}$" if "/" in text else text)


def threat_tex(threat_model: ThreatModel) -> Tex:
    """Format a threat model, with norm and radius as mathematics."""
    norm, epsilon = threat_model.norm, threat_model.epsilon
    tex = NORMS.get(norm, escape(norm))
    said = escape(format_threat_model(threat_model))
    if epsilon is None:
        return Tex(said.replace(escape(norm), tex, 1))
    return Tex(said.replace(escape(f"{norm} {format_radius(norm, epsilon)}"), f"{tex} {radius_tex(norm, epsilon)}", 1))


def highest(values: Iterable[float], decimals: int | None = None, *, sign: int = 1) -> set[int]:
    """Return the indices of the highest printed values, or of the lowest if `sign` is -1. Empty if all are equal."""
    known = {place: value for place, value in enumerate(values) if not math.isnan(value)}
    decimals = decimals_of(list(known.values())) if decimals is None else decimals
    printed = {place: sign * round(value, decimals) for place, value in known.items()}
    if len(set(printed.values())) < 2:
        return set()
    return {place for place, value in printed.items() if value == max(printed.values())}


def _plain(table: LatexTable) -> list[list[str]]:
    """Return headings and rows as plain texts of about the typeset length."""
    rows = [[str(each) for each in table.columns]]
    for row in table.rows:
        rows.append(["0.000 [0.000]" if isinstance(each, Estimate) else str(each).split("~")[0] for each in row])
    return [[text[:60] for text in row] for row in rows]


def _caption(table: LatexTable, style: LatexStyle) -> list[str]:
    sentences = [sentence for sentence in table.caption if sentence]
    counts, split = table.counts, len(table.counts) > 1
    index = f", the subscript is the number of {table.unit} $n$" if split else ""
    if table.has_intervals and style.intervals != "plain" and table.interval:
        where = {
            "brackets": "In brackets the",
            "subscript": "In the subscript the",
            "plus-minus": "After the value the",
        }
        index = index.replace("the subscript is", "followed by") if style.intervals != "brackets" else index
        ends = ", as differences from the value" if style.intervals == "plus-minus" else ""
        sentences.append(f"{where[style.intervals]} {table.interval}{ends}{index}.")
    elif split:
        sentences.append(f"The subscript is the number of {table.unit} $n$.")
    sentences += [f"$n = {counts[0]}$ {table.unit}."] if len(counts) == 1 else []
    sentences += [table.rule] if table.best and table.rule else []
    return [*sentences, *([table.made] if table.made else [])]


def _kind(cells: Sequence[Cell], style: LatexStyle, *, split: bool) -> str:
    """Return the kind of a column: "pair" (value with interval or n), "number" or "text"."""
    estimates = [cell for cell in cells if isinstance(cell, Estimate)]
    if estimates:
        shown = style.intervals != "plain" and any(not math.isnan(cell.low) for cell in estimates)
        return "pair" if shown or split else "number"
    return "number" if any(_is_number(c) for c in cells) and all(c is None or _is_number(c) for c in cells) else "text"


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, (int, float)) and not isinstance(cell, bool)


def decimals_of(cells: Sequence[Cell]) -> int:
    """Return the number of decimals for a column.

    The largest value gets three digits. Proportions get three decimals, and integers none.
    """
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
    """Return the LaTeX cells of a value: one cell, or the number and its interval in a column of pairs."""
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
    text = f"{round(value, decimals) + 0.0:.{decimals}f}"  # avoid -0.000
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
    return f"{{}}{line}" if line.startswith(("[", "*")) else line  # otherwise read as an argument of the previous line

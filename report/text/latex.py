r"""A table as LaTeX for a paper: booktabs, aligned decimals, norms as $\ell_\infty$, the best value in bold."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ... import __version__
from ...adapters.catalogue.lookup import LIBRARIES
from ...engine.parametrised import base_of
from ...engine.statistics.bootstrap import Estimate
from ...engine.tables.table import Table, TableRow
from ...metrics import METRICS
from .console import format_cell, printable
from .shown import is_given, shown_labels

_ESCAPED = {character: f"\\{character}" for character in "&%$#_{}"}
_ESCAPED |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}"}
_ESCAPED |= {"<": r"\textless{}", ">": r"\textgreater{}"}
_NORMS = {"linf": r"$\ell_\infty$", "l0": r"$\ell_0$", "l1": r"$\ell_1$", "l2": r"$\ell_2$"}
_HIGHER = ("RA", "RA_worst", "seconds", "forwards", "backwards", "l0", "l1", "l2", "linf")  # speaks for the model
_THREAT = ("norm", "epsilon", "targeted", "setting", "knowledge")  # rows that differ in these are not compared
_OF_ATTACK = ("attacks", "pairs")
_SIGNIFICANT, _DECIMALS = 3, 6
_MANY = 8


def table_latex(table: Table, versions: Mapping[str, str] | None = None) -> str:
    r"""A LaTeX table with caption and label, in the rules of booktabs (needs \usepackage{booktabs}).

    A metric takes a column for the value, right-aligned with the same decimals in every row, and one for its interval,
    if there is any, with n as its index, unless n is the same everywhere. Bold is the best value among the rows of the
    same threat model: for the attack where rows are attacks, else for the model.

    Args:
        table: of `build_table` or one of its kin.
        versions: of the programs that made the results, by name, for the caption.

    Returns:
        The lines, with a comment on top that says what the preamble needs.
    """
    names, counts = _columns(table), _counts(table)
    paired = [any(not math.isnan(row.metrics[symbol].low) for row in table.rows) for symbol in table.symbols]
    split = len(counts) > 1
    head = [*map(escape, names), *(_heading(s, two or split) for s, two in zip(table.symbols, paired, strict=True))]
    columns = "l" * len(names) + "".join(r"r@{\,}l" if two or split else "r" for two in paired)
    best = {symbol: _best(table, symbol) for symbol in table.symbols}
    lines = [r"% needs \usepackage{booktabs}"]
    if len(table.symbols) > _MANY:
        lines.append(f"% {len(table.symbols)} metrics are wide for a page: choose some with --metric A,B")
    lines += [r"\begin{table}", r"\centering", rf"\caption{{{_caption(table, counts, any(paired), versions or {})}}}"]
    lines += [rf"\label{{tab:davylamp-{table.by.replace(' ', '-')}}}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    lines += [_line(head), r"\midrule"]
    for place, row in enumerate(table.rows):
        cells = [_label(row, name) for name in names]
        for symbol, two in zip(table.symbols, paired, strict=True):
            estimate, decimals = row.metrics[symbol], _decimals(table, symbol)
            value = _number(estimate.value, decimals)
            cells.append(rf"\textbf{{{value}}}" if place in best[symbol] else value)
            cells += [_interval(estimate, decimals, n=split)] if two or split else []
        lines.append(_line(cells))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


def escape(text: str) -> str:
    """The text so that TeX prints it, in one line."""
    plain = printable(" ".join(text.split()))
    return "".join(_ESCAPED.get(character, character) for character in plain).replace("--", "-{}-")


def _caption(table: Table, counts: Sequence[int], has_intervals: bool, versions: Mapping[str, str]) -> str:
    symbols = [f"{escape(s)}: {escape(METRICS[base_of(s)].title)}" for s in table.symbols if base_of(s) in METRICS]
    texts = [f"{'; '.join(symbols)}."] if symbols else []
    if has_intervals:
        index = ", its index the number of images $n$" if len(counts) > 1 else ""
        kinds = "Clopper--Pearson for shares, percentile bootstrap for the rest"
        texts.append(rf"In brackets the 95\,\% interval over images ({kinds}){index}.")
    elif len(counts) > 1:
        texts.append("The index is the number of images $n$.")
    texts += [f"$n = {counts[0]}$ images."] if len(counts) == 1 else []
    if any(_best(table, symbol) for symbol in table.symbols):
        side = "attack" if table.by in _OF_ATTACK else "defence" if table.by == "defence" else "model"
        among = " among rows of the same threat model" if set(_THREAT) & set(shown_labels(table)) else ""
        texts.append(f"Bold: best value for the {side}{among}, which is no test of a difference.")
    made = {"davylamp": __version__, **_used(table, versions)}
    texts.append(f"Made with {', '.join(escape(f'{name} {version}') for name, version in made.items())}.")
    return " ".join(texts)


def _used(table: Table, versions: Mapping[str, str]) -> dict[str, str]:
    """The versions of torch and of the attack libraries of the rows; all of them where rows are no attacks."""
    if "implementation" not in table.labels:
        return dict(versions)
    libraries = {str(row.labels["implementation"]).rpartition("(")[2].partition(":")[0] for row in table.rows}
    wanted = {"torch", *(LIBRARIES[name].distribution for name in libraries if name in LIBRARIES)}
    return {name: version for name, version in versions.items() if name in wanted or name == "davylamp"}


def _columns(table: Table) -> list[str]:
    """The labels of the table without counts of models, attacks and cells that are the same in every row."""
    shown = shown_labels(table)
    same = [name for name in shown if len({str(row.labels[name]) for row in table.rows}) == 1]
    return [name for name in shown if name not in ("models", "attacks", "cells") or name not in same]


def _counts(table: Table) -> list[int]:
    """The different numbers of images of all defined values."""
    return sorted({each.n for row in table.rows for each in row.metrics.values() if not math.isnan(each.value)})


def _heading(symbol: str, paired: bool) -> str:
    text = _NORMS.get(symbol) or escape(symbol)
    return rf"\multicolumn{{2}}{{c}}{{{text}}}" if paired else rf"\multicolumn{{1}}{{c}}{{{text}}}"


def _label(row: TableRow, name: str) -> str:
    value: Any = row.labels[name]
    if name == "norm" and value in _NORMS:
        return _NORMS[value]
    if name == "epsilon" and isinstance(value, float) and is_given(value):
        levels = round(value * 255)
        grey = row.labels.get("norm") == "linf" and levels and math.isclose(levels / 255, value, rel_tol=1e-6)
        return f"${levels}/255$" if grey else f"{value:.4g}"
    return escape(f"{value:.4g}" if isinstance(value, float) and is_given(value) else format_cell(value))


def _decimals(table: Table, symbol: str) -> int:
    """Decimals of a column: as many as give its largest value three digits; a share has three."""
    values = [abs(row.metrics[symbol].value) for row in table.rows]
    largest = max((value for value in values if math.isfinite(value) and value), default=1.0)
    if 0.1 <= largest <= 1:
        return _SIGNIFICANT
    return max(0, min(_DECIMALS, _SIGNIFICANT - 1 - math.floor(math.log10(largest))))


def _number(value: float, decimals: int) -> str:
    if math.isnan(value):
        return "--"
    if math.isinf(value):
        return r"$\infty$" if value > 0 else r"$-\infty$"
    text = f"{round(value, decimals) + 0.0:.{decimals}f}"  # no -0.000
    return f"$-${text[1:]}" if text.startswith("-") else text


def _interval(estimate: Estimate, decimals: int, *, n: bool) -> str:
    if math.isnan(estimate.value):
        return ""
    ends = "" if math.isnan(estimate.low) else ", ".join(_number(e, decimals) for e in (estimate.low, estimate.high))
    index = f"$_{{{estimate.n}}}$" if n else ""
    return rf"{{\scriptsize [{ends}]}}{index}" if ends else index


def _best(table: Table, symbol: str) -> set[int]:
    """The rows whose value is best among those of their threat model, as printed; none where all are equal."""
    record = METRICS.get(base_of(symbol))
    robust = "higher" if symbol in _HIGHER else record.robust_when if record else None
    if robust is None:
        return set()
    sign = (1 if robust == "higher" else -1) * (-1 if table.by in _OF_ATTACK else 1)
    rivals: dict[tuple[str, ...], dict[int, float]] = {}
    for place, row in enumerate(table.rows):
        value = row.metrics[symbol].value
        if not math.isnan(value):
            threat = tuple(str(row.labels[name]) for name in _THREAT if name in row.labels)
            rivals.setdefault(threat, {})[place] = sign * round(value, _decimals(table, symbol))
    groups = [group for group in rivals.values() if len(set(group.values())) > 1]
    return {place for group in groups for place, value in group.items() if value == max(group.values())}


def _line(cells: Sequence[str]) -> str:
    line = " & ".join(cells) + r" \\"
    return f"{{}}{line}" if line.startswith(("[", "*")) else line  # or it would be an argument of the line before

r"""LaTeX tables of metrics, with the best values in bold, and with n, intervals and versions in the caption."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...engine.tables.table import Table, TableRow, is_given
from ...metrics import record_of
from ..citations.usage import CitedItem, split_model, used_metric
from .console import format_cell, heading
from .latex import NORMS, Cell, LatexStyle, LatexTable, Tex, decimals_of, escape, highest, radius_tex, write_latex
from .latex_sources import cited_name, cited_text, versions_sentence

_THREAT = ("norm", "epsilon", "targeted", "setting", "knowledge")  # only rows that agree in these are compared
_OF_ATTACK = ("attacks", "pairs")
_MODELS = ("model", "made on", "tested on", "original", "defended")
_OF_ALL = (*_THREAT, "data", "images", "violations")  # moved to the caption if the same in every row
_MANY = 8
_INTERVALS = {
    "classes": r"95\,\% interval over images, all classes of a row's model together (Clopper--Pearson, Bonferroni)"
}
# Default metrics of a table: as many as fit the width of a page.
_USUAL = {
    "attacks": ("MR", "AMD", "AED", "QNC_F", "QNC_B"),
    "pairs": ("MR", "AMD", "AED", "QNC_F", "QNC_B"),
    "models": ("CA", "RA", "MR", "AMD"),
}


def table_latex(table: Table, versions: Mapping[str, str] | None = None, style: LatexStyle | None = None) -> str:
    """Return a LaTeX table with caption and label (needs the packages booktabs and graphicx).

    If all rows have the same threat model or images, the caption states it instead of the rows. Each metric has a
    column for the value, with fixed decimals, and a column for its interval, if any. The number of images n is a
    subscript of the interval unless it is constant. Bold marks the best point estimate among rows with the same threat
    model: the best for the attack if rows are attacks, otherwise the best for the model.

    Args:
        table: result of `build_table` or a similar function.
        versions: versions of the programs that made the results, by name, for the caption.
        style: style of the table.

    Returns:
        The lines, starting with a comment on the required preamble.
    """
    style = style or LatexStyle()
    same = _same(table)
    names = [name for name in _columns(table) if name not in same]
    rows = [
        (*(_label(row, name, style) for name in names), *(row.metrics[symbol] for symbol in table.symbols))
        for row in table.rows
    ]
    places = {symbol: len(names) + place for place, symbol in enumerate(table.symbols)}
    best = {(row, places[symbol]) for symbol in table.symbols for row in _best(table, symbol)}
    is_drawn = any(finding.name == "drawn-images" for finding in table.findings)
    shares = "Clopper--Pearson for shares"
    shares = f"for shares of all images valid at every number of images; {shares} of others" if is_drawn else shares
    many = f"{len(table.symbols)} metrics may be too wide for a page; choose some with --metric A,B"
    latex = LatexTable(
        name=table.by.replace(" ", "-"),
        columns=(*map(heading, names), *(Tex(NORMS[s]) if s in NORMS else s for s in table.symbols)),
        rows=rows,
        caption=[_titles(table, style), _said(table, same, style)],
        interval=_INTERVALS.get(
            table.by, rf"95\,\% interval over images ({shares}, else expanded percentile bootstrap)"
        ),
        best=frozenset(best),
        rule=_rule(table),
        made=versions_sentence(_libraries(table), versions or {}, style),
        unit=table.unit,
        comments=[many] if len(table.symbols) > _MANY else [],
    )
    return write_latex(latex, style)


def usual_part(table: Table) -> Table:
    """Return the table with the few default metrics that fit a page. It is unchanged if it has no default metric."""
    symbols = tuple(symbol for symbol in _USUAL.get(table.by, ()) if symbol in table.symbols)
    return replace(table, symbols=symbols) if symbols else table


def _titles(table: Table, style: LatexStyle) -> str:
    texts = []
    for symbol in table.symbols:
        if record := record_of(symbol):
            title = f"{NORMS.get(symbol) or escape(symbol)}: {escape(record.title)}"
            texts.append(cited_text(title, [used_metric(symbol)] if record.source else [], style))
    return f"{'; '.join(texts)}." if texts else ""


def _rule(table: Table) -> str:
    side = "attack" if table.by in _OF_ATTACK else "defence" if table.by == "defence" else "model"
    among = " among rows of the same threat model" if set(_THREAT) & set(table.shown_labels) else ""
    return f"Bold: best point estimate for the {side}{among}; not a significance test."


def _libraries(table: Table) -> set[str] | None:
    """Return the attack libraries of the rows, or None if the rows are not attacks."""
    if "implementation" not in table.labels:
        return None
    return {str(row.labels["implementation"]).rpartition("(")[2].partition(":")[0] for row in table.rows}


def _columns(table: Table) -> list[str]:
    """Return the label columns, without constant counts of models, attacks and runs."""
    shown = table.shown_labels
    same = [name for name in shown if len({str(row.labels[name]) for row in table.rows}) == 1]
    return [name for name in shown if name not in ("models", "attacks", "cells") or name not in same]


def _same(table: Table) -> list[str]:
    """Return the columns of threat model and images whose value is the same in all rows; empty for a single row."""
    names = [name for name in _columns(table) if name in _OF_ALL] if len(table.rows) > 1 else []
    return [name for name in names if len({str(row.labels[name]) for row in table.rows}) == 1]


def _said(table: Table, same: Sequence[str], style: LatexStyle) -> str:
    texts = []
    for name in same:
        value = _label(table.rows[0], name, style)
        texts.append(f"{escape(heading(name))} {escape(value) if isinstance(value, str) else value}")
    return f"In every row: {', '.join(texts)}." if texts else ""


def _label(row: TableRow, name: str, style: LatexStyle) -> Cell:
    value: Any = row.labels[name]
    if name == "norm" and value in NORMS:
        return Tex(NORMS[value])
    if name == "epsilon" and isinstance(value, float) and is_given(value):
        return radius_tex(row.labels.get("norm"), value)
    if name == "implementation":
        return cited_name(str(value), style)
    if name in _MODELS and isinstance(value, str):
        used: list[CitedItem] = split_model(value)
        return Tex(cited_text(escape(value), used, style))
    if type(value) is int:
        return value
    text = f"{value:.4g}" if isinstance(value, float) and is_given(value) else format_cell(value)
    return Tex("--") if text == "-" else text


def _best(table: Table, symbol: str) -> set[int]:
    """Return the rows with the best printed value under their threat model. Empty if all are equal."""
    record = record_of(symbol)
    robust = record.robust_when if record else None
    if robust is None or table.by == "classes":  # the classes are no rivals
        return set()
    sign = (1 if robust == "higher" else -1) * (-1 if table.by in _OF_ATTACK else 1)
    rivals: dict[tuple[str, ...], list[int]] = {}
    for place, row in enumerate(table.rows):
        threat = tuple(str(row.labels[name]) for name in _THREAT if name in row.labels)
        rivals.setdefault(threat, []).append(place)
    values = [row.metrics[symbol] for row in table.rows]
    decimals = decimals_of(values)
    chosen = set()
    for places in rivals.values():
        among = highest([values[place].value for place in places], decimals, sign=sign)
        chosen |= {places[each] for each in among}
    return {place for place in chosen if not math.isnan(values[place].value)}

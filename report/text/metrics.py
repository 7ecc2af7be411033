"""Prints descriptions of metrics: names, meaning, direction, range, formula, source and command."""

import inspect
import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from ...engine.metric_names import metric_command, readings_of, taxonomy_of
from ...metrics import METRICS, NOTATION, Metric
from .console import escape_control_characters, make_console

_WITHOUT_ATTACK = ("accuracy", "corruption", "neurons", "stability")
_NOT_SHOWN = ("symbol", "title", "robust_when", "between")  # covered by other fields
_WIDEST = 100
_KEPT = "\N{NO-BREAK SPACE}"  # keeps a range on one line


def metrics_json(symbols: Sequence[str]) -> str:
    """Return descriptions of metrics as a JSON list. Infinite bounds of a range are null."""
    return json.dumps([describe_metric(symbol) for symbol in symbols], indent=2, ensure_ascii=False, allow_nan=False)


def describe_metric(symbol: str) -> dict[str, Any]:
    """Return the description of a metric that `davylamp metrics` prints, as JSON types."""
    record, access = METRICS[symbol], metric_command(symbol)
    ends = [bound if abs(bound) != float("inf") else None for bound in record.between]
    return {
        "symbol": symbol,
        "title": record.title,
        "also": list(record.aliases),
        "meaning": record.meaning,
        "formula": record.formula,
        "robust_when": record.robust_when,
        "better": _direction(record),
        "between": ends,
        "range": record.range,
        "unit": record.unit,
        "source": record.source,
        "needs": access.needs,
        "shown_by": f"{access.shown_by} {symbol}" if access.shown_by.endswith("--metric") else access.shown_by,
        "function": f"davylamp.metrics.{record.function.__name__}",
        "note": _note(record),
        "readings": readings_of(symbol),
        "taxonomy": taxonomy_of(symbol),
    }


def print_metrics(symbols: Sequence[str], *, whole: bool, every: bool = False) -> None:
    """Print descriptions of metrics, wrapped to the width of the terminal or, in a pipe, to 80 columns.

    Args:
        symbols: symbols of the metrics.
        whole: whether to print the full description of each metric instead of a few lines.
        every: whether to print a few lines for each metric on a terminal, too. If False, a terminal shows only the
            symbols of each group.
    """
    if make_console().has_screen and not whole and not every:
        _print_groups(symbols)
        return
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 80
    width = max(40, min(columns, _WIDEST))
    lines = []
    for symbol in symbols:
        lines += _all_of(symbol, width) if whole else _short(METRICS[symbol], width)
    end = NOTATION if whole else "`davylamp metrics NAME` prints formula, source and the command that computes it."
    lines += _wrapped(end, width, "")
    print("\n".join(map(escape_control_characters, lines)))  # noqa: T201 - the product


def _print_groups(symbols: Sequence[str]) -> None:
    groups: dict[str, list[str]] = {}
    for symbol in symbols:
        groups.setdefault(METRICS[symbol].group, []).append(symbol)
    console = make_console()
    for group, names in groups.items():
        console.print(f"{group}: {', '.join(names)}")
    console.print("`davylamp metrics NAME`: meaning, formula, source and command; -v: a few lines on each metric")


def _short(record: Metric, width: int) -> list[str]:
    also = f" (also {', '.join(record.aliases)})" if record.aliases else ""
    better = f"{record.robust_when} is more robust" if record.robust_when else "says nothing about robustness"
    between = record.range.replace(" ", _KEPT)
    first = f"{record.symbol:<8} {record.title}{also}; {better}; {between}, {record.unit}"
    return _wrapped(first, width, " " * 9) + _wrapped(f"{'':9}{record.meaning}", width, " " * 9)


def _all_of(symbol: str, width: int) -> list[str]:
    known = describe_metric(symbol)
    known["also"] = ", ".join(known["also"])
    known["readings"] = "; ".join(f"{name}: {meaning}" for name, meaning in known["readings"].items())
    words = [word for word in known if word not in _NOT_SHOWN]
    lines = [f"{symbol}: {known['title']}"]
    for word in words:
        if known[word]:
            lines += _wrapped(f"{word.replace('_', ' '):<9} {known[word]}", width, " " * 10)
    return [*lines, ""]


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    lines = textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_KEPT, " ") for line in lines]


def _direction(record: Metric) -> str:
    """Describe whether high or low values are better, and for the model, the attack or the defence."""
    if record.robust_when is None:
        return "neither: it measures how much of the model a set of images exercises"
    if record.group.startswith("defence"):
        return f"{record.robust_when} is better for the defence"
    if record.group in _WITHOUT_ATTACK:
        return f"{record.robust_when} is better for the model"
    other = "lower" if record.robust_when == "higher" else "higher"
    return f"{record.robust_when} is better for the model, {other} for the attack"


def _note(record: Metric) -> str:
    """Return the text of the metric's docstring between the first line and the arguments."""
    text = (inspect.getdoc(record.function) or "").partition("Args:")[0]
    return " ".join(text.partition("\n")[2].split())

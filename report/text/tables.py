"""Output of results tables: terminal, CSV, HTML, LaTeX, Markdown and JSON."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...adapters.display_text import format_radius, format_threat_labels
from ...engine.finding import Finding, sentences
from ...engine.statistics.bootstrap import Estimate
from ...engine.tables.budget_curves import IMPORTED, Curve, Curves
from ...engine.tables.distance_curves import COLUMNS, DistanceCurve, DistanceCurves
from ...engine.tables.symbols import is_union
from ...engine.tables.table import Table, TableRow, is_given, is_worst
from ...engine.tables.transfer_table import Transfer, TransferTable
from ...metrics import record_of
from .console import (
    PlainConsole,
    escape_control_characters,
    format_cell,
    frame_csv,
    interval_text,
    make_console,
    print_notes,
    print_table,
)
from .fit_to_terminal import Rest
from .latex_metrics import table_latex

# Groups of metrics in the order of their columns: capability, effect, distortion, cost, all others.
_GROUPS = (
    *("accuracy", "effect", "attention", "transfer", "confusion", "distance", "frequency", "perceptual", "cost"),
    "recorded",
)
_COUNTED = ("knowledge", "models", "attacks", "cells", "failed", "images", "violations")
_NAMES = ("model", "class", "class name", "attack", "implementation", "examples", "setting of the defence")
_UNITS = {"D_half": "pixels in [0, 1]", "D_half@grey": "grey levels"}  # of distances, in the legend of a table
_MEANS = {
    "attacks": "mean over models",
    "models": "mean over attacks",
    "pairs": "attack x model",
    "classes": "each true class of a model",
    "defence": "defended minus original",
    "references": "compared with the best imported result on each image",
    "published": "computed and published values, which are over different images and attacks",
}


def table_json(table: Table) -> str:
    """Return a table as JSON.

    The format is {"rows": [{LABEL: ..., "metrics": {SYMBOL: {"value", "low", "high", "n"}}}], "notes": [...]}.
    """
    rows = []
    for row in table.rows:
        metrics = _estimates(row.metrics)
        if table.by == "models" and "RA" in metrics:  # name before 0.1
            metrics["RA_worst"] = metrics["RA"]
        rows.append({**_plain_labels(row.labels), "metrics": metrics})
    return json.dumps({"rows": rows, "notes": list(table.notes)}, indent=2, allow_nan=False)


def table_csv(table: Table) -> str:
    """Return a table as CSV in full precision, with one line per row.

    The first columns are the labels. Each metric has four columns: `SYMBOL`, `SYMBOL low`, `SYMBOL high` and `SYMBOL
    n`.
    """
    return frame_csv(table.frame())


def table_markdown(table: Table) -> str:
    """Return a table as Markdown."""
    columns, rows = _flat(table)
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(map(markdown_text, line))} |\n" for line in lines)


def print_results(table: Table, console: PlainConsole | None = None, *, asked: bool = False) -> None:
    """Print a table of metrics, then a legend. The order of the metrics is capability, effect, distortion and cost.

    Args:
        table: table to print.
        console: output console. None means standard output.
        asked: whether the user chose the metrics. If True, all metrics are shown.
    """
    console = console or make_console()
    others = _print_warnings(table.findings, console)
    broken = any(is_given(row.labels.get(name)) for row in table.rows for name in ("failed", "violations"))
    needed = ("failed", "violations") if broken else ()
    counted = () if asked and not console.verbose else _COUNTED
    labels = [name for name in table.shown_labels if name not in _COUNTED or name in (*counted, *needed)]
    symbols = list(table.symbols) if asked else sorted(table.symbols, key=lambda each: _place(each, table.by))
    worst = [symbol for symbol in symbols if is_worst(symbol)] if table.by in ("models", "classes") else []
    leading = () if asked and not worst else ("RA",) if worst else ("MR", "RA")
    order = [*(name for name in labels if name not in _COUNTED), *needed, *leading, *symbols]
    worst = f", {', '.join(worst)} the worst case over {'them' if table.by == 'models' else 'attacks'}" if worst else ""
    together = ", all classes together" * (table.by == "classes")
    interval = f" [95 % interval{together}]" if _has_intervals(table) else ""
    means = _MEANS[table.by]
    title = f"{means[:1].upper()}{means[1:]}{worst}; value{interval} ({table.unit})"
    known = [symbol for symbol in symbols if record_of(symbol)]  # the legend has their number of images
    counts = {symbol: _common_count([row.metrics[symbol] for row in table.rows]) for symbol in known}
    rows = [
        [*_label_cells(row, labels), *(_text(row.metrics[symbol], n=not counts.get(symbol)) for symbol in symbols)]
        for row in table.rows
    ]
    keys = sum(name in _NAMES for name in labels) or 1
    rest: Rest = "stack" if asked else "drop"
    columns = [*labels, *symbols]
    printed = print_table(title, columns, rows, console, keys=keys, order=order, rest=rest, common=labels)
    print_notes((*others, *_legend(printed, counts)), console)


def _print_warnings(findings: Sequence[Finding], console: PlainConsole) -> tuple[str, ...]:
    """Print the warnings among the findings, and return the other findings as notes, which are printed last."""
    print_notes(sentences(each for each in findings if each.state == "warn"), console)
    return sentences(each for each in findings if each.state != "warn")


def print_corruptions(tables: Sequence[Table], console: PlainConsole | None = None) -> None:
    """Print robustness to corruptions as two tables: one by corruption, and one by model."""
    console = console or make_console()
    others = _print_warnings([each for table in tables for each in table.findings], console)
    for table in reversed(tables):
        columns, rows = _flat(table)
        what = "Means over the corruptions" if table.by == "corruption models" else "Each corruption"
        heading = "value [95 % interval] (images)" if _has_intervals(table) else "value (images)"
        symbols = sorted(table.symbols, key=lambda symbol: "@" in symbol)
        keys = sum(name in ("model", "data", "corruption") for name in columns)
        print_table(f"{what}; {heading}", columns, rows, console, keys=keys, order=symbols, common=columns)
    print_notes((*others, *_legend(tables[0].symbols if tables else ())), console)


def print_transfer(transfer: Transfer, console: PlainConsole | None = None) -> None:
    """Print a transfer matrix for each attack with the row and column means of CANARY, and the threat to each model."""
    console = console or make_console()
    others = _print_warnings(transfer.findings, console)
    for table in transfer.tables:
        titles = [f"{labels['implementation']}, {format_threat_labels(labels)}" for labels in table.attacks]
        settings = [f", {each['setting']}" if is_given(each["setting"]) else "" for each in table.attacks]
        titles = [title + setting for title, setting in zip(titles, settings, strict=True)]
        few = len(titles) > 1 and not console.verbose
        for place, title in enumerate(titles if not few else []):
            rows = [
                [name, *map(_text, table.rates[place][i]), _text(table.by_source[place][i])]
                for i, name in enumerate(table.models)
            ]
            rows.append(["mean", *map(_text, table.by_target[place]), _text(table.of_attack[place])])
            columns = ["made on / tested on", *table.models, "mean (OTR)"]
            print_table(f"Transfer of {title}", columns, rows, console, rest="stack")
        if few:
            rows = [[title, _text(table.of_attack[place])] for place, title in enumerate(titles)]
            print_table(
                "Transfer of each attack (-v: for each pair of models)", ["attack", "mean (OTR)"], rows, console
            )
        _print_threat(table, console)
    print_notes(others, console)


def print_curves(curves: Curves, console: PlainConsole | None = None, *, asked: bool = False) -> None:
    """Print accuracy curves as a table for each norm: accuracy at round budgets, and summary statistics of each curve.

    Args:
        curves: curves to print.
        console: output console. None means standard output.
        asked: whether the user chose the budgets. If True, all budgets are shown.
    """
    console = console or make_console()
    others = _print_warnings(curves.findings, console)
    queries, printed = curves.against == "queries", []
    for norm in curves.shown:
        mine = [curve for curve in curves.curves if curve.labels["norm"] == norm]
        shown = curves.tabulated(norm)
        names = ["model", "implementation", "epsilon", "targeted", "setting", "images", "violations"]
        names = [name for name in names if any(is_given(curve.labels[name]) for curve in mine)]
        columns = [*names, *(curves.budget_text(norm, each) for each in shown)]
        rows = [[*_label_cells(curve, names), *_accuracies(curve, shown)] for curve in mine]
        sums = [name for name in curves.statistics if name != IMPORTED or any(not curve.judged for curve in mine)]
        sums = sums[: 1 if queries else None]  # the others are undefined against queries
        columns += sums
        for row, curve in zip(rows, mine, strict=True):
            values = [curve.statistics[name] for name in sums]
            row += [_text(each, n=False) if isinstance(each, Estimate) else each for each in values]
        title = f"Accuracy against {'queries' if queries else norm} ({curves.unit[norm]})"
        order = [*names[2:], *columns[len(names) :]]
        rest: Rest = "stack" if asked else "drop"
        printed += print_table(title, columns, rows, console, keys=2, order=order, rest=rest, common=names)
    print_notes((*others, *_legend([name for name in ("D_half", "OPT") if name in printed])), console)


def curves_json(curves: Curves) -> str:
    """Return accuracy curves at all budgets as JSON. Undefined and infinite numbers are null."""
    documents = [
        {
            **_plain_labels(curve.labels),
            "kind": curve.kind,
            "unit": curves.unit[curve.labels["norm"]],
            "n": curve.n,
            **{name: getattr(curve, name).tolist() for name in ("budgets", "accuracy")},
            **{name: _plain_list(getattr(curve, name)) for name in ("low", "high")},
            "R2": _plain(curve.r_squared),
            "half_at": _plain(curve.empirical_half),
            "metrics": _estimates(
                {
                    name.replace(" of ", "_"): each
                    for name, each in curve.statistics.items()
                    if isinstance(each, Estimate) and (name != IMPORTED or not math.isnan(each.value))
                }
            ),
            **({} if curve.judged else {"judged": False}),
        }
        for curve in curves.curves
    ]
    return json.dumps({"against": curves.against, "curves": documents, "notes": list(curves.notes)}, indent=2)


def print_distances(curves: DistanceCurves, console: PlainConsole | None = None) -> None:
    """Print distance curves as a table for each norm, with the median distance after round numbers of passes."""
    console = console or make_console()
    others = _print_warnings(curves.findings, console)
    for norm in dict.fromkeys(curve.labels["norm"] for curve in curves.curves):
        mine = [curve for curve in curves.curves if curve.labels["norm"] == norm]
        names = ["model", "implementation", *(n for n in ("targeted", "setting") if any(c.labels[n] for c in mine))]
        rows = [
            [
                *(str(curve.labels[name]) for name in names),
                str(curve.n),
                *(_median_text(curve, passes) for passes in curves.shown),
                format_cell(float(curve.fooled[-1])),
            ]
            for curve in mine
        ]
        columns = [*names, "images", *map(str, curves.shown), "fooled"]
        title, order = f"Median {norm} distance by number of passes [95 % interval]", ["fooled", *columns[::-1]]
        print_table(title, columns, rows, console, keys=2, order=order)
    print_notes(others, console)


def distances_json(curves: DistanceCurves) -> str:
    """Return distance curves at all points as JSON. Undefined and infinite numbers are null."""
    documents = [
        {
            **_plain_labels(curve.labels),
            **{name: _plain_list(getattr(curve, name)) for name in COLUMNS},
            "n": curve.n,
            "repeats": curve.repeats,
        }
        for curve in curves.curves
    ]
    return json.dumps({"against": "passes", "curves": documents, "notes": list(curves.notes)}, indent=2)


def _print_threat(table: TransferTable, console: PlainConsole) -> None:
    lines, counts = (*table.threat_from, table.threat), (*table.threat_from_attacks, table.threat_attacks)
    rows = []
    for name, line, attacks in zip((*table.models, "mean"), lines, counts, strict=True):
        cells = zip(line, attacks, strict=True)
        rows.append([name, *(_text(e) + _of_all(count, len(table.attacks)) for e, count in cells)])
    columns = ["made on / tested on", *table.models]
    print_table("Threat: mean over the attacks", columns, rows, console, rest="stack")


def _median_text(curve: DistanceCurve, passes: int) -> str:
    """Format the median distance after a number of passes, with its interval.

    The text is "" if the attack ends earlier, and "-" if fewer than half of the images are fooled.
    """
    if passes > curve.passes[-1]:
        return ""
    place = curve.at(passes)
    if place is None or not math.isfinite(curve.median[place]):
        return "-"
    ends = ["none" if math.isinf(end) else f"{end:.3g}" for end in (curve.low[place], curve.high[place])]
    interval = "" if math.isnan(curve.low[place]) else f" [{ends[0]}, {ends[1]}]"
    return f"{curve.median[place]:.3g}{interval}"


def _of_all(count: int, attacks: int) -> str:
    return f", {count} of {attacks} attacks" if 0 < count < attacks else ""


def _accuracies(curve: Curve, budgets: Sequence[float]) -> list[Any]:
    known = dict(zip(curve.budgets.tolist(), curve.accuracy.tolist(), strict=True))
    return [known.get(budget) for budget in budgets]


def _flat(table: Table) -> tuple[list[str], list[list[str]]]:
    """Return the headings and cells of a table as texts. Labels that are empty in every row are omitted."""
    labels = table.shown_labels
    rows = [
        [*map(format_cell, _label_cells(row, labels)), *(_text(row.metrics[symbol]) for symbol in table.symbols)]
        for row in table.rows
    ]
    return [*labels, *table.symbols], rows


def _label_cells(row: TableRow | Curve, names: Sequence[str]) -> list[Any]:
    return [_label_text(row.labels, name) for name in names]


def _label_text(labels: Mapping[str, Any], name: str) -> Any:
    value = labels[name]
    if not isinstance(value, float) or not is_given(value):
        return value
    return format_radius(labels.get("norm", ""), value) if name == "epsilon" else f"{value:.4g}"


def _common_count(estimates: Sequence[Estimate]) -> int:
    """Return the number of images of all defined values in a column. 0 if these numbers differ."""
    counts = {each.n for each in estimates if not math.isnan(each.value)}
    return counts.pop() if len(counts) == 1 else 0


def _legend(symbols: Sequence[str], counts: Mapping[str, int] = {}) -> list[str]:
    """Return the legend: title of each metric, with the number of images if this number is the same in all rows."""
    titles = {symbol: record.title for symbol in symbols if (record := record_of(symbol))}
    titles |= {symbol: f"{titles[symbol]} ({_UNITS[symbol]})" for symbol in _UNITS if symbol in titles and counts}
    titles |= {symbol: f"{title}, n = {counts[symbol]}" for symbol, title in titles.items() if counts.get(symbol)}
    if not titles:
        return []
    return [f"{'; '.join(f'{symbol}: {title}' for symbol, title in titles.items())} (details: `davylamp metrics NAME`)"]


def _place(symbol: str, by: str) -> int:
    record = record_of(symbol)
    if record is None:
        return _GROUPS.index("recorded")
    if record.over == "success":  # recorded norms
        return _GROUPS.index("distance")
    if symbol == "RA" and by not in ("models", "classes"):  # accuracy under attack counts as effect
        return _GROUPS.index("effect") + 1
    if is_union(symbol):  # beside RA
        return _GROUPS.index("accuracy")
    return _GROUPS.index(record.group) if record.group in _GROUPS else len(_GROUPS)


def _has_intervals(table: Table) -> bool:
    return any(not math.isnan(estimate.low) for row in table.rows for estimate in row.metrics.values())


def _text(estimate: Estimate, *, n: bool = True) -> str:
    """Format value, interval and number of images, such as "0.755 [0.633, 0.857] (49)".

    "-" if the value is undefined.
    """
    if math.isnan(estimate.value):
        return "-"
    return f"{interval_text(*estimate[:3])}" + (f" ({estimate.n})" if n else "")


def _estimates(metrics: Mapping[str, Estimate]) -> dict[str, dict[str, Any]]:
    return {
        symbol: {name: _plain(value) for name, value in estimate._asdict().items()}
        for symbol, estimate in metrics.items()
    }


def _plain_labels(labels: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in labels.items()}


def _plain_list(values: np.ndarray) -> list[Any]:
    return [_plain(value) for value in values.tolist()]


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def markdown_text(text: str) -> str:
    """Escape a text for a cell of a Markdown table."""
    for sign in ("\\", "|", "<", "`", "*"):
        text = text.replace(sign, f"\\{sign}")
    return escape_control_characters(" ".join(text.replace("](", "]\\(").split()))


FORMATS: Mapping[str, Callable[[Table], str]] = {
    "csv": table_csv,
    "markdown": table_markdown,
    "latex": table_latex,
    "json": table_json,
}

"""A comparison as tables for a person, and as one document for a program."""

import json
import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from ..engine.compare import Comparison, Pair, Row
from ..engine.words import threat_text
from .tables import format_cell, make_console, print_table, to_csv

_ROW_COLUMNS = (
    "implementation", "n", "MR", "95 % interval", "8-bit", "l0", "l1", "l2 median", "l2 mean", "linf median",
    "forwards", "(max)", "backwards", "(max)", "s/image", "violations", "known findings",
)  # fmt: skip
_NUMBERS = (
    "images", "MR", "MR_interval", "MR_8bit", "robust", "AMD", "AED", "l0_median", "l0_mean", "l1_median", "l1_mean",
    "l2_median", "l2_mean", "linf_median", "linf_mean", "forwards_median", "forwards_max", "backwards_median",
    "backwards_max", "seconds_per_image", "violations", "violation_kinds",
)  # fmt: skip


def comparison_document(comparison: Comparison, model: str, data: str) -> dict[str, Any]:
    """The comparison as one JSON-ready document; what is undefined is null."""
    threat_model = comparison.threat_model
    document = {
        "attack": comparison.attack,
        "threat_model": {
            "norm": threat_model.norm,
            "epsilon": threat_model.epsilon,
            "targeted": threat_model.targeted,
        },
        "parameters": dict(comparison.parameters),
        "model": model,
        "data": data,
        "seed": comparison.seed,
        "rows": [_row_document(row) for row in comparison.rows],
        "pairs": [_pair_document(pair) for pair in comparison.pairs],
    }
    return _without_nan(document)


def comparison_json(comparison: Comparison, model: str, data: str) -> str:
    """`comparison_document` as indented JSON text."""
    return json.dumps(comparison_document(comparison, model, data), indent=2, allow_nan=False)


def comparison_csv(comparison: Comparison) -> str:
    """One line per implementation, every number in full precision."""
    columns = ["library", "implementation", *_NUMBERS, "error"]
    lines = []
    for row in comparison.rows:
        document = _row_document(row)
        lines.append([_flat(document[name]) for name in columns])
    return to_csv(columns, lines)


def print_comparison(comparison: Comparison, title: str, console: Console | None = None) -> None:
    """Print the rows, the verdicts and what a reader must know about either."""
    print_table(title, _ROW_COLUMNS, [_row_cells(row) for row in comparison.rows], console)
    console = console or make_console()
    chosen = format_cell(dict(comparison.parameters)) or "each library's own parameters"
    console.print(
        f"{threat_text(comparison.threat_model)}; {chosen}; seed {comparison.seed}",
        highlight=False,
        markup=False,
    )
    if comparison.pairs:
        pairs = [(p.a, p.b, _verdict(p), p.p_success, p.p_distance, p.max_difference) for p in comparison.pairs]
        columns = ("a", "b", "verdict", "p success", "p distance", "largest pixel difference")
        print_table("", columns, pairs, console)


def print_defaults(defaults: Mapping[str, Mapping[str, Any]], console: Console | None = None) -> None:
    """Print the parameters whose defaults differ between the implementations, `defaults` by name and parameter."""
    names = list(dict.fromkeys(name for own in defaults.values() for name in own))
    rows = [(name, *(own.get(name) for own in defaults.values())) for name in names]
    differing = [row for row in rows if len({str(value) for value in row[1:]}) > 1]
    print_table("Defaults that differ", ("parameter", *defaults), differing, console)


def notes(comparison: Comparison, findings: Mapping[str, str]) -> list[str]:
    """One line per thing that a number alone does not tell: errors, violations, parameters left out, findings."""
    lines = []
    for row in comparison.rows:
        name, result = row.implementation.name, row.result
        if row.error:
            lines.append(f"{name}: {row.error}")
        if row.left_out:
            lines.append(f"{name}: has no {', '.join(row.left_out)}; left at its own default")
        if result is not None and result.errors:
            lines.append(f"{name}: crashed on {len(result.errors)} of its batches: {result.errors[0]}")
        if row.metrics.get("violation_kinds"):
            lines.append(f"{name}: violations: {format_cell(row.metrics['violation_kinds'])}; not counted as robust")
        lines += [f"{name}: {key}: {findings[key]}" for key in row.findings]
    return lines


def _row_cells(row: Row) -> list[Any]:
    numbers = row.metrics
    if not numbers:
        return [row.implementation.name, *["-"] * (len(_ROW_COLUMNS) - 3), "failed", ""]
    low, high = numbers["MR_interval"]
    return [
        row.implementation.name,
        numbers["images"],
        numbers["MR"],
        f"{low:.2f} - {high:.2f}" if not math.isnan(low) else "-",
        numbers["MR_8bit"],
        *(numbers[name] for name in ("l0_median", "l1_median", "l2_median", "l2_mean", "linf_median")),
        *(numbers[name] for name in ("forwards_median", "forwards_max", "backwards_median", "backwards_max")),
        numbers["seconds_per_image"],
        numbers["violations"],
        ", ".join(row.findings),
    ]


def _verdict(pair: Pair) -> str:
    return f"{pair.verdict}: {pair.weaker}" if pair.weaker else pair.verdict


def _row_document(row: Row) -> dict[str, Any]:
    numbers = {name: row.metrics.get(name) for name in _NUMBERS}
    return {
        "library": row.implementation.library,
        "implementation": row.implementation.name,
        **numbers,
        "error": row.error or None,
        "left_out": list(row.left_out),
        "findings": list(row.findings),
    }


def _pair_document(pair: Pair) -> dict[str, Any]:
    return {
        "a": pair.a,
        "b": pair.b,
        "verdict": pair.verdict,
        "p_success": pair.p_success,
        "p_distance": pair.p_distance,
        "max_difference": pair.max_difference,
        "weaker": pair.weaker or None,
    }


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    return value


def _flat(value: Any) -> Any:
    return format_cell(value) if isinstance(value, (dict, list, tuple)) else value

"""Checks which metrics a table of a results folder can show, and explains why one is not available."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ...adapters.paths import is_file_name
from ...errors import Unsupported
from ...metrics import METRICS, default_symbols, record_of
from ..cell_defaults import ALL_MEASURES
from ..measure_groups import GROUP_OF, group_names
from ..metric_names import base_symbol, facts_of, is_parametrised, metric_parameter, resolve_symbols, unknown_metric
from ..store.derived_columns import is_rate
from ..store.results import Results
from ..user_metrics import find_metric

By = Literal["attacks", "models", "pairs", "classes"]
_LACKING = {  # reasons why no run has a metric
    "transfer": "no example was tested on a different model (evaluate with `transfer='full'`)",
    "minimum norm": "there is no minimum-norm attack (evaluate one, or best(ATTACK))",
}


def is_of_clean(symbol: str) -> bool:
    """Whether a metric depends only on predictions on clean images, so that it is equal for every attack on a model."""
    return facts_of(symbol).stored == "clean"


def is_of_distances(symbol: str) -> bool:
    """Whether a metric is computed from all valid distances of a run together."""
    record = facts_of(symbol)
    return record.kind == "set" and record.group == "curves"


def choose_symbols(symbols: Sequence[str] | None, by: By) -> tuple[str, ...]:
    """Validate symbols before files are read. None selects the table's default symbols.

    Raises:
        UnknownName: if there is no such metric.
        Unsupported: if this table does not have the metric.
    """
    if by == "classes":
        chosen = tuple(filter(has_outcome, default_symbols("models"))) if symbols is None else resolve_symbols(symbols)
        if others := [symbol for symbol in chosen if record_of(symbol) and not has_outcome(symbol)]:
            having = ", ".join(filter(has_outcome, METRICS))
            raise Unsupported(f"{', '.join(others)}: a table by classes has {having}")
        return choose_symbols(chosen, "models")
    chosen = default_symbols(by) if symbols is None else resolve_symbols(symbols)
    for symbol in chosen:
        if is_file_name(symbol):
            find_metric(symbol)
            continue
        record = record_of(symbol)
        if record is None:
            raise unknown_metric(symbol)
        if is_parametrised(symbol):
            metric_parameter(symbol)
        if record.group == "corruption":
            raise Unsupported(f"{symbol} is a metric of corrupted images; use davylamp corruptions run MODELS")
        if record.group.startswith("defence"):
            raise Unsupported(f"{symbol} compares two models; add --defence ORIGINAL DEFENDED")
        if record.only and by not in record.only:
            tables = " or ".join(f"`by={each!r}`" for each in record.only)
            raise Unsupported(f"{symbol} is not available in a table by {by}; use {tables}")
    return tuple(map(shown_symbol, chosen))


def has_outcome(symbol: str) -> bool:
    """Whether a metric of a model is a proportion of images (correct, fooled or robust), not a mean over attacks."""
    record = facts_of(symbol)
    return record.kind == "share" and (record.stored == "clean" or record.across != "mean")


UNION = "RA_union"


def is_union(symbol: str) -> bool:
    """Whether a metric is over the union of all threat models."""
    return facts_of(symbol).across == "union"


def shown_symbol(symbol: str) -> str:
    """Return the symbol as tables show it, such as "FR@5" for FR@K."""
    record = facts_of(symbol)
    return symbol if record.usual is None or record.symbol != symbol else symbol.replace("@K", f"@{record.usual}")


def drop_absent(symbols: Sequence[str], outcomes: Results, *, explicit: bool) -> tuple[str, ...]:
    """Return the symbols for which some run has a value. A symbol that the user chose must be available.

    Raises:
        Unsupported: if a chosen symbol is not available. The message gives the reason.
    """
    kept = []
    for symbol in symbols:
        having = [outcome for outcome in outcomes.done if symbol in outcome.columns]
        if _is_here(symbol, outcomes) or any(_has_values(outcome.columns[symbol]) for outcome in having):
            kept.append(symbol)
        elif explicit and outcomes.done and (not having or is_file_name(symbol)):
            raise Unsupported(f"{symbol} is not available in this folder: {_why_absent(symbol, outcomes)}")
        elif explicit:
            kept.append(symbol)
    return tuple(kept)


def optional_symbols(outcomes: Results) -> tuple[str, ...]:
    """Return the symbols of metrics of optional groups that the records have."""
    columns = {name for outcome in outcomes.done for name in outcome.columns}
    symbols = (symbol for symbol, group in GROUP_OF.items() if group not in ALL_MEASURES)
    return tuple(symbol for symbol in symbols if columns & {symbol, *({"coverage"} & {*facts_of(symbol).needs})})


def _is_here(symbol: str, outcomes: Results) -> bool:
    record = facts_of(symbol)
    if "minimum norm" in record.needs:
        return any(outcome.is_minimum for outcome in outcomes.done)
    if "coverage" in record.needs:
        return any("coverage" in outcome.columns for outcome in outcomes.done)
    return record.stored == "always" or (record.stored == "clean" and bool(outcomes.clean))


def _has_values(column: np.ndarray) -> bool:
    return column.dtype != object and not np.isnan(column).all()


def _why_absent(symbol: str, outcomes: Results) -> str:
    record = facts_of(symbol)
    reasons = {outcome.unmeasured[symbol] for outcome in outcomes.done if symbol in outcome.unmeasured}
    if is_file_name(symbol):
        reasons = {f"it needs {', '.join(find_metric(symbol).needs)}: evaluate with `measures={symbol}`"}
    reasons = reasons or {_LACKING[need] for need in record.needs if need in _LACKING}
    if reasons:
        return "; ".join(sorted(reasons))
    if is_parametrised(symbol) or GROUP_OF.get(base_symbol(symbol), "") not in ("", *ALL_MEASURES):
        profile = ", `neuron_profile=DATA`" if "coverage" in record.needs else ""
        return f"evaluate with `measures={GROUP_OF.get(base_symbol(symbol), symbol)}`{profile}"
    if "target" in record.needs and not any(outcome.cell.threat_model.targeted for outcome in outcomes.done):
        failed = any(cell.threat_model.targeted for cell, _ in outcomes.failed)
        return "there is no targeted attack" if not failed else "every targeted attack failed"
    if record.stored == "clean" or is_rate(symbol):
        return "there are no predictions on clean images"
    if record.group not in ALL_MEASURES:
        return "the records have no such column; evaluate again"
    measured = any(record.group in group_names(outcome.cell.measured) for outcome in outcomes.done)
    lacking = "it needs ImageNet classes, a final linear layer or a convolutional layer, which are missing here"
    return lacking if measured else f"it was not measured; `davylamp measure FOLDER --metric {record.group}` adds it"

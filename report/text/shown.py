"""Which labels of a table are worth a column, and shares in per cent."""

import math
from typing import Any

from ...engine.tables.table import Table


def shown_labels(table: Table) -> list[str]:
    """The labels that are given somewhere, and the violations."""
    return [
        name for name in table.labels if any(is_given(row.labels[name]) for row in table.rows) or name == "violations"
    ]


def is_given(value: Any) -> bool:
    """Whether a label says something: not empty, not 0, not NaN."""
    return value not in ("", False, 0, None) and not (isinstance(value, float) and math.isnan(value))


def percent_text(share: float) -> str:
    """A share in per cent: "18 %", "2.5 %", "0.04 %"; never 0 or 100 unless it is."""
    value = 100 * share
    if math.isnan(value):
        return "unknown"
    if value in (0, 100):
        return f"{value:.0f} %"
    text = f"{value:.0f}" if 10 <= value < 99.5 else f"{value:.3g}" if value >= 99.5 else f"{value:.2g}"
    return f"{'> 99.9' if text == '100' else text} %"


def percent_range(low: float, high: float) -> str:
    """Both ends of an interval of a share in per cent: "8.6 to 31 %"."""
    return f"{percent_text(low).removesuffix(' %')} to {percent_text(high)}"

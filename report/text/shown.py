"""Which labels of a table are worth a column."""

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


def unit_of(table: Table) -> str:
    """What n counts: images, or where a row is over several cells those of each of them."""
    return "images of all cells" if any(row.labels.get("cells", 1) > 1 for row in table.rows) else "images"

"""Consistency checks of HikDeep-Sec's tables (Zhang et al. 2023). No model is run."""

import math
from collections.abc import Iterator
from typing import Any

from ..shared.check import PaperCheck
from ..shared.paper_numbers import load_rows


def check_hikdeepsec() -> Iterator[PaperCheck]:
    """Check CAV = CRR - CSR, and whether ACC and CAV imply a possible accuracy of the undefended model."""
    for number in (1, 2):
        rows, table = load_rows(f"hikdeepsec_table{number}"), f"HikDeep-Sec, Table {number}"
        for row in rows:
            statement = f"CAV = CRR - CSR, {row['attack']} {row['epsilon']}"
            difference = row["CRR"] - row["CSR"]
            note = "misprint: one of the three" if abs(difference - row["CAV"]) > 2e-4 else ""
            yield PaperCheck(table, statement, row["CAV"], difference, 1.5e-4, note)
        for statement, count in _impossible(rows).items():
            yield PaperCheck(table, statement, 0, count, 0)


def _impossible(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Count columns with impossible values of ACC, CAV, CRR and CSR. The undefended accuracy is ACC - CAV."""
    undefended = [row["ACC"] - row["CAV"] for row in rows]
    pairs = [(a, b) for a, b in zip(range(len(rows)), range(1, len(rows)), strict=False)]
    rising = [undefended[b] > undefended[a] + 2e-4 for a, b in pairs if rows[a]["attack"] == rows[b]["attack"]]
    return {
        "columns with CRR above the error of the undefended model, 1 - (ACC - CAV)": sum(
            row["CRR"] > 1 - accuracy + 2e-4 for row, accuracy in zip(rows, undefended, strict=True)
        ),
        "columns with CSR above its accuracy, ACC - CAV": sum(
            row["CSR"] > accuracy + 2e-4 for row, accuracy in zip(rows, undefended, strict=True)
        ),
        "times that its accuracy, ACC - CAV, rises with epsilon": sum(rising),
        "columns with COS above ln 2": sum(row["COS"] > math.log(2) for row in rows),
    }


CHECKS = (check_hikdeepsec,)

"""Checks whether the numbers in HikDeep-Sec's tables (Zhang et al. 2023) agree with each other. No model is run."""

import math
from collections.abc import Iterator
from typing import Any

from ..shared.check import PaperCheck
from ..shared.paper_numbers import load_rows


def check_hikdeepsec() -> Iterator[PaperCheck]:
    """Check HikDeep-Sec's printed numbers.

    The checks are: CAV = CRR - CSR, and whether the accuracy of the undefended model, ACC - CAV, has a possible value.
    """
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
    """Return the numbers of columns with impossible values of ACC, CAV, CRR, CSR and COS, by kind of contradiction.

    The accuracy of the undefended model is ACC - CAV.
    """
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

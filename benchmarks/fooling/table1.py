"""Fooling beyond flipping the label, Table 1 (Mopuri et al. 2020): area under the curves of FR@K.

Run: davylamp reproduce fooling-table1 [--quick | --full] [--models NAME] [--data NAME] [--limit N] [--json]
"""

from statistics import fmean
from typing import Any

from ..shared.paper_numbers import find_place, load_published
from ..shared.reproduction import Options, PaperLine, build_rows, print_result, run_setting
from .setting import LEFT_OUT, SETTING, paper_name

__all__ = ["print_result", "run"]
_TABLE = "fooling_table1"
_READINGS = {
    "FR_AUC": "trapezoids over K = 1, 2, 5, 10, 20, 50, 100, divided by 99; the paper gives no axis and normaliser, "
    "and its 0.02 of DeepFool cannot be had so (`davylamp reproduce checks`)"
}


def run(**options: Any) -> dict[str, Any]:
    """Run the paper's attacks beside its Table 1; our models beside the mean over its four.

    Args:
        **options: those of `reproduction.Options`.
    """
    published: dict[str, list[float]] = {}
    for row in load_published(_TABLE)["rows"]:
        published.setdefault(row["attack"], []).append(row["FR_AUC"])
    with run_setting(SETTING, Options(**options)) as own:
        found, notes = build_rows(own.folder, ["FR_AUC"], "pairs")
        lines = [
            PaperLine(f"{row.labels['model']}, {name}", symbol, estimate, fmean(published[name]), "mean of 4 models")
            for row in sorted(found.rows, key=lambda row: find_place(_TABLE, attack=paper_name(row.labels)))
            if (name := paper_name(row.labels))
            for symbol, estimate in row.metrics.items()
        ]
        return own.report(_TABLE, lines, readings=_READINGS, left_out=LEFT_OUT, notes=notes)

"""Figures 2, 3 and 5 of "Fooling beyond flipping the label" (Mopuri et al. 2020): FR@K, QI-Wup and QI-Vis.

The paper prints the curves without numbers, so results are compared with statements in its text.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...engine.statistics.bootstrap import Estimate
from ..shared.paper_numbers import find_place, find_value, load_rows
from ..shared.paper_result import PaperLine
from ..shared.paper_table import Options
from ..shared.reproduction import build_rows, run_setting
from .setting import SETTING, paper_name

_SYMBOLS = ("FR@1", "FR@2", "FR@5", "FR@10", "FR@20", "FR@50", "FR@100", "QI_Wup", "QI_Vis")
_READINGS = {
    "FR@K": "rank of the true label above K, over all examples; 0 for K from the number of classes on",
    "QI_Wup": "T_s = 0.7, WordNet's synset of the class itself; the paper looks words up and takes the first sense",
    "QI_Vis": "T_v = 0.1, rows of the last layer",
}


def compare_curves(published: str, options: Options) -> dict[str, Any]:
    """Run the paper's attacks, and compute the metrics of the figures, averaged over the models.

    Args:
        published: "fooling_figures".
        options: options of the command.
    """
    with run_setting(SETTING, options) as run:
        results, notes = build_rows(run.folder, _SYMBOLS, "attacks")
        rows = {name: row.metrics for row in results.rows if (name := paper_name(row.labels))}
        rows = dict(sorted(rows.items(), key=lambda item: find_place("fooling_table1", attack=item[0])))
        lines = [
            PaperLine(name, symbol, estimate, find_value(published, symbol, attack=name), "text of 3.1")
            for name, metrics in rows.items()
            for symbol, estimate in metrics.items()
        ]
        notes += judge(published, rows)
        return run.report(published, lines, readings=_READINGS, left_out={}, notes=notes)


def judge(published: str, rows: Mapping[str, Mapping[str, Estimate]]) -> Iterator[str]:
    """Yield each statement of the paper on the order of attacks, with the number of pairs of attacks that agree."""
    for stated in load_rows(published):
        symbol = stated.get("symbol")
        if symbol is None or not all(symbol in metrics for metrics in rows.values()):
            continue
        pairs = list(_pairs(stated, list(rows)))
        held = sum(rows[more][symbol].value > rows[less][symbol].value for more, less in pairs)
        yield f"Figure {stated['figure']}: {stated['statement']}: {held} of {len(pairs)} pairs of attacks here"


def _pairs(stated: Mapping[str, Any], known: Sequence[str]) -> Iterator[tuple[str, str]]:
    for more in stated["stronger"]:
        yield from ((more, less) for less in stated["weaker"] if more in known and less in known)

"""AISafety, Table III (Liu, Guo et al.): accuracy under query attacks and under PGD from another model."""

import math
from collections.abc import Iterator
from typing import Any

from ...engine import load_transfer, share_interval
from ...engine.statistics.bootstrap import Estimate
from ..shared.paper_table import Options
from ..shared.reproduction import PaperLine, SettingRun, build_rows, run_setting
from .setting import attack_name, beside_both, missing_rows, setting_of

_QUERIES, _TRANSFERRED = ("NATTACK", "SPSA", "BA"), ("PGD-l1", "PGD-l2", "PGD-linf")
_READINGS = {
    "AAB": "accuracy over all images. The paper transfers PGD from an Inception-V3; here it is from the first model, "
    "so that the first has no line of its own; Wilson interval. BA has no radius"
}


def compare_black_box(table: str, options: Options) -> dict[str, Any]:
    """Run the query attacks and transfer PGD, beside Table III.

    Args:
        table: "aisafety_table3".
        options: of the command.
    """
    setting = setting_of((*_QUERIES, *_TRANSFERRED), table, images=30, transfer="simple", measures=("effect",))
    with run_setting(setting, options) as run:
        results, notes = build_rows(run.folder, ["AAB"], "pairs")
        lines = []
        for row in results.rows:
            model, name = row.labels["model"], attack_name(row.labels["implementation"], row.labels["norm"])
            if name in _QUERIES:
                lines += beside_both(table, "AAB", model, f"{model}, {name}", row.metrics["AAB"], attack=name)
        lines += _transferred(run, table)
        left_out = missing_rows(table, (*_QUERIES, *_TRANSFERRED))
        return run.report(table, lines, readings=_READINGS, left_out=left_out, notes=notes)


def _transferred(run: SettingRun, table: str) -> Iterator[PaperLine]:
    """Accuracy of every other model on the PGD examples of the first."""
    first = run.plan.config.models[0]
    transfers = load_transfer(run.folder)
    if transfers.empty:
        return
    for cell in (cell for cell in run.plan.cells if cell.subject.model == first):
        name = attack_name(cell.attack, cell.threat_model.norm)
        for model in run.plan.config.models[1:] if name in _TRANSFERRED else ():
            part = transfers[(transfers["cell"] == cell.key) & (transfers["tested_on"] == model)]
            right = int((part["adv_predicted"] == part["label"]).sum())
            ends = share_interval(right, len(part))
            estimate = Estimate(right / len(part), *ends, len(part)) if len(part) else Estimate(math.nan, *ends, 0)
            row = f"{model}, {name} from {first}"
            yield from beside_both(table, "AAB", model, row, estimate, attack=name)

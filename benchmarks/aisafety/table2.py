"""AISafety, Table II (Liu, Guo et al.): accuracy under white-box attacks."""

from typing import Any

from ..shared.paper_table import Options
from ..shared.reproduction import SettingRun, build_rows
from .setting import attack_name, beside_both, compare_parts, missing_rows, setting_of

_ATTACKS = ("PGD-l1", "PGD-l2", "PGD-linf", "C&W")
_READINGS = {
    "AAW": "accuracy over all images, as in the name, the text on AAB and the table; equation 8 is 1 - AAW. C&W "
    "has no radius: an image counts as wrong at any distance"
}


def compare_white_box(table: str, options: Options) -> dict[str, Any]:
    """Measure the accuracy of the models under white-box attacks, and compare it with Table II.

    Args:
        table: "aisafety_table2".
        options: options of the command.
    """

    def compare(run: SettingRun) -> dict[str, Any]:
        clean, notes = build_rows(run.folder, ["CA"], "models")
        attacked, more = build_rows(run.folder, ["AAW"], "pairs")
        known = {row.labels["model"]: row.metrics["CA"] for row in clean.rows}
        lines = [
            line
            for model, estimate in known.items()
            for line in beside_both(run, table, "CA", model, f"{model}, clean", estimate, attack="CLEAN")
        ]
        for row in attacked.rows:
            model, name = row.labels["model"], attack_name(row.labels["implementation"], row.labels["norm"])
            lines += beside_both(run, table, "AAW", model, f"{model}, {name}", row.metrics["AAW"], attack=name)
        left_out = missing_rows(table, _ATTACKS)
        return run.report(table, lines, readings=_READINGS, left_out=left_out, notes=[*notes, *more])

    return compare_parts(table, setting_of(_ATTACKS, table, measures=("effect",)), options, compare)

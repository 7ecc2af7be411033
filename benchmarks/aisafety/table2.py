"""AISafety, Table II (Liu, Guo et al.): accuracy under white-box attacks.

Run: davylamp reproduce aisafety-table2 [--quick | --full] [--models NAME] [--data NAME] [--limit N] [--json]
"""

from typing import Any

from ..shared.reproduction import Options, build_rows, print_result, run_setting
from .setting import attack_name, beside_both, missing_rows, setting_of

__all__ = ["print_result", "run"]
_TABLE, _ATTACKS = "aisafety_table2", ("PGD-l1", "PGD-l2", "PGD-linf", "C&W")
_READINGS = {
    "AAW": "accuracy over all images, as the name, the text on AAB and the table have it; equation 8 is 1 - AAW. C&W "
    "has no radius: an image counts as wrong wherever its example is"
}


def run(**options: Any) -> dict[str, Any]:
    """Run the white-box attacks beside Table II.

    Args:
        **options: those of `reproduction.Options`.
    """
    with run_setting(setting_of(_ATTACKS, measures=("effect",)), Options(**options)) as own:
        clean, notes = build_rows(own.folder, ["CA"], "models")
        attacked, more = build_rows(own.folder, ["AAW"], "pairs")
        known = {row.labels["model"]: row.metrics["CA"] for row in clean.rows}
        lines = [
            line
            for model, estimate in known.items()
            for line in beside_both(_TABLE, "CA", model, f"{model}, clean", estimate, attack="CLEAN")
        ]
        for row in attacked.rows:
            model, name = row.labels["model"], attack_name(row.labels["implementation"], row.labels["norm"])
            lines += beside_both(_TABLE, "AAW", model, f"{model}, {name}", row.metrics["AAW"], attack=name)
        left_out = missing_rows(_TABLE, _ATTACKS)
        return own.report(_TABLE, lines, readings=_READINGS, left_out=left_out, notes=[*notes, *more])

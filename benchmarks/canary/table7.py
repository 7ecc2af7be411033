"""CANARY, Table 7 (Sun et al. 2023): the models on clean images.

Run: davylamp reproduce canary-table7 [--quick | --full] [--models NAME] [--data NAME] [--limit N] [--json]
"""

from dataclasses import replace
from typing import Any

from ...engine import AttackChoice
from ..shared.reproduction import Options, PaperLine, Setting, build_rows, print_result, run_setting
from .setting import PRESET, SETTING, beside

__all__ = ["print_result", "run"]
_TABLE, _SYMBOLS = "canary_table7", ("CA", "CF", "CC")
_CHEAP = (AttackChoice("foolbox:fgsm", "linf", 1 / 255),)  # a results folder has at least one attack
_SETTING = Setting(
    replace(PRESET.config, attacks=_CHEAP, transfer="no", measures=()),
    default=replace(SETTING.default, images=20),
    quick=replace(SETTING.quick, images=20),
)
_READINGS = {
    "CF": "mean over the classes that are met; the printed sum over images is a slip",
    "CC": "confidence of the true class, right or wrong",
}


def run(**options: Any) -> dict[str, Any]:
    """Measure the models on clean images, beside Table 7.

    Args:
        **options: those of `reproduction.Options`.
    """
    with run_setting(_SETTING, Options(**options)) as own:
        found, notes = build_rows(own.folder, _SYMBOLS, "models")
        lines = [
            PaperLine(row.labels["model"], symbol, row.metrics[symbol], *beside(_TABLE, symbol, row.labels["model"]))
            for row in found.rows
            for symbol in found.symbols
        ]
        return own.report(_TABLE, lines, readings=_READINGS, left_out={}, notes=notes)

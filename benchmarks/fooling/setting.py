"""Common setting of "Fooling beyond flipping the label" (Mopuri et al. 2020): attacks under the paper's names."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...adapters import find_implementation
from ...engine.plan.presets import find_preset
from ..shared.paper_table import Options
from ..shared.reproduction import Setting, Size, build_rows, lines_beside, run_setting

_NAMES: Mapping[str, str] = {
    "fgsm": "FGSM",
    "pgd": "PGD",
    "deepfool": "DeepFool",
    "cw": "CW",
    "uap": "UAP",
}
_LIMITS = {"steps": 10, "binary_search_steps": 2}
_CONFIG = find_preset("fooling").config
_LONG = "davylamp:gd-uap"  # omitted, because it needs more steps than fit here
SETTING = Setting(
    replace(_CONFIG, attacks=tuple(choice for choice in _CONFIG.attacks if choice.attack != _LONG)),
    default=Size(("demo:*",), 8, _LIMITS, 100),
    quick=Size(("demo:efficientnet-lite0",), 3, {"steps": 3, "binary_search_steps": 2, "candidates": 3}, 40),
    data_set="ImageNet",
)
LEFT_OUT = {"GD-UAP": "it takes 1000 steps; `davylamp evaluate --preset fooling` runs it"}
_READINGS = {
    "FR_AUC": "trapezoids over K = 1, 2, 5, 10, 20, 50, 100, divided by 99; the paper gives no axis and normaliser, "
    "and its 0.02 for DeepFool cannot be obtained (`davylamp reproduce checks`)"
}


def compare_areas(table: str, options: Options) -> dict[str, Any]:
    """Run the paper's attacks and compare with Table 1: davylamp's models with the mean over the paper's four.

    Args:
        table: "fooling_table1".
        options: options of the command.
    """
    with run_setting(SETTING, options) as run:
        results, notes = build_rows(run.folder, ["FR_AUC"], "pairs")
        rows = [(row, {"attack": name}) for row in results.rows if (name := paper_name(row.labels))]
        lines = lines_beside(table, rows)
        return run.report(table, lines, readings=_READINGS, left_out=LEFT_OUT, notes=notes)


def paper_name(labels: Mapping[str, Any]) -> str:
    """Return the paper's name for the attack of a row; "" for the untargeted I-FGSM, which the paper does not have.

    Args:
        labels: labels with `implementation` and `targeted`.
    """
    attack = find_implementation(labels["implementation"].split()[0]).attack  # UAP's includes its fit images
    if attack == "bim":
        return "I-FGSM-LL" if labels["targeted"] else ""
    return _NAMES[attack]

"""What "Fooling beyond flipping the label" shares (Mopuri et al. 2020): its attacks under its names."""

from collections.abc import Mapping
from typing import Any

from ...adapters import find_implementation
from ...engine.plan.presets import find_preset
from ..shared.reproduction import Setting, Size

_NAMES: Mapping[str, str] = {
    "fgsm": "FGSM",
    "pgd": "PGD",
    "deepfool": "DeepFool",
    "cw": "CW",
    "uap": "UAP",
}
_LIMITS = {"steps": 10, "binary_search_steps": 2}
SETTING = Setting(
    find_preset("fooling").config,
    default=Size(("demo:*",), 8, _LIMITS, 100),
    quick=Size(("demo:efficientnet-lite0",), 3, {"steps": 3, "binary_search_steps": 2, "candidates": 3}, 40),
)
LEFT_OUT = {"GD-UAP": "no library here has it"}


def paper_name(labels: Mapping[str, Any]) -> str:
    """What the paper calls an attack of a row; "" for the untargeted I-FGSM, which it does not have.

    Args:
        labels: with `implementation` and `targeted`.
    """
    attack = find_implementation(labels["implementation"]).attack
    if attack == "bim":
        return "I-FGSM-LL" if labels["targeted"] else ""
    return _NAMES[attack]

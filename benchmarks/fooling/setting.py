"""Common setting of "Fooling beyond flipping the label" (Mopuri et al. 2020): attacks, models and their names."""

from collections.abc import Mapping
from typing import Any

from ...adapters import find_implementation
from ...engine.plan.presets import find_preset
from ..shared.counterpart import Counterpart
from ..shared.paper_table import Options
from ..shared.reproduction import Setting, Size, build_rows, lines_beside, run_setting

_NAMES: Mapping[str, str] = {
    "fgsm": "FGSM",
    "pgd": "PGD",
    "deepfool": "DeepFool",
    "cw": "CW",
    "uap": "UAP",
    "gd-uap": "GD-UAP",
}
# Architectures of the paper's models; its weights are Caffe's, so that torchvision's stand in for them.
_ARCHITECTURES: Mapping[str, str] = {
    "caffenet": "CaffeNet",
    "alexnet": "CaffeNet",
    "googlenet": "GoogLeNet",
    "vgg19": "VGG-19",
    "vgg-19": "VGG-19",
    "resnet152": "ResNet-152",
    "resnet-152": "ResNet-152",
}
_LIMITS = {"steps": 10, "binary_search_steps": 2}


def recognise(model: str) -> Counterpart:
    """Return the paper's model with the same architecture as an evaluated model."""
    return Counterpart(next((paper for part, paper in _ARCHITECTURES.items() if part in model.lower()), ""))


SETTING = Setting(
    find_preset("fooling").config,
    default=Size(("demo:*",), 8, _LIMITS, 100),
    quick=Size(("demo:efficientnet-lite0",), 3, {"steps": 3, "binary_search_steps": 2, "candidates": 3}, 40),
    data_set="ImageNet",
    papers=tuple(dict.fromkeys(_ARCHITECTURES.values())),
    recognise=recognise,
)
_READINGS = {
    "FR_AUC": "trapezoids over K = 1, 2, 5, 10, 20, 50, 100, divided by 99; the paper gives no axis and normaliser, "
    "and its 0.02 for DeepFool cannot be obtained (`davylamp reproduce checks`)"
}


def compare_areas(table: str, options: Options) -> dict[str, Any]:
    """Run the paper's attacks on each model, and compare the area under the FR@K curve with Table 1.

    A model is compared with the paper's model of the same architecture. If there is none, the model is compared with
    the mean over the paper's four models.

    Args:
        table: "fooling_table1".
        options: options of the command.
    """
    with run_setting(SETTING, options) as run:
        results, notes = build_rows(run.folder, ["FR_AUC"], "pairs")
        rows = [
            (row, {"attack": name, **run.labels_of(row.labels["model"])})
            for row in results.rows
            if (name := paper_name(row.labels))
        ]
        lines = lines_beside(table, rows)
        return run.report(table, lines, readings=_READINGS, left_out={}, notes=notes)


def paper_name(labels: Mapping[str, Any]) -> str:
    """Return the paper's name of an attack; "" for the untargeted I-FGSM, which the paper does not use.

    Args:
        labels: labels of a computed row, with "implementation" and "targeted".
    """
    attack = find_implementation(labels["implementation"].split()[0]).attack  # UAP's includes its fit images
    if attack == "bim":
        return "I-FGSM-LL" if labels["targeted"] else ""
    return _NAMES[attack]
